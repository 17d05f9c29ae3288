// Memory of the card and of the host beside it: what was planned is what is taken, before anything
// runs, and a run takes no more.
#include <cuda_runtime_api.h>

#include "base/check.h"
#include "cuda/card.h"
#include "exec/common/host_room.h"
#include "exec/cuda/failure.h"
#include "session/init.h"
#include "session/room.h"

namespace tessera::test::memory_card_test {
namespace {

using run::Goal;
constexpr std::int64_t mib = 1 << 20;

std::int64_t free_bytes() {
  std::size_t free = 0, total = 0;
  EXPECT_EQ(::cudaMemGetInfo(&free, &total), cudaSuccess);
  return static_cast<std::int64_t>(free);
}

void step(run::Session& session, std::int64_t number) {
  const config::Config& c = session.config();
  const Samples s = samples_of(c.model, static_cast<int>(number), c.batch.global);
  EXPECT_TRUE(session.train_step(s.images, s.labels, 1e-3, number, number * 100).ok);
}

class OnCardMemory : public OnCard {};

TEST_F(OnCardMemory, IsTakenAsPlanned) {
  for (const auto& [model, dtype] :
       {std::pair{"vit_b_16", "bf16"}, std::pair{"swin_t", "bf16"}, std::pair{"resnet50", "f32"}}) {
    SCOPED_TRACE(model);
    run::Session session(preset_on("cuda", model, dtype, 16));
    const std::vector<run::PlanKey> plans = {
        {Goal::train, 16}, {Goal::train, 5}, {Goal::predict, 1}, {Goal::evaluate, 16}};
    const std::int64_t before = free_bytes();
    const plan::Footprint room = run::reserve(session, plans, run::Ranks(nullptr));
    const std::int64_t taken = before - free_bytes();
    EXPECT_EQ(session.executor().allocated_bytes(), room.bytes());
    // The driver gives whole pages of 2 MiB: one slab of buffers and one arena.
    EXPECT_GE(taken, room.bytes() - 4 * mib);
    EXPECT_LE(taken, room.bytes() + 8 * mib);
    std::printf("%s %s: planned and allocated %lld bytes, the card has %lld less\n", model, dtype,
                static_cast<long long>(room.bytes()), static_cast<long long>(taken));
  }
}

// A run that has taken the card's memory gets its peak without needing more: two measurements
// would differ.
TEST_F(OnCardMemory, IsNotNeededToMeasureACardAgain) {
  const exec::DeviceInfo card = exec::device_info("cuda", 1);
  const double first = card.peak_gflops("bf16").gflops;
  EXPECT_GT(first, 0);
  for (int again = 0; again < 3; ++again) EXPECT_EQ(card.peak_gflops("bf16").gflops, first);
}

TEST_F(OnCardMemory, OfTheHostIsAsExplained) {
  run::Session session(preset_on("cuda", "vit_micro", "f32", 16));
  std::int64_t pinned = 0;
  for (const Goal goal : {Goal::train, Goal::predict}) {
    const plan::Plan& plan = session.compiled(goal, 16).plan;
    pinned += plan.copies * exec::host_room(plan).bytes();
  }
  EXPECT_GT(pinned, 0);
  EXPECT_EQ(session.executor().pinned_bytes(), pinned);
  EXPECT_TRUE(session.executor().notes().empty());
}

TEST_F(OnCardMemory, StaysAsItIsWhileARunGoesOn) {
  run::Session session(preset_on("cuda", "vit_tiny_cifar", "bf16", 32));
  session.load(run::initial_weights(3));
  for (std::int64_t i = 1; i <= 6; ++i) step(session, i);
  const std::int64_t before = free_bytes(), graphs = session.executor().graph_bytes(),
                     held = session.executor().allocated_bytes();
  for (std::int64_t i = 7; i <= 60; ++i) step(session, i);
  EXPECT_EQ(free_bytes(), before);
  EXPECT_EQ(session.executor().graph_bytes(), graphs);
  EXPECT_EQ(session.executor().allocated_bytes(), held);
  std::printf("graphs took %lld bytes beside %lld planned\n", static_cast<long long>(graphs),
              static_cast<long long>(held));
}

TEST_F(OnCardMemory, WhatDoesNotFitIsRefusedBeforeAnythingIsTaken) {
  run::Session session(preset_on("cuda", "vit_b_16", "f32", 16));
  try {
    run::reserve(session, {{Goal::train, 1 << 20}}, run::Ranks(nullptr));
    ADD_FAILURE() << "a million samples at once were given room";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::memory) << error.what();
    EXPECT_EQ(error.exit_code(), 8);
  }
  EXPECT_EQ(session.executor().allocated_bytes(), 0);
}

// A limit on locked memory: batches are pageable, the run says so, and nothing else changes.
TEST_F(OnCardMemory, PinningMayBeRefused) {
  const auto losses = [](bool refuse) {
    run::Session session(preset_on("cuda", "vit_micro", "f32", 16));
    if (refuse)
      exec::cuda::simulate_failure("pin memory of the host for batches", 1,
                                   cudaErrorMemoryAllocation);
    session.compiled(Goal::train, 16);
    exec::cuda::simulate_failure("", 0, cudaSuccess);
    EXPECT_EQ(session.executor().notes().size(), refuse ? 1u : 0u);
    session.load(run::initial_weights(3));
    std::vector<double> out;
    for (int i = 1; i <= 5; ++i) {
      const Samples s = samples_of(session.config().model, i, 16);
      out.push_back(session.train_step(s.images, s.labels, 1e-3, i, i * 100).loss);
    }
    return out;
  };
  EXPECT_EQ(losses(true), losses(false));
}

// Weights that an inference in bf16 reads once rest on the host, as planned; where the host refuses
// they stay on the card and the run says so. The logits are those of a session that trains.
TEST_F(OnCardMemory, WeightsThatAreReadOnceRestOnTheHost) {
  for (const char* model : {"vit_micro", "swin_micro", "resnet_micro_cifar"}) {
    SCOPED_TRACE(model);
    const config::Config c = preset_on("cuda", model, "bf16", 4);
    const Samples s = samples_of(c.model, 1, 4);
    const auto logits = [&](run::Use use, std::uint64_t seed, bool refuse) {
      run::Session session(c, {}, nullptr, use);
      if (refuse)
        exec::cuda::simulate_failure("pin memory of the host for weights", 1,
                                     cudaErrorMemoryAllocation);
      const plan::Plan plan = session.compiled(Goal::predict, 4).plan;
      exec::cuda::simulate_failure("", 0, cudaSuccess);
      const std::int64_t aside = plan.bytes_on(ir::Home::host);
      EXPECT_EQ(aside > 0, use == run::Use::inference);
      EXPECT_EQ(session.executor().away_bytes(ir::Home::host), refuse ? 0 : aside);
      EXPECT_EQ(session.executor().allocated_bytes(), plan.peak_bytes() + (refuse ? aside : 0));
      EXPECT_EQ(session.executor().notes().size(), refuse ? 1u : 0u);
      session.load(run::initial_weights(seed + 1));
      session.predict(s.images, 4);
      session.load(run::initial_weights(seed));  // made anew
      return session.predict(s.images, 4);
    };
    for (const std::uint64_t seed : {3, 4}) {
      const std::vector<double> expected = logits(run::Use::training, seed, false);
      EXPECT_EQ(logits(run::Use::inference, seed, false), expected);
      EXPECT_EQ(logits(run::Use::inference, seed, true), expected);
    }
  }
}

class OnCardFailures : public OnCard {};

TEST_F(OnCardFailures, ACardThatIsLostEndsTheRunWithItsName) {
  run::Session session(preset_on("cuda", "vit_micro", "f32", 16));
  session.load(run::initial_weights(3));
  for (std::int64_t i = 1; i <= 3; ++i) step(session, i);
  exec::cuda::simulate_failure("launch a graph", 1, cudaErrorECCUncorrectable);
  try {
    step(session, 4);
    ADD_FAILURE() << "a lost card was not noticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::device);
    EXPECT_EQ(error.exit_code(), 10);
    EXPECT_NE(error.message.find("the card was lost"), std::string::npos) << error.what();
  }
  exec::cuda::simulate_failure("", 0, cudaSuccess);
}

}  // namespace
}  // namespace tessera::test::memory_card_test
