#include "exec/cpu/memory.h"

#include <cstring>
#include <fstream>

#include "base/control_group.h"

namespace tessera::exec::cpu {

std::int64_t available_memory() {
  std::int64_t available = std::int64_t{1} << 60;
  std::ifstream info("/proc/meminfo");
  for (std::string word; info >> word;)
    if (std::int64_t kib = 0; word == "MemAvailable:" && info >> kib) available = kib << 10;
  return std::min(available, memory_left_in_group().value_or(available));
}

void out_of_memory(std::int64_t bytes, std::int64_t available, const std::string& said) {
  throw Error(ErrorKind::memory,
              "the plan needs " + std::to_string(bytes / 1'000'000) +
                  " MB more and the system has " + std::to_string(available / 1'000'000) + " MB" +
                  (said.empty() ? "" : "; " + said),
              "memory",
              "use a smaller micro-batch (--accumulate), --set parallel.recompute=full or a "
              "smaller model; `tessera explain` shows the "
              "peak without running");
}

Pages::Pages(std::int64_t shared, std::int64_t own, comm::Comm* comm) : shared_(comm ? shared : 0) {
  try {
    memory_ = comm ? comm->allocate(shared, own) : comm::plain_memory(shared + own);
  } catch (const Error& error) {
    if (error.kind != ErrorKind::memory) throw;
    out_of_memory(shared + own, available_memory(), error.message);
  }
}

std::int64_t Memory::more_for(const plan::Footprint& room) const {
  std::int64_t more = std::max<std::int64_t>(0, room.arena_bytes() - arena_.bytes());
  for (const auto& [name, buffer] : room.persistent())
    if (buffer.home != ir::Home::file && !persistent_.contains(name)) more += buffer.bytes;
  return more;
}

void Memory::add(const std::string& name, const plan::Footprint::Room& asked) {
  if (asked.home == ir::Home::file) return file_.add(name, asked.bytes);
  const bool host = asked.home == ir::Home::host;
  persistent_.emplace(name, take(asked.shared && comm_ && !host ? asked.bytes : 0, asked.bytes));
  if (host) host_ += asked.bytes;
}

void Memory::make_room(const plan::Footprint& room) {
  // Pages are given when they are touched: ask first, or the system would end the process in the
  // middle of a step. Asking takes longer than the small programs that need next to nothing.
  constexpr std::int64_t little = 1 << 20;
  if (const std::int64_t more = more_for(room); more > little)
    if (const std::int64_t available = available_memory(); more > available)
      out_of_memory(more, available);
  for (const auto& [name, buffer] : room.persistent()) {
    const auto it = persistent_.find(name);
    const bool away = it == persistent_.end() && file_.has(name);
    if (it == persistent_.end() && !away) {
      add(name, buffer);
      continue;
    }
    CHECK((away ? file_.bytes_of(name) : it->second.bytes()) == buffer.bytes,
          "two plans disagree about the size of " + name);
    if (away) continue;
    const std::int64_t shared = buffer.shared && comm_ ? buffer.bytes : 0;
    if (it->second.shared() >= shared) continue;
    Pages reached = take(shared, buffer.bytes);  // an earlier plan did not send it
    std::memcpy(reached.data(), it->second.data(), static_cast<std::size_t>(buffer.bytes));
    it->second = std::move(reached);
    ++moves_;
  }
  if (arena_.bytes() >= room.arena_bytes() && (!comm_ || arena_.shared() >= room.shared_bytes()))
    return;
  const std::int64_t shared = std::max(arena_.shared(), room.shared_bytes()),
                     bytes = std::max(arena_.bytes(), room.arena_bytes());
  arena_ = {};  // give back before taking more
  arena_ = take(shared, bytes);
  ++moves_;
}

const Pages& Memory::buffer(std::string_view name) const {
  const auto it = persistent_.find(name);
  CHECK(it != persistent_.end(), "there is no buffer " + std::string(name));
  return it->second;
}

std::byte* Memory::part_of(std::string_view name, std::int64_t offset, std::size_t bytes) const {
  const Pages& pages = buffer(name);
  CHECK(offset >= 0 && offset + static_cast<std::int64_t>(bytes) <= pages.bytes(),
        "buffer " + std::string(name) + " is smaller than what was asked for");
  return pages.data() + offset;
}

void Memory::write(std::string_view name, std::int64_t offset, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  if (file_.has(name)) return file_.write(name, offset, bytes);
  std::memcpy(part_of(name, offset, bytes.size()), bytes.data(), bytes.size());
}

void Memory::read(std::string_view name, std::int64_t offset, std::span<std::byte> bytes) const {
  if (bytes.empty()) return;
  if (file_.has(name)) return file_.read(name, offset, bytes);
  std::memcpy(bytes.data(), part_of(name, offset, bytes.size()), bytes.size());
}

std::byte* Memory::address(const plan::Plan& plan, const plan::Slot& slot, int copy) const {
  if (!slot || plan.home_of(slot) == ir::Home::file) return nullptr;
  if (slot.base == plan::Slot::feed || slot.base == plan::Slot::result) {
    std::byte* const behind =
        arena_.data() + plan.arena_bytes + copy * (plan.feed_bytes + plan.result_bytes);
    return behind + (slot.base == plan::Slot::feed ? 0 : plan.feed_bytes) + slot.offset;
  }
  const Pages& pages = slot.base == 0
                           ? arena_
                           : buffer(plan.persistent[static_cast<std::size_t>(slot.base - 1)].name);
  return pages.data() + slot.offset;
}

std::int64_t Memory::bytes() const {
  std::int64_t n = arena_.bytes();
  for (const auto& [name, pages] : persistent_) n += pages.bytes();
  return n - host_;
}

}  // namespace tessera::exec::cpu
