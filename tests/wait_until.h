// Waits until something holds that another process or thread brings about. The limit is there for a
// test that would never end; it is long, because shared machines are at times many times slower
// than idle ones.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace tessera::test {

inline bool wait_until(const std::function<bool()>& holds,
                       std::chrono::seconds limit = std::chrono::minutes(5)) {
  for (const auto end = std::chrono::steady_clock::now() + limit; !holds();) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace tessera::test
