// Weights that fit: round trips in both namings bit for bit, wrappers' prefixes, goldens, and the
// adaptations of --init.
#include <gtest/gtest.h>

#include "checkpoint/weights_open.h"
#include "config/reader.h"
#include "models/interpolate.h"
#include "session/init.h"
#include "weights/fixture.h"

namespace tessera::run::load_test {
namespace {

using test::error_of;
using test::numbers_of;
using test::Scratch;
using test::small_vit;
using test::Tensors;

std::shared_ptr<const files::Safetensors> open(const std::filesystem::path& path) {
  return std::make_shared<files::Safetensors>(path);
}

TEST(Load, RoundTripsBitForBit) {
  const Scratch scratch;
  models::ModelConfig mean = small_vit(), wide = small_vit();
  mean.pool = "mean";
  wide.image_w = 20;
  wide.channels = 1;
  wide.name = "";
  for (const models::ModelConfig& m : {small_vit(), mean, wide, models::preset("vit_micro")})
    for (const Naming naming : {Naming::torchvision, Naming::timm, Naming::hf})
      for (const char* dtype : {"F32", "F64"}) {
        const auto path = scratch / "w.safetensors";
        // F64 keeps what F32 cannot.
        const double third = std::string(dtype) == "F64" ? 1.0 / 3.0 : 1.0;
        const auto values = [&, given = numbers_of(m)](const std::string& name) {
          std::vector<double> out = given(name);
          for (double& v : out) v *= third;
          return out;
        };
        save_weights(path, m, values, naming, dtype);
        const auto file = open(path);
        EXPECT_EQ(file->metadata().at("format"), "pt");
        EXPECT_EQ(file->has("pos_embed"), naming == Naming::timm);
        EXPECT_EQ(file->has("encoder.pos_embedding"), naming == Naming::torchvision);
        EXPECT_EQ(model_of(*file), m);
        std::vector<std::string> notes;
        const ParamSource source = weights_from(file, model_of(*file), {true, true}, notes);
        EXPECT_TRUE(notes.empty());
        for (const models::Param& p : models::parameters(m))
          ASSERT_EQ(source(p), values(p.name)) << p.name;
      }
}

TEST(Load, SavedFilesAreInTorchsLayout) {
  const Scratch scratch;
  const models::ModelConfig m = small_vit();
  save_weights(scratch / "w", m, numbers_of(m));
  const files::Safetensors file(scratch / "w");
  const auto params = models::parameters(m);
  ASSERT_EQ(file.tensors().size(), params.size());
  for (const models::Param& p : params) EXPECT_EQ(file.at(p.name).shape, p.torch_shape) << p.name;
  // [d, c, y, x] of torch is [y, x, c, d] of ours.
  const std::vector<double> torch = files::to_doubles(file.read("conv_proj.weight")),
                            ours = numbers_of(m)("conv_proj.weight");
  EXPECT_EQ(torch[((5u * 3 + 2) * 4 + 1) * 4 + 3], ours[((1u * 4 + 3) * 3 + 2) * 12 + 5]);
  for (const auto& [name, view] : file.tensors()) EXPECT_EQ(view.offset % 4, 0u) << name;
}

TEST(Load, SavingAgainGivesTheSameBytes) {
  const Scratch scratch;
  const models::ModelConfig m = small_vit();
  save_weights(scratch / "a", m, numbers_of(m), Naming::timm);
  std::vector<std::string> notes;
  const ParamSource source = weights_from(open(scratch / "a"), m, {}, notes);
  std::map<std::string, models::Param> params;
  for (models::Param& p : models::parameters(m)) params.emplace(p.name, p);
  save_weights(
      scratch / "b", m, [&](const std::string& name) { return source(params.at(name)); },
      Naming::timm);
  const files::RegularFile a(scratch / "a", ErrorKind::weights),
      b(scratch / "b", ErrorKind::weights);
  EXPECT_TRUE(a.read(0, a.size()) == b.read(0, b.size()));
}

TEST(Load, WrappersOldNamesAndHalfPrecision) {
  const Scratch scratch;
  const models::ModelConfig m = small_vit();
  Tensors tensors(m);
  for (const char* what : {"weight", "bias"})
    for (const char* layer : {"0", "1"}) {
      const std::string stem = fmt::format("encoder.layers.encoder_layer_{}.mlp.", layer);
      tensors.rename(stem + "0." + what, stem + "linear_1." + what);
      tensors.rename(stem + "3." + what, stem + "linear_2." + what);
    }
  Tensors wrapped = tensors;
  wrapped.all.clear();
  int i = 0;
  for (const auto& [name, tensor] : tensors.all)
    wrapped.all["module." + name] = {i++ % 2 == 0 ? "BF16" : "F16", tensor.shape};
  std::vector<std::string> notes;
  const ParamSource source = weights_from(wrapped.write(scratch / "w"), m, {}, notes);
  for (const models::Param& p : models::parameters(m))
    EXPECT_EQ(static_cast<std::int64_t>(source(p).size()), ir::elements(p.shape));
}

TEST(Load, GoldensHaveAPrefix) {
  const auto file = open(std::string(TESSERA_SOURCE_DIR) + "/tests/golden/vit_wide.safetensors");
  const models::ModelConfig m = model_of(*file);
  std::vector<std::string> notes;
  const ParamSource source = weights_from(file, m, {}, notes, "param.");
  for (const models::Param& p : models::parameters(m))
    EXPECT_EQ(models::to_torch(p, source(p)), files::to_doubles(file->read("param." + p.name)))
        << p.name;
}

// Everything but positions and head must come through untouched.
void expect_rest_unchanged(const models::ModelConfig& m, const ParamSource& source,
                           const models::ModelConfig& from) {
  for (const models::Param& p : models::parameters(m)) {
    if (p.name == models::positions_name || models::is_head("vit", p.name)) continue;
    EXPECT_EQ(source(p), numbers_of(from)(p.name)) << p.name;
  }
}

models::Param find(const models::ModelConfig& m, std::string_view name) {
  for (const models::Param& p : models::parameters(m))
    if (p.name == name) return p;
  ADD_FAILURE() << name;
  return {};
}

TEST(Adapt, PositionsAreInterpolatedAndTheHeadIsReplaced) {
  const Scratch scratch;
  const models::ModelConfig from = small_vit();
  models::ModelConfig to = from;
  to.image_h = 20;
  to.image_w = 24;
  to.classes = 7;
  to.head_init = "normal";
  save_weights(scratch / "w", from, numbers_of(from), Naming::timm, "F64");
  std::vector<std::string> notes = {"kept"};
  const ParamSource source = weights_from(open(scratch / "w"), to, {true, true, 9}, notes);
  EXPECT_EQ(notes, (std::vector<std::string>{"kept", "position embeddings interpolated 3x3 -> 5x6",
                                             "head replaced: 5 -> 7 classes"}));
  expect_rest_unchanged(to, source, from);
  EXPECT_EQ(source(find(to, models::positions_name)),
            models::interpolate_positions(numbers_of(from)("encoder.pos_embedding"), true, {3, 3},
                                          {5, 6}, 12));
  const models::Param head = find(to, "heads.head.weight");
  EXPECT_EQ(source(head), initial_weights(9)(head));
  EXPECT_EQ(source(find(to, "heads.head.bias")), std::vector<double>(7, 0.0));
}

// The metadata tells 2x8 from 4x4; the number of positions alone would not.
TEST(Adapt, TheStoredGridIsBelieved) {
  const Scratch scratch;
  models::ModelConfig from = small_vit(), to = small_vit();
  from.pool = to.pool = "mean";
  from.image_h = 8;
  from.image_w = 32;
  to.image_h = to.image_w = 16;
  save_weights(scratch / "w", from, numbers_of(from));
  std::vector<std::string> notes;
  const ParamSource source = weights_from(open(scratch / "w"), to, {true, true}, notes);
  EXPECT_EQ(notes, (std::vector<std::string>{"position embeddings interpolated 2x8 -> 4x4"}));
  EXPECT_EQ(source(find(to, models::positions_name)),
            models::interpolate_positions(numbers_of(from)("encoder.pos_embedding"), false, {2, 8},
                                          {4, 4}, 12));
  EXPECT_THROW(weights_from(open(scratch / "w"), to, {}, notes), Error);
}

// Without metadata a square, and the model's own grid only where no square has the number; 16
// positions are 4x4, not 2x8. Where nothing may be adapted, the model is what the file was said to
// hold.
TEST(Adapt, WithoutMetadataASquareIsAssumed) {
  const Scratch scratch;
  models::ModelConfig wide = small_vit();
  wide.image_w = 24;
  std::vector<std::string> notes;
  weights_from(Tensors(wide).write(scratch / "wide"), wide, {}, notes);
  EXPECT_TRUE(notes.empty());
  weights_from(Tensors(small_vit()).write(scratch / "square"), wide, {true, true}, notes);
  EXPECT_EQ(notes, (std::vector<std::string>{"position embeddings interpolated 3x3 -> 3x6"}));
  models::ModelConfig square = small_vit(), flat = small_vit();
  square.image_h = square.image_w = 16;
  flat.image_h = 8;
  flat.image_w = 32;
  notes.clear();
  weights_from(Tensors(square).write(scratch / "w"), flat, {true, true}, notes);
  EXPECT_EQ(notes, (std::vector<std::string>{"position embeddings interpolated 4x4 -> 2x8"}));
  notes.clear();
  weights_from(Tensors(flat).write(scratch / "w"), flat, {}, notes);
  weights_from(Tensors(wide).write(scratch / "w"), wide, {true, true}, notes);
  EXPECT_TRUE(notes.empty());
}

// Shapes do not show the number of heads; what the file says of it is believed.
TEST(Adapt, AnotherNumberOfHeadsIsRefused) {
  const Scratch scratch;
  models::ModelConfig to = small_vit();
  to.heads = 6;
  save_weights(scratch / "w", small_vit(), numbers_of(small_vit()));
  for (const Adapt& adapt : {Adapt{}, Adapt{true, true}}) {
    std::vector<std::string> notes;
    const Error error = error_of([&] { weights_from(open(scratch / "w"), to, adapt, notes); });
    EXPECT_EQ(error.exit_code(), 4);
    EXPECT_NE(error.message.find("the file's attention has 3 heads, model.heads = 6"),
              std::string::npos)
        << error.what();
    EXPECT_NE(error.hint.find("model.heads = 3"), std::string::npos) << error.what();
  }
  std::vector<std::string> notes;
  EXPECT_NO_THROW(weights_from(Tensors(small_vit()).write(scratch / "silent"), to, {}, notes));
}

// torchvision's models with ImageNet's classes have ImageNet's statistics unless the file says
// otherwise; timm's ViTs have 0.5.
TEST(Open, WhatIsAssumedOfSilentFiles) {
  const Scratch scratch;
  models::ModelConfig published = small_vit(), other = small_vit();
  published.name = "vit_b_16";
  published.classes = 1000;
  const auto mean_of = [&](const models::ModelConfig& m, Naming naming,
                           const std::string& preprocess) {
    save_weights(scratch / "w", m, numbers_of(m), naming, "F32", {}, preprocess);
    const OpenedWeights w = open_weights(scratch / "w");
    EXPECT_EQ(w.assumed.empty(), !preprocess.empty()) << w.assumed;
    EXPECT_TRUE(preprocess.empty() == (w.assumed.find("--set data.normalize") != w.assumed.npos))
        << w.assumed;
    EXPECT_EQ(w.preprocess["std"].size(), 3u);
    return w.preprocess["mean"].get<std::vector<double>>();
  };
  const std::vector<double> imagenet = {0.485, 0.456, 0.406}, half = {0.5, 0.5, 0.5};
  EXPECT_EQ(mean_of(published, Naming::torchvision, ""), imagenet);
  EXPECT_EQ(mean_of(published, Naming::timm, ""), half);
  EXPECT_EQ(mean_of(other, Naming::torchvision, ""), half);
  EXPECT_EQ(mean_of(published, Naming::torchvision,
                    R"({"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]})"),
            half);
}

// Keys that are given of a model must be what the weights say; a name says nothing of the other
// keys.
TEST(Open, ADescriptionMayNotContradict) {
  const Scratch scratch;
  const models::ModelConfig m = small_vit();
  save_weights(scratch / "w", m, numbers_of(m));
  const auto open_as = [&](const std::vector<std::string>& settings) {
    std::vector<config::Override> described;
    for (const std::string& setting : settings) described.push_back(config::from_set(setting));
    return open_weights(scratch / "w", described).model;
  };
  EXPECT_EQ(open_as({"model.name=vit_tiny_cifar", "model.depth=2", "model.image=12"}), m);
  for (const auto& [wrong, words] : std::vector<std::pair<std::string, std::string>>{
           {"model.name=resnet50", "vit_tiny_cifar"},
           {"model.depth=3", "model.depth = 2"},
           {"model.window=3", "not a key of the vit family"}}) {
    const Error error = error_of([&] { open_as({wrong}); });
    EXPECT_EQ(error.exit_code(), 2);
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

TEST(Adapt, AFileWithoutAHeadGetsOne) {
  const Scratch scratch;
  Tensors tensors(small_vit());
  tensors.all.erase("heads.head.weight");
  tensors.all.erase("heads.head.bias");
  std::vector<std::string> notes;
  const ParamSource source =
      weights_from(tensors.write(scratch / "w"), small_vit(), {false, true}, notes);
  EXPECT_EQ(notes, (std::vector<std::string>{"head replaced: none -> 5 classes"}));
  EXPECT_EQ(source(find(small_vit(), "heads.head.bias")).size(), 5u);
}

}  // namespace
}  // namespace tessera::run::load_test
