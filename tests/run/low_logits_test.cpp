// Logits in bf16 beside those in f32, for a small model of each family.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "session/init.h"
#include "session/session.h"
#include "verbs/bench_ranks.h"

namespace tessera::run::low_logits_test {
namespace {

// Images that differ in more than noise, which a mean over pixels would take away: each has a
// colour and a slope of its own.
std::vector<std::uint8_t> pictures(const models::ModelConfig& m, std::int64_t count) {
  std::vector<std::uint8_t> out = random_pixels(m, count);
  std::size_t at = 0;
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t y = 0; y < m.image_h; ++y)
      for (std::int64_t x = 0; x < m.image_w; ++x)
        for (std::int64_t c = 0; c < m.channels; ++c, ++at) {
          const auto colour = static_cast<double>(i * 37 % 32 + c * (i % 5)) * 4;
          const double slope = static_cast<double>((i % 4) * y + (i % 3) * x);
          out[at] = static_cast<std::uint8_t>(std::min(255.0, colour + slope / 2 + out[at] / 8.0));
        }
  return out;
}

std::vector<double> logits(const std::string& model, const std::string& dtype, std::int64_t batch) {
  config::Config c;
  c.model = models::preset(model);
  c.model.head_init = "normal";  // a head of zeros would hide every difference
  c.precision.dtype = dtype;
  c.run.threads = 2;
  c.batch = {batch, batch, 1};
  Session session(c, {}, nullptr, Use::inference);
  session.load(initial_weights(11));
  return session.predict(pictures(c.model, batch), batch);
}

// The spread is the standard deviation of the logits in f32 around the mean of their class: what
// tells one image from another, without what all images have in common.
double spread_of(const std::vector<double>& logits, std::size_t classes) {
  const std::size_t images = logits.size() / classes;
  double squares = 0;
  for (std::size_t c = 0; c < classes; ++c) {
    double mean = 0;
    for (std::size_t i = 0; i < images; ++i) mean += logits[i * classes + c];
    mean /= static_cast<double>(images);
    for (std::size_t i = 0; i < images; ++i) squares += std::pow(logits[i * classes + c] - mean, 2);
  }
  return std::sqrt(squares / static_cast<double>(logits.size()));
}

TEST(LowLogits, AreWithinTwoHundredthsOfTheSpread) {
  constexpr std::int64_t batch = 32;
  for (const std::string model : {"vit_micro", "swin_micro", "resnet_micro_cifar"}) {
    const std::vector<double> wide = logits(model, "f32", batch),
                              low = logits(model, "bf16", batch);
    ASSERT_EQ(wide.size(), low.size());
    const auto classes = static_cast<std::size_t>(models::preset(model).classes);
    double squares = 0, most = 0;
    for (std::size_t i = 0; i < wide.size(); ++i) {
      squares += std::pow(low[i] - wide[i], 2);
      most = std::max(most, std::abs(low[i] - wide[i]));
    }
    const double off = std::sqrt(squares / static_cast<double>(wide.size()));
    const double spread = spread_of(wide, classes);
    const auto [least, largest] = std::minmax_element(wide.begin(), wide.end());
    RecordProperty(model + "_off_over_spread", std::to_string(off / spread));
    EXPECT_GT(off, 0) << model << ": bf16 was not in use";
    EXPECT_LE(off, 2e-2 * spread) << model << ", root mean square";
    EXPECT_LE(most, 2e-2 * (*largest - *least)) << model << ", the largest";
  }
}

}  // namespace
}  // namespace tessera::run::low_logits_test
