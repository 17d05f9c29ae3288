// Exports in the words of other libraries: what config.json says, and what cannot be said.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "verbs/export_naming.h"
#include "weights/fixture.h"

namespace tessera::run::export_test {
namespace {

using namespace test;
using nlohmann::json;

OpenedWeights of(const models::ModelConfig& m, const json& preprocess = json::object()) {
  OpenedWeights w;
  w.model = m;
  for (std::int64_t i = 0; i < m.classes; ++i) w.classes.push_back("c" + std::to_string(i));
  w.preprocess = preprocess;
  return w;
}

std::string refusal(const models::ModelConfig& m, const std::string& naming) {
  try {
    refuse_unsayable(of(m), naming);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 2);
    return error.what();
  }
}

TEST(Export, WhatALibraryCannotSayIsRefused) {
  models::ModelConfig mean = models::preset("vit_b_16"), wide = mean, grey = mean, odd = mean;
  mean.pool = "mean";
  wide.image_w = 448;
  grey.channels = 1;
  odd.dim = 768;
  odd.mlp = 3071;
  const auto expect = [](const models::ModelConfig& m, const char* torchvision, const char* timm,
                         const char* hf) {
    EXPECT_EQ(refusal(m, "tessera"), "");
    for (const auto& [naming, words] :
         {std::pair{"torchvision", torchvision}, std::pair{"timm", timm}, std::pair{"hf", hf}}) {
      const std::string said = refusal(m, naming);
      EXPECT_EQ(said.empty(), std::string(words).empty()) << naming << ": " << said;
      EXPECT_NE(said.find(words), std::string::npos) << naming << ": " << said;
    }
  };
  expect(models::preset("vit_b_16"), "", "", "");
  expect(mean, "class token", "", "class token");
  expect(wide, "square", "", "");
  expect(grey, "images have 3", "", "");
  models::ModelConfig swin = models::preset("swin_t"), small = swin, rectangle = swin;
  small.image_h = small.image_w = 64;
  rectangle.window_w = 14;
  models::ModelConfig padded = swin;
  padded.window_h = padded.window_w = 6;
  padded.depths = {2, 2};
  padded.stage_heads = {3, 6};
  expect(padded, "", "shifts before it pads", "");
  expect(swin, "", "", "");
  expect(small, "", "fewer than a window", "fewer than a window");
  expect(rectangle, "", "fewer than a window", "square");
  models::ModelConfig resnet = models::preset("resnet50"), cifar = models::preset("resnet18_cifar"),
                      thin = resnet;
  thin.width = 32;
  expect(resnet, "", "", "");
  expect(cifar, "stem", "stem", "stem");
  expect(thin, "64 channels", "64 channels", "");
  // A family for which nobody has written down how others call it: not judged as a ResNet.
  models::ModelConfig mixer = resnet;
  mixer.family = "mixer";
  expect(mixer, "\"mixer\"", "\"mixer\"", "\"mixer\"");
}

TEST(Export, PreprocessingInTheirWords) {
  const models::ModelConfig m = models::preset("vit_b_16");
  const OpenedWeights bicubic = of(m, {{"mean", {0.1, 0.2, 0.3}},
                                       {"std", {0.4, 0.5, 0.6}},
                                       {"resize", 232},
                                       {"interpolation", "bicubic"}});
  const json cfg = export_config(bicubic, "timm", "f32")["pretrained_cfg"];
  EXPECT_EQ(cfg["interpolation"], "bicubic");
  EXPECT_EQ(std::floor(224 / cfg["crop_pct"].get<double>()), 232);
  EXPECT_EQ(cfg["mean"], (json{0.1, 0.2, 0.3}));
  json pre = export_preprocessor(bicubic);
  EXPECT_EQ(pre["resample"], 3);
  EXPECT_EQ(pre["size"]["shortest_edge"], 232);
  EXPECT_EQ(pre["crop_size"]["width"], 224);
  pre = export_preprocessor(of(m, {{"crop", "squash"}}));
  EXPECT_EQ(pre["image_processor_type"], "ViTImageProcessor");
  EXPECT_EQ(pre["size"]["height"], 224);
  EXPECT_EQ(pre["resample"], 2);
  for (int resize = 224; resize < 400; ++resize) {
    const json said = export_config(of(m, {{"resize", resize}}), "timm", "f32");
    EXPECT_EQ(std::floor(224 / said["pretrained_cfg"]["crop_pct"].get<double>()), resize);
  }
}

TEST(Export, ConfigurationsNameTheModel) {
  const OpenedWeights w = of(small_swin());
  EXPECT_EQ(export_config(w, "hf", "f32")["model_type"], "swin");
  EXPECT_EQ(export_config(w, "hf", "f32")["id2label"]["4"], "c4");
  EXPECT_EQ(export_config(w, "timm", "f32")["model_args"]["window_size"], (json{3, 3}));
  EXPECT_EQ(export_config(w, "torchvision", "f32")["torchvision"]["class"], "SwinTransformer");
  for (const char* naming : {"tessera", "torchvision", "timm", "hf"})
    EXPECT_EQ(export_config(w, naming, "f32")["tessera"]["model"]["family"], "swin");
}

}  // namespace
}  // namespace tessera::run::export_test
