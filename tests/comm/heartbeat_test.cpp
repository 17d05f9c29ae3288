// This tests what ranks note of themselves while they talk, and what another thread sees of it.
#include "comm/heartbeat.h"

#include <gtest/gtest.h>

#include <thread>

namespace {

using namespace tessera;
using namespace tessera::comm;

TEST(Heartbeat, OperationsAreNotedByGroup) {
  Heartbeat heartbeats[4];
  run_local(4, [&](Comm& world) {
    Heartbeat& heartbeat = heartbeats[world.rank()];
    const Heartbeat::Here here(&heartbeat);
    world.watch(&heartbeat, "world");
    const auto half = world.split(world.rank() / 2, world.rank());
    half->watch(&heartbeat, "dp", world.rank() / 2);
    Heartbeat::doing("computing step", 3);
    Heartbeat::inside("optimizer.grad");
    float value = 1;
    half->all_reduce(std::as_writable_bytes(std::span(&value, 1)), ir::DType::f32);
    Heartbeat::inside("loss");
    auto pending =
        world.start_all_reduce(std::as_writable_bytes(std::span(&value, 1)), ir::DType::f32);
    Heartbeat::inside("later");
    EXPECT_EQ(heartbeat.look().groups[0].entered, 1u);
    EXPECT_FALSE(heartbeat.look().waits);
    pending->wait();
    EXPECT_TRUE(pending->done());
    world.barrier();
    // A message is no operation of the group.
    if (world.rank() == 0) world.send(std::as_bytes(std::span(&value, 1)), 1, 0);
    if (world.rank() == 1) world.recv(std::as_writable_bytes(std::span(&value, 1)), 0, 0);
  });
  for (int rank = 0; rank < 4; ++rank) {
    const Look look = heartbeats[rank].look();
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

TEST(Heartbeat, OneThatWaitsIsSeenWaiting) {
  Heartbeat heartbeats[2];
  run_local(2, [&](Comm& world) {
    const Heartbeat::Here here(&heartbeats[world.rank()]);
    world.watch(&heartbeats[world.rank()], "world");
    if (world.rank() == 1) {
      Look other;
      while (!(other = heartbeats[0].look()).waits || other.idle_s < 0.02)
        std::this_thread::yield();
      EXPECT_EQ(other.waits->verb, Verb::all_reduce);
      EXPECT_EQ(other.waits->number, 1u);
      EXPECT_EQ(other.waits->scope, "loss");  // that of its start
    }
    Heartbeat::inside("loss");
    std::int32_t value = 1;
    const auto pending =
        world.start_all_reduce(std::as_writable_bytes(std::span(&value, 1)), ir::DType::i32);
    Heartbeat::inside("elsewhere");
    pending->wait();
    EXPECT_EQ(value, 2);
  });
}

// Texts are never seen half old and half new.
TEST(Heartbeat, TextsAreSeenWhole) {
  HeartbeatText text;
  text.set("");
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (int i = 0; !stop; ++i)
      text.set(std::string(static_cast<std::size_t>(i % 200), static_cast<char>('a' + i % 26)));
  });
  bool whole = true;
  for (int i = 0; i < 20000 && whole; ++i) {
    const std::string seen = text.get();
    whole = seen.size() <= HeartbeatText::most &&
            seen.find_first_not_of(seen.substr(0, 1)) == seen.npos;
    EXPECT_TRUE(whole) << seen;
  }
  stop = true;
  writer.join();
}

}  // namespace
