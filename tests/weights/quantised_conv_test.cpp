// Convolutions in int8: files of a small ResNet that say so and what is wrong with others, logits
// close to those of f32, and `tessera quantize` from weights to scores.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "checkpoint/quantised.h"
#include "checkpoint/weights_open.h"
#include "config/reader.h"
#include "input/dataset.h"
#include "session/init.h"
#include "train/calibrate.h"
#include "verbs/found.h"
#include "verbs/verbs.h"
#include "weights/fixture.h"
#include "weights/quantize_options.h"

namespace tessera::run::quantised_conv_test {
namespace {

using test::error_of;
using test::numbers_of;
using test::Scratch;

#define EXPECT_HEARD(text, words) EXPECT_NE((text).find(words), std::string::npos) << (text)

models::ModelConfig micro() { return models::preset("resnet_micro_cifar"); }

std::size_t count_convs(const models::ModelConfig& m) {
  std::size_t n = 0;
  for (const models::Param& p : models::parameters(m)) n += p.shape.size() == 4;
  return n - 1;  // the stem stays as it is
}

Quantised scales_for(const models::ModelConfig& m) {
  Quantised out{"int8", {}};
  for (const models::Param& p : models::parameters(m))
    if (models::is_quantisable(m, p, "int8")) out.inputs[p.name] = 0.25;
  return out;
}

TEST(QuantisedConv, FilesKeepFiltersToHalfAStep) {
  const Scratch scratch;
  const models::ModelConfig m = micro();
  save_weights(scratch / "q.safetensors", m, numbers_of(m), Naming::torchvision, "F32", {}, {},
               Extras::usual, scales_for(m));
  const OpenedWeights w = open_weights(scratch / "q.safetensors");
  EXPECT_EQ(w.quantised.as, "int8");
  EXPECT_EQ(w.quantised.inputs.size(), count_convs(m));
  EXPECT_FALSE(w.quantised.inputs.contains("conv1.weight"));
  EXPECT_FALSE(w.quantised.inputs.contains("fc.weight"));
  for (const models::Param& p : models::parameters(m)) {
    const std::vector<double> ours = numbers_of(m)(p.name), read = w.source(p);
    if (!w.quantised.inputs.contains(p.name)) {
      EXPECT_EQ(read, ours) << p.name;
      continue;
    }
    const std::vector<double> given = models::to_torch(p, ours), got = models::to_torch(p, read);
    const std::vector<double> scales = weight_scales("int8", p, given);
    ASSERT_EQ(scales.size(), static_cast<std::size_t>(p.shape[3])) << "one per filter";
    const std::size_t window = given.size() / scales.size();
    for (std::size_t i = 0; i < given.size(); ++i)
      ASSERT_LE(std::abs(given[i] - got[i]), 0.5001 * scales[i / window]) << p.name << " " << i;
    EXPECT_EQ(weight_scales("int8", p, got), scales) << p.name;
  }
}

TEST(QuantisedConv, FilesWithSomethingWrongAreRefused) {
  const Scratch scratch;
  const std::filesystem::path path = scratch / "q.safetensors";
  const models::ModelConfig m = micro();
  const std::string first = "layer1.0.conv1.weight";
  test::Tensors good(m);
  good.metadata = {{"tessera.model", config::model_to_json(m)}, {"tessera.quantised", "int8"}};
  for (const auto& [name, scale] : scales_for(m).inputs) {
    const ir::Shape shape = good.all.at(name).shape;
    good.all[name].dtype = "I8";
    good.all[name + ".scale"] = {"F32", {shape[0]}};
    good.all[name + ".input_scale"] = {"F32", {}};
  }
  const auto said = [&](const auto& change) {
    test::Tensors tensors = good;
    change(tensors);
    tensors.write(path);
    const Error error = error_of([&] { open_weights(path); });
    EXPECT_EQ(error.kind, ErrorKind::weights);
    return std::string(error.what());
  };
  using T = test::Tensors;
  EXPECT_HEARD(said([](T&) {}), "a scale is above 0");
  EXPECT_HEARD(said([&](T& t) { t.all.erase(first + ".scale"); }), first + ".scale' is missing");
  EXPECT_HEARD(said([&](T& t) { t.all.erase(first + ".input_scale"); }), "scale");
  EXPECT_HEARD(said([&](T& t) { t.all[first + ".scale"].shape = {3}; }), "expected F32 [");
  EXPECT_HEARD(said([&](T& t) { t.all[first].dtype = "F32"; }), "but '" + first + "' is F32");
  EXPECT_HEARD(said([](T& t) { t.metadata["tessera.quantised"] = "fp8"; }), "found I8");
  EXPECT_HEARD(said([](T& t) { t.metadata.erase("tessera.quantised"); }), "found I8");
}

config::Config config_of(const std::string& dtype, const std::string& quantise, int threads) {
  config::Config c;
  c.model = micro();
  c.precision.dtype = dtype;
  c.precision.quantise = quantise;
  c.run.threads = threads;
  c.data.source = fmt::format("synthetic:{}x{}x{},{}", c.model.image_h, c.model.image_w,
                              c.model.channels, c.model.classes);
  c.data.train_size = 64;
  return c;
}

// Statistics and gains that are not those of a beginning, so that a fold which forgot one shows.
ParamSource some_weights() {
  return [](const models::Param& p) {
    std::vector<double> out = initial_weights(3)(p);
    const std::vector<double> noise = test::numbers(p.name, ir::elements(p.shape));
    if (p.shape.size() == 1 || p.name == "fc.weight")
      for (std::size_t i = 0; i < out.size(); ++i) out[i] += 0.4 * noise[i];
    return out;
  };
}

std::vector<double> logits_of(const config::Config& c, const Quantised& scales) {
  Session session(c, {}, nullptr, Use::inference);
  session.load(some_weights(), scales);
  std::vector<std::uint8_t> pixels(
      static_cast<std::size_t>(6 * c.model.image_h * c.model.image_w * c.model.channels));
  for (std::size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<std::uint8_t>(random_bits(Key{5}, i));
  return session.predict(pixels, 6);
}

TEST(QuantisedConv, LogitsAreThoseOfF32UpToRounding) {
  const config::Config plain = config_of("f32", "none", 2);
  const std::vector<double> exact = logits_of(plain, {});
  const auto [low, high] = std::minmax_element(exact.begin(), exact.end());
  Quantised scales{"int8", {}};
  {
    Session session(plain, {}, nullptr, Use::inference);
    session.load(some_weights());
    const auto images = open_data(plain, data::Split::train);
    scales.inputs = calibrate(session, plain, *images, "int8", 40, 16);
  }
  EXPECT_EQ(scales.inputs.size(), count_convs(micro()));
  for (const std::string dtype : {"f32", "bf16"}) {
    const std::vector<double> logits = logits_of(config_of(dtype, "int8", 1), scales);
    double most = 0;
    for (std::size_t i = 0; i < exact.size(); ++i)
      most = std::max(most, std::abs(exact[i] - logits[i]) / (*high - *low));
    EXPECT_LT(most, 0.06) << dtype;
    EXPECT_GT(most, 1e-5) << "nothing was quantised";
    EXPECT_EQ(logits_of(config_of(dtype, "int8", 3), scales), logits) << "the same bits";
  }
}

TEST(QuantisedConv, QuantizeWritesAFileThatEvalRuns) {
  const Scratch scratch;
  const models::ModelConfig m = micro();
  QuantizeOptions o =
      test::quantize_options(scratch, m, some_weights(), config_of("f32", "none", 1).data.source);
  testing::internal::CaptureStdout();
  EXPECT_EQ(quantize(o), 0);
  const auto said = nlohmann::json::parse(testing::internal::GetCapturedStdout());
  EXPECT_EQ(said["layers"], count_convs(m));
  EXPECT_EQ(said["before"]["images"], said["after"]["images"]);
  EXPECT_NEAR(said["before"]["loss"].get<double>(), said["after"]["loss"].get<double>(), 0.05);
  EXPECT_NEAR(said["before"]["top1"].get<double>(), said["after"]["top1"].get<double>(), 0.05);
  EXPECT_LT(std::filesystem::file_size(o.out), std::filesystem::file_size(o.weights) / 3);
  const auto refusal = [](const QuantizeOptions& asked) {
    const Error error = error_of([&] { find_weights(asked); });
    EXPECT_EQ(error.kind, ErrorKind::usage) << error.what();
    return std::string(error.what());
  };
  QuantizeOptions made = o;  // what cannot run it is said before anything is computed
  made.weights = o.out;
  for (const std::string dtype : {"f16", "f64"}) {
    made.overrides = {{"precision.dtype", dtype, "--dtype"}};
    EXPECT_HEARD(refusal(made), "f32 scales, and precision.dtype is " + dtype);
  }
  o.as = "fp8";
  o.out = (scratch / "f.safetensors").string();
  EXPECT_HEARD(std::string(error_of([&] { quantize(o); }).what()), "fp8 is for those alone");
}

}  // namespace
}  // namespace tessera::run::quantised_conv_test
