#include "config/devices.h"

#include <algorithm>

namespace tessera::config {

std::vector<std::string> listed_devices(const std::string& device) {
  std::vector<std::string> out(1);
  for (const char c : device)
    if (c == ',')
      out.emplace_back();
    else
      out.back() += c;
  return out;
}

std::vector<std::string> devices_of(const Config& config) {
  return listed_devices(config.run.device);
}

std::string device_of(const Config& config, int rank) {
  const std::vector<std::string> all = devices_of(config);
  return all[all.size() == 1 ? 0 : static_cast<std::size_t>(rank) % all.size()];
}

bool any_on(const Config& config, const std::string& device) {
  const std::vector<std::string> all = devices_of(config);
  return std::find(all.begin(), all.end(), device) != all.end();
}

bool all_on(const Config& config, const std::string& device) {
  return any_on(config, device) && !mixed(config);
}

bool mixed(const Config& config) {
  const std::vector<std::string> all = devices_of(config);
  return std::any_of(all.begin(), all.end(), [&](const std::string& one) { return one != all[0]; });
}

std::string in_short(const Config& config) {
  return mixed(config) ? config.run.device : device_of(config, 0);
}

}  // namespace tessera::config
