// Swin's weights: round trips in both namings, timm's older numbering, adaptation to another
// window, files that do not fit, and the start.
#include <gtest/gtest.h>

#include <cmath>

#include "models/interpolate.h"
#include "session/init.h"
#include "weights/fixture.h"

namespace tessera::run::swin_test {
namespace {

using test::error_of;
using test::numbers_of;
using test::Scratch;
using test::small_swin;
using test::Tensors;

std::shared_ptr<const files::Safetensors> open(const std::filesystem::path& path) {
  return std::make_shared<files::Safetensors>(path);
}

models::Param find(const models::ModelConfig& m, std::string_view name) {
  for (const models::Param& p : models::parameters(m))
    if (p.name == name) return p;
  ADD_FAILURE() << name;
  return {};
}

TEST(Swin, RoundTripsBitForBit) {
  const Scratch scratch;
  const models::ModelConfig m = small_swin();
  for (const Naming naming : {Naming::torchvision, Naming::timm, Naming::hf}) {
    save_weights(scratch / "w", m, numbers_of(m), naming);
    const auto file = open(scratch / "w");
    EXPECT_EQ(file->has("layers.2.downsample.reduction.weight"), naming == Naming::timm);
    EXPECT_EQ(file->has("swin.encoder.layers.1.downsample.reduction.weight"), naming == Naming::hf);
    EXPECT_EQ(model_of(*file), m);
    std::vector<std::string> notes;
    const ParamSource source = weights_from(file, m, {true, true}, notes);
    EXPECT_TRUE(notes.empty());
    for (const models::Param& p : models::parameters(m))
      ASSERT_EQ(source(p), numbers_of(m)(p.name)) << p.name;
  }
}

// load_state_dict(strict=True) wants the index of every block; element (i, j) is the row of the
// table that tokens i and j read.
TEST(Swin, TorchvisionsIndexIsWritten) {
  const Scratch scratch;
  models::ModelConfig m = small_swin();
  m.window_h = 1;
  m.window_w = 3;
  save_weights(scratch / "w", m, numbers_of(m));
  const auto file = open(scratch / "w");
  const std::string name = "features.1.1.attn.relative_position_index";
  ASSERT_TRUE(file->has(name));
  EXPECT_EQ(file->at(name).dtype, "I64");
  EXPECT_EQ(files::to_doubles(file->read(name), name),
            (std::vector<double>{2, 1, 0, 3, 2, 1, 4, 3, 2}));
  for (const auto& [n, view] : file->tensors())
    EXPECT_EQ(view.offset % (view.dtype == "I64" ? 8 : 4), 0u) << n;
}

// torchvision joins the tokens of a square as (0,0) (1,0) (0,1) (1,1); ours lie row by row.
TEST(Swin, MergingsAreTurned) {
  const models::Param norm = find(small_swin(), "features.2.norm.weight");
  std::vector<double> torch(24);
  for (std::size_t i = 0; i < torch.size(); ++i) torch[i] = static_cast<double>(i / 6);
  std::vector<double> places;
  for (const double v : models::from_torch(norm, torch))
    if (places.empty() || places.back() != v) places.push_back(v);
  EXPECT_EQ(places, (std::vector<double>{0, 2, 1, 3}));
}

TEST(Swin, OldTimmFilesAreRead) {
  const Scratch scratch;
  const models::ModelConfig m = small_swin();
  Tensors t(m, Naming::timm);
  for (int s = 1; s < 3; ++s)
    for (const char* part : {"norm.weight", "norm.bias", "reduction.weight"})
      t.rename(fmt::format("layers.{}.downsample.{}", s, part),
               fmt::format("layers.{}.downsample.{}", s - 1, part));
  t.rename("head.fc.weight", "head.weight");
  t.rename("head.fc.bias", "head.bias");
  t.all["layers.0.blocks.1.attn_mask"] = {"F32", {4, 9, 9}};
  t.all["layers.0.blocks.0.attn.relative_position_index"] = {"I64", {9, 9}};
  std::vector<std::string> notes;
  const ParamSource source = weights_from(t.write(scratch / "w"), m, {}, notes);
  for (const models::Param& p : models::parameters(m))
    EXPECT_EQ(static_cast<std::int64_t>(source(p).size()), ir::elements(p.shape));
}

TEST(Swin, AnotherWindowAndOtherClasses) {
  const Scratch scratch;
  const models::ModelConfig from = small_swin();
  models::ModelConfig to = from;
  to.window_h = 4;
  to.window_w = 2;
  to.classes = 7;
  save_weights(scratch / "w", from, numbers_of(from));
  std::vector<std::string> notes;
  const Error error = error_of([&] { weights_from(open(scratch / "w"), to, {}, notes); });
  EXPECT_NE(std::string(error.what()).find("expected the biases of 4x2 windows, found 3x3 windows"),
            std::string::npos)
      << error.what();
  EXPECT_NE(error.hint.find("--init"), std::string::npos);
  const ParamSource source = weights_from(open(scratch / "w"), to, {true, true, 9}, notes);
  EXPECT_EQ(notes, (std::vector<std::string>{"bias tables interpolated from 3x3 to 4x2 windows",
                                             "head replaced: 5 -> 7 classes"}));
  for (const models::Param& p : models::parameters(to)) {
    if (models::is_head("swin", p.name))
      EXPECT_EQ(source(p), initial_weights(9)(p));
    else if (p.name.ends_with(models::bias_table_ending))
      EXPECT_EQ(source(p),
                models::interpolate_table(numbers_of(from)(p.name), {3, 3}, {4, 2}, p.shape[1]))
          << p.name;
    else
      EXPECT_EQ(source(p), numbers_of(from)(p.name)) << p.name;
  }
}

// A window of 1x3 has as many biases as one of 3x1, but not the same ones.
TEST(Swin, ATurnedWindowIsAnotherOne) {
  const Scratch scratch;
  models::ModelConfig from = small_swin(), to = small_swin();
  from.window_h = to.window_w = 1;
  save_weights(scratch / "w", from, numbers_of(from));
  std::vector<std::string> notes;
  const Error error = error_of([&] { weights_from(open(scratch / "w"), to, {}, notes); });
  EXPECT_NE(std::string(error.what()).find("expected the biases of 3x1 windows, found 1x3 windows"),
            std::string::npos)
      << error.what();
  const ParamSource source = weights_from(open(scratch / "w"), to, {true, true}, notes);
  EXPECT_EQ(notes, (std::vector<std::string>{"bias tables interpolated from 1x3 to 3x1 windows"}));
  const models::Param table = find(to, "features.1.0.attn.relative_position_bias_table");
  EXPECT_EQ(source(table), models::interpolate_table(numbers_of(from)(table.name), {1, 3}, {3, 1},
                                                     table.shape[1]));
}

TEST(Swin, FilesThatDoNotFit) {
  const Scratch scratch;
  struct Row {
    std::function<void(models::ModelConfig&)> file;
    std::string words;
  };
  const std::vector<Row> rows = {
      {[](auto& m) {
         m.depths = {2, 1, 3};
       },
       "stage 2 of the file has 3 blocks, model.depths = [2, 1, 1]"},
      {[](auto& m) {
         m.depths = {2, 1};
         m.stage_heads = {2, 3};
       },
       "stage 2 of the file has 0 blocks"},
      {[](auto& m) {
         m.depths = {2, 1, 1, 2};
         m.stage_heads = {2, 3, 4, 4};
       },
       "'features.6.norm.weight' is not a parameter of the model"},
      {[](auto& m) { m.dim = 12; }, "more problems"},
      {[](auto& m) {
         m.stage_heads = {3, 3, 4};
       },
       "relative_position_bias_table': expected shape [25, 2], found [25, 3]"},
      {[](auto& m) { m = test::small_vit(); }, "none of the 32 tensors is a swin parameter"},
  };
  for (const Row& row : rows) {
    models::ModelConfig m = small_swin();
    row.file(m);
    std::vector<std::string> notes;
    const Error error = error_of([&] {
      weights_from(Tensors(m).write(scratch / "w"), small_swin(), {true, true}, notes);
    });
    EXPECT_EQ(error.exit_code(), 4);
    EXPECT_NE(std::string(error.what()).find(row.words), std::string::npos) << error.what();
  }
}

// All linear layers and tables: normal with 0.02; the convolution as PyTorch's own; norms 1 and 0;
// other biases 0.
TEST(Swin, StartsAsTorchvisions) {
  models::ModelConfig m = small_swin();
  m.dim = 24;
  m.window_h = m.window_w = 7;
  const ParamSource draw = initial_weights(3);
  for (const models::Param& p : models::parameters(m)) {
    const std::vector<double> x = draw(p);
    double squares = 0, most = 0;
    for (const double v : x) {
      squares += v * v;
      most = std::max(most, std::abs(v));
    }
    const double deviation = std::sqrt(squares / static_cast<double>(x.size()));
    const bool table = p.name.ends_with(models::bias_table_ending),
               norm = p.name.find("norm") != p.name.npos || p.name.find("0.2.") == 9;
    if (p.name.starts_with("features.0.0")) {
      EXPECT_LE(most, 1 / std::sqrt(12.0)) << p.name;
      EXPECT_GT(most, 0.8 / std::sqrt(12.0)) << p.name;
    } else if (norm || p.name.ends_with("bias")) {
      EXPECT_EQ(x, std::vector<double>(x.size(), p.name.ends_with("weight") ? 1.0 : 0.0)) << p.name;
    } else {
      EXPECT_NEAR(deviation / 0.02, 1, 4 / std::sqrt(2.0 * static_cast<double>(x.size())))
          << p.name;
    }
    EXPECT_EQ(p.decay, p.torch_shape.size() > 1 && !table) << p.name;
  }
}

}  // namespace
}  // namespace tessera::run::swin_test
