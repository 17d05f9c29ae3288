// Hostile configurations, and what the refusal of each must say.
#pragma once

#include <string>
#include <vector>

namespace tessera::config::hostile {

struct Bad {
  std::string name, toml;
  std::vector<std::string> says;
};

const std::vector<Bad>& corpus();

}  // namespace tessera::config::hostile
