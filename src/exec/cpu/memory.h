// The memory of an executor: page-aligned buffers and arena, zeroed by the system, on large pages
// where there are any; what collectives read and write lies where other ranks of the machine reach
// it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "comm/comm.h"
#include "plan/footprint.h"

namespace tessera::exec::cpu {

// Bytes that the system could still give us: /proc/meminfo, and the limit of its control group; a
// very large number where neither is known.
std::int64_t available_memory();
[[noreturn]] void out_of_memory(std::int64_t bytes, std::int64_t available);

class Pages {
 public:
  Pages() = default;
  // The first `shared` bytes are for other ranks to reach too, where `comm` can do that; null:
  // there are none.
  Pages(std::int64_t shared, std::int64_t own, comm::Comm* comm);

  std::byte* data() const { return memory_ ? memory_->data() : nullptr; }
  std::int64_t bytes() const { return memory_ ? memory_->bytes() : 0; }
  std::int64_t shared() const { return shared_; }

 private:
  std::unique_ptr<comm::Memory> memory_;
  std::int64_t shared_ = 0;
};

// Persistent buffers by name, and one block for all plans: a plan's arena, and behind it what its
// runs are fed with and leave.
class Memory {
 public:
  // `comm`: any group of this rank, since what one of them takes is in the reach of all; null: this
  // rank is alone.
  explicit Memory(comm::Comm* comm) : comm_(comm) {}

  std::int64_t more_for(const plan::Footprint& room) const;  // bytes beyond what is held already
  void make_room(const plan::Footprint& room);               // Error(memory) when there is none
  // Null: of an absent operand. `copy`: which one of what a run is fed with and leaves.
  std::byte* address(const plan::Plan& plan, const plan::Slot& slot, int copy) const;
  std::byte* part_of(std::string_view name, std::int64_t offset, std::size_t bytes) const;
  std::int64_t bytes() const;
  // How often something that was there before moved: addresses that were taken at an earlier count
  // may be stale.
  std::int64_t moves() const { return moves_; }

 private:
  Pages take(std::int64_t shared, std::int64_t bytes) const {
    return Pages(shared, bytes - shared, comm_);
  }
  const Pages& buffer(std::string_view name) const;

  comm::Comm* comm_;
  std::map<std::string, Pages, std::less<>> persistent_;
  Pages arena_;  // and what lies behind it
  std::int64_t moves_ = 0;
};

}  // namespace tessera::exec::cpu
