// Quantised weights: files that say so and what is wrong with others, the bounds that calibration
// finds, and logits close to those of f32 from a session that runs them.
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

namespace tessera::run::quantised_test {
namespace {

using test::error_of;
using test::numbers_of;
using test::Scratch;
using test::small_swin;
using test::small_vit;

#define EXPECT_TOLD(text, words) EXPECT_NE((text).find(words), std::string::npos) << (text)

template <class Body>
std::string told_by(const Body& body) {
  return error_of(body).what();
}

Quantised scales_for(const models::ModelConfig& m, const std::string& as) {
  Quantised out{as, {}};
  for (const models::Param& p : models::parameters(m))
    if (models::is_inner_linear(m, p)) out.inputs[p.name] = 0.25;
  return out;
}

void save(const std::filesystem::path& path, const models::ModelConfig& m, const std::string& as) {
  save_weights(path, m, numbers_of(m), Naming::torchvision, "F32", {}, {}, Extras::usual,
               scales_for(m, as));
}

TEST(Quantised, FilesKeepWeightsToHalfAStep) {
  const Scratch scratch;
  for (const models::ModelConfig& m : {small_vit(), small_swin()})
    for (const std::string as : {"int8", "fp8"}) {
      save(scratch / "q.safetensors", m, as);
      const OpenedWeights w = open_weights(scratch / "q.safetensors");
      EXPECT_EQ(w.quantised.as, as);
      EXPECT_EQ(w.quantised.inputs.size(), m.family == "vit" ? 8u : 16u);
      for (const models::Param& p : models::parameters(m)) {
        const std::vector<double> given = numbers_of(m)(p.name), got = w.source(p);
        if (!w.quantised.inputs.contains(p.name)) {
          EXPECT_EQ(got, given) << p.name;
          continue;
        }
        EXPECT_EQ(w.quantised.inputs.at(p.name), 0.25);
        const std::vector<double> scales = weight_scales(as, p, given);
        const std::size_t columns = given.size() / scales.size();
        for (std::size_t i = 0; i < given.size(); ++i) {
          const double scale = scales[i / columns], off = std::abs(given[i] - got[i]);
          // e4m3 has three bits behind the leading one.
          ASSERT_LE(off, as == "int8" ? 0.5001 * scale : std::abs(given[i]) / 15 + scale * 0.001)
              << p.name << " " << i;
        }
        EXPECT_EQ(weight_scales(as, p, got), scales) << p.name;
      }
    }
}

TEST(Quantised, ASecondTimeGivesTheSameBytes) {
  const Scratch scratch;
  const models::ModelConfig m = small_vit();
  save(scratch / "a.safetensors", m, "int8");
  const OpenedWeights w = open_weights(scratch / "a.safetensors");
  std::map<std::string, models::Param> params;
  for (const models::Param& p : models::parameters(m)) params.emplace(p.name, p);
  save_weights(
      scratch / "b.safetensors", m,
      [&](const std::string& name) { return w.source(params.at(name)); }, Naming::torchvision,
      "F32", {}, {}, Extras::usual, w.quantised);
  const files::Safetensors a(scratch / "a.safetensors"), b(scratch / "b.safetensors");
  for (const auto& [name, place] : a.tensors()) {
    const auto x = a.read(name), y = b.read(name);
    EXPECT_TRUE(std::equal(x.bytes.begin(), x.bytes.end(), y.bytes.begin(), y.bytes.end())) << name;
  }
}

// The tensors of a quantised file, all zeros, with metadata.
test::Tensors zeros(const models::ModelConfig& m) {
  test::Tensors out(m);
  out.metadata = {{"tessera.model", config::model_to_json(m)}, {"tessera.quantised", "int8"}};
  for (const auto& [name, scale] : scales_for(m, "int8").inputs) {
    const ir::Shape shape = out.all.at(name).shape;
    out.all[name].dtype = "I8";
    out.all[name + ".scale"] = {"F32", {shape[0]}};
    out.all[name + ".input_scale"] = {"F32", {}};
  }
  return out;
}

TEST(Quantised, FilesWithSomethingWrongAreRefused) {
  const Scratch scratch;
  const std::filesystem::path path = scratch / "q.safetensors";
  const models::ModelConfig m = small_vit();
  const std::string first = "encoder.layers.encoder_layer_0.self_attention.in_proj_weight";
  const auto said = [&](test::Tensors tensors) {
    tensors.write(path);
    const Error error = error_of([&] { open_weights(path); });
    EXPECT_EQ(error.kind, ErrorKind::weights);
    return std::string(error.what());
  };
  EXPECT_TOLD(said(zeros(m)), "a scale is above 0");
  test::Tensors missing = zeros(m), shape = zeros(m), plain = zeros(m), number = zeros(m),
                other = zeros(m);
  missing.all.erase(first + ".scale");
  EXPECT_TOLD(said(missing), first + ".scale' is missing");
  shape.all[first + ".scale"].shape = {3};
  EXPECT_TOLD(said(shape), "expected F32 [36]");
  plain.metadata.erase("tessera.quantised");
  EXPECT_TOLD(said(plain), "expected dtype F64, F32, BF16 or F16, found I8");
  number.all[first].dtype = "F32";
  EXPECT_TOLD(said(number), "quantised as int8, but '" + first + "' is F32");
  other.metadata["tessera.quantised"] = "int4";
  EXPECT_TOLD(said(other), "quantised as 'int4'");
}

TEST(Calibration, CutsOutliersOffWhereThatLosesLess) {
  Magnitudes even, outlier;
  std::vector<float> numbers;
  for (int i = 0; i <= 100000; ++i) numbers.push_back(static_cast<float>(i % 2001 - 1000) * 1e-3f);
  even.add(numbers);
  EXPECT_DOUBLE_EQ(even.largest(), 1.0);
  EXPECT_NEAR(even.best_bound(127), 1.0, 0.01);
  outlier.add(numbers);
  outlier.add(std::vector{8.0f, -0.0f});
  EXPECT_EQ(outlier.count(), 100003);
  EXPECT_LT(outlier.best_bound(127), 8.0);
  EXPECT_GE(outlier.best_bound(127), 0.99);
  EXPECT_EQ(outlier.largest(), 8.0);
}

config::Config config_of(const models::ModelConfig& m, const std::string& dtype,
                         const std::string& quantise) {
  config::Config c;
  c.model = m;
  c.precision.dtype = dtype;
  c.precision.quantise = quantise;
  c.run.threads = 1;
  c.data.source = fmt::format("synthetic:{}x{}x{},{}", m.image_h, m.image_w, m.channels, m.classes);
  c.data.train_size = 64;
  return c;
}

// Weights whose layers matter: the initial head is nearly nothing.
ParamSource some_weights() {
  return [](const models::Param& p) {
    std::vector<double> out = initial_weights(3)(p);
    if (models::is_head("vit", p.name) || models::is_head("swin", p.name))
      out = test::numbers(p.name, ir::elements(p.shape));
    return out;
  };
}

std::vector<double> logits_of(const config::Config& c, const Quantised& scales,
                              std::int64_t threads = 1) {
  config::Config with = c;
  with.run.threads = threads;
  Session session(with, {}, nullptr, Use::inference);
  session.load(some_weights(), scales);
  std::vector<std::uint8_t> pixels(
      static_cast<std::size_t>(6 * c.model.image_h * c.model.image_w * c.model.channels));
  for (std::size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<std::uint8_t>(random_bits(Key{5}, i));
  return session.predict(pixels, 6);
}

// The largest difference in units of the spread of all logits.
double difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double off = std::abs(a[i] - b[i]);
    most = off <= most ? most : off;
  }
  const auto [low, high] = std::minmax_element(a.begin(), a.end());
  return most / (*high - *low);
}

TEST(Quantised, LogitsAreThoseOfF32UpToRounding) {
  for (const models::ModelConfig& m : {small_vit(), small_swin()}) {
    const config::Config plain = config_of(m, "f32", "none");
    const std::vector<double> exact = logits_of(plain, {});
    for (const std::string as : {"int8", "fp8"}) {
      Quantised scales{as, {}};
      {
        Session session(plain, {}, nullptr, Use::inference);
        session.load(some_weights());
        const auto images = open_data(plain, data::Split::train);
        scales.inputs = calibrate(session, plain, *images, as, 40, 16);
      }
      EXPECT_EQ(scales.inputs.size(), scales_for(m, as).inputs.size());
      for (const std::string dtype : {"f32", "bf16"}) {
        const config::Config c = config_of(m, dtype, as);
        const std::vector<double> logits = logits_of(c, scales);
        const double off = difference(exact, logits);
        // Layers of 6 to 20 channels, and pixels at random where images were calibrated.
        EXPECT_LT(off, as == "int8" ? 0.06 : 0.12) << m.family << " " << as << " " << dtype;
        EXPECT_GT(off, 1e-5) << "nothing was quantised";
        EXPECT_EQ(logits_of(c, scales, 3), logits) << "the same bits from three threads";
      }
    }
  }
}

TEST(Quantised, KeysThatDoNotGoTogetherAreRefused) {
  const auto said = [](config::Purpose purpose, const std::string& key, const std::string& value) {
    return told_by([&] {
      config::load(std::nullopt,
                   {{"precision.quantise", "int8", "--set", false}, {key, value, "--set", false}},
                   purpose);
    });
  };
  EXPECT_TOLD(said(config::Purpose::train, "run.seed", "1"), "is for inference");
  EXPECT_TOLD(said(config::Purpose::inference, "precision.dtype", "f64"), "f32 scales");
  EXPECT_TOLD(said(config::Purpose::inference, "parallel.dp", "2"), "run on one rank");
}

TEST(Quantize, WritesAFileThatEvalRuns) {
  const Scratch scratch;
  QuantizeOptions o =
      test::quantize_options(scratch, small_vit(), some_weights(), "synthetic:12x12x3,5");
  testing::internal::CaptureStdout();
  EXPECT_EQ(quantize(o), 0);
  const auto said = nlohmann::json::parse(testing::internal::GetCapturedStdout());
  EXPECT_EQ(said["layers"], 8);
  EXPECT_EQ(said["dtype"], "int8");
  EXPECT_EQ(said["before"]["images"], said["after"]["images"]);
  EXPECT_NEAR(said["before"]["loss"].get<double>(), said["after"]["loss"].get<double>(), 0.05);

  const auto again = [&](const auto& change) {
    QuantizeOptions other = o;
    change(other);
    return told_by([&] { quantize(other); });
  };
  EXPECT_TOLD(again([&](QuantizeOptions& x) { x.weights = o.out; }), "quantised already, as int8");
  EXPECT_TOLD(again([&](QuantizeOptions& x) { x.out = "q.pt"; }), "ends with .safetensors");
  EXPECT_TOLD(again([](QuantizeOptions& x) {
                x.overrides.push_back({"precision.dtype", "bf16", "--set", false});
              }),
              "calibration computes in f32");
  EvalOptions e;
  e.weights = o.out;
  e.overrides = {{"precision.dtype", "f16", "--dtype", false}};
  EXPECT_EQ(find_weights(e).config.precision.quantise, "int8");  // linear layers run in f16, too
  e.overrides.clear();
  e.data = o.data;
  e.overrides.push_back({"parallel.dp", "2", "--dp 2", true});
  EXPECT_TOLD(told_by([&] { evaluate(e, nullptr); }), "run on one rank");
  e.overrides = {{"precision.quantise", "fp8", "--set", false}};
  EXPECT_TOLD(told_by([&] { evaluate(e, nullptr); }), "the weights are quantised as int8");
  e.weights = o.weights;
  EXPECT_TOLD(told_by([&] { evaluate(e, nullptr); }), "the weights are not quantised");
}

}  // namespace
}  // namespace tessera::run::quantised_test
