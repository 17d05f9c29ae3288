// How fast each pair of ranks talks, and all of them together.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <thread>

#include "base/say.h"
#include "verbs/doctor/doctor.h"

namespace tessera::run {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int tag = 7101;
constexpr int trips = 40;
constexpr std::size_t large = 4 << 20, reduced = 16 << 20;
constexpr double enough_s = 0.25;  // of large messages between two
constexpr int most_large = 8;
constexpr int most_again = 3;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// One side asks, the other answers; both know when it is over because the asker says so.
class Pair {
 public:
  Pair(comm::Comm& world, int other, bool asks)
      : world_(world), other_(other), asks_(asks), buffer_(large) {}

  double latency_us() {
    double best = 1e9;
    for (int i = 0; i < trips; ++i) {
      const auto start = Clock::now();
      if (asks_) {
        world_.send(word(), other_, tag);
        world_.recv(word(), other_, tag);
      }
      if (!asks_) {
        world_.recv(word(), other_, tag);
        world_.send(word(), other_, tag);
      }
      best = std::min(best, seconds_since(start));
    }
    return 0.5e6 * best;
  }

  // Bytes there and back again.
  double gbyte_s() {
    double best = 0;
    const auto start = Clock::now();
    for (int i = 0; i < most_large; ++i) {
      const auto round = Clock::now();
      const std::span<std::byte> all(buffer_);
      if (asks_) {
        world_.send(all, other_, tag);
        world_.recv(all, other_, tag);
      }
      if (!asks_) {
        world_.recv(all, other_, tag);
        world_.send(all, other_, tag);
      }
      best = std::max(best, 2e-9 * static_cast<double>(large) / seconds_since(round));
      buffer_[0] = std::byte(i > 0 && seconds_since(start) > enough_s);  // the asker's word counts
      if (asks_) world_.send(word(), other_, tag);
      if (!asks_) world_.recv(word(), other_, tag);
      if (buffer_[0] != std::byte(0)) break;
    }
    return best;
  }

 private:
  std::span<std::byte> word() { return std::span(buffer_).first(8); }

  comm::Comm& world_;
  const int other_;
  const bool asks_;
  std::vector<std::byte> buffer_;
};

// A barrier whose waiting takes no core: others measure meanwhile, maybe on the same machine.
void rest_until_all_came(const Ranks& ranks) {
  const comm::Pending barrier = ranks.world()->start_barrier();
  while (!barrier->done()) std::this_thread::sleep_for(std::chrono::microseconds(500));
  barrier->wait();
}

// The time of the slowest rank in the best of several rounds.
double all_reduce_s(const Ranks& ranks, std::size_t bytes, int repeats) {
  std::vector<std::byte> data(bytes);
  double best = 1e9;
  for (int i = 0; i < repeats; ++i) {
    ranks.barrier();
    const auto start = Clock::now();
    ranks.world()->all_reduce(data, ir::DType::f32);
    best = std::min(best, ranks.most(seconds_since(start)));
  }
  return best;
}

// Holds a group for every pair. They are made in rounds in which each rank has one partner: the
// last one stays in its place, the others move around a circle. With an odd number one rank of a
// round has none.
class Partners {
 public:
  explicit Partners(const Ranks& ranks) {
    const int seats = ranks.size() + ranks.size() % 2, me = ranks.rank();
    for (int round = 0; round + 1 < seats; ++round) {
      const int last = round * (seats / 2) % (seats - 1);  // whose partner is the one that stays
      const int other = me == seats - 1 ? last
                        : me == last    ? seats - 1
                                        : (round + seats - 1 - me) % (seats - 1);
      round_with_[other] = groups_.size();
      groups_.push_back(ranks.world()->split(std::min(me, other), me));
    }
  }
  Ranks with(int other) const { return Ranks(groups_[round_with_.at(other)].get()); }

 private:
  std::vector<std::unique_ptr<comm::Comm>> groups_;  // by round: all ranks leave them in one order
  std::map<int, std::size_t> round_with_;
};

// Measures one pair while the others rest; all ranks learn what its asker found.
Link measure_link(const Ranks& ranks, const Partners& partners, int from, int to) {
  std::vector<double> mine(4);
  if (ranks.rank() == from || ranks.rank() == to) {
    const int other = ranks.rank() == from ? to : from;
    Pair pair(*ranks.world(), other, ranks.rank() == from);
    const Ranks two = partners.with(other);
    mine = {pair.latency_us(), pair.gbyte_s(), 1e6 * all_reduce_s(two, 8, trips),
            1e-9 * static_cast<double>(large) / all_reduce_s(two, large, 3)};
  }
  rest_until_all_came(ranks);
  const std::vector<double> told = ranks.gather(mine);
  const auto at = static_cast<std::size_t>(4 * from);
  return {.from = from,
          .to = to,
          .latency_us = told[at],
          .gbyte_s = told[at + 1],
          .all_reduce_us = told[at + 2],
          .all_reduce_gbyte_s = told[at + 3]};
}

// A link that looks slow is measured again, and its best counts: other work on one of its hosts
// may have taken the cores for a moment.
void measure_slow_ones_again(const Ranks& ranks, const Partners& partners, bool progress,
                             std::vector<Link>& links) {
  for (int round = 0; round < most_again; ++round) {
    const double least = slow_link * usual_gbyte_s(links);
    const auto is_slow = [&](const Link& link) { return link.gbyte_s < least; };
    const auto slow = std::count_if(links.begin(), links.end(), is_slow);
    if (slow == 0) return;
    if (progress && ranks.first()) say(stderr, "links: {} measured again\n", slow);
    for (Link& link : links) {
      if (!is_slow(link)) continue;
      const Link again = measure_link(ranks, partners, link.from, link.to);
      link.latency_us = std::min(link.latency_us, again.latency_us);
      link.gbyte_s = std::max(link.gbyte_s, again.gbyte_s);
      link.all_reduce_us = std::min(link.all_reduce_us, again.all_reduce_us);
      link.all_reduce_gbyte_s = std::max(link.all_reduce_gbyte_s, again.all_reduce_gbyte_s);
    }
  }
}

}  // namespace

double usual_gbyte_s(const std::vector<Link>& links) {
  std::vector<double> speeds;
  for (const Link& link : links) speeds.push_back(link.gbyte_s);
  std::sort(speeds.begin(), speeds.end(), std::greater<>());
  return speeds.empty() ? 0 : speeds[speeds.size() / 4];
}

Links measure_links(const Ranks& ranks, bool progress) {
  Links out;
  if (ranks.size() < 2) return out;
  const Partners partners(ranks);
  const int all = ranks.size() * (ranks.size() - 1) / 2;
  for (int from = 0; from < ranks.size(); ++from)
    for (int to = from + 1; to < ranks.size(); ++to) {
      out.pairs.push_back(measure_link(ranks, partners, from, to));
      if (progress && ranks.first())
        say(stderr, "links: {} of {} measured\n", out.pairs.size(), all);
    }
  measure_slow_ones_again(ranks, partners, progress, out.pairs);
  out.all_reduce_us = 1e6 * all_reduce_s(ranks, 8, 30);
  out.all_reduce_gbyte_s = 1e-9 * static_cast<double>(reduced) / all_reduce_s(ranks, reduced, 3);
  return out;
}

}  // namespace tessera::run
