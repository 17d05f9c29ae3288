// Layouts in f16: ranks see the same norm, so they decide alike, and their scales are those of one
// rank.
#include <gtest/gtest.h>

#include <mutex>
#include <string>

#include "parallel/world.h"
#include "session/init.h"

namespace tessera::test::loss_scale_test {
namespace {

struct Tries {
  std::vector<double> scales;
  std::vector<bool> applied;
  std::vector<double> losses;
};

Tries tries_of(const config::Config& c, comm::Comm* world) {
  run::Session session(c, {}, world);
  session.load(run::initial_weights(3));
  Tries out;
  std::int64_t done = 0;
  for (int i = 0; i < 14; ++i) {
    const auto [images, labels] = samples_of(c.model, static_cast<int>(done) + 1, c.batch.global);
    const run::StepResult r = session.train_step(images, labels, 1e-3, done + 1, 100 * done);
    done += r.ok;
    out.scales.push_back(r.loss_scale);
    out.applied.push_back(r.ok);
    out.losses.push_back(r.loss);
    EXPECT_EQ(r.ok, !r.overflow);
  }
  return out;
}

class LossScaleLayouts : public testing::TestWithParam<std::string> {};

TEST_P(LossScaleLayouts, HaveTheScalesOfOneRank) {
  config::Config one = tiny("vit", "f16");
  one.precision.initial_scale_power = 24;
  one.precision.loss_scale_window = 4;
  const config::Config many = with_layout(one, GetParam());
  one.batch.accumulate = many.batch.accumulate;
  const Tries want = tries_of(one, nullptr);
  std::mutex mutex;
  comm::run_local(ranks_of(many), [&](comm::Comm& world) {
    const Tries got = tries_of(many, &world);
    const std::lock_guard lock(mutex);
    EXPECT_EQ(got.scales, want.scales) << GetParam() << ", rank " << world.rank();
    EXPECT_EQ(got.applied, want.applied) << GetParam() << ", rank " << world.rank();
    EXPECT_LT(difference(got.losses, want.losses), 1e-2);
  });
  EXPECT_FALSE(want.applied.front());
  EXPECT_TRUE(want.applied.back());
}

INSTANTIATE_TEST_SUITE_P(All, LossScaleLayouts,
                         testing::Values("dp2", "dp2 zero3", "dp2 zero2 acc2", "tp2 megatron",
                                         "pp2 acc2 1f1b", "pp2 dp2 zero1 acc2 zb",
                                         "dp2 compress=int8"));

// Without clipping each rank judges its own gradients, before they are added up.
TEST(LossScaleEarly, IsJudgedAlike) {
  config::Config one = tiny("vit", "f16");
  one.optim.clip = 0;
  one.precision.initial_scale_power = 24;
  const Tries want = tries_of(one, nullptr);
  comm::run_local(2, [&](comm::Comm& world) {
    EXPECT_EQ(tries_of(with_layout(one, "dp2"), &world).scales, want.scales);
  });
}

}  // namespace
}  // namespace tessera::test::loss_scale_test
