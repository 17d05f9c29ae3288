// A communicator with a stream of its own, on which its messages follow each other, and how far
// they have come: the card counts them in memory of the host, so that whoever waits for a run sees
// whether this rank computes or waits for others. Convention: begun() and ended() are enqueued
// around every message; log().posted() is said once per message of a run that was submitted, in the
// same order.
#pragma once

#include "exec/cuda/handles.h"
#include "exec/cuda/nccl/communicator.h"
#include "exec/cuda/nccl/message_log.h"

namespace tessera::exec::cuda {

class Channel {
 public:
  // `noted_as`: as MessageLog has it.
  Channel(const NcclId& id, int ranks, int rank, int most_blocks, comm::Comm& group, int noted_as,
          const Communicator::Idle& idle);

  Communicator& cards() { return cards_; }
  cudaStream_t stream() const { return stream_; }

  void begun();
  void ended();
  MessageLog& log() { return log_; }
  bool look();  // at what the card counted: whether it moved
  void tell(const comm::Heartbeat& of, comm::Look& look);  // as MessageLog; from any thread

 private:
  // Written by the card.
  struct Counts {
    std::uint64_t begun = 0, ended = 0;
  };
  Counts& counts() const { return *reinterpret_cast<Counts*>(counts_.get()); }
  Counts read() const;

  Communicator cards_;
  Stream stream_;
  PinnedBytes counts_;
  MessageLog log_;
};

// Enqueues: one more (progress.cu).
void count_one(std::uint64_t* where, cudaStream_t stream);

}  // namespace tessera::exec::cuda
