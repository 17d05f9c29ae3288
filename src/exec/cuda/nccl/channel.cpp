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
                 const Communicator::Idle& idle)
    : group_(group),
      cards_(id, ranks, rank, most_blocks, idle),
      stream_(urgent_stream()),
      counts_(pin(sizeof(Counts))) {
  *reinterpret_cast<Counts*>(counts_.get()) = {};
  if (const comm::Comm::Watched& by = group.watched(); by.heartbeat)
    noted_as_ = by.heartbeat->join("nccl " + by.name, by.color);
}

void Channel::begun() { count_one(&reinterpret_cast<Counts*>(counts_.get())->begun, stream_); }
void Channel::ended() { count_one(&reinterpret_cast<Counts*>(counts_.get())->ended, stream_); }

void Channel::posted(comm::Verb verb, std::int64_t bytes, std::string scope) {
  group_.count(verb, bytes);
  posted_.push_back({.verb = verb, .scope = std::move(scope)});
}

bool Channel::look() {
  Counts& counts = *reinterpret_cast<Counts*>(counts_.get());
  // What has ended is read first: it has begun, too.
  const std::uint64_t ended = std::atomic_ref(counts.ended).load(std::memory_order_acquire),
                      begun = std::atomic_ref(counts.begun).load(std::memory_order_acquire);
  comm::Heartbeat* const heartbeat = noted_as_ < 0 ? nullptr : group_.watched().heartbeat;
  const bool moved = begun != seen_begun_ || ended != seen_ended_;
  for (; seen_begun_ < begun; ++seen_begun_) {
    const std::uint64_t place = seen_begun_ - seen_ended_;
    if (place >= posted_.size()) continue;
    Message& message = posted_[static_cast<std::size_t>(place)];
    if (heartbeat) message.number = heartbeat->enter(noted_as_, message.verb);
  }
  for (; seen_ended_ < ended && !posted_.empty(); ++seen_ended_, posted_.pop_front())
    if (const Message& message = posted_.front(); heartbeat)
      heartbeat->leave(noted_as_, message.verb, message.number, message.scope);
  return moved;
}

void Channel::note_wait() const {
  if (noted_as_ < 0 || posted_.empty()) return;
  const Message& message = posted_.front();
  group_.watched().heartbeat->wait(noted_as_, message.verb, message.number, message.scope);
}

}  // namespace tessera::exec::cuda
