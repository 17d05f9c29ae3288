#include "exec/cuda/nccl/channel.h"

#include <atomic>

namespace tessera::exec::cuda {
namespace {

// Messages are small beside what is computed meanwhile, and others wait for them.
Stream urgent_stream() {
  int least = 0, greatest = 0;
  must(::cudaDeviceGetStreamPriorityRange(&least, &greatest), "ask for priorities of streams");
  cudaStream_t raw = nullptr;
  must(::cudaStreamCreateWithPriority(&raw, cudaStreamNonBlocking, greatest), "make a stream");
  return Stream(raw);
}

}  // namespace

Channel::Channel(const NcclId& id, int ranks, int rank, int most_blocks, comm::Comm& group,
                 int noted_as, const Communicator::Idle& idle)
    : cards_(id, ranks, rank, most_blocks, idle),
      stream_(urgent_stream()),
      counts_(pin(sizeof(Counts))),
      log_(group, noted_as) {
  counts() = {};
}

void Channel::begun() { count_one(&counts().begun, stream_); }
void Channel::ended() { count_one(&counts().ended, stream_); }

// The count of ended messages is read first: those have begun, too.
Channel::Counts Channel::read() const {
  const std::uint64_t ended = std::atomic_ref(counts().ended).load(std::memory_order_acquire),
                      begun = std::atomic_ref(counts().begun).load(std::memory_order_acquire);
  return {begun, ended};
}

bool Channel::look() {
  const Counts now = read();
  return log_.look(now.begun, now.ended);
}

void Channel::tell(const comm::Heartbeat& of, comm::Look& look) {
  const Counts now = read();
  log_.tell(of, look, now.begun, now.ended);
}

}  // namespace tessera::exec::cuda
