// Optimizer state that rests away from the device, on several ranks: each has its own part of it
// there, and every layout gives the same bits as with state on the device.
#include <gtest/gtest.h>

#include <filesystem>

#include "files/scratch.h"
#include "parallel/world.h"

namespace tessera::test::offload_test {
namespace {

class OffloadedRanks : public testing::TestWithParam<std::string> {};

TEST_P(OffloadedRanks, HaveTheSameBitsAsOnTheDevice) {
  const Scratch scratch;
  Training training{.config = with_layout(tiny("vit", "f32"), GetParam())};
  training.config.parallel.offload_mb = 1.0 / 1024;  // 256 elements at a time
  if (GetParam() == "dp2 zero1") training.steps = 20;
  const Trace resident = train(training);
  for (const ir::Home home : {ir::Home::host, ir::Home::file}) {
    SCOPED_TRACE(ir::name(home));
    training.config.parallel.offload_optimizer = ir::name(home);
    if (home == ir::Home::file) training.config.parallel.offload_folder = scratch.folder().string();
    training.at_end = [&](run::Session& session, const Trace&) {
      const std::int64_t samples = training.config.batch.global;
      const plan::Plan& plan = session.compiled(run::Goal::train, samples).plan;
      EXPECT_GT(plan.bytes_on(home), 0);
      EXPECT_EQ(session.executor().away_bytes(home), plan.bytes_on(home));
    };
    const Trace moved = train(training);
    EXPECT_EQ(moved.loss, resident.loss);
    EXPECT_EQ(moved.grad_norm, resident.grad_norm);
    EXPECT_EQ(moved.weights, resident.weights);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, OffloadedRanks,
                         testing::Values("dp2 zero1", "dp2", "dp2 zero2", "dp2 zero3", "tp2",
                                         "pp2 acc2"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, ' ');
                           return name;
                         });

}  // namespace
}  // namespace tessera::test::offload_test
