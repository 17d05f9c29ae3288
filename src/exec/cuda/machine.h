// The state that the plans of one executor share: a card, its streams and libraries, the memory,
// and the groups of ranks. Convention: every public call of an executor says here() first, because
// the current card belongs to a thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/threads.h"
#include "exec/cuda/card.h"
#include "exec/cuda/memory.h"
#include "exec/cuda/products/blas.h"
#include "exec/cuda/products/dnn.h"
#include "exec/executor.h"

namespace tessera::exec::cuda {

class Channels;  // nccl/channels.h

struct Machine {
  // `folder`: for buffers that rest in a file.
  Machine(int threads, Groups given, Carrier carrier, std::string folder, Liberties liberties);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  void here() const;  // the card is this thread's
  // Each of these throws Error(rank_lost) when what is waited for needs a rank that cannot go on.
  void wait(cudaEvent_t event, const char* what);
  void wait_for_stream(cudaStream_t stream, const char* what);  // what it has been given so far
  void wait_for_compute(const char* what) { wait_for_stream(compute, what); }
  // A copy into pageable memory waits inside the driver, where nobody can call it off: what it is
  // behind is waited for first, where that may need other ranks.
  void before_reading(cudaStream_t stream, const char* what) {
    if (channels) wait_for_stream(stream, what);
  }
  void settle();                           // waits for everything that was submitted; never throws
  void note(const std::string& sentence);  // once, however often it is said

  const Card card;
  // Runs; what they are fed with, on its way up; what crosses ranks, both ways, and results that
  // are read.
  Stream compute, upload, transfer;
  Stream fetch, stow;  // what rests on the host: on its way up, and down
  Choices choices;     // before what fills it
  std::unique_ptr<Blas> blas;
  std::unique_ptr<Dnn> dnn;
  Context context;
  Groups groups;
  std::optional<ThreadPool> pool;  // for what the host does between ranks; none: it is alone
  Memory memory;
  std::int64_t pinned = 0;       // bytes of the host
  std::int64_t graph_bytes = 0;  // that the driver took for graphs
  std::vector<std::string> notes;
  std::int64_t runs = 0;               // of all plans
  std::int64_t writes = 0;             // of persistent buffers, from outside or by a run
  const Loaded* last = nullptr;        // whose run the last one was
  std::int64_t since = 0;              // the first of its runs without another's in between
  Event before;                        // when the last run of another plan was over
  Event mark;                          // of wait_for_stream
  std::unique_ptr<Channels> channels;  // null: what crosses ranks is staged through the host
};

}  // namespace tessera::exec::cuda
