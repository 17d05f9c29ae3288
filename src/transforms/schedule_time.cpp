// The cost of a schedule: the time of every turn by an event simulation, its bubble, and how much
// is in flight.
#include <algorithm>
#include <cmath>
#include <queue>

#include "base/check.h"
#include "base/index.h"
#include "transforms/schedules.h"

namespace tessera::transforms {
namespace {

class Simulation {
 public:
  Simulation(const Schedule& schedule, const std::function<double(const Turn&)>& cost,
             double transfer)
      : s_(schedule),
        cost_(cost),
        transfer_(transfer),
        home_(homes(schedule)),
        next_(s_.ranks.size(), 0),
        free_(s_.ranks.size(), 0) {
    done_.resize(static_cast<std::size_t>(s_.stages) * static_cast<std::size_t>(s_.micros) * 3, -1);
  }

  std::vector<Timed> run() {
    for (std::size_t r = 0; r < s_.ranks.size(); ++r) offer(static_cast<int>(r));
    // Whatever becomes ready starts no earlier than what made it ready: the order of starts is the
    // order in which they are taken.
    while (!ready_.empty()) {
      const auto [start, rank] = ready_.top();
      ready_.pop();
      const Turn& turn = s_.ranks[at(rank)][next_[at(rank)]++];
      const double cost = cost_(turn);
      CHECK(std::isfinite(cost) && cost >= 0,
            "the cost of " + name(turn) + " is " + std::to_string(cost));
      free_[at(rank)] = done(turn) = start + cost;
      out_.push_back({.rank = rank, .turn = turn, .start = start, .end = start + cost});
      offer(rank);
      // The rank that was waiting for this turn, if it is another one.
      const int after = turn.work == Work::forward ? turn.stage + 1 : turn.stage - 1;
      if (turn.work != Work::weight && after >= 0 && after < s_.stages && home_[at(after)] != rank)
        offer(home_[at(after)], &turn);
    }
    return std::move(out_);
  }

 private:
  double& done(const Turn& t) {
    return done_[(at(t.stage) * at(s_.micros) + at(t.micro)) * 3 +
                 static_cast<std::size_t>(t.work)];
  }

  // Queues the next turn of a rank when all that it needs is done; with `by`: only if that is among
  // what it needs, so no turn comes twice.
  void offer(int rank, const Turn* by = nullptr) {
    if (next_[at(rank)] == s_.ranks[at(rank)].size()) return;
    double start = free_[at(rank)];
    bool waited = by == nullptr;
    for (const Turn& need : needs(s_, s_.ranks[at(rank)][next_[at(rank)]])) {
      const double end = done(need);
      if (end < 0) return;
      start = std::max(start, end + (home_[at(need.stage)] == rank ? 0 : transfer_));
      waited = waited || need == *by;
    }
    if (waited) ready_.push({start, rank});
  }

  using Ready = std::pair<double, int>;  // start, rank
  const Schedule& s_;
  const std::function<double(const Turn&)>& cost_;
  const double transfer_;
  std::vector<int> home_;
  std::vector<std::size_t> next_;  // of each rank its next turn,
  std::vector<double> free_;       // and when it has ended the one before
  std::vector<double> done_;       // when each turn ended; -1: not yet
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready_;
  std::vector<Timed> out_;
};

}  // namespace

std::vector<Timed> simulate(const Schedule& schedule,
                            const std::function<double(const Turn&)>& cost, double transfer) {
  check(schedule);
  CHECK(std::isfinite(transfer) && transfer >= 0, "a transfer takes " + std::to_string(transfer));
  return Simulation(schedule, cost, transfer).run();
}

double bubble(const std::vector<Timed>& turns, int ranks) {
  if (turns.empty()) return 0;
  double first = turns[0].start, last = turns[0].end, busy = 0;
  for (const Timed& t : turns) {
    first = std::min(first, t.start);
    last = std::max(last, t.end);
    busy += t.end - t.start;
  }
  return last > first ? 1 - busy / (ranks * (last - first)) : 0;
}

int in_flight(const Schedule& schedule, int rank) {
  const Work last = schedule.splits() ? Work::weight : Work::backward;
  int now = 0, most = 0;
  if (!schedule.trains()) return 0;  // nothing is kept
  for (const Turn& t : schedule.ranks.at(static_cast<std::size_t>(rank))) {
    if (t.work == Work::forward) most = std::max(most, ++now);
    if (t.work == last) --now;
  }
  return most;
}

}  // namespace tessera::transforms
