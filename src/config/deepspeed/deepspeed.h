// A DeepSpeed configuration in our terms: the keys it sets, what DeepSpeed takes for those it
// leaves out, and what cannot be followed. Convention: semantics of DeepSpeed 0.15.3. Nothing
// throws; what would change the result silently is a problem, what only changes how it is reached
// is a warning.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "config/deepspeed/hjson.h"

namespace tessera::config {

struct Config;

// A value for one of our keys, and the key of the file that says so.
struct DeepSpeedSetting {
  std::string key, path;  // "batch.global", "train_batch_size"
  Value value;
  Place place;
};

struct DeepSpeedReading {
  std::vector<DeepSpeedSetting> settings;  // where the file speaks: over a TOML file
  std::vector<DeepSpeedSetting>
      defaults;  // what DeepSpeed takes otherwise: under a TOML file, over our defaults
  std::set<std::string, std::less<>> automatic;  // our keys that the file leaves to us ("auto")
  struct Silent {
    std::string path, value, note;
  };
  std::vector<Silent> silent;  // keys of the file without a key of ours
  bool readable = true;        // false: the text is no JSON, and the problems say why
  std::vector<Problem> problems, warnings;
  std::optional<std::int64_t>
      micro_per_gpu;  // `micro_batch_per_gpu`, which is no key of DeepSpeed's
  Place micro_per_gpu_place;
};

DeepSpeedReading read_deepspeed(std::string_view text, const std::string& file);

// How a key of DeepSpeed's is treated.
enum class DeepSpeedRole : std::uint8_t {
  used,     // has a meaning here
  quiet,    // changes nothing here, whatever it says
  off,      // not supported: a warning unless it is switched off
  unknown,  // no such key
};
struct DeepSpeedKey {
  DeepSpeedRole role = DeepSpeedRole::unknown;
  std::string suggestion;  // for unknown ones: the nearest key, or where a key of that name lives;
                           // may be empty
  bool forbidden = false;  // DeepSpeed itself refuses unknown keys in this block
};
// `block`: "" (the outermost object), "zero_optimization", "optimizer.params", ...
DeepSpeedKey deepspeed_key(std::string_view block, std::string_view key);
bool is_deepspeed_block(std::string_view path);

// One row of the table of effective values. source: deepspeed | default | derived | auto | config
// (the TOML file) | flag (also --set).
struct Effective {
  std::string deepspeed, key, value, source, note;
};
// `layers`: where each of our keys came from (one of these sources), for those that somebody gave.
std::vector<Effective> effective_values(
    const Config& config, const DeepSpeedReading& reading,
    const std::map<std::string, std::string, std::less<>>& layers);
// As aligned lines for a terminal.
std::string effective_text(const std::vector<Effective>& rows);

}  // namespace tessera::config
