// A communicator with a stream of its own, on which its messages follow each other, and how far
// they have come: the card counts them in memory of the host, so that whoever waits for a run sees
// whether this rank computes or waits for others. Convention: begun() and ended() are enqueued
// around every message; posted() is said once per message of a run that was submitted, in the same
// order.
#pragma once

#include <deque>
#include <string>

#include "comm/heartbeat.h"
#include "exec/cuda/handles.h"
#include "exec/cuda/nccl/communicator.h"

namespace tessera::exec::cuda {

class Channel {
 public:
  Channel(const NcclId& id, int ranks, int rank, int most_blocks, comm::Comm& group,
          const Communicator::Idle& idle);

  Communicator& cards() { return cards_; }
  cudaStream_t stream() const { return stream_; }

  void begun();
  void ended();
  // A message of a run: counted as traffic of the group at once, noted in the rank's heartbeat when
  // the card comes to it.
  void posted(comm::Verb verb, std::int64_t bytes, std::string scope);
  // Notes what the card did since the last look: whether that was anything.
  bool look();
  // Whether the card is in a message, as of the last look, and the note that this rank waits there.
  bool waits() const { return seen_begun_ > seen_ended_ && !posted_.empty(); }
  bool waits_for_all() const { return waits() && posted_.front().number > 0; }
  void note_wait() const;

 private:
  struct Message {
    comm::Verb verb;
    std::string scope;
    std::uint64_t number = 0;  // in the heartbeat, once it began
  };
  // Written by the card.
  struct Counts {
    std::uint64_t begun = 0, ended = 0;
  };

  comm::Comm& group_;
  Communicator cards_;
  Stream stream_;
  PinnedBytes counts_;
  std::deque<Message> posted_;  // not seen to end yet
  std::uint64_t seen_begun_ = 0, seen_ended_ = 0;
  int noted_as_ = -1;  // the group in the heartbeat; -1: nobody looks
};

// Enqueues: one more (progress.cu).
void count_one(std::uint64_t* where, cudaStream_t stream);

}  // namespace tessera::exec::cuda
