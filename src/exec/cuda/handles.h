// Owners of what the runtime gives and must be given back: streams, events, graphs, memory of the
// card and pinned memory of the host. Convention: the card is the current one of the calling
// thread; streams never wait for the legacy one.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <utility>

#include "exec/cuda/failure.h"
#include "exec/cuda/kernel.h"

namespace tessera::exec::cuda {

// Held while something is captured, and by whoever takes or gives back memory: threads of one
// process share the card.
inline std::mutex& one_at_a_time() {
  static std::mutex mutex;
  return mutex;
}

template <class T, cudaError_t (*destroy)(T)>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T raw) : raw_(raw) {}
  Handle(Handle&& other) noexcept : raw_(std::exchange(other.raw_, T{})) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Handle() {
    if (raw_) (void)destroy(raw_);
  }
  operator T() const { return raw_; }
  T get() const { return raw_; }

 private:
  T raw_{};
};

using Stream = Handle<cudaStream_t, ::cudaStreamDestroy>;
inline Stream make_stream() {
  cudaStream_t raw = nullptr;
  must(::cudaStreamCreateWithFlags(&raw, cudaStreamNonBlocking), "make a stream");
  return Stream(raw);
}

using Event = Handle<cudaEvent_t, ::cudaEventDestroy>;
// One that is waited for by sleeping, and one whose time can be asked for.
inline Event make_event(bool timed = false) {
  cudaEvent_t raw = nullptr;
  must(::cudaEventCreateWithFlags(
           &raw, cudaEventBlockingSync | (timed ? 0u : unsigned{cudaEventDisableTiming})),
       "make an event");
  return Event(raw);
}
// Looks for a short while before it sleeps: waking up takes longer than a small model runs.
inline void wait_for(cudaEvent_t event, const char* what) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(1);
  do {
    const cudaError_t status = ::cudaEventQuery(event);
    if (status != cudaErrorNotReady) return must(status, what);
  } while (std::chrono::steady_clock::now() < until);
  must(::cudaEventSynchronize(event), what);
}

using GraphExec = Handle<cudaGraphExec_t, ::cudaGraphExecDestroy>;

inline cudaError_t free_device(std::byte* data) {
  const std::lock_guard lock(one_at_a_time());
  return ::cudaFree(data);
}
inline cudaError_t free_host(std::byte* data) {
  const std::lock_guard lock(one_at_a_time());
  return ::cudaFreeHost(data);
}
using DeviceBytes = Handle<std::byte*, free_device>;
using PinnedBytes = Handle<std::byte*, free_host>;

inline PinnedBytes pin(std::int64_t bytes) {
  if (bytes == 0) return {};
  const std::lock_guard lock(one_at_a_time());
  void* raw = nullptr;
  must(::cudaHostAlloc(&raw, static_cast<std::size_t>(bytes), cudaHostAllocDefault),
       "pin memory of the host");
  return PinnedBytes(static_cast<std::byte*>(raw));
}

// Memory of the host that is copied to the card: pinned, or pageable where pinning is refused (a
// limit on locked memory); then a copy is slower and holds up whoever asks for it.
struct HostBytes {
  PinnedBytes pinned{};
  std::unique_ptr<std::byte[]> pageable{};
  std::byte* data() const { return pinned ? pinned.get() : pageable.get(); }
};
inline HostBytes pin_if_allowed(std::int64_t bytes, const char* what) {
  HostBytes out;
  if (bytes == 0) return out;
  void* raw = nullptr;
  const std::lock_guard lock(one_at_a_time());
  if (refused(::cudaHostAlloc(&raw, static_cast<std::size_t>(bytes), cudaHostAllocDefault), what))
    out.pageable = std::make_unique<std::byte[]>(static_cast<std::size_t>(bytes));
  else
    out.pinned = PinnedBytes(static_cast<std::byte*>(raw));
  return out;
}

inline void copy(void* to, const void* from, std::int64_t bytes, cudaMemcpyKind kind,
                 cudaStream_t stream, const char* what) {
  if (bytes > 0)
    must(::cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), kind, stream), what);
}

}  // namespace tessera::exec::cuda
