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
#include "exec/common/away.h"
#include "plan/footprint.h"

namespace tessera::exec::cpu {

// Bytes that the system could still give us: /proc/meminfo, and the limit of its control group; a
// very large number where neither is known.
std::int64_t available_memory();
// `said` is the system's answer when it was asked for them.
[[noreturn]] void out_of_memory(std::int64_t bytes, std::int64_t available,
                                const std::string& said = "");

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
// runs are fed with and leave. Buffers that rest on the host have memory of their own, apart from
// what plans compute in; those that rest in a file have none.
class Memory {
 public:
  // `comm`: any group of this rank, since what one of them takes is in the reach of all; null: this
  // rank is alone. `folder`: for buffers that rest in a file.
  Memory(comm::Comm* comm, std::string folder) : comm_(comm), file_(std::move(folder)) {}

  // Bytes of memory beyond what is held already, wherever buffers rest.
  std::int64_t more_for(const plan::Footprint& room) const;
  void make_room(const plan::Footprint& room);  // Error(memory) when there is none
  // Null: of an absent operand, and of what rests in a file. `copy`: which one of what a run is fed
  // with and leaves.
  std::byte* address(const plan::Plan& plan, const plan::Slot& slot, int copy) const;
  void write(std::string_view name, std::int64_t offset, std::span<const std::byte> bytes);
  void read(std::string_view name, std::int64_t offset, std::span<std::byte> bytes) const;
  AwayFile& file() { return file_; }
  const AwayFile& file() const { return file_; }
  std::int64_t bytes() const;  // that plans compute in
  std::int64_t host_bytes() const { return host_; }
  // How often something that was there before moved: addresses that were taken at an earlier count
  // may be stale.
  std::int64_t moves() const { return moves_; }

 private:
  Pages take(std::int64_t shared, std::int64_t bytes) const {
    return Pages(shared, bytes - shared, comm_);
  }
  const Pages& buffer(std::string_view name) const;
  std::byte* part_of(std::string_view name, std::int64_t offset, std::size_t bytes) const;
  void add(const std::string& name, const plan::Footprint::Room& asked);

  comm::Comm* comm_;
  AwayFile file_;
  std::int64_t host_ = 0;  // of persistent buffers
  std::map<std::string, Pages, std::less<>> persistent_;
  Pages arena_;  // and what lies behind it
  std::int64_t moves_ = 0;
};

}  // namespace tessera::exec::cpu
