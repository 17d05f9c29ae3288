#include "base/control_group.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace tessera {
namespace {

// The names of one version's files, and where the group lies.
struct Controller {
  std::string root, path;  // folder of the hierarchy; the group in it, "/..." or ""
  const char *limit, *used, *file_pages, *kills;
};

Controller version_2(std::string path) {
  return {"/sys/fs/cgroup", std::move(path), "memory.max",
          "memory.current", "inactive_file", "memory.events"};
}
Controller version_1(std::string path) {
  return {"/sys/fs/cgroup/memory", std::move(path),       "memory.limit_in_bytes",
          "memory.usage_in_bytes", "total_inactive_file", "memory.oom_control"};
}

Controller memory_controller() {
  std::ifstream groups("/proc/self/cgroup");
  std::string second;
  for (std::string line; std::getline(groups, line);) {
    if (const auto at = line.find(":memory:"); at != line.npos)
      return version_1(line.substr(at + 8));  // has it even beside version 2
    if (line.starts_with("0::")) second = line.substr(3);
  }
  return version_2(second);
}

std::optional<std::int64_t> number_in(const std::string& file) {
  std::int64_t value = 0;
  return std::ifstream(file) >> value ? std::optional(value) : std::nullopt;  // "max" is none
}

std::optional<long long> value_of(const std::string& key, const std::string& file) {
  std::ifstream lines(file);
  std::string name;
  for (long long value = 0; lines >> name >> value;)
    if (name == key) return value;
  return std::nullopt;
}

}  // namespace

std::optional<std::int64_t> memory_left_in_group() {
  const Controller c = memory_controller();
  std::optional<std::int64_t> least;
  for (std::string path = c.path;;) {
    const std::string folder = c.root + path + "/";
    const auto limit = number_in(folder + c.limit), used = number_in(folder + c.used);
    if (limit && used && *limit < std::int64_t{1} << 60) {
      const std::int64_t back = value_of(c.file_pages, folder + "memory.stat").value_or(0);
      const std::int64_t left = std::max<std::int64_t>(0, *limit - *used + back);
      least = least ? std::min(*least, left) : left;
    }
    if (path.empty()) return least;
    path = path.substr(0, path.rfind('/') == path.npos ? 0 : path.rfind('/'));
  }
}

long long killed_for_memory() {
  const Controller c = memory_controller();
  for (const std::string& path : {c.path, std::string()})
    if (const auto n = value_of("oom_kill", c.root + path + "/" + c.kills)) return *n;
  return value_of("oom_kill", "/proc/vmstat").value_or(-1);
}

}  // namespace tessera
