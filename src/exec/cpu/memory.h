// Page-aligned memory for buffers and arena: zeroed by the system, on large pages where there are any; what collectives read and write lies
// where other ranks of the machine reach it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/check.h"
#include "comm/comm.h"
#include "exec/executor.h"

namespace tessera::exec::cpu {

[[noreturn]] inline void out_of_memory(std::int64_t bytes, std::int64_t available) {
  throw Error(ErrorKind::memory,
              "the plan needs " + std::to_string(bytes >> 20) + " MiB more and the system has " + std::to_string(available >> 20) + " MiB",
              "memory",
              "use a smaller micro-batch (--accumulate), --set parallel.recompute=full or a smaller model; `tessera explain` shows the "
              "peak without running");
}

class Pages {
 public:
  Pages() = default;
  // The first `shared` bytes are for other ranks to reach too, where `comm` can do that; null: there are none.
  Pages(std::int64_t shared, std::int64_t own, comm::Comm* comm) : shared_(comm ? shared : 0) {
    try {
      memory_ = comm ? comm->allocate(shared, own) : comm::plain_memory(shared + own);
    } catch (const Error&) {
      out_of_memory(shared + own, available_memory());
    }
  }

  std::byte* data() const { return memory_ ? memory_->data() : nullptr; }
  std::int64_t bytes() const { return memory_ ? memory_->bytes() : 0; }
  std::int64_t shared() const { return shared_; }

 private:
  std::unique_ptr<comm::Memory> memory_;
  std::int64_t shared_ = 0;
};

}  // namespace tessera::exec::cpu
