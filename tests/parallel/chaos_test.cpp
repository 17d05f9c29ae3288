// This tests what "the same under every layout" means for long trainings: a layout changes the
// order of sums, and so the last bits. Where a training is stable these stay what they are; where
// its learning rate is too high, any change of a last bit doubles every few steps, also on one
// rank. The difference that a layout makes is therefore measured against that of one ulp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "parallel/world.h"

namespace tessera::test::chaos_test {
namespace {

struct Wish {
  double rate = 0;
  int steps = 0;
};

Trace trained(const Wish& wish, const std::string& layout, bool one_ulp_off = false) {
  Training t{with_layout(tiny("vit"), layout)};
  t.steps = wish.steps;
  t.config.optim.lr = wish.rate;
  t.config.optim.clip = 0;
  bool moved = !one_ulp_off;
  if (one_ulp_off)
    t.start = [&](const models::Param&, std::vector<double>& values) {
      // The first scale of a layer norm: the last bit of a small weight would be lost in the first
      // sum.
      if (moved || values[0] != 1) return;
      values[0] = std::nextafter(1.0, 2.0);
      moved = true;
    };
  Trace out = train(t);
  EXPECT_TRUE(moved) << "no weight is 1";
  return out;
}

// The larger relative difference of loss and gradient norm, of every step.
std::vector<double> apart(const Trace& a, const Trace& b) {
  std::vector<double> out;
  for (std::size_t i = 0; i < a.loss.size(); ++i)
    out.push_back(std::max(std::abs(a.loss[i] - b.loss[i]) / std::abs(a.loss[i]),
                           std::abs(a.grad_norm[i] - b.grad_norm[i]) / std::abs(a.grad_norm[i])));
  return out;
}

double most(const std::vector<double>& curve) {
  return *std::max_element(curve.begin(), curve.end());
}

TEST(Chaos, AStableTrainingStaysTogether) {
  const Wish stable{.rate = 1e-3, .steps = 24};
  const Trace one = trained(stable, "");
  EXPECT_LE(most(apart(one, trained(stable, "", true))), 1e-13);
  EXPECT_LE(most(apart(one, trained(stable, "dp2"))), 1e-13);
}

// Until the difference of one ulp is as large as the loss allows, that of two ranks is no more than
// rounding beside it.
TEST(Chaos, TwoRanksPartNoFasterThanOneUlp) {
  const Wish unstable{.rate = 0.3, .steps = 40};
  const Trace one = trained(unstable, "");
  const std::vector<double> ulp = apart(one, trained(unstable, "", true)),
                            ranks = apart(one, trained(unstable, "dp2"));
  EXPECT_GE(most(ulp), 1e-6) << "this rate was chosen because one ulp grows a billionfold";
  EXPECT_GE(most(ranks), 1e-8);
  double so_far = 1e-15;
  for (std::size_t i = 0; i < ulp.size() && so_far < 1e-3; ++i) {
    so_far = std::max(so_far, ulp[i]);
    EXPECT_LE(ranks[i], 100 * so_far) << "step " << i + 1;
  }
}

}  // namespace
}  // namespace tessera::test::chaos_test
