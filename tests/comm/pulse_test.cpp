// What ranks note of themselves while they talk, and what another thread sees of it.
#include "comm/pulse.h"

#include <gtest/gtest.h>

#include <thread>

namespace {

using namespace tessera;
using namespace tessera::comm;

TEST(Pulse, OperationsAreNotedByGroup) {
  Pulse pulses[4];
  run_local(4, [&](Comm& world) {
    Pulse& pulse = pulses[world.rank()];
    const Pulse::Here here(&pulse);
    world.watch(&pulse, "world");
    const auto half = world.split(world.rank() / 2, world.rank());
    half->watch(&pulse, "dp", world.rank() / 2);
    Pulse::doing("computing step", 3);
    Pulse::inside("optimizer.grad");
    float value = 1;
    half->all_reduce(std::as_writable_bytes(std::span(&value, 1)), ir::DType::f32);
    Pulse::inside("loss");
    auto pending =
        world.start_all_reduce(std::as_writable_bytes(std::span(&value, 1)), ir::DType::f32);
    Pulse::inside("later");
    EXPECT_EQ(pulse.look().groups[0].entered, 1u);
    EXPECT_FALSE(pulse.look().waits);
    pending->wait();
    EXPECT_TRUE(pending->done());
    world.barrier();
    // A message is no operation of the group.
    if (world.rank() == 0) world.send(std::as_bytes(std::span(&value, 1)), 1, 0);
    if (world.rank() == 1) world.recv(std::as_writable_bytes(std::span(&value, 1)), 0, 0);
  });
  for (int rank = 0; rank < 4; ++rank) {
    const Look look = pulses[rank].look();
    EXPECT_EQ(look.doing, "computing step 3");
    EXPECT_EQ(look.inside, "later");
    ASSERT_EQ(look.groups.size(), 2u);
    EXPECT_EQ(look.groups[0].name, "world");
    EXPECT_EQ(look.groups[0].entered, 2u);
    EXPECT_EQ(look.groups[0].left, 2u);
    EXPECT_EQ(look.groups[1].name, "dp");
    EXPECT_EQ(look.groups[1].color, rank / 2);
    EXPECT_EQ(look.groups[1].left, 1u);
    EXPECT_FALSE(look.waits);
    ASSERT_TRUE(look.left);
    EXPECT_EQ(look.left->verb, rank == 0 ? Verb::send : rank == 1 ? Verb::recv : Verb::barrier);
    EXPECT_EQ(look.left->number, rank < 2 ? 0u : 2u);
  }
}

TEST(Pulse, OneThatWaitsIsSeenWaiting) {
  Pulse pulses[2];
  run_local(2, [&](Comm& world) {
    const Pulse::Here here(&pulses[world.rank()]);
    world.watch(&pulses[world.rank()], "world");
    if (world.rank() == 1) {
      Look other;
      while (!(other = pulses[0].look()).waits || other.idle_s < 0.02) std::this_thread::yield();
      EXPECT_EQ(other.waits->verb, Verb::all_reduce);
      EXPECT_EQ(other.waits->number, 1u);
      EXPECT_EQ(other.waits->scope, "loss");  // that of its start
    }
    Pulse::inside("loss");
    std::int32_t value = 1;
    const auto pending =
        world.start_all_reduce(std::as_writable_bytes(std::span(&value, 1)), ir::DType::i32);
    Pulse::inside("elsewhere");
    pending->wait();
    EXPECT_EQ(value, 2);
  });
}

// Texts are never seen half old and half new.
TEST(Pulse, TextsAreSeenWhole) {
  PulseText text;
  text.set("");
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (int i = 0; !stop; ++i)
      text.set(std::string(static_cast<std::size_t>(i % 200), static_cast<char>('a' + i % 26)));
  });
  bool whole = true;
  for (int i = 0; i < 20000 && whole; ++i) {
    const std::string seen = text.get();
    whole =
        seen.size() <= PulseText::most && seen.find_first_not_of(seen.substr(0, 1)) == seen.npos;
    EXPECT_TRUE(whole) << seen;
  }
  stop = true;
  writer.join();
}

}  // namespace
