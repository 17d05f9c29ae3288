// Files that other libraries need beside the tensors: config.json in the words of torchvision, timm
// or Hugging Face, and the preprocessing. Convention: what a library cannot say of a model is
// refused before anything is written.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint/weights.h"
#include "checkpoint/weights_open.h"

namespace tessera::run {

Naming naming_of(const std::string& name);  // tessera | torchvision | timm | hf
// Error(usage) with everything that the library has no words for.
void refuse_unsayable(const OpenedWeights& weights, const std::string& naming);
nlohmann::ordered_json export_config(const OpenedWeights& weights, const std::string& naming,
                                     const std::string& dtype);
nlohmann::ordered_json export_preprocessor(const OpenedWeights& weights);

}  // namespace tessera::run
