// The messages of one channel, as a rank's heartbeat tells of them: those that were posted, in
// order, and how many of them the card has begun and ended. Convention: the rank's thread writes; a
// heartbeat moves only when the card does.
#pragma once

#include <deque>
#include <string>

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
    posted_.push_back({.verb = verb, .scope = std::move(scope)});
  }
  // Notes what the card did since the last look: whether that was anything.
  bool look(std::uint64_t begun, std::uint64_t ended) {
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
};

}  // namespace tessera::exec::cuda
