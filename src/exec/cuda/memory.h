// The memory of a card that plans need: persistent buffers by name, zeroed, and one arena with what
// runs are fed with and leave behind it. Convention: bytes are exactly those of plan::Footprint;
// nothing is taken while plans run.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "exec/cuda/handles.h"
#include "plan/footprint.h"

namespace tessera::exec::cuda {

struct Room {
  std::int64_t free = 0, total = 0;
};
Room room_on_card();  // of the current one
// What was asked for and what is there, as a table.
[[noreturn]] void out_of_memory(const plan::Footprint& room, std::int64_t held, std::int64_t more,
                                const Room& card);

class Memory {
 public:
  // `stream`: on which plans run. Before an arena moves it is waited for.
  explicit Memory(cudaStream_t stream) : stream_(stream) {}

  std::int64_t more_for(const plan::Footprint& room) const;  // bytes beyond what is held already
  void make_room(const plan::Footprint& room);               // Error(memory) when there is none
  // Null: of an absent operand. `copy`: which one of what a run is fed with and leaves.
  std::byte* address(const plan::Plan& plan, const plan::Slot& slot, int copy) const;
  std::byte* feed(const plan::Plan& plan, int copy) const;
  std::byte* part_of(std::string_view name, std::int64_t offset, std::size_t bytes) const;
  std::int64_t bytes() const { return held_; }
  // How often the arena moved: addresses that were taken at an earlier count are stale.
  std::int64_t moves() const { return moves_; }

 private:
  struct Buffer {
    std::byte* data = nullptr;
    std::int64_t bytes = 0;
  };
  const Buffer& buffer(std::string_view name) const;
  std::byte* take(std::int64_t bytes, DeviceBytes& keep);

  cudaStream_t stream_;
  std::map<std::string, Buffer, std::less<>> persistent_;
  std::vector<DeviceBytes> slabs_;  // buffers that came at once lie together
  DeviceBytes arena_;
  std::int64_t arena_bytes_ = 0, held_ = 0, moves_ = 0;
};

}  // namespace tessera::exec::cuda
