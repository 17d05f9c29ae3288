// A library with NCCL's ABI for tests with one card: ranks may share it, as processes or as
// threads. What an operation takes is copied down into pinned memory, a thread of the communicator
// exchanges it with the other ranks, and the stream waits for that before it copies the result up.
// Convention: the stream waits for a value in memory, which is captured as a node of a graph and
// holds up no other stream; with TESSERA_TEST_NCCL_HOST=1 a host function waits instead, which is
// enough where a process has one communicator.
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "nccl/work.h"

namespace {

using namespace tessera::test;

constexpr std::size_t staging_bytes = 32 << 20;  // of one communicator, both ways

// Writes and waits for words of memory in a stream; null where the driver has no such call.
using MemoryOps = decltype(::cuStreamBatchMemOp);
MemoryOps* memory_ops() {
  static MemoryOps* const found = [] {
    void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
    return library ? reinterpret_cast<MemoryOps*>(::dlsym(library, "cuStreamBatchMemOp_v2"))
                   : nullptr;
  }();
  return found;
}
bool waits_in_host_functions() {
  static const bool asked = [] {
    const char* given = std::getenv("TESSERA_TEST_NCCL_HOST");
    return given && std::strcmp(given, "1") == 0;
  }();
  return asked || !memory_ops();
}

// Seen by the card and by the thread that exchanges.
struct Bell {
  std::uint32_t posted = 0;  // the batch that is down; 0: none
  std::uint32_t ready = 0;   // 1: its results are there
};
std::uint32_t load(std::uint32_t& word) {
  return std::atomic_ref(word).load(std::memory_order_acquire);
}
void store(std::uint32_t& word, std::uint32_t value) {
  std::atomic_ref(word).store(value, std::memory_order_release);
}

// Memory of the card is gone when the process ends: no thread may look at it then.
std::atomic<int> serving = 0;
std::atomic<bool> ending = false;
void end_all() {
  ending = true;
  for (int i = 0; i < 1000 && serving > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

thread_local std::string last_error;
ncclResult_t failed(const std::string& what, ncclResult_t result = ncclInternalError) {
  last_error = "test library: " + what;
  return result;
}

}  // namespace

struct ncclComm {
  int ranks = 1, rank = 0;
  std::unique_ptr<Exchange> exchange;
  std::byte* pinned = nullptr;                                // the bell, then what is staged
  std::mutex mutex;                                           // of `batches`
  std::vector<std::unique_ptr<std::vector<NcclOp>>> batches;  // by number - 1; graphs keep theirs
  std::atomic<ncclResult_t> state = ncclInProgress;
  std::atomic<bool> aborted = false, leave = false;
  std::thread service;

  Bell& bell() { return *reinterpret_cast<Bell*>(pinned); }
  std::byte* staging() { return pinned + 4096; }

  void serve() {
    serve_until_the_end();
    --serving;
  }
  void serve_until_the_end() {
    if (!exchange->wait_for_all()) {
      state = exchange->lost() >= 0 ? ncclRemoteError : ncclInternalError;
      if (!aborted) return;
    } else {
      state = ncclSuccess;
    }
    for (long idle = 0; !leave && !ending; ++idle) {
      const std::uint32_t number = load(bell().posted);
      if (number == 0) {
        if (idle < 2000)
          std::this_thread::yield();
        else
          std::this_thread::sleep_for(std::chrono::microseconds(20));
        continue;
      }
      idle = 0;
      store(bell().posted, 0);
      if (!aborted && !answer(number)) {
        // As with NCCL, what waits for a rank that is lost waits until it is aborted.
        if (!aborted) state = ncclRemoteError;
        while (!aborted && !leave && !ending)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      store(bell().ready, 1);
    }
  }
  bool answer(std::uint32_t number) {
    std::vector<NcclOp>* batch = nullptr;
    {
      const std::lock_guard lock(mutex);
      batch = batches[number - 1].get();
    }
    return carry_out(*batch, *exchange, ranks, rank);
  }
};

namespace {

struct Post {
  ncclComm* comm;
  std::uint32_t number;
};
void post_and_wait(void* given) {
  const Post& post = *static_cast<Post*>(given);
  Bell& bell = post.comm->bell();
  store(bell.posted, post.number);
  while (load(bell.ready) == 0) std::this_thread::sleep_for(std::chrono::microseconds(10));
  store(bell.ready, 0);
}

ncclResult_t ring(ncclComm* comm, std::uint32_t number, cudaStream_t stream) {
  if (waits_in_host_functions()) {
    auto* const post = new Post{comm, number};  // graphs keep it
    return ::cudaLaunchHostFunc(stream, post_and_wait, post) == cudaSuccess
               ? ncclSuccess
               : failed("a host function was refused", ncclUnhandledCudaError);
  }
  const auto write = [&](std::uint32_t& word, std::uint32_t value) {
    CUstreamBatchMemOpParams op = {};
    op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    op.writeValue.address = reinterpret_cast<CUdeviceptr>(&word);
    op.writeValue.value = value;
    op.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    return memory_ops()(stream, 1, &op, 0) == CUDA_SUCCESS;
  };
  const auto wait = [&](std::uint32_t& word, std::uint32_t value) {
    CUstreamBatchMemOpParams op = {};
    op.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    op.waitValue.address = reinterpret_cast<CUdeviceptr>(&word);
    op.waitValue.value = value;
    op.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    return memory_ops()(stream, 1, &op, 0) == CUDA_SUCCESS;
  };
  Bell& bell = comm->bell();
  const bool done = write(bell.posted, number) && wait(bell.ready, 1) && write(bell.ready, 0);
  return done ? ncclSuccess : failed("a stream refused to wait", ncclUnhandledCudaError);
}

ncclResult_t enqueue(ncclComm* comm, std::vector<NcclOp> ops, cudaStream_t stream) {
  if (comm->aborted) return failed("the communicator was aborted", ncclInvalidUsage);
  std::size_t at = 0;
  const auto room = [&](std::size_t bytes) {
    std::byte* const place = comm->staging() + at;
    at += (bytes + 255) / 256 * 256;
    return place;
  };
  for (NcclOp& op : ops) {
    op.staged = room(bytes_in(op, comm->ranks, comm->rank));
    op.made = room(bytes_out(op, comm->ranks, comm->rank));
  }
  if (at > staging_bytes) return failed("a message is larger than what it is staged in");
  std::uint32_t number = 0;
  {
    const std::lock_guard lock(comm->mutex);
    comm->batches.push_back(std::make_unique<std::vector<NcclOp>>(ops));
    number = static_cast<std::uint32_t>(comm->batches.size());
  }
  for (const NcclOp& op : ops)
    if (const std::size_t bytes = bytes_in(op, comm->ranks, comm->rank); bytes > 0)
      if (::cudaMemcpyAsync(op.staged, op.from, bytes, cudaMemcpyDeviceToHost, stream) !=
          cudaSuccess)
        return failed("a copy was refused", ncclUnhandledCudaError);
  if (const ncclResult_t rung = ring(comm, number, stream); rung != ncclSuccess) return rung;
  for (const NcclOp& op : ops)
    if (const std::size_t bytes = bytes_out(op, comm->ranks, comm->rank); bytes > 0)
      if (::cudaMemcpyAsync(op.to, op.made, bytes, cudaMemcpyHostToDevice, stream) != cudaSuccess)
        return failed("a copy was refused", ncclUnhandledCudaError);
  return ncclSuccess;
}

struct Grouped {
  ncclComm* comm;
  cudaStream_t stream;
  std::vector<NcclOp> ops;
};
thread_local int depth = 0;
thread_local std::vector<Grouped> group;

ncclResult_t add(ncclComm* comm, cudaStream_t stream, const NcclOp& op) {
  if (size_of(op.type) == 0) return failed("no such element type", ncclInvalidArgument);
  if (comm->state == ncclRemoteError) return failed("a rank is gone", ncclRemoteError);
  if (depth == 0) return enqueue(comm, {op}, stream);
  for (Grouped& one : group)
    if (one.comm == comm && one.stream == stream) {
      one.ops.push_back(op);
      return ncclSuccess;
    }
  group.push_back({comm, stream, {op}});
  return ncclSuccess;
}

NcclOp op_of(Kind kind, const void* from, void* to, std::size_t count, ncclDataType_t type,
             int peer = 0) {
  return {.kind = kind,
          .from = from,
          .to = to,
          .bytes = count * size_of(type),
          .type = type,
          .peer = peer};
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited" : "error of the test library";
}
const char* ncclGetLastError(ncclComm_t) { return last_error.c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> next = 0;
  std::memset(id, 0, sizeof(*id));
  std::snprintf(
      id->internal, sizeof(id->internal), "/tessera-nccl-%d-%d-%lld", ::getpid(), ++next,
      static_cast<long long>(std::chrono::steady_clock::now().time_since_epoch().count()));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t*) {
  auto comm = std::make_unique<ncclComm>();
  comm->ranks = ranks;
  comm->rank = rank;
  try {
    comm->exchange = std::make_unique<Exchange>(id.internal, ranks, rank);
  } catch (const std::exception& error) {
    return failed(error.what(), ncclSystemError);
  }
  void* pinned = nullptr;
  if (::cudaHostAlloc(&pinned, 4096 + staging_bytes, cudaHostAllocPortable | cudaHostAllocMapped) !=
      cudaSuccess)
    return failed("no pinned memory", ncclUnhandledCudaError);
  std::memset(pinned, 0, 4096);
  comm->pinned = static_cast<std::byte*>(pinned);
  static const int told = std::atexit(end_all);
  (void)told;
  ++serving;
  comm->service = std::thread([raw = comm.get()] { raw->serve(); });
  *out = comm.release();
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = comm->state;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  comm->leave = true;
  comm->exchange->close();
  comm->service.join();
  (void)::cudaFreeHost(comm->pinned);
  delete comm;
  return ncclSuccess;
}

// Streams may still have batches of it before them: the thread answers those for as long as the
// process lives.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->aborted = true;
  comm->exchange->close();
  comm->service.detach();
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (depth == 0) return failed("a group ends that did not begin", ncclInvalidUsage);
  if (--depth > 0) return ncclSuccess;
  ncclResult_t first = ncclSuccess;
  for (Grouped& one : std::exchange(group, {}))
    if (first == ncclSuccess) first = enqueue(one.comm, std::move(one.ops), one.stream);
  return first;
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  if (op != ncclSum) return failed("no other reduction than a sum", ncclInvalidArgument);
  return add(comm, stream, op_of(Kind::all_reduce, from, to, count, type));
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  if (op != ncclSum) return failed("no other reduction than a sum", ncclInvalidArgument);
  return add(comm, stream, op_of(Kind::reduce_scatter, from, to, count, type));
}
ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  if (op != ncclSum) return failed("no other reduction than a sum", ncclInvalidArgument);
  return add(comm, stream, op_of(Kind::reduce, from, to, count, type, root));
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, op_of(Kind::all_gather, from, to, count, type));
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, op_of(Kind::broadcast, from, to, count, type, root));
}
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, op_of(Kind::send, from, nullptr, count, type, peer));
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add(comm, stream, op_of(Kind::recv, nullptr, to, count, type, peer));
}

}  // extern "C"
