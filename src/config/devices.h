// Where each rank runs (run.device): one word for all of them, or one for each with commas between
// them. Convention: a configuration is the same on all ranks; each looks up its own device here.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace tessera::config {

std::vector<std::string> listed_devices(const std::string& device);  // "cuda,cpu": both
std::vector<std::string> devices_of(const Config& config);  // one for each rank, or one for all
std::string device_of(const Config& config, int rank);
// Whether some of the ranks, or all of them, run on this device.
bool any_on(const Config& config, const std::string& device);
bool all_on(const Config& config, const std::string& device);
bool mixed(const Config& config);            // two ranks run on different devices
std::string in_short(const Config& config);  // one word where they do not

}  // namespace tessera::config
