// Weight files of torchvision, timm and Hugging Face that carry nothing of ours: the model is read
// off the names and shapes of their tensors, and what shapes do not tell off config.json and
// preprocessor_config.json beside a model.safetensors. Convention: what is neither known nor read
// is assumed and said in a note.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "files/safetensors.h"
#include "models/config.h"

namespace tessera::run {

// The contents of the two files beside a weight file; empty where there are none.
struct Beside {
  nlohmann::json config = nlohmann::json::object(), processor = nlohmann::json::object();
};
Beside beside(const std::filesystem::path& weights);

// Error(weights) when the tensors are of no family, or of no model that can be built here.
models::ModelConfig recognise_model(const files::Safetensors& file, const Beside& said,
                                    std::vector<std::string>& notes);

// Statements of config.json that make another function of these tensors than the family's
// model here ("" where it says nothing such): "hidden_act" is "quick_gelu", where ...
std::string other_function(const Beside& said, const std::string& family);

// {"mean", "std", "resize", "interpolation", "crop"}, as far as the files say (input/augment.h).
nlohmann::json recognise_preprocess(const Beside& said, const models::ModelConfig& model,
                                    std::vector<std::string>& notes);
// The names of the classes; empty where the files do not name as many as the model has.
std::vector<std::string> recognise_classes(const Beside& said, const models::ModelConfig& model);

}  // namespace tessera::run
