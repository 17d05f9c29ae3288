#include "exec/cuda/nccl/communicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <optional>
#include <thread>

#include "exec/cuda/kernel.h"
#include "exec/cuda/nccl/table.h"

namespace tessera::exec::cuda {
namespace {

using std::int64_t;
using Clock = std::chrono::steady_clock;

constexpr double leave_s = 5;  // for the other ranks to leave a communicator as well

std::optional<ncclDataType_t> type_of(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::f64:
      return ncclFloat64;
    case ir::DType::f32:
      return ncclFloat32;
    case ir::DType::bf16:
      return ncclBfloat16;
    case ir::DType::f16:
      return ncclFloat16;
    case ir::DType::i64:
      return ncclInt64;
    case ir::DType::i32:
      return ncclInt32;
    case ir::DType::u8:
      return ncclUint8;
    default:
      return std::nullopt;
  }
}
ncclDataType_t summed_type(ir::DType dtype) {
  const std::optional<ncclDataType_t> type = type_of(dtype);
  CHECK(type, "NCCL has no sum of " + std::string(ir::name(dtype)));
  return *type;
}
std::size_t elements(int64_t bytes, ir::DType dtype) {
  return static_cast<std::size_t>(bytes / ir::size_of(dtype));
}

[[noreturn]] void fail(int result, const std::string& what, ncclComm_t comm) {
  const auto status = static_cast<ncclResult_t>(result);
  std::string said = nccl().error_text(status);
  if (const char* more = nccl().last_error(comm); more && *more) said += std::string(": ") + more;
  // Connections that break, and processes that are gone.
  const bool lost = status == ncclRemoteError || status == ncclSystemError;
  throw Error(lost ? ErrorKind::rank_lost : ErrorKind::device,
              "NCCL could not " + what + " (" + said + ")", "NCCL",
              lost ? "look for the rank that ended first; the same command goes on from the newest "
                     "checkpoint"
                   : "NCCL_DEBUG=INFO says more; --comm mpi stages messages through the host "
                     "instead");
}

bool equal(comm::Counts counts) {
  return std::all_of(counts.begin(), counts.end(),
                     [&](int64_t count) { return count == counts[0]; });
}

// Runs the body between group_start and group_end; the first call that fails is told, and the group
// is closed in any case.
template <class Body>
int grouped(const Body& body) {
  ncclResult_t first = nccl().group_start();
  if (first != ncclSuccess) return first;
  const auto note = [&](ncclResult_t result) {
    if (first == ncclSuccess && result != ncclInProgress) first = result;
  };
  body(note);
  const ncclResult_t end = nccl().group_end();
  return first != ncclSuccess ? first : end;
}

}  // namespace

struct Communicator::State {
  ncclComm_t comm = nullptr;  // null: it was aborted, or is not there yet
};

NcclId new_nccl_id() {
  ncclUniqueId id;
  static_assert(sizeof(id) == sizeof(NcclId));
  if (const ncclResult_t result = nccl().unique_id(&id); result != ncclSuccess)
    fail(result, "make an id", nullptr);
  NcclId out;
  std::memcpy(out.data(), &id, sizeof(id));
  return out;
}

bool nccl_sums(ir::DType dtype) { return type_of(dtype).has_value(); }

Communicator::Communicator(const NcclId& id, int ranks, int rank, int most_blocks, Idle idle)
    : ranks_(ranks), rank_(rank), idle_(std::move(idle)), state_(std::make_unique<State>()) {
  ncclUniqueId raw;
  std::memcpy(&raw, id.data(), sizeof(raw));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (most_blocks > 0) config.maxCTAs = most_blocks;
  try {
    {
      const std::lock_guard lock(mutex_);
      const ncclResult_t result = nccl().init(&state_->comm, ranks, raw, rank, &config);
      if (result != ncclSuccess && result != ncclInProgress)
        fail(result, "join the cards of a group", nullptr);
    }
    settled("join the cards of a group");
  } catch (...) {
    abort();
    throw;
  }
}

Communicator::~Communicator() { finish(); }

void Communicator::finish() {
  if (std::uncaught_exceptions() > 0) return abort();
  {
    const std::lock_guard lock(mutex_);
    if (!state_->comm) return;
    const ncclResult_t result = nccl().finalize(state_->comm);
    if (result == ncclSuccess || result == ncclInProgress) {
      ncclResult_t now = ncclInProgress;
      const Clock::time_point end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                       std::chrono::duration<double>(leave_s));
      while (nccl().async_error(state_->comm, &now) == ncclSuccess && now == ncclInProgress &&
             Clock::now() < end)
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      if (now == ncclSuccess) {
        (void)nccl().destroy(state_->comm);
        state_->comm = nullptr;
        return;
      }
    }
  }
  abort();
}

void Communicator::abort() {
  const std::lock_guard lock(mutex_);
  if (!state_->comm) return;
  (void)nccl().abort(state_->comm);
  state_->comm = nullptr;
}

bool Communicator::aborted() const {
  const std::lock_guard lock(mutex_);
  return !state_->comm;
}

void Communicator::call(const char* what, const std::function<int()>& body) {
  {
    const std::lock_guard lock(mutex_);
    if (!state_->comm)
      throw Error(ErrorKind::rank_lost,
                  std::string("the cards of a group were parted before this rank could ") + what,
                  "NCCL", "");
    const int result = body();
    if (result != ncclSuccess && result != ncclInProgress) fail(result, what, state_->comm);
  }
  settled(what);
}

void Communicator::settled(const char* what) {
  for (int look = 0;; ++look) {
    ncclResult_t now = ncclSuccess;
    {
      const std::lock_guard lock(mutex_);
      if (!state_->comm)
        throw Error(ErrorKind::rank_lost,
                    std::string("the cards of a group were parted while this rank had to ") + what,
                    "NCCL", "");
      const ncclResult_t asked = nccl().async_error(state_->comm, &now);
      if (asked != ncclSuccess && asked != ncclInProgress) now = asked;
      if (now != ncclSuccess && now != ncclInProgress) fail(now, what, state_->comm);
    }
    if (now == ncclSuccess) return;
    if (look < 100) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(look < 1000 ? 20 : 500));
    if (look % 16 == 0) idle_();
  }
}

void Communicator::check() {
  const std::lock_guard lock(mutex_);
  if (!state_->comm)
    throw Error(ErrorKind::rank_lost, "the cards of a group were parted: this job ends", "NCCL",
                "the same command goes on from the newest checkpoint");
  ncclResult_t now = ncclSuccess;
  const ncclResult_t asked = nccl().async_error(state_->comm, &now);
  if (asked != ncclSuccess && asked != ncclInProgress) now = asked;
  if (now != ncclSuccess && now != ncclInProgress)
    fail(now, "exchange a message between cards", state_->comm);
}

void Communicator::all_reduce(const std::byte* in, std::byte* out, int64_t bytes, ir::DType dtype,
                              cudaStream_t stream) {
  if (bytes == 0) return;
  const ncclDataType_t type = summed_type(dtype);
  call("start an all_reduce", [&] {
    return nccl().all_reduce(in, out, elements(bytes, dtype), type, ncclSum, state_->comm, stream);
  });
}

void Communicator::all_gather(const std::byte* in, std::byte* out, comm::Counts counts,
                              cudaStream_t stream) {
  if (equal(counts)) {
    if (counts[0] == 0) return;
    return call("start an all_gather", [&] {
      return nccl().all_gather(in, out, static_cast<std::size_t>(counts[0]), ncclUint8,
                               state_->comm, stream);
    });
  }
  call("start an all_gather", [&] {
    return grouped([&](const auto& note) {
      std::byte* at = out;
      for (int r = 0; r < ranks_; ++r) {
        const int64_t bytes = counts[static_cast<std::size_t>(r)];
        if (bytes > 0)
          note(nccl().broadcast(r == rank_ ? in : at, at, static_cast<std::size_t>(bytes),
                                ncclUint8, r, state_->comm, stream));
        at += bytes;
      }
    });
  });
}

void Communicator::reduce_scatter(const std::byte* in, std::byte* out, comm::Counts counts,
                                  ir::DType dtype, cudaStream_t stream) {
  const ncclDataType_t type = summed_type(dtype);
  if (equal(counts)) {
    if (counts[0] == 0) return;
    return call("start a reduce_scatter", [&] {
      return nccl().reduce_scatter(in, out, elements(counts[0], dtype), type, ncclSum, state_->comm,
                                   stream);
    });
  }
  call("start a reduce_scatter", [&] {
    return grouped([&](const auto& note) {
      const std::byte* at = in;
      for (int r = 0; r < ranks_; ++r) {
        const int64_t bytes = counts[static_cast<std::size_t>(r)];
        if (bytes > 0)
          note(nccl().reduce(at, r == rank_ ? out : nullptr, elements(bytes, dtype), type, ncclSum,
                             r, state_->comm, stream));
        at += bytes;
      }
    });
  });
}

void Communicator::all_to_all(const std::byte* in, comm::Counts leaving, std::byte* out,
                              comm::Counts arriving, cudaStream_t stream) {
  const auto part = [](comm::Counts counts, int r) { return counts[static_cast<std::size_t>(r)]; };
  int64_t kept = 0, own = 0;  // where this rank's own part lies
  for (int r = 0; r < rank_; ++r) {
    kept += part(leaving, r);
    own += part(arriving, r);
  }
  if (const int64_t bytes = part(leaving, rank_); bytes > 0)
    must(::cudaMemcpyAsync(out + own, in + kept, static_cast<std::size_t>(bytes),
                           cudaMemcpyDeviceToDevice, stream),
         "keep this rank's own part");
  if (ranks_ == 1) return;
  call("start an all_to_all", [&] {
    return grouped([&](const auto& note) {
      for (int r = 0; r < ranks_; ++r) {
        const int64_t sent = part(leaving, r), expected = part(arriving, r);
        if (r != rank_ && sent > 0)
          note(nccl().send(in, static_cast<std::size_t>(sent), ncclUint8, r, state_->comm, stream));
        if (r != rank_ && expected > 0)
          note(nccl().recv(out, static_cast<std::size_t>(expected), ncclUint8, r, state_->comm,
                           stream));
        in += sent;
        out += expected;
      }
    });
  });
}

void Communicator::send(const std::byte* data, int64_t bytes, int to, cudaStream_t stream) {
  if (bytes == 0) return;
  call("start to send", [&] {
    return nccl().send(data, static_cast<std::size_t>(bytes), ncclUint8, to, state_->comm, stream);
  });
}

void Communicator::recv(std::byte* data, int64_t bytes, int from, cudaStream_t stream) {
  if (bytes == 0) return;
  call("start to receive", [&] {
    return nccl().recv(data, static_cast<std::size_t>(bytes), ncclUint8, from, state_->comm,
                       stream);
  });
}

}  // namespace tessera::exec::cuda
