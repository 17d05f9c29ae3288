// Reads a configuration in layers: defaults < preset (model.name) < file < DeepSpeed file < `--set`
// < flags, then validates the whole. Convention: everything that is wrong is thrown at once as one
// ConfigError (problem.h), exit code 2.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "config/deepspeed/deepspeed.h"
#include "config/flags.h"
#include "config/validate.h"

namespace tessera::config {

struct Loaded {
  Config config;  // resolved and sound
  Given given;    // which keys were given, and where
  std::vector<std::string>
      notes;  // lines for stderr: what was decided for the user, and what was ignored
  std::vector<Effective>
      deepspeed;  // with --deepspeed: what its keys became (effective_text() prints them)
};

// The texts to be read. A file without a name is not there.
struct Inputs {
  std::string_view toml;
  std::string toml_file;
  std::string_view deepspeed;
  std::string deepspeed_file;
  std::vector<Override> overrides;
  Purpose purpose = Purpose::train;
  int world = 0;  // ranks that run; 0: not known yet
  std::optional<models::ModelConfig> model =
      std::nullopt;  // found with weights, in place of the default one
};
Loaded load_inputs(const Inputs& inputs);

// The same from a path, and from what `--deepspeed` names among the overrides: a file, or the text
// itself in base64. Without a path: defaults and overrides only. A file may have at most 1 MiB.
Loaded load_all(const std::optional<std::string>& path, const std::vector<Override>& overrides,
                Purpose purpose, int world = 0);
// The same for text; `file` names it in messages (empty: there is no file).
Loaded load_all_text(std::string_view text, const std::string& file,
                     const std::vector<Override>& overrides, Purpose purpose, int world = 0);
// Only the configuration.
Config load(const std::optional<std::string>& path, const std::vector<Override>& overrides = {},
            Purpose purpose = Purpose::train, int world = 0);
Config load_text(std::string_view text, const std::string& file,
                 const std::vector<Override>& overrides = {}, Purpose purpose = Purpose::train,
                 int world = 0);

// A model section as JSON: what a golden or a weight file carries as `tessera.model`. Missing keys
// take the preset's values when there is a name, else the family's torchvision defaults. Throws
// Error(weights) with all problems.
models::ModelConfig model_from_json(std::string_view json);
std::string model_to_json(const models::ModelConfig& model);

// Where a model starts before its keys are applied; throws Error(usage) for an unknown name. Empty
// texts: not given.
models::ModelConfig base_model(const std::string& name, const std::string& family);

}  // namespace tessera::config
