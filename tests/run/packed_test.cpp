// Inference makes values of weights once, and packs them: the same logits, planned memory as it is
// allocated, and made anew when they change.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/rng.h"
#include "session/init.h"
#include "session/session.h"

namespace tessera::run::packed_test {
namespace {

config::Config small(const std::string& model, const std::string& dtype = "f32") {
  config::Config c;
  c.model = models::preset(model);
  c.model.head_init = "normal";
  c.precision = {.dtype = dtype, .winograd = false};  // Winograd has bits of its own
  c.run.threads = 2;
  c.batch = {4, 4, 1};
  if (const char* device = std::getenv("TESSERA_TEST_DEVICE")) c.run.device = device;
  return c;
}

std::vector<std::uint8_t> pixels_for(const config::Config& c, std::int64_t count) {
  std::vector<std::uint8_t> out(
      static_cast<std::size_t>(count * c.model.image_h * c.model.image_w * c.model.channels));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<std::uint8_t>(random_bits(Key{8}, i));
  return out;
}

std::int64_t packed_bytes(const plan::Plan& plan, std::string_view prefix = "packed.") {
  std::int64_t bytes = 0;
  for (const plan::Buffer& buffer : plan.persistent)
    if (buffer.name.starts_with(prefix)) bytes += buffer.bytes;
  return bytes;
}

TEST(PackedWeights, GiveTheSameLogits) {
  for (const char* model : {"vit_micro", "swin_micro", "resnet_micro_cifar"})
    for (const char* dtype : {"f32", "bf16", "f64"}) {
      SCOPED_TRACE(std::string(model) + " " + dtype);
      const config::Config c = small(model, dtype);
      Session plain(c), packs(c, {}, nullptr, Use::inference);
      plain.load(initial_weights(1));
      packs.load(initial_weights(1));
      for (const std::int64_t count : {1, 3, 1}) {
        const auto pixels = pixels_for(c, count);
        EXPECT_EQ(packs.predict(pixels, count), plain.predict(pixels, count)) << count;
      }
      const plan::Plan& plan = packs.compiled(Goal::predict, 1).plan;
      // A card's libraries want the filters of convolutions in another form, and products as they
      // are.
      const bool packed = c.run.device == "cpu" || std::string(model) == "resnet_micro_cifar";
      EXPECT_EQ(packed_bytes(plan) > 0, packed && std::string(dtype) != "f64");
      EXPECT_EQ(packed_bytes(plain.compiled(Goal::predict, 1).plan), 0);
      // Casts of weights, folded norms, and what windows add to their scores.
      const bool once = std::string(dtype) == "bf16" || std::string(model) != "vit_micro";
      EXPECT_EQ(packed_bytes(plan, "prepared.") > 0, once);
      EXPECT_EQ(plan.prepared > 0, once);
      EXPECT_EQ(plain.compiled(Goal::predict, 1).plan.prepared, 0u);
    }
}

TEST(PackedWeights, AreCountedAndSharedByPlans) {
  const config::Config c = small("vit_micro");
  Session session(c, {}, nullptr, Use::inference);
  const plan::Plan one = session.compiled(Goal::predict, 1).plan;
  EXPECT_EQ(session.executor().allocated_bytes(), one.peak_bytes());
  EXPECT_EQ(one.memory.total(), one.peak_bytes());
  // Nearly all weights of a transformer are factors of products; padding of columns adds a little.
  std::int64_t weights = 0;
  for (const models::Param& p : models::parameters(c.model)) weights += 4 * ir::elements(p.shape);
  EXPECT_GT(packed_bytes(one), weights / 2);
  EXPECT_LT(packed_bytes(one), 2 * weights);
  const plan::Plan four = session.compiled(Goal::predict, 4).plan;
  EXPECT_EQ(session.executor().allocated_bytes(),
            four.persistent_bytes() + std::max(one.arena_bytes + one.outside_bytes(),
                                               four.arena_bytes + four.outside_bytes()));
}

class PackedAnew : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(PackedAnew, WhenTheyChange) {
  const config::Config c = small(std::get<0>(GetParam()), std::get<1>(GetParam()));
  const auto pixels = pixels_for(c, 2);
  const auto fresh = [&](std::uint64_t seed) {
    Session session(c);
    session.load(initial_weights(seed));
    return session.predict(pixels, 2);
  };
  Session session(c, {}, nullptr, Use::inference);
  for (const std::uint64_t seed : {1, 2, 3}) {
    session.load(initial_weights(seed));
    EXPECT_EQ(session.predict(pixels, 2), fresh(seed)) << seed;
    EXPECT_EQ(session.predict(pixels, 2), fresh(seed)) << seed << ", again";
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PackedAnew,
                         testing::Combine(testing::Values("vit_micro", "resnet_micro_cifar"),
                                          testing::Values("f32", "bf16")));

// A session that trains keeps no second form, neither for its steps nor for its evaluations.
TEST(PackedWeights, AreNotKeptWhereWeightsAreTrained) {
  Session session(small("vit_micro"));
  for (const Goal goal : {Goal::train, Goal::evaluate, Goal::predict})
    EXPECT_EQ(packed_bytes(session.compiled(goal, 4).plan), 0);
}

}  // namespace
}  // namespace tessera::run::packed_test
