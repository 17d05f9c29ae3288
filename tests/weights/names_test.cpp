// Names of other frameworks, torch's layouts against ours, and interpolated positions against
// PyTorch's.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "base/check.h"
#include "files/safetensors.h"
#include "models/interpolate.h"
#include "models/weights.h"

namespace tessera::models::names_test {
namespace {

TEST(Names, EveryParameterHasOneNameInEachNaming) {
  for (const Preset& preset : presets())
    for (const Param& p : parameters(preset.config)) {
      const std::string& family = preset.config.family;
      const std::string timm = timm_name(family, p.name);
      EXPECT_EQ(canonical_name(family, p.name), p.name);
      EXPECT_EQ(canonical_name(family, timm), p.name) << timm;
      EXPECT_EQ(canonical_name(family, "module." + p.name), p.name);
      EXPECT_EQ(canonical_name(family, "_orig_mod.module.model." + timm), p.name);
      const std::vector<std::string> hf = hf_names(family, p.name);
      for (std::size_t i = 0; i < hf.size(); ++i)
        EXPECT_EQ(name_part(family, hf[i]),
                  (NamePart{p.name, static_cast<int>(i), static_cast<int>(hf.size())}))
            << hf[i];
    }
}

TEST(Names, Examples) {
  const std::string layer = "encoder.layers.encoder_layer_";
  EXPECT_EQ(canonical_name("vit", "blocks.11.attn.qkv.weight"),
            layer + "11.self_attention.in_proj_weight");
  EXPECT_EQ(canonical_name("vit", "blocks.0.mlp.fc2.bias"), layer + "0.mlp.3.bias");
  EXPECT_EQ(canonical_name("vit", layer + "7.mlp.linear_1.weight"), layer + "7.mlp.0.weight");
  EXPECT_EQ(canonical_name("vit", layer + "7.mlp.linear_2.bias"), layer + "7.mlp.3.bias");
  EXPECT_EQ(canonical_name("vit", "cls_token"), "class_token");
  EXPECT_EQ(timm_name("vit", "encoder.pos_embedding"), "pos_embed");
  EXPECT_EQ(timm_name("vit", "conv_proj.weight"), "patch_embed.proj.weight");
  EXPECT_EQ(layer_of("vit", layer + "31.ln_1.weight"), (Layer{0, 31}));
  EXPECT_EQ(layer_of("vit", "encoder.ln.weight"), std::nullopt);
  EXPECT_THROW(timm_name("vit", "blocks.0.norm1.weight"), Error);
}

TEST(Names, HuggingFaceExamples) {
  const auto part = [](const char* family, const char* name) {
    const auto found = name_part(family, name);
    return found ? found->canonical + " " + std::to_string(found->part) + "/" +
                       std::to_string(found->parts)
                 : "none";
  };
  EXPECT_EQ(part("vit", "vit.encoder.layer.3.attention.attention.key.bias"),
            "encoder.layers.encoder_layer_3.self_attention.in_proj_bias 1/3");
  EXPECT_EQ(part("vit", "embeddings.cls_token"), "class_token 0/1");
  EXPECT_EQ(part("swin", "swin.encoder.layers.1.blocks.0.attention.self.value.weight"),
            "features.3.0.attn.qkv.weight 2/3");
  EXPECT_EQ(part("swin", "swin.encoder.layers.0.downsample.norm.bias"), "features.2.norm.bias 0/1");
  EXPECT_EQ(part("resnet", "resnet.encoder.stages.0.layers.2.shortcut.normalization.running_var"),
            "layer1.2.downsample.1.running_var 0/1");
  EXPECT_EQ(part("resnet", "classifier.1.weight"), "fc.weight 0/1");
  EXPECT_TRUE(is_ignored("vit", "vit.pooler.dense.weight"));
  EXPECT_TRUE(is_ignored("resnet", "resnet.embedder.embedder.normalization.num_batches_tracked"));
  for (const char* name : {"vit.", "vit.encoder.layer.00.layernorm_before.bias",
                           "vit.encoder.layer.0.attention.attention.keys.bias",
                           "vit.encoder.layer.0.attention.attention..bias", "classifier.1.weight"})
    EXPECT_EQ(part("vit", name), "none") << name;
  EXPECT_EQ(part("resnet", "resnet.encoder.stages.0.layers.0.layer.0.convolution.biases"), "none");
}

TEST(Names, SwinExamples) {
  const auto canonical = [](std::string_view name) {
    return canonical_name("swin", name).value_or("none");
  };
  EXPECT_EQ(canonical("layers.2.blocks.5.attn.qkv.weight"), "features.5.5.attn.qkv.weight");
  EXPECT_EQ(canonical("layers.0.blocks.1.mlp.fc2.bias"), "features.1.1.mlp.3.bias");
  EXPECT_EQ(canonical("layers.1.downsample.reduction.weight"), "features.2.reduction.weight");
  EXPECT_EQ(canonical("patch_embed.norm.weight"), "features.0.2.weight");
  EXPECT_EQ(canonical("head.fc.bias"), "head.bias");
  EXPECT_EQ(canonical("head.bias"), "head.bias");
  EXPECT_EQ(timm_name("swin", "features.7.1.norm2.bias"), "layers.3.blocks.1.norm2.bias");
  EXPECT_EQ(timm_name("swin", "features.6.norm.weight"), "layers.3.downsample.norm.weight");
  EXPECT_EQ(layer_of("swin", "features.5.17.norm1.weight"), (Layer{2, 17}));
  EXPECT_EQ(layer_of("swin", "features.4.norm.weight"), std::nullopt);
  EXPECT_TRUE(is_ignored("swin", "module.features.1.0.attn.relative_position_index"));
  EXPECT_TRUE(is_ignored("swin", "layers.0.blocks.1.attn_mask"));
  EXPECT_FALSE(is_ignored("swin", "features.1.0.attn.qkv.weight"));
  EXPECT_FALSE(is_ignored("vit", "layers.0.blocks.1.attn_mask"));
  for (const char* name :
       {"features.", "features.0", "features.0.1.weight", "features.0.norm.weight",
        "features.2.0.norm1.weight", "features.1.norm.weight", "features.01.0.norm1.weight",
        "features.1.0.norm1.weight.x", "layers.0.norm.weight", "layers.0.blocks.0.mlp.0.weight",
        "layers.0.downsample.reduction.bias", "class_token", "head.fc.weights"})
    EXPECT_EQ(canonical(name), "none") << name;
}

// timm before 0.9 gave a merging to the stage before it; a file tells by having one in its first
// layer.
TEST(Names, OldTimmCountsMergingsFromTheStageBefore) {
  NameMap now, old;
  for (const char* part : {"norm.weight", "reduction.weight"})
    for (int s = 0; s < 3; ++s) {
      const std::string rest = ".downsample." + std::string(part);
      const std::string a = "layers." + std::to_string(s + 1) + rest,
                        b = "layers." + std::to_string(s) + rest;
      now[*canonical_name("swin", a)] = a;
      old[*canonical_name("swin", b)] = b;
    }
  settle_names("swin", now);
  settle_names("swin", old);
  ASSERT_EQ(now.size(), old.size());
  for (auto a = now.begin(), b = old.begin(); a != now.end(); ++a, ++b)
    EXPECT_EQ(a->first, b->first);
  EXPECT_EQ(old.at("features.2.norm.weight"), "layers.0.downsample.norm.weight");
  EXPECT_EQ(now.at("features.2.norm.weight"), "layers.1.downsample.norm.weight");
}

TEST(Names, OthersAreNotGuessed) {
  for (const char* name : {"",
                           ".",
                           "module.",
                           "blocks",
                           "blocks.",
                           "blocks..norm1.weight",
                           "blocks.-1.norm1.weight",
                           "blocks.01.norm1.weight",
                           "blocks.+1.norm1.weight",
                           "blocks.1x.norm1.weight",
                           "blocks.99999999999999999999.norm1.weight",
                           "blocks.0.norm1",
                           "blocks.0.ln_1.weight",
                           "encoder.layers.encoder_layer_0.norm1.weight",
                           "encoder.layers.encoder_layer_0.",
                           "fc_norm.weight",
                           "heads.head.weight.x",
                           "Head.weight",
                           "head.weight ",
                           "encoder.ln",
                           "blocks.0."})
    EXPECT_EQ(canonical_name("vit", name), std::nullopt) << name;
}

TEST(Layout, ConvolutionIsTransposed) {
  ModelConfig m = preset("vit_micro");
  m.channels = 3;
  m.patch = 2;
  m.dim = 4;
  m.heads = 2;
  Param conv;
  for (const Param& p : parameters(m))
    if (p.name == "conv_proj.weight") conv = p;
  ASSERT_EQ(conv.torch_shape, (ir::Shape{4, 3, 2, 2}));
  ASSERT_EQ(conv.shape, (ir::Shape{2, 2, 3, 4}));
  std::vector<double> torch(48);
  for (std::size_t i = 0; i < torch.size(); ++i) torch[i] = static_cast<double>(i);
  const std::vector<double> ours = from_torch(conv, torch);
  for (std::size_t d = 0; d < 4; ++d)
    for (std::size_t c = 0; c < 3; ++c)
      for (std::size_t y = 0; y < 2; ++y)
        for (std::size_t x = 0; x < 2; ++x)
          ASSERT_EQ(ours[((y * 2 + x) * 3 + c) * 4 + d], torch[((d * 3 + c) * 2 + y) * 2 + x]);
  EXPECT_EQ(to_torch(conv, ours), torch);
}

TEST(Layout, SplitShapesAreTransposedAfterTheSplit) {
  Param p;
  p.name = "split";
  p.torch_shape = {6, 2};
  p.split_shape = {3, 2, 2};
  p.shape = {2, 3, 2};
  p.torch_perm = {1, 0, 2};
  const std::vector<double> torch = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  EXPECT_EQ(from_torch(p, torch), (std::vector<double>{0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11}));
  EXPECT_EQ(to_torch(p, from_torch(p, torch)), torch);
  EXPECT_THROW(from_torch(p, std::span(torch).first(11)), Error);
}

// Tolerance: 16 products of numbers around 1 in f64, in another order than PyTorch's.
TEST(Interpolation, AgreesWithPyTorch) {
  const files::Safetensors golden(std::string(TESSERA_SOURCE_DIR) +
                                  "/tests/golden/interpolation.safetensors");
  ASSERT_GE(golden.metadata().size(), 13u);
  for (const auto& [name, shape] : golden.metadata()) {
    std::string kind;
    Grid from, to;
    std::istringstream(shape) >> kind >> from.h >> from.w >> to.h >> to.w;
    const std::int64_t dim = golden.at(name + ".from").shape[2];
    const std::vector<double> expected = files::to_doubles(golden.read(name + ".to")),
                              given = files::to_doubles(golden.read(name + ".from"));
    const std::vector<double> found =
        kind == "table" ? interpolate_table(given, from, to, dim)
                        : interpolate_positions(given, kind == "class", from, to, dim);
    ASSERT_EQ(found.size(), expected.size()) << name;
    double worst = 0;
    for (std::size_t i = 0; i < found.size(); ++i)
      worst = std::max(worst, std::abs(found[i] - expected[i]));
    EXPECT_LE(worst, 1e-12) << name;
  }
}

TEST(Interpolation, SameGridIsUnchanged) {
  const std::vector<double> positions = {9, 8, 1, -2, 3, 4, -5, 6, 7, 8, 9, -1, 2, 3};
  EXPECT_EQ(interpolate_positions(positions, true, {2, 3}, {2, 3}, 2), positions);
}

}  // namespace
}  // namespace tessera::models::names_test
