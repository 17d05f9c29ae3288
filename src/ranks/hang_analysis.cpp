#include "ranks/hang_analysis.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace tessera::run {
namespace {

using comm::Look;

std::string name_of(const Look& look, const Look::Call& call) {
  const std::string group = call.group < static_cast<int>(look.groups.size())
                                ? look.groups[static_cast<std::size_t>(call.group)].name
                                : "";
  std::string text(comm::name(call.verb));
  if (call.number > 0) text += fmt::format(" {}", call.number);
  if (!group.empty()) text += " of " + group;
  return call.scope.empty() ? text : fmt::format("{} ({})", text, call.scope);
}

// Whether `other` is of the group that `waiter` waits in, and has not come yet.
bool misses(const Seen& waiter, const Seen& other) {
  if (!waiter.look.waits || waiter.look.waits->number == 0) return false;
  const Look::Group& group = waiter.look.groups[static_cast<std::size_t>(waiter.look.waits->group)];
  return std::any_of(other.look.groups.begin(), other.look.groups.end(), [&](const Look::Group& g) {
    return g.name == group.name && g.color == group.color && g.entered < waiter.look.waits->number;
  });
}

std::string list(const std::vector<int>& ranks) {
  std::vector<std::string> words;
  for (const int rank : ranks) words.push_back(std::to_string(rank));
  return (ranks.size() == 1 ? "rank " : "ranks ") + join(words, ", ");
}

std::string who(const Seen& rank) {
  return rank.host.empty() ? fmt::format("rank {}", rank.rank)
                           : fmt::format("rank {} ({}, pid {})", rank.rank, rank.host, rank.pid);
}

// Those that wait for `hanging`, by what they wait in.
std::string waiting(const std::vector<Seen>& table, const Seen& hanging) {
  std::vector<int> ranks;
  std::string what;
  for (const Seen& seen : table) {
    if (seen.rank == hanging.rank || !misses(seen, hanging)) continue;
    const std::string now = name_of(seen.look, *seen.look.waits);
    if (!what.empty() && now != what) continue;  // one example is enough
    what = now;
    ranks.push_back(seen.rank);
  }
  return ranks.empty() ? ""
                       : fmt::format("; {} {} for it in {}", list(ranks),
                                     ranks.size() == 1 ? "waits" : "wait", what);
}

std::string sentence(const std::vector<Seen>& table, const Seen& seen, bool silent) {
  if (silent && seen.host.empty())
    return who(seen) + " has not come to the start of the job" + waiting(table, seen);
  if (silent) {
    const char* how =
        seen.state == 'T'   ? "is stopped (SIGSTOP or a debugger)"
        : seen.state == 'D' ? "hangs in the kernel, in a disk or a network file system"
        : seen.state == 'X' ? "is gone"
                            : "does not run: its process is stopped, or its machine is";
    return fmt::format("{} {}: no sign for {:.1f} s; it was {}{}", who(seen), how, seen.silent_s,
                       what_it_does(seen.look), waiting(table, seen));
  }
  return fmt::format("{} has not moved for {:.1f} s: it is {}{}", who(seen), seen.look.idle_s,
                     what_it_does(seen.look), waiting(table, seen));
}

Finding found(const std::vector<Seen>& table, const std::vector<int>& ranks, bool silent) {
  Finding out;
  out.ranks = ranks;
  for (const int rank : ranks) {
    const Seen& seen = table[static_cast<std::size_t>(rank)];
    out.gone |= silent && seen.state == 'X';
    out.message += (out.message.empty() ? "" : "; ") + sentence(table, seen, silent);
  }
  return out;
}

}  // namespace

std::string call_text(const Look& look, const Look::Call& call) { return name_of(look, call); }

std::string waiting_line(const std::vector<Seen>& table, const Seen& rank) {
  if (rank.ended) return fmt::format("rank {} has done its part", rank.rank);
  if (!rank.look.waits) return fmt::format("rank {} waits for nobody", rank.rank);
  std::vector<int> missing;
  for (const Seen& other : table)
    if (other.rank != rank.rank && misses(rank, other)) missing.push_back(other.rank);
  return fmt::format("rank {} waits in {}{}", rank.rank, name_of(rank.look, *rank.look.waits),
                     missing.empty() ? "" : " for " + list(missing));
}

std::string what_it_does(const Look& look) {
  std::string text = look.waits           ? "in " + name_of(look, *look.waits)
                     : look.doing.empty() ? "starting"
                                          : look.doing;
  if (look.waits && !look.doing.empty()) text += ", " + look.doing;
  if (!look.waits && !look.inside.empty()) text += " (" + look.inside + ")";
  if (!look.disk.empty()) text += ", " + look.disk;
  if (!look.waits && look.left) text += ", after " + name_of(look, *look.left);
  return text;
}

std::optional<Finding> who_hangs(const std::vector<Seen>& table, double patience_s) {
  // A reader begins to watch the others when it has stood still for a while itself. What the kernel
  // says of a process needs less time to be believed.
  const auto is_silent = [&](const Seen& seen) {
    const bool known = seen.state == 'T' || seen.state == 'X';
    return seen.silent_s >= (known ? 0.25 : 0.75) * patience_s;
  };
  std::vector<int> silent, stuck, missed;
  std::size_t still = 0, long_still = 0, here = 0;
  for (const Seen& seen : table) {
    if (seen.ended) continue;
    ++here;
    if (is_silent(seen)) silent.push_back(seen.rank);
    if (seen.look.idle_s < patience_s || is_silent(seen)) continue;
    ++still;
    long_still += seen.look.idle_s >= 2 * patience_s;
    if (!seen.look.waits) stuck.push_back(seen.rank);
    if (std::any_of(table.begin(), table.end(),
                    [&](const Seen& waiter) { return misses(waiter, seen); }))
      missed.push_back(seen.rank);
  }
  if (still == 0) return std::nullopt;
  if (!silent.empty()) return found(table, silent, true);
  std::vector<int> root;  // others wait for it, and it waits for nobody
  std::set_intersection(stuck.begin(), stuck.end(), missed.begin(), missed.end(),
                        std::back_inserter(root));
  if (!stuck.empty()) return found(table, root.empty() ? stuck : root, false);
  if (still < here) return std::nullopt;
  if (!missed.empty()) {  // each waits for one that waits elsewhere
    Finding circle{missed, false, "ranks wait for each other"};
    for (const Seen& seen : table)
      circle.message += fmt::format("; {} is {}", who(seen), what_it_does(seen.look));
    return circle;
  }
  // Nobody is missing, so the machine or its network may just be slow.
  if (long_still < here) return std::nullopt;
  std::string where;
  for (const Seen& seen : table)
    if (seen.look.waits) where = name_of(seen.look, *seen.look.waits);
  return Finding{
      {}, false, "all ranks run and are in the same operation, which does not end: " + where};
}

}  // namespace tessera::run
