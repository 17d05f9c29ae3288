// A group of cards that NCCL has joined, and the calls that are made on it. Convention: every call
// enqueues on a stream and comes back without waiting for other ranks; a call that NCCL finishes in
// a thread of its own is waited for here, so that nothing is under way when it returns. All calls
// are made by the rank's thread; abort() may be called by any.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <mutex>
#include <span>

#include "exec/cuda/nccl/nccl.h"
#include "ir/type.h"

namespace tessera::exec::cuda {

NcclId new_nccl_id();             // Error(device) when there is none
bool nccl_sums(ir::DType dtype);  // whether it adds up elements of this type

class Communicator {
 public:
  // Called again and again while something is waited for; throws to give up.
  using Idle = std::function<void()>;

  // Every rank of the group makes it. `most_blocks`: multiprocessors that one operation may take;
  // 0: as NCCL likes.
  Communicator(const NcclId& id, int ranks, int rank, int most_blocks, Idle idle);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return ranks_; }

  // Counts are bytes, one per rank; where they are all the same there is one call for all.
  void all_reduce(const std::byte* in, std::byte* out, std::int64_t bytes, ir::DType dtype,
                  cudaStream_t stream);
  void all_gather(const std::byte* in, std::byte* out, comm::Counts counts, cudaStream_t stream);
  void reduce_scatter(const std::byte* in, std::byte* out, comm::Counts counts, ir::DType dtype,
                      cudaStream_t stream);
  void all_to_all(const std::byte* in, comm::Counts leaving, std::byte* out, comm::Counts arriving,
                  cudaStream_t stream);
  void send(const std::byte* data, std::int64_t bytes, int to, cudaStream_t stream);
  void recv(std::byte* data, std::int64_t bytes, int from, cudaStream_t stream);

  // Throws what went wrong since, on this rank or on another: Error(rank_lost) or Error(device).
  void check();
  // Ends what is under way, here; the other ranks are not told. Nothing can be called afterwards.
  void abort();
  bool aborted() const;

 private:
  struct State;
  void call(const char* what, const std::function<int()>& body);  // an ncclResult_t comes back
  void settled(const char* what);
  void finish();

  const int ranks_, rank_;
  Idle idle_;
  mutable std::mutex mutex_;  // of `state_`
  std::unique_ptr<State> state_;
};

}  // namespace tessera::exec::cuda
