#include "exec/cuda/memory.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "exec/cuda/failure.h"

namespace tessera::exec::cuda {
namespace {

std::string mb(std::int64_t bytes) { return std::to_string(bytes / 1'000'000) + " MB"; }

// Bytes that executors of this process hold, on any card.
std::atomic<std::int64_t>& held_by_all() {
  static std::atomic<std::int64_t> bytes{0};
  return bytes;
}

// TESSERA_CUDA_MEMORY_MB pretends a card with so much memory for this process.
std::int64_t memory_cap() {
  const char* given = std::getenv("TESSERA_CUDA_MEMORY_MB");
  return given ? std::max<std::int64_t>(0, std::atoll(given)) << 20 : -1;
}

}  // namespace

Room room_on_card() {
  std::size_t free = 0, total = 0;
  must(::cudaMemGetInfo(&free, &total), "ask for the free memory of the card");
  const Room card{static_cast<std::int64_t>(free), static_cast<std::int64_t>(total)};
  const std::int64_t cap = memory_cap();
  if (cap < 0 || cap >= card.total) return card;
  return {std::min(card.free, std::max<std::int64_t>(0, cap - held_by_all())), cap};
}

void out_of_memory(const plan::Footprint& room, std::int64_t held, std::int64_t more,
                   const Room& card) {
  Error error(
      ErrorKind::memory,
      "the plans need " + mb(more) + " more and the card has " + mb(card.free) + " free",
      "memory of the card",
      "use a smaller micro-batch (--accumulate), --set parallel.recompute=full or a smaller "
      "model; `tessera explain` shows the peak without running");
  error.and_also("asked for: weights and state " + mb(room.persistent_bytes()) +
                 ", arena with batches and results " + mb(room.arena_bytes()));
  error.and_also("held by this rank already: " + mb(held) +
                 "; in use by this and other programs: " + mb(card.total - card.free) + " of " +
                 mb(card.total));
  throw error;
}

Memory::~Memory() { held_by_all() -= held_; }

std::int64_t Memory::more_for(const plan::Footprint& room) const {
  std::int64_t more = std::max<std::int64_t>(0, room.arena_bytes() - arena_bytes_);
  for (const auto& [name, buffer] : room.persistent())
    if (on_card(buffer) && !persistent_.contains(name)) more += buffer.bytes;
  return more;
}

// One block for all of them: pinning takes long. The host may refuse; then they stay on the card.
void Memory::add_aside(const plan::Footprint& room) {
  std::vector<std::pair<std::string, std::int64_t>> fresh;
  std::int64_t bytes = 0;
  for (const auto& [name, asked] : room.persistent()) {
    if (!asked.aside || on_card(asked) || persistent_.contains(name)) continue;
    fresh.emplace_back(name, asked.bytes);
    bytes += asked.bytes;
  }
  if (bytes == 0) return;
  HostBytes block = pin_if_allowed(bytes, "pin memory of the host for weights");
  kept_weights_ = block.pageable != nullptr;
  if (kept_weights_) return;
  std::byte* at = pinned_.emplace_back(std::move(block.pinned)).get();
  std::memset(at, 0, static_cast<std::size_t>(bytes));
  for (const auto& [name, size] : fresh) {
    persistent_.emplace(name, Buffer{at, size, ir::Home::host});
    at += size;
  }
  host_ += bytes;
}

// Memory of the host is pinned, so that it is copied while the card computes, and zeroed.
void Memory::add_away(const plan::Footprint& room) {
  for (const auto& [name, asked] : room.persistent()) {
    if (asked.home == ir::Home::device || asked.aside) continue;
    if (asked.home == ir::Home::file) {
      if (!file_.has(name)) file_.add(name, asked.bytes);
      CHECK(file_.bytes_of(name) == asked.bytes, "two plans disagree about the size of " + name);
      continue;
    }
    const auto [it, fresh] = persistent_.try_emplace(name);
    if (!fresh) continue;
    try {
      it->second = {pinned_.emplace_back(pin(asked.bytes)).get(), asked.bytes, asked.home};
    } catch (const Error& error) {
      persistent_.erase(it);
      throw Error(
          ErrorKind::memory,
          mb(asked.bytes) + " of the host could not be pinned for " + name + ": " + error.message,
          "memory of the host",
          "raise the limit on locked memory (ulimit -l), or choose "
          "parallel.offload_optimizer = file and parallel.offload_params = file");
    }
    if (asked.bytes > 0) std::memset(it->second.data, 0, static_cast<std::size_t>(asked.bytes));
    host_ += asked.bytes;
  }
}

std::byte* Memory::take(std::int64_t bytes, DeviceBytes& keep) {
  if (bytes == 0) return nullptr;
  const std::lock_guard lock(one_at_a_time());
  void* raw = nullptr;
  must(::cudaMalloc(&raw, static_cast<std::size_t>(bytes)), "take memory of the card");
  DeviceBytes taken(static_cast<std::byte*>(raw));
  std::swap(keep, taken);
  held_ += bytes;
  held_by_all() += bytes;
  return keep;
}

void Memory::make_room(const plan::Footprint& room) {
  const auto refuse_too_much = [&] {
    const std::int64_t more = more_for(room);
    if (more == 0) return;
    if (const Room card = room_on_card(); more > card.free) out_of_memory(room, held_, more, card);
  };
  refuse_too_much();
  add_away(room);
  add_aside(room);
  if (kept_weights_) refuse_too_much();
  const std::int64_t more = more_for(room);
  if (more == 0) {
    for (const auto& [name, asked] : room.persistent())
      CHECK(asked.home == ir::Home::file || buffer(name).bytes == asked.bytes,
            "two plans disagree about the size of " + name);
    return;
  }
  try {
    std::int64_t fresh = 0;
    for (const auto& [name, asked] : room.persistent()) {
      if (!on_card(asked)) continue;
      const auto it = persistent_.find(name);
      CHECK(it == persistent_.end() || it->second.bytes == asked.bytes,
            "two plans disagree about the size of " + name);
      if (it == persistent_.end()) fresh += asked.bytes;
    }
    if (fresh > 0) {
      std::byte* at = take(fresh, slabs_.emplace_back());
      must(::cudaMemsetAsync(at, 0, static_cast<std::size_t>(fresh), stream_),
           "zero the buffers of a plan");
      for (const auto& [name, asked] : room.persistent())
        if (on_card(asked) && persistent_.try_emplace(name, Buffer{at, asked.bytes}).second)
          at += asked.bytes;
    }
    if (room.arena_bytes() > arena_bytes_) {
      must(::cudaStreamSynchronize(stream_), "wait for what runs in the arena");
      arena_ = {};  // give back before taking more
      held_by_all() -= arena_bytes_;
      held_ -= std::exchange(arena_bytes_, 0);
      ++moves_;
      take(room.arena_bytes(), arena_);
      arena_bytes_ = room.arena_bytes();
    }
  } catch (const Error& e) {
    if (e.kind != ErrorKind::memory) throw;
    out_of_memory(room, held_, more_for(room), room_on_card());
  }
}

const Memory::Buffer& Memory::buffer(std::string_view name) const {
  const auto it = persistent_.find(name);
  CHECK(it != persistent_.end(), "there is no buffer " + std::string(name));
  return it->second;
}

std::byte* Memory::part_of(std::string_view name, std::int64_t offset, std::size_t bytes) const {
  const Buffer& found = buffer(name);
  CHECK(offset >= 0 && offset + static_cast<std::int64_t>(bytes) <= found.bytes,
        "buffer " + std::string(name) + " is smaller than what was asked for");
  return found.data + offset;
}

std::byte* Memory::feed(const plan::Plan& plan, int copy) const {
  return arena_.get() + plan.arena_bytes + copy * (plan.feed_bytes + plan.result_bytes);
}

std::byte* Memory::address(const plan::Plan& plan, const plan::Slot& slot, int copy) const {
  if (!slot) return nullptr;
  // A value without elements has no place, and a plan of such values no arena; null would mean that
  // it is absent.
  if (slot.type.bytes() == 0) return reinterpret_cast<std::byte*>(std::uintptr_t{256});
  if (slot.base == plan::Slot::feed) return feed(plan, copy) + slot.offset;
  if (slot.base == plan::Slot::result) return feed(plan, copy) + plan.feed_bytes + slot.offset;
  if (slot.base == 0) return arena_.get() + slot.offset;
  if (plan.home_of(slot) == ir::Home::file) return nullptr;
  return buffer(plan.persistent[static_cast<std::size_t>(slot.base - 1)].name).data + slot.offset;
}

}  // namespace tessera::exec::cuda
