#include "ranks/clocks.h"

#include <algorithm>
#include <chrono>

#include "files/text.h"

namespace tessera::run {
namespace {

constexpr int trips = 32;
constexpr int tag = 7001;

std::span<std::byte> bytes_of(std::int64_t& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

// Machines that booted at different times have different clocks; namespaces may shift them.
std::string clock_name() {
  std::string out;
  for (const char* file : {"/proc/sys/kernel/random/boot_id", "/proc/self/timens_offsets"}) {
    try {
      out += files::read_text(file);
    } catch (const Error&) {  // not there: says nothing
    }
  }
  return out;
}

}  // namespace

std::int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Clock compare_clocks(const Ranks& ranks) {
  Clock out;
  if (ranks.size() == 1) return out;
  const std::vector<std::string> clocks = ranks.gather_text(clock_name());
  comm::Comm& world = *ranks.world();
  for (int other = 1; other < ranks.size(); ++other) {
    if (clocks[static_cast<std::size_t>(other)] == clocks[0]) continue;
    std::int64_t shortest = INT64_MAX;
    for (int i = 0; i < trips; ++i) {
      std::int64_t answer = 0;
      if (ranks.first()) {
        world.recv(bytes_of(answer), other, tag);
        answer = steady_ns();
        world.send(bytes_of(answer), other, tag);
      } else if (ranks.rank() == other) {
        const std::int64_t before = steady_ns();
        world.send(bytes_of(answer), 0, tag);
        world.recv(bytes_of(answer), 0, tag);
        const std::int64_t after = steady_ns();
        if (after - before < shortest) {
          shortest = after - before;
          out = {answer - (before + shortest / 2), shortest / 2};
        }
      }
    }
  }
  return out;
}

}  // namespace tessera::run
