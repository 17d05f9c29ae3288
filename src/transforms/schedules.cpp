// The schedules that pipelines are usually run by, each beside its bubble.
#include "transforms/schedules.h"

#include <algorithm>

#include "base/check.h"

namespace tessera::transforms {
namespace {

using Turns = std::vector<Turn>;

// Refuses sizes that no schedule has, all of them at once.
void check_sizes(const std::string& name, int ranks, int stages, int micros, int kinds) {
  std::vector<std::string> wrong;
  const auto within = [&](const char* what, int value, int most) {
    if (value < 1 || value > most)
      wrong.push_back(std::string(what) + " = " + std::to_string(value) + " is not from 1 to " +
                      std::to_string(most));
  };
  within("ranks", ranks, most_ranks);
  within("stages", stages, most_stages);
  within("micro-batches", micros, most_micros);
  if (wrong.empty() && stages % ranks != 0)
    wrong.push_back(std::to_string(stages) + " stages do not spread evenly over " +
                    std::to_string(ranks) + " ranks");
  if (wrong.empty() && std::int64_t{stages} * micros * kinds > most_turns)
    wrong.push_back(std::to_string(std::int64_t{stages} * micros * kinds) +
                    " turns are more than " + std::to_string(most_turns));
  if (!wrong.empty())
    throw Error(ErrorKind::usage, join(wrong, "; "), "schedule " + name,
                "choose other numbers of stages or micro-batches");
}

Schedule empty(std::string name, int ranks, int stages, int micros, int kinds) {
  check_sizes(name, ranks, stages, micros, kinds);
  return {.name = std::move(name),
          .stages = stages,
          .micros = micros,
          .ranks = std::vector<Turns>(static_cast<std::size_t>(ranks))};
}

// Sizes of the groups in which micro-batches pass a rank with several stages. A group of at least
// `ranks` is back from the last rank when the first has sent all of it, so nobody waits; a smaller
// group is smaller only where there is no other.
std::vector<int> groups(int ranks, int micros) {
  const int count = std::max(1, micros / ranks);
  std::vector<int> sizes(static_cast<std::size_t>(count), micros / count);
  std::fill_n(sizes.begin(), micros % count, micros / count + 1);
  return sizes;
}

// All turns of one kind of a rank: group by group, in a group stage by stage (backward: the last
// one first).
Turns passes(int rank, int ranks, int stages, int micros, Work work) {
  Turns turns;
  int first = 0;
  for (const int size : groups(ranks, micros)) {
    for (int i = 0; i < stages / ranks; ++i) {
      const int chunk = work == Work::forward ? i : stages / ranks - 1 - i;
      for (int m = first; m < first + size; ++m) turns.push_back({chunk * ranks + rank, m, work});
    }
    first += size;
  }
  return turns;
}

// `ahead` forward passes, then forward and backward by turns, then what is left of the backward
// passes.
Turns by_turns(const Turns& forward, const Turns& backward, int ahead) {
  const auto lead = std::min(static_cast<std::size_t>(ahead), forward.size());
  Turns turns(forward.begin(), forward.begin() + static_cast<std::ptrdiff_t>(lead));
  for (std::size_t i = 0; i < backward.size(); ++i) {
    if (lead + i < forward.size()) turns.push_back(forward[lead + i]);
    turns.push_back(backward[i]);
  }
  return turns;
}

// The idle share where all forward passes end before any backward pass begins: both then have the
// same shape. A rank with several stages waits between two of them if there are fewer micro-batches
// than ranks.
double fill_and_drain(int ranks, int stages, int micros) {
  const double chunks = stages / ranks;
  return 1 - chunks * micros / ((chunks - 1) * std::max(micros, ranks) + micros + ranks - 1);
}

}  // namespace

std::string name(const Turn& turn) {
  return "FBW"[static_cast<int>(turn.work)] + std::to_string(turn.stage) + "." +
         std::to_string(turn.micro);
}

int Schedule::home(int stage) const {
  for (std::size_t r = 0; r < ranks.size(); ++r)
    if (std::any_of(ranks[r].begin(), ranks[r].end(),
                    [&](const Turn& t) { return t.stage == stage; }))
      return static_cast<int>(r);
  return -1;
}

static bool has(const Schedule& schedule, Work work) {
  return std::any_of(schedule.ranks.begin(), schedule.ranks.end(), [&](const Turns& turns) {
    return std::any_of(turns.begin(), turns.end(), [&](const Turn& t) { return t.work == work; });
  });
}
bool Schedule::trains() const { return has(*this, Work::backward); }
bool Schedule::splits() const { return has(*this, Work::weight); }

std::vector<int> homes(const Schedule& schedule) {
  std::vector<int> at(static_cast<std::size_t>(schedule.stages), -1);
  for (std::size_t r = schedule.ranks.size(); r-- > 0;)
    for (const Turn& t : schedule.ranks[r])
      at.at(static_cast<std::size_t>(t.stage)) = static_cast<int>(r);
  return at;
}

Schedule first_micros(Schedule schedule, int micros) {
  schedule.micros = std::min(schedule.micros, micros);
  for (Turns& turns : schedule.ranks)
    std::erase_if(turns, [&](const Turn& t) { return t.micro >= micros; });
  return schedule;
}

std::vector<Turn> needs(const Schedule& schedule, const Turn& turn) {
  const auto [stage, micro, work] = turn;
  if (work == Work::weight) return {{stage, micro, Work::backward}};
  if (work == Work::forward) return stage > 0 ? Turns{{stage - 1, micro, Work::forward}} : Turns{};
  Turns before = {{stage, micro, Work::forward}};
  if (stage + 1 < schedule.stages) before.push_back({stage + 1, micro, Work::backward});
  return before;
}

Schedule gpipe(int ranks, int stages, int micros) {
  Schedule s = empty("gpipe", ranks, stages, micros, 2);
  for (int r = 0; r < ranks; ++r) {
    Turns& turns = s.ranks[static_cast<std::size_t>(r)];
    turns = passes(r, ranks, stages, micros, Work::forward);
    const Turns back = passes(r, ranks, stages, micros, Work::backward);
    turns.insert(turns.end(), back.begin(), back.end());
  }
  return s;
}
double gpipe_bubble(int ranks, int stages, int micros) {
  return fill_and_drain(ranks, stages, micros);
}

Schedule forward_only(int ranks, int stages, int micros) {
  std::vector<int> home;
  for (int s = 0; s < stages && ranks > 0; ++s) home.push_back(s % ranks);
  return forward_only(ranks, home, micros);
}
Schedule forward_only(int ranks, const std::vector<int>& home, int micros) {
  Schedule s = empty("forward", ranks, static_cast<int>(home.size()), micros, 1);
  int first = 0;
  for (const int size : groups(ranks, micros)) {
    for (int stage = 0; stage < s.stages; ++stage)
      for (int m = first; m < first + size; ++m)
        s.ranks.at(static_cast<std::size_t>(home[static_cast<std::size_t>(stage)]))
            .push_back({stage, m, Work::forward});
    first += size;
  }
  return s;
}
double forward_only_bubble(int ranks, int stages, int micros) {
  return fill_and_drain(ranks, stages, micros);
}

Schedule one_f_one_b(int ranks, int micros) {
  Schedule s = empty("1f1b", ranks, ranks, micros, 2);
  for (int r = 0; r < ranks; ++r)
    s.ranks[static_cast<std::size_t>(r)] =
        by_turns(passes(r, ranks, ranks, micros, Work::forward),
                 passes(r, ranks, ranks, micros, Work::backward), ranks - 1 - r);
  return s;
}
// The first micro-batch passes ranks - 1 others before the last rank begins, and the last one after
// it ended.
double one_f_one_b_bubble(int ranks, int micros) { return (ranks - 1.0) / (micros + ranks - 1.0); }

Schedule interleaved(int ranks, int chunks, int micros) {
  check_sizes("interleaved", ranks, ranks, micros, 2);
  if (chunks < 1 || chunks > most_stages / ranks)
    throw Error(ErrorKind::usage,
                "chunks = " + std::to_string(chunks) + " stages a rank are not from 1 to " +
                    std::to_string(most_stages / ranks),
                "schedule interleaved");
  if (chunks == 1) {
    Schedule s = one_f_one_b(ranks, micros);
    s.name = "interleaved";
    return s;
  }
  Schedule s = empty("interleaved", ranks, ranks * chunks, micros, 2);
  // A backward pass cannot begin before its group came to the last stage.
  const int group = groups(ranks, micros).front();
  for (int r = 0; r < ranks; ++r)
    s.ranks[static_cast<std::size_t>(r)] =
        by_turns(passes(r, ranks, s.stages, micros, Work::forward),
                 passes(r, ranks, s.stages, micros, Work::backward),
                 (chunks - 1) * group + 2 * (ranks - 1 - r));
  return s;
}
// (ranks - 1) / (chunks x micros + ranks - 1) from micros >= ranks on: fill and drain as of 1F1B,
// but in stages of 1 / chunks of the size.
double interleaved_bubble(int ranks, int chunks, int micros) {
  return fill_and_drain(ranks, ranks * chunks, micros);
}

Schedule zb_h1(int ranks, int micros) {
  Schedule s = empty("zb-h1", ranks, ranks, micros, 3);
  const Schedule plain = one_f_one_b(ranks, micros);
  for (int r = 0; r < ranks; ++r) {
    Turns& turns = s.ranks[static_cast<std::size_t>(r)];
    for (const Turn& t : plain.ranks[static_cast<std::size_t>(r)]) {
      turns.push_back(t);
      if (t.work == Work::backward && t.micro >= r) turns.push_back({r, t.micro - r, Work::weight});
    }
    for (int m = std::max(0, micros - r); m < micros; ++m) turns.push_back({r, m, Work::weight});
  }
  return s;
}
// 1F1B is idle for (ranks - 1)(F + B + W). Here weight turns fill the drain: (ranks - 1)(F + B - W)
// is left, and as many more as there are too few micro-batches to fill it.
double zb_h1_bubble(int ranks, int micros) {
  const double idle = ranks - 1.0 + std::max(0, ranks - micros);
  return idle / (3.0 * micros + idle);
}

}  // namespace tessera::transforms
