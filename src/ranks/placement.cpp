#include "ranks/placement.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "base/process.h"
#include "ranks/ranks.h"

namespace tessera::run {
namespace {

// The first part of `all` cut into `parts` parts as equal as can be, and so on.
std::pair<std::size_t, std::size_t> part_of(std::size_t all, std::size_t parts, std::size_t i) {
  return {all * i / parts, all * (i + 1) / parts};
}

std::string placement;

using Cores = std::vector<std::vector<int>>;  // each with its hyperthreads

std::vector<int> joined(const Cores& cores, std::pair<std::size_t, std::size_t> range) {
  std::vector<int> out;
  for (std::size_t i = range.first; i < range.second; ++i)
    out.insert(out.end(), cores[i].begin(), cores[i].end());
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

std::vector<std::vector<int>> share_out(const std::vector<Cpu>& cpus, int ranks, bool apart) {
  std::map<int, std::map<int, std::vector<int>>> nodes;
  for (const Cpu& cpu : cpus) nodes[cpu.node][cpu.core].push_back(cpu.number);
  std::vector<Cores> all;
  std::size_t fewest = SIZE_MAX;
  for (const auto& [node, cores] : nodes) {
    all.emplace_back();
    for (const auto& [core, numbers] : cores) all.back().push_back(numbers);
    fewest = std::min(fewest, all.back().size());
  }
  const auto count = static_cast<std::size_t>(std::max(ranks, 0));
  std::vector<std::vector<int>> out;
  if (count == 0 || all.empty()) return out;
  if (count <= all.size()) {
    for (std::size_t rank = 0; rank < count; ++rank) {
      Cores own;
      const auto [first, last] = part_of(all.size(), count, rank);
      for (std::size_t node = first; node < last; ++node)
        own.insert(own.end(), all[node].begin(), all[node].end());
      out.push_back(joined(own, {0, own.size()}));
    }
    return out;
  }
  for (std::size_t node = 0; node < all.size(); ++node) {
    const auto [first, last] = part_of(count, all.size(), node);
    const std::size_t here = last - first;
    if (here > fewest) return {};  // more ranks than cores: nobody is placed
    for (std::size_t i = 0; i < here; ++i)
      out.push_back(
          joined(all[node], apart ? part_of(all[node].size(), here, i)
                                  : std::pair<std::size_t, std::size_t>{0, all[node].size()}));
  }
  return out;
}

std::string cpu_list(const std::vector<int>& cpus) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    parts.push_back(end == i + 1 ? std::to_string(cpus[i])
                                 : fmt::format("{}-{}", cpus[i], cpus[end - 1]));
    i = end;
  }
  return join(parts, ",");
}

const std::string& placement_here() { return placement; }

std::string place_ranks(const std::string& how, comm::Comm& world) {
  const Ranks ranks(&world);
  const std::vector<Cpu> cpus = own_cpus();
  std::vector<int> numbers;
  std::set<int> nodes;
  for (const Cpu& cpu : cpus) {
    numbers.push_back(cpu.number);
    nodes.insert(cpu.node);
  }
  std::sort(numbers.begin(), numbers.end());
  const std::string machine = boot_id() + "\n" + host_name(), mine = cpu_list(numbers);
  const std::vector<std::string> machines = ranks.gather_text(machine),
                                 masks = ranks.gather_text(mine);
  int here = 0, place = 0;
  bool bound = cpus.empty();
  for (std::size_t rank = 0; rank < machines.size(); ++rank) {
    if (machines[rank] != machine) continue;
    if (static_cast<int>(rank) == world.rank()) place = here;
    ++here;
    bound |= masks[rank] != mine;
  }
  const bool wanted = !bound && (how == "cores" || (how == "auto" && nodes.size() > 1));
  const auto shares =
      wanted ? share_out(cpus, here, how == "cores") : std::vector<std::vector<int>>();
  std::string placed;
  if (!shares.empty()) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : shares[static_cast<std::size_t>(place)]) CPU_SET(cpu, &set);
    if (::sched_setaffinity(0, sizeof(set), &set) == 0)
      placed = cpu_list(shares[static_cast<std::size_t>(place)]);
  }
  const std::vector<std::string> all = ranks.gather_text(placed);
  std::vector<std::string> words;
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (machines[rank] == machines[0] && !all[rank].empty())
      words.push_back(fmt::format("rank {} on {}", rank, all[rank]));
  const char* why = how == "none"                       ? "run.place = \"none\""
                    : bound                             ? "a launcher has bound them"
                    : how == "auto" && nodes.size() < 2 ? "one NUMA node"
                    : shares.empty()                    ? "more ranks than cores"
                                                        : "the system refuses it";
  return placement =
             "cores: " + (words.empty() ? fmt::format("not placed ({})", why) : join(words, ", "));
}

}  // namespace tessera::run
