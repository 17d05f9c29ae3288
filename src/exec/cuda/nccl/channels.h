// The channels of one executor: one per axis of the mesh, and one per ordered pair of pipeline
// stages that hand something over, so that no message waits behind one of another kind. They are
// made when the first plan needs them. Convention: all ranks of a group load plans of the same
// program at the same time for the first time, so they make their channels together.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "comm/call_off.h"
#include "exec/cuda/nccl/channel.h"
#include "exec/device.h"
#include "plan/plan.h"

namespace tessera::exec::cuda {

class Channels {
 public:
  explicit Channels(const Groups& groups);
  ~Channels();

  void prepare(const plan::Plan& plan);
  Channel& of(const plan::Step& step);

  // Waits for an event of the card while it watches: Error(rank_lost) when another rank cannot go
  // on, after what the card waits for was called off. The rank's heartbeat moves only when messages
  // do.
  void wait(cudaEvent_t event, const char* what);
  // The same for everything that the stream was given, at most so many seconds; then, and when a
  // rank is lost, messages are called off and the wait goes on. It never throws.
  void settle(cudaStream_t stream, double most_s);
  void abort();  // from any thread; the job ends

 private:
  // The axis; of messages between stages also from and to, of others -1.
  using Key = std::tuple<std::string, int, int>;
  static Key key_of(const plan::Step& step);
  void join_axis(const std::string& axis);
  void join_pairs(const std::string& axis, const std::vector<Key>& pairs);
  void look();
  void tell(const comm::Heartbeat& of, comm::Look& look);
  void check();  // throws when a rank is lost, or NCCL says that something is wrong

  const Groups& groups_;
  std::map<Key, std::unique_ptr<Channel>> all_;
  int pairs_noted_as_ = -1;               // the group of messages between stages in the heartbeat
  std::mutex mutex_;                      // of `all_`, which abort() and tell() walk through
  std::atomic<bool> called_off_ = false;  // by this rank or another thread
  std::atomic<bool> ending_ = false;      // another thread is about to end this process
  Event mark_;
  comm::CallOff watched_;
};

}  // namespace tessera::exec::cuda
