// Whether a schedule can run: each turn once, every stage at home on one rank, an order that ranks
// can follow without waiting forever. Convention: a problem names its entry as "rank 0, turn 3:
// B0.1", counting turns of a rank from 1.
#include <algorithm>
#include <deque>
#include <unordered_map>

#include "base/check.h"
#include "base/index.h"
#include "transforms/schedules.h"

namespace tessera::transforms {
namespace {

class Checker {
 public:
  explicit Checker(const Schedule& schedule) : s_(schedule) {}

  // Finds all problems; later steps take what is missing or doubled for an accident and look at the
  // rest.
  void run(const std::string& where) {
    if (sizes() && range()) {
      place();
      complete();
      order();
      deadlock();
    }
    if (count_ == 0) return;
    Error error(ErrorKind::usage, problems_[0], where.empty() ? "schedule " + s_.name : where,
                "every stage lives on one rank and has F, B (and W, where there are weight turns) "
                "of every micro-batch once, in ascending order");
    for (std::size_t i = 1; i < problems_.size(); ++i) error.and_also(problems_[i]);
    if (count_ > problems_.size())
      error.and_also(std::to_string(count_ - problems_.size()) + " more problems");
    throw error;
  }

 private:
  struct Spot {
    int rank = -1, index = 0;
  };

  void problem(const std::string& text) {
    if (++count_ <= most_shown) problems_.push_back(text);
  }
  void problem(int rank, std::size_t index, const std::string& text) {
    problem("rank " + std::to_string(rank) + ", turn " + std::to_string(index + 1) + ": " + text);
  }
  template <class F>
  void each_turn(F f) const {
    for (std::size_t r = 0; r < s_.ranks.size(); ++r)
      for (std::size_t i = 0; i < s_.ranks[r].size(); ++i)
        f(static_cast<int>(r), i, s_.ranks[r][i]);
  }
  std::size_t id(const Turn& t) const {
    return (at(t.stage) * at(s_.micros) + at(t.micro)) * 3 + static_cast<std::size_t>(t.work);
  }
  const Spot& spot(const Turn& t) const { return spots_[id(t)]; }
  static std::string there(const Spot& spot) {
    return "rank " + std::to_string(spot.rank) + ", turn " + std::to_string(spot.index + 1);
  }

  // Before anything is allocated by these numbers.
  bool sizes() {
    const auto within = [&](const char* what, std::int64_t value, std::int64_t most) {
      if (value < 1 || value > most)
        problem(std::string(what) + " = " + std::to_string(value) + " is not from 1 to " +
                std::to_string(most));
    };
    within("ranks", static_cast<std::int64_t>(s_.ranks.size()), most_ranks);
    within("stages", s_.stages, most_stages);
    within("micros", s_.micros, most_micros);
    if (count_ > 0) return false;
    std::int64_t turns = 0;
    for (const auto& list : s_.ranks) turns += static_cast<std::int64_t>(list.size());
    within("turns", turns, most_turns);
    within("stages x micros", std::int64_t{s_.stages} * s_.micros, most_turns);
    return count_ == 0;
  }

  bool range() {
    each_turn([&](int rank, std::size_t i, const Turn& t) {
      if (t.stage < 0 || t.stage >= s_.stages)
        problem(rank, i,
                name(t) + " has no such stage; there are 0 to " + std::to_string(s_.stages - 1));
      if (t.micro < 0 || t.micro >= s_.micros)
        problem(
            rank, i,
            name(t) + " has no such micro-batch; there are 0 to " + std::to_string(s_.micros - 1));
      if (t.work > Work::weight) problem(rank, i, "the kind of work is none of F, B and W");
    });
    return count_ == 0;
  }

  // Where every turn stands first, and where every stage lives.
  void place() {
    spots_.resize(at(s_.stages) * at(s_.micros) * 3);
    std::vector<Spot> home(at(s_.stages));
    std::vector<char> told(at(s_.stages), 0);
    each_turn([&](int rank, std::size_t i, const Turn& t) {
      Spot& first = spots_[id(t)];
      if (first.rank >= 0)
        problem(rank, i, name(t) + " stands there a second time; the first is " + there(first));
      else
        first = {rank, static_cast<int>(i)};
      Spot& lives = home[at(t.stage)];
      if (lives.rank < 0) lives = {rank, static_cast<int>(i)};
      if (lives.rank != rank && !told[at(t.stage)]++)
        problem(rank, i,
                name(t) + " puts stage " + std::to_string(t.stage) +
                    " on a second rank; it lives at " + there(lives));
    });
    for (std::size_t r = 0; r < s_.ranks.size(); ++r)
      if (s_.ranks[r].empty()) problem("rank " + std::to_string(r) + " has no turn");
  }

  void complete() {
    const bool trains = s_.trains(), splits = s_.splits();
    for (int stage = 0; stage < s_.stages; ++stage)
      for (int micro = 0; micro < s_.micros; ++micro)
        for (const Work work : {Work::forward, Work::backward, Work::weight}) {
          const bool wanted =
              work == Work::forward || (work == Work::backward ? trains || splits : splits);
          if (wanted && spot({stage, micro, work}).rank < 0)
            problem(name({stage, micro, work}) + " is missing");
        }
  }

  // On one rank: what a turn needs stands before it, and micro-batches ascend.
  void order() {
    std::vector<int> latest(at(s_.stages) * 3, -1);
    each_turn([&](int rank, std::size_t i, const Turn& t) {
      if (spot(t).rank != rank || at(spot(t).index) != i) return;  // the second of a doubled turn
      for (const Turn& need : needs(s_, t))
        if (spot(need).rank == rank && at(spot(need).index) > i)
          problem(rank, i,
                  name(t) + " comes before " + name(need) + " (turn " +
                      std::to_string(spot(need).index + 1) + "), which it needs");
      int& last = latest[at(t.stage) * 3 + static_cast<std::size_t>(t.work)];
      if (t.micro < last)
        problem(rank, i,
                name(t) + " comes after " + name({t.stage, last, t.work}) +
                    "; micro-batches must ascend");
      last = std::max(last, t.micro);
    });
  }

  // Every rank goes on as far as it gets; who is left waits for somebody who is left too, and so on
  // around a circle.
  void deadlock() {
    const std::size_t ranks = s_.ranks.size();
    std::vector<std::size_t> next(ranks, 0);
    std::vector<Turn> wanted(ranks);                    // what a stopped rank waits for
    std::unordered_multimap<std::size_t, int> waiting;  // turn -> ranks that wait for it
    std::deque<int> going;
    for (std::size_t r = 0; r < ranks; ++r) going.push_back(static_cast<int>(r));
    const auto missing = [&](int rank, const Turn& turn) {  // what `turn` needs of another rank and
                                                            // does not have yet, if anything
      for (const Turn& need : needs(s_, turn)) {
        const Spot& from = spot(need);
        if (from.rank >= 0 && from.rank != rank && next[at(from.rank)] <= at(from.index))
          return need;
      }
      return turn;
    };
    while (!going.empty()) {
      const int rank = going.front();
      going.pop_front();
      for (const auto& list = s_.ranks[at(rank)]; next[at(rank)] < list.size();) {
        const Turn& turn = list[next[at(rank)]];
        if (const Turn need = missing(rank, turn); need != turn) {
          wanted[at(rank)] = need;
          waiting.emplace(id(need), rank);
          break;
        }
        ++next[at(rank)];
        const auto [begin, end] = waiting.equal_range(id(turn));
        for (auto it = begin; it != end; ++it) going.push_back(it->second);
        waiting.erase(begin, end);
      }
    }
    std::vector<char> seen(ranks, 0);
    for (std::size_t r = 0; r < ranks; ++r) {
      std::vector<int> path;
      int rank = static_cast<int>(r);
      while (next[at(rank)] < s_.ranks[at(rank)].size() && !seen[at(rank)]) {
        seen[at(rank)] = 1;
        path.push_back(rank);
        rank = spot(wanted[at(rank)]).rank;
      }
      const auto first = std::find(path.begin(), path.end(), rank);
      if (first == path.end()) continue;  // waits for a circle that was told
      std::string text = "deadlock: rank " + std::to_string(rank);
      for (auto it = first; it != path.end(); ++it) {
        const Turn& need = wanted[at(*it)];
        text += (it == first ? " waits in " : ", which waits in ") +
                name(s_.ranks[at(*it)][next[at(*it)]]) + " for " + name(need) + " of rank " +
                std::to_string(spot(need).rank);
      }
      problem(text);
    }
  }

  const Schedule& s_;
  std::vector<Spot> spots_;  // by id
  std::vector<std::string> problems_;
  std::size_t count_ = 0;
};

}  // namespace

void check(const Schedule& schedule, const std::string& where) { Checker(schedule).run(where); }

}  // namespace tessera::transforms
