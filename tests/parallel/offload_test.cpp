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
      const plan::Plan& plan = compiled_step(session, samples).plan;
      EXPECT_GT(plan.bytes_on(home), 0);
      EXPECT_EQ(session.executor().away_bytes(home), plan.bytes_on(home));
    };
    const Trace moved = train(training);
    EXPECT_EQ(moved.loss, resident.loss);
    EXPECT_EQ(moved.grad_norm, resident.grad_norm);
    EXPECT_EQ(moved.weights, resident.weights);
  }
}

// Weights of ZeRO 3 as well: they come before they are gathered, in the forward pass and again in
// the backward pass, and the update leaves them where they rest.
struct WeightsCase {
  std::string name, layout;
  void (*change)(config::Config&) = [](config::Config&) {};
};
class OffloadedWeights : public testing::TestWithParam<WeightsCase> {};

TEST_P(OffloadedWeights, HaveTheSameBitsAsOnTheDevice) {
  const Scratch scratch;
  Training training{.config = with_layout(tiny("vit", "f32"), GetParam().layout), .steps = 4};
  training.config.parallel.offload_mb = 1.0 / 1024;
  training.config.parallel.persist = 64;  // small ones stay
  GetParam().change(training.config);
  const std::int64_t samples = training.config.batch.global;
  std::int64_t here = 0;  // of the first rank
  training.at_end = [&](run::Session& session, const Trace&) {
    if (session.rank() == 0) here = compiled_step(session, samples).plan.memory.weights;
  };
  const Trace resident = train(training);
  for (const ir::Home home : {ir::Home::host, ir::Home::file}) {
    SCOPED_TRACE(ir::name(home));
    training.config.parallel.offload_params = ir::name(home);
    training.config.parallel.offload_optimizer = home == ir::Home::host ? "none" : "host";
    training.config.parallel.offload_folder = scratch.folder().string();
    training.at_end = [&](run::Session& session, const Trace&) {
      const plan::Plan& plan = compiled_step(session, samples).plan;
      EXPECT_GT(plan.bytes_on(home), 0);
      EXPECT_EQ(session.executor().away_bytes(home), plan.bytes_on(home));
      EXPECT_EQ(plan.memory.total(), plan.peak_bytes());
      if (session.rank() == 0 && training.config.optim.freeze == "none") {
        EXPECT_EQ(plan.memory.weights + plan.bytes_on(home), here);
      }
    };
    const Trace moved = train(training);
    EXPECT_EQ(moved.loss, resident.loss);
    EXPECT_EQ(moved.grad_norm, resident.grad_norm);
    EXPECT_EQ(moved.weights, resident.weights);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, OffloadedWeights,
    testing::Values(
        WeightsCase{"one", "zero3"},
        WeightsCase{"average", "zero3", [](config::Config& c) { c.ema.decay = 0.9; }},
        WeightsCase{"lamb", "zero3", [](config::Config& c) { c.optim.name = "lamb"; }},
        WeightsCase{"plain", "zero3",
                    [](config::Config& c) {
                      c.run.fuse = false;
                      c.parallel.overlap = false;
                      c.parallel.prefetch = false;
                      c.optim.name = "sgd";
                    }},
        WeightsCase{"low", "zero3", [](config::Config& c) { c.precision.dtype = "bf16"; }},
        WeightsCase{"dp2", "dp2 zero3"},
        WeightsCase{"dp2_lamb", "dp2 zero3", [](config::Config& c) { c.optim.name = "lamb"; }},
        WeightsCase{"dp2_plain", "dp2 zero3",
                    [](config::Config& c) { c.parallel.overlap = false; }},
        WeightsCase{"dp2_micro", "dp2 zero3 acc2"},
        WeightsCase{"dp2_recompute", "dp2 zero3 recompute"},
        WeightsCase{"dp2_tp2", "dp2 tp2 zero3"}, WeightsCase{"sp2", "sp2 zero3"},
        WeightsCase{"pp2", "dp2 pp2 zero3 acc2"}),
    [](const auto& info) { return info.param.name; });

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
