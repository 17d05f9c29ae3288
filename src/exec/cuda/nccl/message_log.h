// The messages of one channel, as a rank's heartbeat tells of them: those that were posted, in
// order, and how many of them the card has begun and ended. Convention: the rank's thread writes; a
// heartbeat moves only when the card does. Another thread may ask at any time what the card has
// done that the rank has not noted yet.
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include "comm/heartbeat.h"

namespace tessera::exec::cuda {

class MessageLog {
 public:
  // `noted_as`: the group in the heartbeat of this rank; -1: nobody looks.
  MessageLog(comm::Comm& group, int noted_as) : group_(group), noted_as_(noted_as) {}

  // A message of a run: counted as traffic of the group at once, noted in the heartbeat when the
  // card comes to it.
  void posted(comm::Verb verb, std::int64_t bytes, std::string scope) {
    group_.count(verb, bytes);
    const std::lock_guard lock(mutex_);
    posted_.push_back({.verb = verb, .scope = std::move(scope)});
  }
  // Notes what the card did since the last look: whether that was anything.
  bool look(std::uint64_t begun, std::uint64_t ended) {
    const std::lock_guard lock(mutex_);
    comm::Heartbeat* const heartbeat = this->heartbeat();
    const bool moved = begun != begun_ || ended != ended_;
    for (; begun_ < begun; ++begun_) {
      const auto place = static_cast<std::size_t>(begun_ - ended_);
      if (heartbeat && place < posted_.size())
        posted_[place].number = heartbeat->enter(noted_as_, posted_[place].verb);
    }
    for (; ended_ < ended && !posted_.empty(); ++ended_, posted_.pop_front())
      if (const Message& message = posted_.front(); heartbeat)
        heartbeat->leave(noted_as_, message.verb, message.number, message.scope);
    return moved;
  }
  // Adds to what a heartbeat says what the card did since the last look of the rank: operations
  // that it began and ended, the one that it is in, and when it last moved.
  void tell(const comm::Heartbeat& of, comm::Look& look, std::uint64_t begun, std::uint64_t ended) {
    const std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (std::exchange(told_, begun + ended) != begun + ended) told_at_ = now;
    if (heartbeat() != &of || noted_as_ >= std::ssize(look.groups)) return;
    comm::Look::Group& group = look.groups[static_cast<std::size_t>(noted_as_)];
    for (std::uint64_t at = ended_; at < begun && at - ended_ < posted_.size(); ++at) {
      const Message& message = posted_[static_cast<std::size_t>(at - ended_)];
      const bool of_all = !comm::between_two(message.verb), fresh = at >= begun_;
      if (of_all && fresh) ++group.entered;
      if (of_all && at < ended) ++group.left;
      if (at == ended && !look.waits)
        look.waits = {.group = noted_as_,
                      .verb = message.verb,
                      .number = !of_all ? 0
                                : fresh ? group.entered
                                        : message.number,
                      .scope = message.scope};
    }
    look.idle_s = std::min(look.idle_s, std::chrono::duration<double>(now - told_at_).count());
  }
  // Whether the card is in a message, as of the last look; in one that all ranks of a group take
  // part in.
  bool waits() const { return begun_ > ended_ && !posted_.empty(); }
  bool waits_for_all() const { return waits() && posted_.front().number > 0; }
  void note_wait() const {
    if (comm::Heartbeat* const heartbeat = this->heartbeat(); heartbeat && !posted_.empty())
      heartbeat->wait(noted_as_, posted_.front().verb, posted_.front().number,
                      posted_.front().scope);
  }

 private:
  struct Message {
    comm::Verb verb;
    std::string scope;
    std::uint64_t number = 0;  // in the heartbeat, once it began; 0: between two ranks
  };
  comm::Heartbeat* heartbeat() const {
    return noted_as_ < 0 ? nullptr : group_.watched().heartbeat;
  }

  comm::Comm& group_;
  int noted_as_;
  std::deque<Message> posted_;  // not seen to end yet
  std::uint64_t begun_ = 0, ended_ = 0;
  std::mutex mutex_;
  std::uint64_t told_ = 0;  // begun and ended messages together, as of the last tell()
  std::chrono::steady_clock::time_point told_at_{};
};

}  // namespace tessera::exec::cuda
