// Where a step first became NaN or infinite: a poisoned weight, a poisoned image and an overflow
// are each named.
#include "train/diagnose.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "base/rng.h"
#include "checkpoint/state_tensors.h"
#include "input/dataset.h"
#include "session/init.h"
#include "train/score.h"

namespace tessera::run::diagnose_test {
namespace {

config::Config tiny(const std::string& dtype) {
  config::Config c;
  c.model = models::preset("vit_micro");
  c.model.depth = 1;
  c.precision.dtype = dtype;
  c.batch = {4, 4, 1};
  return c;
}

struct Fixture {
  explicit Fixture(const std::string& dtype = "f32") : Fixture(tiny(dtype), nullptr) {}
  Fixture(const config::Config& config, comm::Comm* world) : session(config, {}, world) {
    session.load(initial_weights(1));
    const models::ModelConfig& m = session.config().model;
    images.resize(static_cast<std::size_t>(4 * m.image_h * m.image_w * m.channels));
    for (std::size_t i = 0; i < images.size(); ++i)
      images[i] = static_cast<float>(normal(Key{2}, i));
  }
  StepInputs inputs() const { return {images, labels, 1e-3, 1, 0}; }
  bool step() { return session.train_step(images, labels, 1e-3, 1, 0).ok; }
  template <class T>
  void poison(const std::string& name, T value) {
    session.compiled(Goal::train, 4);
    for (const StateTensor& t : state_tensors(session))
      if (t.name == name)
        session.executor().write_persistent(t.buffer, t.offset,
                                            std::as_bytes(std::span(&value, 1)));
  }
  Session session;
  std::vector<float> images;
  std::vector<std::int32_t> labels = {0, 1, 2, 3};
};

bool has(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

TEST(Diagnose, APoisonedWeightIsNamed) {
  for (const char* dtype : {"f32", "bf16"}) {
    Fixture f(dtype);
    f.poison("param.encoder.layers.encoder_layer_0.mlp.0.weight",
             std::numeric_limits<float>::quiet_NaN());
    EXPECT_FALSE(f.step());
    const std::string text = first_bad_tensor(f.session, f.inputs());
    EXPECT_TRUE(has(text,
                    "param.encoder.layers.encoder_layer_0.mlp.0.weight f32[128,64] already has 1 "
                    "NaN of 8192 elements"))
        << text;
    EXPECT_TRUE(has(text, "first bad tensor: ")) << text;
    EXPECT_TRUE(has(text, "blocks.0.mlp")) << text;
    EXPECT_TRUE(has(text, "forward pass")) << text;
  }
}

// A run that was given bad weights has no good state to go back to, and its message does not
// promise one.
TEST(Diagnose, ABadStateIsNotCalledGood) {
  Fixture f, sound;
  f.poison("param.encoder.ln.weight", std::numeric_limits<float>::quiet_NaN());
  sound.images[5] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(f.step());
  EXPECT_FALSE(sound.step());
  const Error bad = not_finite(f.session, f.inputs(), {}, 10, "run/ckpt"),
              good = not_finite(sound.session, sound.inputs(), {}, 10, "run/ckpt");
  EXPECT_TRUE(has(bad.message,
                  "the state was not finite before the first of them, nor is the newest checkpoint "
                  "in run/ckpt"))
      << bad.what();
  EXPECT_FALSE(has(bad.message, "good state")) << bad.what();
  EXPECT_TRUE(has(bad.hint, "other weights")) << bad.what();
  EXPECT_TRUE(has(good.message, "the last good state is in run/ckpt")) << good.what();
}

// The table per class counts as top-1 does: what is no number hits nothing.
TEST(Diagnose, AScoreThatIsNotFiniteHasNoHits) {
  Fixture f;
  f.poison("param.encoder.ln.weight", std::numeric_limits<float>::quiet_NaN());
  config::Config config = tiny("f32");
  config.data.test_size = 12;
  const Score s = score(f.session, config, *open_data(config, data::Split::test), 4, 0);
  EXPECT_FALSE(s.finite);
  EXPECT_EQ(s.images, 12);
  EXPECT_EQ(s.top1, 0);
  for (const std::int64_t hits : s.class_correct) EXPECT_EQ(hits, 0);
}

TEST(Diagnose, APoisonedImageIsNamed) {
  Fixture f;
  f.images[5] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(f.step());
  const std::string text = first_bad_tensor(f.session, f.inputs());
  EXPECT_TRUE(has(text, "the images already have 1 Inf of")) << text;
  EXPECT_TRUE(has(text, "first bad tensor: ")) << text;
}

TEST(Diagnose, AnOverflowIsNamedWithItsEquation) {
  Fixture f("f64");
  f.poison("param.encoder.layers.encoder_layer_0.mlp.3.weight", 1e300);
  f.poison("param.encoder.ln.weight", 1e300);
  f.poison("param.heads.head.weight", 1e300);
  EXPECT_FALSE(f.step());
  const std::string text = first_bad_tensor(f.session, f.inputs());
  EXPECT_TRUE(has(text, "are finite; first bad tensor: ")) << text;
  EXPECT_TRUE(has(text, " pass, has ") && has(text, " in scope '") && has(text, " of ")) << text;
  EXPECT_TRUE(f.session.parameter("heads.head.weight")[0] == 1e300);  // nothing changed
}

// On stages of a pipeline all ranks tell of the one where it began, wherever the bad numbers went
// from there.
TEST(Diagnose, OnAnotherStage) {
  for (const int block : {0, 3}) {
    config::Config c = tiny("f32");
    c.model.depth = 4;
    c.parallel.pp = 2;
    c.batch = {4, 2, 2};
    const std::string name =
        fmt::format("param.encoder.layers.encoder_layer_{}.mlp.0.weight", block);
    comm::run_local(2, [&](comm::Comm& world) {
      Fixture f(c, &world);
      f.poison(name, std::numeric_limits<float>::quiet_NaN());
      EXPECT_FALSE(f.step());
      const std::string text = first_bad_tensor(f.session, f.inputs());
      EXPECT_TRUE(has(text, name + " f32[128,64] already has 1 NaN")) << text;
      EXPECT_TRUE(has(text, fmt::format("blocks.{}.mlp", block)) && has(text, "forward pass"))
          << text;
      EXPECT_EQ(has(text, "on rank 1: "), block == 3) << text;
    });
  }
}

TEST(Diagnose, CountsWhatIsBad) {
  const std::vector<float> values = {1, std::numeric_limits<float>::infinity(),
                                     -std::numeric_limits<float>::infinity(),
                                     std::numeric_limits<float>::quiet_NaN(), 0};
  const BadElements bad = count_bad(std::as_bytes(std::span(values)), ir::DType::f32);
  EXPECT_EQ(bad.inf, 2);
  EXPECT_EQ(bad.nan, 1);
  EXPECT_EQ(bad.all, 5);
  EXPECT_FALSE(count_bad(std::as_bytes(std::span(values)), ir::DType::i32).any());
}

}  // namespace
}  // namespace tessera::run::diagnose_test
