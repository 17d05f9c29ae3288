// Initial weights: the distributions of torchvision.models.VisionTransformer, checked by their
// moments and bounds; and what they depend on.
#include "session/init.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace tessera::run::init_test {
namespace {

using models::Param;

struct Moments {
  double mean = 0, std = 0, least = 0, most = 0, kurtosis = 0;
};

Moments moments(const std::vector<double>& x) {
  Moments m;
  const auto n = static_cast<double>(x.size());
  for (const double v : x) m.mean += v / n;
  double fourth = 0;
  for (const double v : x) {
    m.std += (v - m.mean) * (v - m.mean) / n;
    fourth += std::pow(v - m.mean, 4) / n;
  }
  m.kurtosis = m.std > 0 ? fourth / (m.std * m.std) : 0;
  m.std = std::sqrt(m.std);
  const auto [least, most] = std::minmax_element(x.begin(), x.end());
  m.least = *least;
  m.most = *most;
  return m;
}

// Within five standard errors of the mean and of the standard deviation; the tail tells a normal
// (3) from a uniform (1.8) distribution.
void expect_distribution(const std::string& name, const std::vector<double>& x, double std,
                         double kurtosis) {
  const Moments m = moments(x);
  const auto n = static_cast<double>(x.size());
  EXPECT_NEAR(m.mean, 0, 5 * std / std::sqrt(n)) << name;
  EXPECT_NEAR(m.std / std, 1, 5 * std::sqrt((kurtosis - 1) / (4 * n))) << name;
  if (n > 2000) {
    EXPECT_NEAR(m.kurtosis, kurtosis, 0.3) << name;
  }
}

models::ModelConfig small() {
  models::ModelConfig m = models::preset("vit_tiny_cifar");
  m.dim = 96;
  m.heads = 3;
  m.mlp = 160;
  m.depth = 2;
  m.classes = 50;
  return m;
}

std::map<std::string, Param> by_name(const models::ModelConfig& m) {
  std::map<std::string, Param> out;
  for (Param& p : models::parameters(m)) out.emplace(p.name, p);
  return out;
}

TEST(Init, DistributedAsTorchvisions) {
  const models::ModelConfig m = small();
  const auto params = by_name(m);
  const ParamSource draw = initial_weights(7);
  const double c = 96, f = 160, third = 1 / std::sqrt(3.0);
  struct Expected {
    std::string ending;
    double bound;  // > 0: uniform in +-bound; < 0: normal with -bound as standard deviation; 0: see
                   // `constant`
    double constant = 0;
  };
  const std::vector<Expected> rows = {
      {"class_token", 0, 0},
      {"conv_proj.weight", -std::sqrt(1.0 / (3 * 4 * 4))},
      {"conv_proj.bias", 0, 0},
      {"pos_embedding", -0.02},
      {"ln_1.weight", 0, 1},
      {"ln_1.bias", 0, 0},
      {"in_proj_weight", std::sqrt(6 / (c + 3 * c))},
      {"in_proj_bias", 0, 0},
      {"out_proj.weight", 1 / std::sqrt(c)},
      {"out_proj.bias", 0, 0},
      {"ln_2.weight", 0, 1},
      {"ln_2.bias", 0, 0},
      {"mlp.0.weight", std::sqrt(6 / (c + f))},
      {"mlp.0.bias", -1e-6},
      {"mlp.3.weight", std::sqrt(6 / (c + f))},
      {"mlp.3.bias", -1e-6},
      {"encoder.ln.weight", 0, 1},
      {"encoder.ln.bias", 0, 0},
      {"head.weight", 0, 0},
      {"head.bias", 0, 0},
  };
  std::size_t seen = 0;
  for (const auto& [name, param] : params)
    for (const Expected& e : rows) {
      if (!name.ends_with(e.ending)) continue;
      ++seen;
      const std::vector<double> x = draw(param);
      ASSERT_EQ(static_cast<std::int64_t>(x.size()), ir::elements(param.shape)) << name;
      const Moments found = moments(x);
      if (e.bound == 0) {
        EXPECT_TRUE(found.least == e.constant && found.most == e.constant) << name;
      } else if (e.bound < 0) {
        expect_distribution(name, x, -e.bound, 3.0);
      } else {
        expect_distribution(name, x, e.bound * third, 1.8);
        EXPECT_GE(found.least, -e.bound) << name;
        EXPECT_LE(found.most, e.bound) << name;
        EXPECT_LT(found.least, -0.99 * e.bound) << name;
        EXPECT_GT(found.most, 0.99 * e.bound) << name;
      }
    }
  EXPECT_EQ(seen, params.size());
}

TEST(Init, NormalHead) {
  models::ModelConfig m = small();
  m.head_init = "normal";
  expect_distribution("head", initial_weights(1)(by_name(m).at("heads.head.weight")), 0.02, 3.0);
}

// trunc_normal_ cuts at +-2, not at two standard deviations: with std 1 that leaves a variance of 1
// - 4 phi(2) / (Phi(2) - Phi(-2)).
TEST(Init, TruncatedNormalIsCutAtTwo) {
  Param p;
  p.name = "wide";
  p.shape = {200, 200};
  p.init = {models::Init::truncated_normal, 1.0};
  const std::vector<double> x = initial_weights(3)(p);
  const Moments m = moments(x);
  EXPECT_GE(m.least, -2.0);
  EXPECT_LE(m.most, 2.0);
  EXPECT_GT(m.most, 1.99);
  expect_distribution("wide", x, 0.879626, 2.367);
  p.init.scale = 0.1;
  expect_distribution("narrow", initial_weights(3)(p), 0.1, 3.0);
}

TEST(Init, DependsOnSeedAndNameAndNothingElse) {
  const auto params = by_name(small());
  const std::string a = "encoder.layers.encoder_layer_0.mlp.0.weight",
                    b = "encoder.layers.encoder_layer_1.mlp.0.weight";
  const ParamSource draw = initial_weights(5);
  const std::vector<double> first = draw(params.at(a));
  const std::vector<double> other = draw(params.at(b));
  EXPECT_EQ(draw(params.at(a)), first);
  EXPECT_EQ(initial_weights(5)(params.at(a)), first);
  EXPECT_NE(other, first);
  EXPECT_NE(initial_weights(6)(params.at(a)), first);
  // A deeper model keeps the weights of its first layers.
  models::ModelConfig deep = small();
  deep.depth = 3;
  EXPECT_EQ(draw(by_name(deep).at(a)), first);
}

}  // namespace
}  // namespace tessera::run::init_test
