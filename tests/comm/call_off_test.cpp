// Work under way on a device is called off before a process ends, and a thread that waits for a
// device hears that another rank stopped.
#include "comm/call_off.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "comm/comm.h"
#include "comm/heartbeat.h"
#include "wait_until.h"

namespace tessera::comm::call_off_test {
namespace {

using Clock = std::chrono::steady_clock;

TEST(CallOff, EverythingThatIsUnderWay) {
  int first = 0, second = 0;
  const CallOff one([&] { ++first; });
  {
    const CallOff gone([&] { ++second; });
  }
  call_off_all(10);
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 0);
}

TEST(CallOff, WhatDoesNotComeBackIsLeftBehind) {
  const auto released = std::make_shared<std::atomic<bool>>(false);
  const auto entered = std::make_shared<std::atomic<bool>>(false);
  {
    const CallOff stuck([=] {
      *entered = true;
      while (!*released) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    const Clock::time_point start = Clock::now();
    call_off_all(0.05);
    EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(50));
    *released = true;
  }
  EXPECT_TRUE(*entered);
}

TEST(CallOff, ARankThatStoppedIsKnownWithoutAVerb) {
  std::string heard;
  try {
    run_local(3, [&](Comm& world) {
      EXPECT_EQ(thread_rank(), world.rank());
      const auto half = world.split(world.rank() % 2, 0);
      world.barrier();
      EXPECT_EQ(world.stopped(), "");
      world.barrier();
      if (world.rank() == 2) throw Error(ErrorKind::disk, "no room");
      if (world.rank() != 0) return;
      test::wait_until([&] { return !half->stopped().empty(); });
      heard = half->stopped();
    });
  } catch (const Error& e) {
    EXPECT_EQ(e.kind, ErrorKind::disk);
  }
  EXPECT_NE(heard.find("rank 2 stopped"), std::string::npos) << heard;
  EXPECT_NE(heard.find("no room"), std::string::npos) << heard;
  EXPECT_EQ(thread_rank(), -1);
}

TEST(Carried, CountsAsIfAVerbHadMovedIt) {
  const auto self = make_self();
  self->count(Verb::all_gather, 12);
  self->count(Verb::all_gather, 30);
  EXPECT_EQ(self->traffic()[Verb::all_gather], (Traffic::Row{2, 42}));
  Heartbeat heartbeat;
  self->watch(&heartbeat, "dp", 3);
  EXPECT_EQ(self->watched().heartbeat, &heartbeat);
  EXPECT_EQ(self->watched().name, "dp");
  EXPECT_EQ(self->watched().color, 3);
}

}  // namespace
}  // namespace tessera::comm::call_off_test
