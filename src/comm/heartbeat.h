// The state of a rank, noted by itself as it goes and read by others at any time: when it last
// moved, which operation of which group it waits in or left last, and where in the run that is.
// Convention: one rank writes, on one thread at a time; anybody reads, without locks, also from
// another process that shares the memory. A text that is being written is read again, so a look
// costs the rank nothing.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/comm.h"

namespace tessera::comm {

inline bool between_two(Verb verb) { return verb == Verb::send || verb == Verb::recv; }

// A copy of the state for a reader: plain values.
struct Look {
  // Operations of a group are counted from 1, messages between two ranks left out. Ranks with the
  // same name and color are one group.
  struct Group {
    std::string name;
    int color = 0;
    std::uint64_t entered = 0, left = 0;
  };
  struct Call {
    int group = -1;  // in `groups`
    Verb verb = Verb::barrier;
    std::uint64_t number = 0;  // 0: a message
    std::string scope;         // the equation, by its first result; may be empty
  };
  double idle_s = 0;   // since it last moved: noted anything
  std::string doing;   // "loading the data of step 12"
  std::string inside;  // the equation; may be empty
  std::string disk;    // the call to a disk that it is in or waits for; may be empty
  double disk_s = 0;   // since when
  std::vector<Group> groups;
  std::optional<Call> waits, left;  // in wait() now; the last one that ended
};

// An operation that ended, and how long ago.
struct Past {
  Look::Call call;
  double ago_s = 0;
};

// Up to `most` characters, the rest is cut off.
class HeartbeatText {
 public:
  static constexpr std::size_t most = 95;
  void set(std::string_view text);
  std::string get() const;

 private:
  static constexpr std::size_t words = (most + 1) / 8;
  std::atomic<std::uint64_t> version_ = 0;  // odd: being written
  std::array<std::atomic<std::uint64_t>, words> words_{};
};

class Heartbeat {
 public:
  static constexpr int most_groups = 16, most_past = 24;

  // The heartbeat of the rank that this thread works for; null: nobody looks.
  static Heartbeat* here();
  class Here {  // makes it so, as long as it lives
   public:
    explicit Here(Heartbeat* heartbeat);
    ~Here();
    Here(const Here&) = delete;
    Here& operator=(const Here&) = delete;

   private:
    Heartbeat* before_;
  };
  // They speak of here(), if there is one.
  static void doing(std::string_view what, std::int64_t number = -1);
  static void inside(std::string_view equation);

  void beat();
  // A call to a disk takes as long as the disk likes: it begins; empty: it has ended.
  void disk(std::string_view call);
  int join(std::string_view group,
           int color);  // the group's number; -1: there are too many, nothing of it is noted
  std::uint64_t enter(int group, Verb verb);  // its number
  void wait(int group, Verb verb, std::uint64_t number, std::string_view scope);
  void leave(int group, Verb verb, std::uint64_t number, std::string_view scope);
  std::string scope() const { return inside_.get(); }

  Look look() const;
  std::vector<Past> past() const;  // the operations that ended last, the newest at the end

 private:
  struct Group {
    std::atomic<std::uint64_t> name = 0;  // eight characters
    std::atomic<int> color = 0;
    std::atomic<std::uint64_t> entered = 0, left = 0;
  };
  std::atomic<std::int64_t> moved_ = 0;  // ns of the machine's monotonic clock
  std::atomic<std::int64_t> number_ = -1;
  std::array<Group, most_groups> groups_{};
  std::atomic<int> joined_ = 0;
  std::atomic<std::uint64_t> waits_ = 0, left_ = 0;  // a call in one word; 0: none
  std::atomic<std::int64_t> disk_since_ = 0;         // as moved_
  HeartbeatText doing_, inside_, waits_scope_, left_scope_, disk_;
  struct Row {
    std::atomic<std::uint64_t> call = 0;  // as left_
    std::atomic<std::int64_t> when = 0;   // as moved_
    HeartbeatText scope;
  };
  std::array<Row, most_past> past_{};  // a ring: the next one goes to past_count_ % most_past
  std::atomic<std::uint64_t> past_count_ = 0;
};

}  // namespace tessera::comm
