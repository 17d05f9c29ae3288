// Weights wherever they lie: a safetensors file, an exported folder, a checkpoint, or a run folder.
// Convention: a run folder stands for its newest valid checkpoint; without one, for its
// weights.safetensors.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/flags.h"
#include "data/normalise.h"
#include "files/sharded.h"
#include "session/scales.h"
#include "session/session.h"

namespace tessera::run {

struct OpenedWeights {
  models::ModelConfig model;
  std::vector<std::string> classes;
  ParamSource source;              // keeps its files open
  Session::Histories histories{};  // of a training in eight bits
  nlohmann::json preprocess;       // mean and std of each channel, and what else the weights say
  std::string
      assumed;  // what mean and std were taken to be, and how to change it; "": the weights say it
  Quantised quantised;             // scales, where the file is quantised
  std::filesystem::path from;      // the file or checkpoint that was chosen
  std::vector<std::string> notes;  // what a person should know about the choice
};
// Error(weights) when there is nothing usable. `described`: keys of [model], which say what a file
// holds that does not name its model; Error(usage) where they contradict weights that do.
OpenedWeights open_weights(const std::filesystem::path& path,
                           const std::vector<config::Override>& described = {}, bool best = false);

// The safetensors file that a path stands for: itself, or model.safetensors or weights.safetensors
// in it; Error(weights) when neither is there.
std::filesystem::path weight_file(const std::filesystem::path& path);

// The weights of model.init, made to fit the run's model. `notes` gets a line for each adaptation,
// and one where they say that their images had another mean and deviation than the run's.
ParamSource weights_to_start_from(const config::Config& config, std::vector<std::string>& notes);

// The normalisation from pixels in [0, 1] to the model's input: {"mean": [...], "std": [...]}, a
// number per channel.
nlohmann::json preprocess_of(const models::ModelConfig& model,
                             const data::Normalisation& statistics = {});
// The preprocessing of a run's evaluation, written beside the weights so that their reader does the
// same.
nlohmann::json preprocess_of(const config::Config& config);

}  // namespace tessera::run
