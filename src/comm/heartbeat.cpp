#include "comm/heartbeat.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <thread>

namespace tessera::comm {

namespace {

thread_local Heartbeat* mine = nullptr;

std::int64_t now_ns() {
  struct timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);  // the same clock in all processes of a machine
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// A call in one word, so that it is read whole: group + 1, verb, number.
constexpr int verb_bits = 8, number_bits = 48;
std::uint64_t packed(int group, Verb verb, std::uint64_t number) {
  return static_cast<std::uint64_t>(group + 1) << (number_bits + verb_bits) |
         static_cast<std::uint64_t>(verb) << number_bits | number;
}
std::optional<Look::Call> unpacked(std::uint64_t word, const HeartbeatText& scope) {
  if (word == 0) return std::nullopt;
  const auto verb = static_cast<Verb>(word >> number_bits & 0xff);
  return Look::Call{.group = static_cast<int>(word >> (number_bits + verb_bits)) - 1,
                    .verb = verb,
                    .number = word & ((std::uint64_t{1} << number_bits) - 1),
                    .scope = scope.get()};
}

}  // namespace

void HeartbeatText::set(std::string_view text) {
  std::uint64_t bytes[words] = {};
  std::memcpy(bytes, text.data(), std::min(text.size(), most));
  const std::uint64_t version = version_.load(std::memory_order_relaxed);
  version_.store(version + 1, std::memory_order_release);
  for (std::size_t i = 0; i < words; ++i) words_[i].store(bytes[i], std::memory_order_release);
  version_.store(version + 2, std::memory_order_release);
}

std::string HeartbeatText::get() const {
  std::uint64_t bytes[words + 1] = {};
  // A writer that has to wait for its core is given time; one that was stopped half-way leaves what
  // there is.
  for (int tries = 0; tries < 1000; ++tries) {
    if (tries >= 20) std::this_thread::sleep_for(std::chrono::microseconds(tries < 900 ? 1 : 100));
    const std::uint64_t before = version_.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < words; ++i) bytes[i] = words_[i].load(std::memory_order_acquire);
    if (before % 2 == 0 && version_.load(std::memory_order_acquire) == before) break;
  }
  return reinterpret_cast<const char*>(bytes);
}

Heartbeat* Heartbeat::here() { return mine; }
Heartbeat::Here::Here(Heartbeat* heartbeat) : before_(mine) { mine = heartbeat; }
Heartbeat::Here::~Here() { mine = before_; }

void Heartbeat::doing(std::string_view what, std::int64_t number) {
  if (!mine) return;
  mine->number_.store(number, std::memory_order_relaxed);
  mine->doing_.set(what);
  mine->inside_.set("");
  mine->beat();
}

void Heartbeat::inside(std::string_view equation) {
  if (!mine) return;
  mine->inside_.set(equation);
  mine->beat();
}

void Heartbeat::beat() { moved_.store(now_ns(), std::memory_order_release); }

void Heartbeat::disk(std::string_view call) {
  disk_.set(call);
  disk_since_.store(now_ns(), std::memory_order_release);
  beat();
}

int Heartbeat::join(std::string_view group, int color) {
  const int place = joined_.load(std::memory_order_relaxed);
  if (place == most_groups) return -1;
  std::uint64_t name = 0;
  std::memcpy(&name, group.data(), std::min(group.size(), sizeof(name)));
  Group& g = groups_[static_cast<std::size_t>(place)];
  g.name.store(name, std::memory_order_relaxed);
  g.color.store(color, std::memory_order_relaxed);
  joined_.store(place + 1, std::memory_order_release);
  return place;
}

std::uint64_t Heartbeat::enter(int group, Verb verb) {
  beat();
  if (between_two(verb)) return 0;
  return groups_[static_cast<std::size_t>(group)].entered.fetch_add(1, std::memory_order_relaxed) +
         1;
}

void Heartbeat::wait(int group, Verb verb, std::uint64_t number, std::string_view scope) {
  waits_scope_.set(scope);
  waits_.store(packed(group, verb, number), std::memory_order_release);
  beat();
}

void Heartbeat::leave(int group, Verb verb, std::uint64_t number, std::string_view scope) {
  waits_.store(0, std::memory_order_release);
  if (number > 0)
    groups_[static_cast<std::size_t>(group)].left.fetch_add(1, std::memory_order_relaxed);
  left_scope_.set(scope);
  left_.store(packed(group, verb, number), std::memory_order_release);
  const std::uint64_t count = past_count_.load(std::memory_order_relaxed);
  Row& row = past_[count % most_past];
  row.scope.set(scope);
  row.when.store(now_ns(), std::memory_order_relaxed);
  row.call.store(packed(group, verb, number), std::memory_order_release);
  past_count_.store(count + 1, std::memory_order_release);
  beat();
}

Look Heartbeat::look() const {
  Look out;
  const std::int64_t number = number_.load(std::memory_order_relaxed),
                     moved = moved_.load(std::memory_order_acquire);
  out.idle_s = moved == 0 ? 0 : std::max(0.0, 1e-9 * static_cast<double>(now_ns() - moved));
  out.doing = doing_.get() + (number >= 0 ? " " + std::to_string(number) : "");
  out.inside = inside_.get();
  out.disk = disk_.get();
  if (!out.disk.empty())
    out.disk_s = std::max(
        0.0, 1e-9 * static_cast<double>(now_ns() - disk_since_.load(std::memory_order_acquire)));
  for (int i = 0; i < joined_.load(std::memory_order_acquire); ++i) {
    const Group& g = groups_[static_cast<std::size_t>(i)];
    char name[sizeof(std::uint64_t) + 1] = "";
    const std::uint64_t letters = g.name.load(std::memory_order_relaxed);
    std::memcpy(name, &letters, sizeof(letters));
    out.groups.push_back({.name = name,
                          .color = g.color.load(std::memory_order_relaxed),
                          .entered = g.entered.load(std::memory_order_relaxed),
                          .left = g.left.load(std::memory_order_relaxed)});
  }
  out.waits = unpacked(waits_.load(std::memory_order_acquire), waits_scope_);
  out.left = unpacked(left_.load(std::memory_order_acquire), left_scope_);
  return out;
}

std::vector<Past> Heartbeat::past() const {
  std::vector<Past> out;
  const std::uint64_t count = past_count_.load(std::memory_order_acquire);
  for (std::uint64_t i = count - std::min<std::uint64_t>(count, most_past); i < count; ++i) {
    const Row& row = past_[i % most_past];
    if (const auto call = unpacked(row.call.load(std::memory_order_acquire), row.scope))
      out.push_back(
          {*call, 1e-9 * static_cast<double>(now_ns() - row.when.load(std::memory_order_relaxed))});
  }
  return out;
}

}  // namespace tessera::comm
