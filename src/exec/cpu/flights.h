// The clock of one run, and the messages that are under way during it. Convention: stream 0 does
// one thing at a time, so its spans never overlap; a message's own span goes from its hand-over to
// the moment at which this rank saw it done.
#pragma once

#include <chrono>
#include <map>
#include <utility>
#include <vector>

#include "comm/comm.h"
#include "exec/executor.h"

namespace tessera::exec::cpu {

class Recorder {
 public:
  // Without spans only messages are timed: looking at the clock around every small kernel would
  // cost more than some of them.
  Recorder(std::size_t steps, bool spans) : spans_(spans) {
    if (spans) timeline_.spans.reserve(steps + steps / 8);
  }
  bool times(Timeline::Kind kind) const { return spans_ || kind != Timeline::compute; }

  double now() const {
    return std::chrono::duration<double, std::milli>(Clock::now() - start_).count();
  }
  void operator()(int step, Timeline::Kind kind, double begin) {
    if (!times(kind)) return;
    const double end = now();
    if (kind != Timeline::compute) timeline_.messages_ms += end - begin;
    if (spans_)
      timeline_.spans.push_back(
          {.step = step, .stream = 0, .start = begin, .end = end, .kind = kind});
  }
  void flight(int step, double begin) {
    if (spans_)
      timeline_.spans.push_back(
          {.step = step, .stream = 1, .start = begin, .end = now(), .kind = Timeline::flight});
  }
  Timeline finish() {
    timeline_.began_ns =
        std::chrono::duration_cast<std::chrono::nanoseconds>(start_.time_since_epoch()).count();
    timeline_.wall_ms = now();
    return std::move(timeline_);
  }

 private:
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start_ = Clock::now();
  const bool spans_;
  Timeline timeline_;
};

class Flights {
 public:
  explicit Flights(Recorder& record) : record_(record) {}

  // `apart`: from or to another stage of a pipeline, which may be far behind.
  void add(int step, double begin, comm::Pending message, bool apart) {
    under_way_.emplace(step, Flight{std::move(message), begin, apart});
  }
  // Moves on what is under way; `next`: the step that follows.
  void poll(int next) {
    if (under_way_.empty()) return;
    const double begin = record_.now();
    for (auto it = under_way_.begin(); it != under_way_.end();) {
      const bool done = it->second.message->done();
      if (done) record_.flight(it->first, it->second.begin);
      it = done ? under_way_.erase(it) : std::next(it);
    }
    record_(next, Timeline::poll, begin);
  }
  void finish(int step) {
    const auto found = under_way_.find(step);
    if (found == under_way_.end()) return;  // seen done by a poll
    const double begin = record_.now();
    found->second.message->wait();
    record_(step, Timeline::wait, begin);
    record_.flight(step, found->second.begin);
    under_way_.erase(found);
  }
  void finish_all() {
    while (!under_way_.empty()) finish(under_way_.begin()->first);
  }
  // Those that the other ranks have handed over or are about to: who waits for another stage before
  // it must may wait forever.
  void finish_near() {
    std::vector<int> near;
    for (const auto& [step, flight] : under_way_)
      if (!flight.apart) near.push_back(step);
    for (const int step : near) finish(step);
  }

 private:
  struct Flight {
    comm::Pending message;
    double begin = 0;
    bool apart = false;
  };
  Recorder& record_;
  std::map<int, Flight> under_way_;  // by step, which is the order of hand-over
};

}  // namespace tessera::exec::cpu
