// Capabilities that come with later versions: their keys are accepted at a neutral value and
// refused otherwise.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace tessera::config {

struct Later {
  std::string key, reason;
};

// The keys that ask for something this version does not have.
std::vector<Later> later_in_use(const Config& config);

// Whether a key ("parallel.dp") does nothing in this version but at its default.
bool comes_later(std::string_view key);

}  // namespace tessera::config
