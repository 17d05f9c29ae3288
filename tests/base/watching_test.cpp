// CPU time that a thread spends on watching for work is counted, and no other.
#include "base/watching.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace tessera::watching_test {
namespace {

int this_thread() { return static_cast<int>(::gettid()); }

void compute(double seconds) {
  const double until = cpu_seconds_of(this_thread()) + seconds;
  while (cpu_seconds_of(this_thread()) < until) {
  }
}

TEST(Watching, CountsWhatAThreadWatches) {
  std::thread([] {
    const int me = this_thread();
    EXPECT_EQ(watched_seconds(me), 0);
    for (int round = 1; round <= 3; ++round) {
      compute(0.01);
      const Watching watching;
      compute(0.02);
      EXPECT_GE(watched_seconds(me), 0.02 * round) << "it still watches";
    }
    const double watched = watched_seconds(me);
    EXPECT_LE(watched, cpu_seconds_of(me) - 0.03);
    compute(0.01);
    EXPECT_EQ(watched_seconds(me), watched);
  }).join();
}

TEST(Watching, OfAnotherThreadAndOfNone) {
  std::atomic<int> id{0};
  std::atomic<bool> stop{false};
  watched_seconds(0);  // from now on it counts
  std::thread other([&] {
    const Watching watching;
    id = this_thread();
    while (!stop) {
    }
  });
  while (id == 0) std::this_thread::yield();
  while (watched_seconds(id) < 0.01) std::this_thread::yield();
  stop = true;
  other.join();
  EXPECT_EQ(watched_seconds(id), 0) << "its number may be another's by now";
}

}  // namespace
}  // namespace tessera::watching_test
