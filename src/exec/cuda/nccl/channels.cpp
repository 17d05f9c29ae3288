#include "exec/cuda/nccl/channels.h"

#include <chrono>
#include <cstdlib>
#include <set>
#include <thread>

#include "base/check.h"

namespace tessera::exec::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// A message between stages waits on the card until the other one comes: that takes few
// multiprocessors away from what is computed meanwhile.
constexpr int pair_blocks = 8;
constexpr auto verdict_first = std::chrono::seconds(3);

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int noted(const std::string& name, const comm::Comm& group) {
  const comm::Comm::Watched& by = group.watched();
  return by.heartbeat ? by.heartbeat->join(name, by.color) : -1;
}

}  // namespace

Channels::Channels(const Groups& groups)
    : groups_(groups),
      mark_(make_event()),
      watched_(
          [this] {
            ending_ = true;
            abort();
          },
          [this](const comm::Heartbeat& of, comm::Look& look) { tell(of, look); }) {
  // Ranks that are threads capture one after the other; registering buffers meanwhile would wait
  // for the others.
  if (comm::thread_rank() >= 0) {
    static const int once = ::setenv("NCCL_GRAPH_REGISTER", "0", 0);
    (void)once;
  }
}

Channels::~Channels() {
  const std::lock_guard lock(mutex_);
  all_.clear();
}

Channels::Key Channels::key_of(const plan::Step& step) {
  if (const ir::Message* message = std::get_if<ir::Message>(&step.attrs))
    return {message->axis, message->from, message->to};
  return {ir::axis_of(step.attrs), -1, -1};
}

Channel& Channels::of(const plan::Step& step) {
  const auto found = all_.find(key_of(step));
  CHECK(found != all_.end(), "a plan was loaded without its channels");
  return *found->second;
}

void Channels::prepare(const plan::Plan& plan) {
  std::set<Key> missing;
  for (const plan::Step& step : plan.steps) {
    if (!plan::crosses_ranks(step.op)) continue;
    const Key key = key_of(step);
    if (!all_.contains(key)) missing.insert(key);
    // A message that goes one way in one plan comes back in another: both ways are made at once.
    const auto& [axis, from, to] = key;
    if (from >= 0 && !all_.contains(Key{axis, to, from})) missing.insert({axis, to, from});
  }
  std::map<std::string, std::vector<Key>> pairs;
  for (const Key& key : missing) {
    if (std::get<1>(key) < 0)
      join_axis(std::get<0>(key));
    else
      pairs[std::get<0>(key)].push_back(key);
  }
  for (const auto& [axis, keys] : pairs) join_pairs(axis, keys);
}

void Channels::join_axis(const std::string& axis) {
  comm::Comm& group = *groups_.at(axis);
  comm::Heartbeat::doing("joining the cards of " + axis);
  const NcclId id = agree_on_id(group, new_nccl_id);
  auto channel = std::make_unique<Channel>(id, group.size(), group.rank(), 0, group,
                                           noted("nccl " + axis, group), [this] { check(); });
  const std::lock_guard lock(mutex_);
  all_[{axis, -1, -1}] = std::move(channel);
}

void Channels::join_pairs(const std::string& axis, const std::vector<Key>& pairs) {
  comm::Comm& group = *groups_.at(axis);
  comm::Heartbeat::doing("joining the cards of " + axis);
  std::vector<bool> sends(static_cast<std::size_t>(group.size()));
  for (const auto& [of, from, to] : pairs)
    if (from == group.rank()) sends[static_cast<std::size_t>(to)] = true;
  if (pairs_noted_as_ < 0) pairs_noted_as_ = noted("nccl p2p", group);
  const auto ids = agree_on_pairs(group, sends, new_nccl_id);
  // Every rank goes through its pairs in the same order, so the first of all is joined by both.
  for (const Key& key : pairs) {
    const auto& [of, from, to] = key;
    const NcclId& id = ids[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
    auto channel = std::make_unique<Channel>(id, 2, from == group.rank() ? 0 : 1, pair_blocks,
                                             group, pairs_noted_as_, [this] { check(); });
    const std::lock_guard lock(mutex_);
    all_[key] = std::move(channel);
  }
}

void Channels::look() {
  bool moved = false;
  for (const auto& [key, channel] : all_) moved |= channel->look();
  if (!moved) return;
  const MessageLog* waits = nullptr;
  for (const auto& [key, channel] : all_)
    if (const MessageLog& log = channel->log(); log.waits() && (!waits || log.waits_for_all()))
      waits = &log;
  if (waits) waits->note_wait();
}

// A thread that aborts holds the mutex for as long as NCCL takes; the watchdog cannot wait for
// that.
void Channels::tell(const comm::Heartbeat& of, comm::Look& look) {
  if (const std::unique_lock lock(mutex_, std::try_to_lock); lock)
    for (const auto& [key, channel] : all_) channel->tell(of, look);
}

void Channels::check() {
  if (called_off_) {
    // The thread that ends this process says why.
    if (ending_) std::this_thread::sleep_for(verdict_first);
    throw Error(ErrorKind::rank_lost, "the job was ended while this rank waited for others", "NCCL",
                "the same command goes on from the newest checkpoint");
  }
  for (const auto& [axis, group] : groups_)
    if (const std::string why = group->stopped(); !why.empty())
      throw Error(ErrorKind::rank_lost, why);
  for (const auto& [key, channel] : all_) channel->cards().check();
}

void Channels::wait(cudaEvent_t event, const char* what) {
  for (std::int64_t looks = 0;; ++looks) {
    const cudaError_t status = ::cudaEventQuery(event);
    if (status != cudaErrorNotReady) {
      must(status, what);
      look();
      if (called_off_) check();  // what arrived is nothing
      return;
    }
    if (looks < 2000) continue;
    if (looks % 8 == 0) look();
    if (looks % 1024 == 0) {
      try {
        check();
      } catch (...) {
        abort();
        throw;
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

void Channels::settle(cudaStream_t stream, double most_s) {
  const Clock::time_point start = Clock::now();
  bool aborted = false;
  while (::cudaStreamQuery(stream) == cudaErrorNotReady) {
    bool lost = seconds_since(start) > most_s;
    for (const auto& [axis, group] : groups_) lost |= !group->stopped().empty();
    if (lost && !std::exchange(aborted, true)) abort();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  (void)::cudaGetLastError();
}

void Channels::abort() {
  called_off_ = true;
  const std::lock_guard lock(mutex_);
  for (const auto& [key, channel] : all_) channel->cards().abort();
}

}  // namespace tessera::exec::cuda
