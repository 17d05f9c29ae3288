// What "the same under every layout" means for long trainings: a layout changes the order of sums, and so the last bits. Where a
// training is stable these stay what they are; where its learning rate is too high, any change of a last bit doubles every few
// steps, also on one rank. The difference that a layout makes is therefore measured against that of one ulp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "parallel/world.h"

namespace tessera::test::chaos_test {
namespace {

constexpr int steps = 60;

Trace trained(double rate, const std::string& layout, bool one_ulp_off) {
  Training t{with_layout(tiny("vit"), layout)};
  t.steps = steps;
  t.config.optim.lr = rate;
  t.config.optim.clip = 0;
  if (one_ulp_off)
    t.start = [](const models::Param& param, std::vector<double>& values) {
      if (param.name == models::parameters(tiny("vit").model).front().name) values[0] = std::nextafter(values[0], 10.0);
    };
  return train(t);
}

// The larger relative difference of loss and gradient norm, of every step.
std::vector<double> apart(const Trace& a, const Trace& b) {
  std::vector<double> out;
  for (std::size_t i = 0; i < a.loss.size(); ++i)
    out.push_back(std::max(std::abs(a.loss[i] - b.loss[i]) / std::abs(a.loss[i]),
                           std::abs(a.grad_norm[i] - b.grad_norm[i]) / std::abs(a.grad_norm[i])));
  return out;
}

int first_beyond(const std::vector<double>& curve, double limit) {
  return static_cast<int>(std::find_if(curve.begin(), curve.end(), [&](double d) { return d > limit; }) - curve.begin());
}

TEST(Chaos, TwoRanksPartNoFasterThanOneUlp) {
  const double stable = 1e-3, unstable = 0.1;
  for (const double rate : {stable, unstable}) {
    const Trace one = trained(rate, "", false);
    const std::vector<double> ulp = apart(one, trained(rate, "", true)), ranks = apart(one, trained(rate, "dp2", false));
    for (int i = 0; i < steps; i += 4) std::printf("%g %d %.1e %.1e\n", rate, i, ulp[i], ranks[i]);
  }
}

}  // namespace
}  // namespace tessera::test::chaos_test
