#include "base/cpus.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>

namespace tessera {
namespace {

namespace fs = std::filesystem;

int number_in(const fs::path& path) {
  int value = 0;
  std::ifstream(path) >> value;
  return value;
}

// The folder of a CPU holds a link to its node.
int node_in(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with("node") && name.find_first_not_of("0123456789", 4) == name.npos &&
        name.size() > 4)
      return std::stoi(name.substr(4));
  }
  return 0;
}

}  // namespace

std::vector<Cpu> own_cpus() {
  std::vector<Cpu> out;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return out;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (!CPU_ISSET(i, &set)) continue;
    const fs::path folder = "/sys/devices/system/cpu/cpu" + std::to_string(i);
    const int package = number_in(folder / "topology/physical_package_id"),
              core = number_in(folder / "topology/core_id");
    out.push_back({i, node_in(folder), package * 65536 + core});
  }
  std::sort(out.begin(), out.end(), [](const Cpu& a, const Cpu& b) {
    return std::tie(a.node, a.core, a.number) < std::tie(b.node, b.core, b.number);
  });
  return out;
}

std::vector<int> own_nodes() {
  std::vector<int> nodes;
  for (const Cpu& cpu : own_cpus())
    if (nodes.empty() || nodes.back() != cpu.node) nodes.push_back(cpu.node);
  return nodes;
}

bool has_several_nodes() {
  static const bool several = [] {
    std::string online;  // "0", "0-1", "0,8"
    std::ifstream("/sys/devices/system/node/online") >> online;
    return online.find_first_of(",-") != online.npos;
  }();
  return several;
}

bool interleave(std::byte* at, std::size_t bytes, std::span<const int> nodes) {
  constexpr std::size_t bits = sizeof(unsigned long) * CHAR_BIT;
  std::vector<unsigned long> mask;
  for (const int node : nodes) {
    const auto index = static_cast<std::size_t>(node);
    mask.resize(std::max(mask.size(), index / bits + 1));
    mask[index / bits] |= 1UL << index % bits;
  }
  // The kernel takes one bit less than it is told.
  return ::syscall(SYS_mbind, at, bytes, MPOL_INTERLEAVE, mask.data(), mask.size() * bits + 1, 0) ==
         0;
}

}  // namespace tessera
