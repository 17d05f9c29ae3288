// Weights wherever they lie: a safetensors file, an exported folder, a checkpoint, or a run folder.
// Convention: a run folder stands for its newest valid checkpoint; without one, for its weights.safetensors.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/normalise.h"
#include "files/sharded.h"
#include "run/session.h"

namespace tessera::run {

struct OpenedWeights {
  models::ModelConfig model;
  std::vector<std::string> classes;
  ParamSource source;              // keeps its files open
  nlohmann::json preprocess;       // mean and std of each channel
  std::filesystem::path from;      // the file or checkpoint that was chosen
  std::vector<std::string> notes;  // what a person should know about the choice
};
// Error(weights) when there is nothing usable. `model`: for files that do not name theirs.
OpenedWeights open_weights(const std::filesystem::path& path, const std::optional<models::ModelConfig>& model = std::nullopt,
                           bool best = false);

// The safetensors file that a path stands for: itself, or model.safetensors or weights.safetensors in it.
std::filesystem::path weight_file(const std::filesystem::path& path);

// What turns pixels in [0, 1] into what the model reads: {"mean": [...], "std": [...]}, a number per channel.
nlohmann::json preprocess_of(const models::ModelConfig& model, const data::Normalisation& statistics = {});

}  // namespace tessera::run
