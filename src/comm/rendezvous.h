// Where ranks that are threads of one process meet: an operation is a Rendezvous that each of its
// ranks enters with its buffers; when all are there its work, cut into units, is done by whoever
// waits for it. So an operation never needs more of a rank than that it was started. Convention:
// everything here is guarded by World::mutex, but for the bytes that a unit moves; buffers are
// touched only while `active` > 0.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/comm.h"

namespace tessera::comm {

struct Group;

// The arguments of an operation that all ranks must agree on.
struct Call {
  std::string_view what;  // the verb, or split
  ir::DType dtype = ir::DType::u8;
  Reduction how = Reduction::sum;
  int root = 0;
  std::vector<std::int64_t> counts{};  // where every rank knows all of them
  bool operator==(const Call&) const = default;
};

// One rank's buffers. The offsets of the parts are one more than ranks; callers may reuse their
// counts at once.
struct Entry {
  ConstBytes in{};
  Bytes out{};
  std::vector<std::int64_t> in_at{}, out_at{};
  int color = 0, key = 0;
  bool here = false;
};

struct Rendezvous {
  using Work = std::function<void(Rendezvous&, int unit)>;
  Rendezvous(Call agreed, std::vector<int> who, Work what, int parts)
      : call(std::move(agreed)),
        ranks(std::move(who)),
        entries(ranks.size()),
        work(std::move(what)),
        units(parts) {}

  Call call;
  std::vector<int> ranks;  // of the world
  std::vector<Entry> entries;
  Work work;
  int units;
  int arrived = 0, next = 0, active = 0, finished = 0;
  bool withdrawn = false;  // a rank left it while an exception passed: its buffers are gone
  std::vector<std::shared_ptr<Group>> groups;  // of split, by rank here

  bool full() const { return arrived == static_cast<int>(ranks.size()); }
  bool complete() const { return full() && finished == units; }
  bool has_work() const { return full() && !withdrawn && next < units; }
};

class World {
 public:
  using Lock = std::unique_lock<std::mutex>;

  explicit World(int size) : ranks_(static_cast<std::size_t>(size)) {}
  Lock lock() { return Lock(mutex_); }

  // All of these are called with the lock held; work() and wait() let it go meanwhile.
  void enter(Lock& lock, Rendezvous& rendezvous, int place, Entry entry);
  void work(Lock& lock, Rendezvous& rendezvous, int most);  // at most so many units
  void wait(Lock& lock, Rendezvous& rendezvous, int rank);  // Error(rank_lost) when a rank stopped
  void leave(Lock& lock, Rendezvous& rendezvous, int rank, bool unwinding);

  void check_alive(int rank);   // Error(rank_lost) when a rank stopped
  std::string failure() const;  // which rank stopped and why; empty: none
  void fail(int rank, const std::string& reason, std::exception_ptr error);
  void end(int rank);  // its program returned
  void rethrow();      // the first error, if any

 private:
  struct Rank {
    std::condition_variable wake;
    bool ended = false;
    bool left = false;  // left a rendezvous that others may wait in
  };
  std::mutex mutex_;
  std::deque<Rank> ranks_;
  int failed_ = -1;
  std::string reason_;
  std::exception_ptr error_;

  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  void wake(const Rendezvous& rendezvous);
  void quiesce(Lock& lock, Rendezvous& rendezvous, int rank);
  void check_reachable(const Rendezvous& rendezvous, int rank);
};

// Ranks that meet: collectives are matched by the order in which each rank starts them, messages by
// (from, to, tag) in order.
struct Group {
  std::shared_ptr<World> world;
  std::vector<int> ranks{};                                    // of the world
  std::vector<std::int64_t> started{};                         // by rank here
  std::map<std::int64_t, std::shared_ptr<Rendezvous>> open{};  // some ranks are missing
  std::map<std::tuple<int, int, int>, std::deque<std::shared_ptr<Rendezvous>>> mail{};
};

}  // namespace tessera::comm
