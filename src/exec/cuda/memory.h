// The memory of a card that plans need: persistent buffers by name, zeroed, and one arena with what
// runs are fed with and leave behind it. Convention: bytes are exactly those of plan::Footprint;
// nothing is taken while plans run.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "exec/common/away.h"
#include "exec/cuda/handles.h"
#include "plan/footprint.h"

namespace tessera::exec::cuda {

struct Room {
  std::int64_t free = 0, total = 0;
};
Room room_on_card();  // of the current one
// Throws Error(memory) with a table of what was asked for and what is there.
[[noreturn]] void out_of_memory(const plan::Footprint& room, std::int64_t held, std::int64_t more,
                                const Room& card);

class Memory {
 public:
  // `stream`: on which plans run. Before an arena moves it is waited for. `folder`: for buffers
  // that rest in a file.
  Memory(cudaStream_t stream, std::string folder) : stream_(stream), file_(std::move(folder)) {}

  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::int64_t more_for(const plan::Footprint& room) const;  // bytes beyond what is held already
  void make_room(const plan::Footprint& room);               // Error(memory) when there is none
  // Null: of an absent operand, and of what rests in a file. `copy`: which one of what a run is fed
  // with and leaves.
  std::byte* address(const plan::Plan& plan, const plan::Slot& slot, int copy) const;
  std::byte* feed(const plan::Plan& plan, int copy) const;
  std::byte* part_of(std::string_view name, std::int64_t offset, std::size_t bytes) const;
  ir::Home home_of(std::string_view name) const {
    return file_.has(name) ? ir::Home::file : buffer(name).home;
  }
  AwayFile& file() { return file_; }
  std::int64_t bytes() const { return held_; }
  std::int64_t host_bytes() const { return host_; }  // pinned, of buffers that rest there
  // Whether the host refused to take weights aside: they are on the card, beyond its plans.
  bool kept_weights() const { return kept_weights_; }
  // How often the arena moved: addresses that were taken at an earlier count are stale.
  std::int64_t moves() const { return moves_; }

 private:
  struct Buffer {
    std::byte* data = nullptr;  // of the host where it rests there
    std::int64_t bytes = 0;
    ir::Home home = ir::Home::device;
  };
  const Buffer& buffer(std::string_view name) const;
  std::byte* take(std::int64_t bytes, DeviceBytes& keep);
  void add_away(const plan::Footprint& room);
  void add_aside(const plan::Footprint& room);
  bool on_card(const plan::Footprint::Room& asked) const {
    return asked.home == ir::Home::device || (asked.aside && kept_weights_);
  }

  cudaStream_t stream_;
  std::map<std::string, Buffer, std::less<>> persistent_;
  std::vector<DeviceBytes> slabs_;  // buffers that came at once lie together
  std::vector<PinnedBytes> pinned_;
  AwayFile file_;
  DeviceBytes arena_;
  std::int64_t arena_bytes_ = 0, held_ = 0, moves_ = 0, host_ = 0;
  bool kept_weights_ = false;
};

}  // namespace tessera::exec::cuda
