// Operations that advance only when someone looks: no thread works for them, so they need no core.
// A rank that waits for one advances all of its own, in every group, because another rank may wait
// for another one first. Convention: one Engine per rank, shared by its world and all groups; used
// by one thread at a time.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "comm/comm.h"

namespace tessera::comm {

// A group with operations in flight, or one operation.
class Advancing {
 public:
  virtual ~Advancing() = default;
  virtual bool advance() = 0;          // a piece of work, if there is one; never blocks
  virtual void check_alive() const {}  // Error(rank_lost) when a rank that it waits for is gone
};

class Engine {
 public:
  explicit Engine(bool crowded) : crowded_(crowded) {}

  void add(Advancing& group);
  void remove(const Advancing& group);
  bool idle() const { return active_.empty(); }

  bool step();  // advances every group once; true when one of them worked
  // Steps until done() says so. Spins for microseconds, then yields, then sleeps: there may be more
  // ranks than cores.
  void wait(const std::function<bool()>& done);

 private:
  using Clock = std::chrono::steady_clock;
  std::vector<Advancing*> active_;
  bool stepping_ = false;
  bool crowded_;  // more ranks than cores: spinning would keep the one that is waited for from
                  // running
  int idle_steps_ = 0;
  Clock::time_point looked_ = Clock::now();

  void look_after_peers();
};
using SharedEngine = std::shared_ptr<Engine>;

// An operation of another back end, during which ours advance too.
Pending with_progress(SharedEngine engine, Pending inner);

}  // namespace tessera::comm
