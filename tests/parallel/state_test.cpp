// ZeRO's promise: bytes of weights, gradients and optimizer state per rank follow the formulas of
// its paper, as planned and as allocated. Convention: Psi parameters in f32 under AdamW: 4 bytes of
// weight, 4 of gradient, 8 of state. A gradient counts as long as it waits for the update; whole
// buckets that are about to be cut into parts (stages 2 and 3: one block's) are in flight, and
// counted apart.
#include "parallel/state.h"

#include <gtest/gtest.h>

#include <atomic>

#include "parallel/world.h"

namespace tessera::test::state_test {
namespace {

class State : public testing::TestWithParam<std::pair<int, int>> {};

TEST_P(State, FollowsTheFormula) {
  const auto [stage, ranks] = GetParam();
  const double want = state_formula(stage, ranks) * static_cast<double>(state_parameters());
  for (const int rank : {0, ranks - 1}) {
    const StateBytes got = state_bytes(stage, ranks, rank);
    EXPECT_NEAR(static_cast<double>(got.planned()) / want, 1.0, 0.05) << "rank " << rank;
    EXPECT_NEAR(static_cast<double>(got.allocated) / want, 1.0, 0.05) << "rank " << rank;
    // In flight is one block at a time, or what is larger: the embeddings or the head.
    const std::int64_t most = stage >= 2 && ranks > 1 ? state_largest_bucket(stage) : 0;
    EXPECT_LE(got.in_flight, most + most / 8) << "rank " << rank;
  }
}

// As it runs, with messages under way: no more state than the formula says, and at most two whole
// buckets on their way to be cut.
TEST_P(State, UnderWayTakesOneMoreBucket) {
  const auto [stage, ranks] = GetParam();
  const double want = state_formula(stage, ranks) * static_cast<double>(state_parameters());
  const StateBytes got = state_bytes(stage, ranks, 0, true);
  EXPECT_LE(static_cast<double>(got.planned()) / want, 1.05);
  EXPECT_TRUE(stage < 2 || ranks == 1 ||
              got.in_flight <= 2 * state_largest_bucket(stage) + state_largest_bucket(stage) / 8);
}

// After steps have run, an executor has what the plan said, to the byte, on every rank.
TEST(StateOfARun, IsWhatWasPlanned) {
  for (const char* layout :
       {"dp3 zero1", "dp4 zero2", "dp3 zero3", "dp2 sp2 tp2 zero3 acc2", "pp2 acc4 gpipe",
        "pp2 acc4 1f1b", "pp2 acc3 zb recompute", "pp2 dp2 zero2 acc2 zb", "pp2 dp2 zero3 acc2",
        "pp2 tp2 acc2", "segments2 acc4"}) {
    Training t{with_layout(tiny("vit", "f32"), layout)};
    t.steps = 2;
    t.pixels = true;
    std::atomic<int> equal = 0;
    t.at_end = [&](run::Session& session, const Trace&) {
      const plan::Plan& plan = session.compiled(run::Goal::train, t.config.batch.global).plan;
      equal += session.executor().allocated_bytes() == plan.peak_bytes();
    };
    train(t);
    EXPECT_EQ(equal, ranks_of(t.config)) << layout;
  }
}

std::vector<std::pair<int, int>> all() {
  std::vector<std::pair<int, int>> out;
  for (const int stage : {0, 1, 2, 3})
    for (const int ranks : {1, 2, 4, 8}) out.emplace_back(stage, ranks);
  return out;
}
INSTANTIATE_TEST_SUITE_P(Stages, State, testing::ValuesIn(all()));

}  // namespace
}  // namespace tessera::test::state_test
