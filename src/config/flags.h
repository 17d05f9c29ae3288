// Command-line flags that stand for configuration keys: a table that the app registers in a loop.
// Convention: a flag takes one value as text; reader.h gives it the meaning of its key.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::config {

struct Flag {
  std::string_view name, key, metavar, help;  // "--model", "model.name", "NAME", ...
};
const std::vector<Flag>& flags();

// A value from the command line. Flags win over `--set`, whatever the order.
struct Override {
  std::string key, value;
  std::string origin;  // as typed, for messages: "--set model.depth=4", "--tp 2"
  bool is_flag = false;
};
// "model.depth=4"; text without '=' is kept and refused by load() together with all other problems.
Override from_set(std::string_view text);
Override from_flag(const Flag& flag, std::string_view value);
// The same of a flag that may stand for two keys: --np MIN:MAX.
std::vector<Override> all_from_flag(const Flag& flag, std::string_view value);

}  // namespace tessera::config
