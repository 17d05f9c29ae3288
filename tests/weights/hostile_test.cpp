// Weight files that do not fit their model: each row changes one thing of a sound file and names
// the words of the refusal. Convention: a refusal is Error(weights), exit code 4, before any
// parameter is read; --init (Adapt) forgives positions and head only.
#include <gtest/gtest.h>

#include <fstream>

#include "files/text.h"
#include "weights/fixture.h"

namespace tessera::run::hostile_test {
namespace {

using test::error_of;
using test::numbers_of;
using test::Scratch;
using test::small_vit;
using test::Tensors;

const std::string layer0 = "encoder.layers.encoder_layer_0.",
                  layer1 = "encoder.layers.encoder_layer_1.";

struct Case {
  std::string name;
  std::function<void(Tensors&)> change;
  std::vector<std::string> words;
  bool forgiven = false;  // accepted with --init
};

void erase_layer(Tensors& t, const std::string& layer) {
  std::erase_if(t.all, [&](const auto& entry) { return entry.first.starts_with(layer); });
}
models::ModelConfig with(std::function<void(models::ModelConfig&)> change) {
  models::ModelConfig m = small_vit();
  change(m);
  return m;
}
std::function<void(Tensors&)> becomes(std::function<void(models::ModelConfig&)> change) {
  return [change](Tensors& t) { t = Tensors(with(change)); };
}
std::function<void(Tensors&)> dtype(const std::string& tensor, const std::string& dtype) {
  return [=](Tensors& t) { t.all.at(tensor).dtype = dtype; };
}
std::function<void(Tensors&)> shape(const std::string& tensor, const ir::Shape& shape) {
  return [=](Tensors& t) { t.all.at(tensor).shape = shape; };
}
std::function<void(Tensors&)> says(const std::string& model) {
  return [=](Tensors& t) { t.metadata["tessera.model"] = model; };
}

std::vector<Case> cases() {
  return {
      {"no tensors",
       [](Tensors& t) { t.all.clear(); },
       {"none of the 0 tensors is a vit parameter"}},
      {"tensors of something else",
       [](Tensors& t) {
         t.all = {{"conv1.weight", {"F32", {2}}}, {"fc.bias", {"F32", {2}}}};
       },
       {"none of the 2 tensors", "torchvision's, timm's or Hugging Face's"}},
      {"one missing",
       [](Tensors& t) { t.all.erase("encoder.ln.bias"); },
       {"a parameter is missing: encoder.ln.bias"}},
      {"several missing",
       [](Tensors& t) {
         t.all.erase("encoder.ln.bias");
         t.all.erase(layer0 + "mlp.0.bias");
       },
       {"2 parameters are missing", "encoder.ln.bias", layer0 + "mlp.0.bias"}},
      {"bias of the head missing",
       [](Tensors& t) { t.all.erase("heads.head.bias"); },
       {"missing: heads.head.bias"}},
      {"head missing",
       [](Tensors& t) {
         t.all.erase("heads.head.bias");
         t.all.erase("heads.head.weight");
       },
       {"heads.head.weight, heads.head.bias"},
       true},
      {"a misspelt name",
       [](Tensors& t) { t.rename("encoder.ln.weight", "encoder.lm.weight"); },
       {"'encoder.lm.weight' is not a parameter", "did you mean 'encoder.ln.weight'?",
        "missing: encoder.ln.weight"}},
      {"an extra tensor",
       [](Tensors& t) {
         t.all["optimizer.step"] = {"F32", {1}};
       },
       {"'optimizer.step' is not a parameter of the model"}},
      {"a representation layer",
       [](Tensors& t) {
         t.all["heads.pre_logits.weight"] = {"F32", {4, 12}};
       },
       {"'heads.pre_logits.weight' is not a parameter"}},
      {"timm's norm after pooling",
       [](Tensors& t) { t.rename("encoder.ln.weight", "fc_norm.weight"); },
       {"'fc_norm.weight'", "norm after mean pooling"}},
      {"control characters in a name",
       [](Tensors& t) {
         t.all["bad\x1b[2J\nname"] = {"F32", {1}};
       },
       {"is not a parameter of the model"}},
      {"a very long name",
       [](Tensors& t) {
         t.all[std::string(100'000, 'x')] = {"F32", {1}};
       },
       {"xxx", "is not a parameter of the model"}},
      {"both namings of one parameter",
       [](Tensors& t) { t.all["norm.weight"] = t.all.at("encoder.ln.weight"); },
       {"'encoder.ln.weight' and 'norm.weight' are the same parameter"}},
      {"both namings of everything",
       [](Tensors& t) {
         for (const auto& [name, tensor] : Tensors(small_vit(), Naming::timm).all)
           t.all[name] = tensor;
       },
       {"are the same parameter; expected it once", "more problems"}},
      {"with and without a wrapper",
       [](Tensors& t) { t.all["module.class_token"] = t.all.at("class_token"); },
       {"'class_token' and 'module.class_token' are the same parameter"}},
      {"integers",
       dtype("conv_proj.bias", "I64"),
       {"'conv_proj.bias': expected dtype F64, F32, BF16 or F16, found I64"}},
      {"booleans", dtype("encoder.ln.weight", "BOOL"), {"'encoder.ln.weight'", "found BOOL"}},
      {"8-bit floats",
       dtype("heads.head.weight", "F8_E4M3"),
       {"'heads.head.weight'", "found F8_E4M3"}},
      {"complex numbers", dtype("class_token", "C64"), {"'class_token'", "found C64"}},
      {"a transposed matrix",
       shape(layer0 + "mlp.0.weight", {12, 20}),
       {"mlp.0.weight': expected shape [20, 12], found [12, 20]"}},
      {"a flattened filter",
       shape("conv_proj.weight", {12, 48}),
       {"'conv_proj.weight': expected shape [12, 3, 4, 4], found [12, 48]"}},
      {"filters in another layout",
       shape("conv_proj.weight", {4, 4, 3, 12}),
       {"found [4, 4, 3, 12]"}},
      {"a scalar",
       shape("encoder.ln.weight", {}),
       {"'encoder.ln.weight': expected shape [12], found []"}},
      {"an empty tensor", shape("encoder.ln.weight", {0}), {"expected shape [12], found [0]"}},
      {"a class token without its dims",
       shape("class_token", {12}),
       {"'class_token': expected shape [1, 1, 12], found [12]"}},
      {"fewer layers",
       [](Tensors& t) { erase_layer(t, layer1); },
       {"the file has 1 encoder layers, model.depth = 2"}},
      {"more layers",
       becomes([](auto& m) { m.depth = 5; }),
       {"the file has 5 encoder layers, model.depth = 2"}},
      {"layers counted from one",
       [](Tensors& t) {
         const Tensors sound = t;
         for (const auto& [name, tensor] : sound.all)
           if (name.starts_with(layer0))
             t.rename(name, "blocks.2." + models::timm_name("vit", name).substr(9));
       },
       {"the file's encoder layers go up to 2; expected 0 to 1", "12 parameters are missing"}},
      {"no layers at all",
       [](Tensors& t) {
         erase_layer(t, layer0);
         erase_layer(t, layer1);
       },
       {"24 parameters are missing", "and 18 more"}},
      {"another width",
       becomes([](auto& m) { m.dim = 24; }),
       {"expected shape [1, 1, 12], found [1, 1, 24]", "more problems"}},
      {"another mlp",
       becomes([](auto& m) { m.mlp = 21; }),
       {"mlp.0.weight': expected shape [20, 12], found [21, 12]"}},
      {"another patch",
       becomes([](auto& m) {
         m.patch = 3;
         m.image_h = m.image_w = 9;
       }),
       {"'conv_proj.weight': expected shape [12, 3, 4, 4]"}},
      {"other channels",
       becomes([](auto& m) { m.channels = 1; }),
       {"expected shape [12, 3, 4, 4], found [12, 1, 4, 4]"}},
      {"another number of classes",
       becomes([](auto& m) { m.classes = 1000; }),
       {"the head has 1000 classes, model.classes = 5", "--init"},
       true},
      {"no classes",
       [](Tensors& t) {
         shape("heads.head.weight", {0, 12})(t);
         shape("heads.head.bias", {0})(t);
       },
       {"found [0, 12]"}},
      {"a head in two minds",
       shape("heads.head.bias", {6}),
       {"disagree on the number of classes: 5 and 6"}},
      {"a head of another width",
       shape("heads.head.weight", {5, 13}),
       {"'heads.head.weight': expected shape [5, 12], found [5, 13]"}},
      {"another image size",
       becomes([](auto& m) { m.image_h = m.image_w = 16; }),
       {"expected the positions of 3x3 patches, found 4x4", "--init"},
       true},
      {"another image size and other classes",
       becomes([](auto& m) {
         m.image_h = m.image_w = 16;
         m.classes = 9;
       }),
       {"found 4x4", "the head has 9 classes", "position embeddings are then interpolated; start"},
       true},
      {"positions that fill no square",
       shape("encoder.pos_embedding", {1, 13, 12}),
       {"expected 3x3 patch positions, found 12, which are not a square"}},
      {"only a class position",
       shape("encoder.pos_embedding", {1, 1, 12}),
       {"expected shape [1, 10, 12], found [1, 1, 12]"}},
      {"no positions",
       shape("encoder.pos_embedding", {1, 0, 12}),
       {"expected shape [1, 10, 12], found [1, 0, 12]"}},
      {"positions of another width",
       shape("encoder.pos_embedding", {1, 10, 11}),
       {"expected shape [1, 10, 12], found [1, 10, 11]"}},
      {"positions without a batch dim",
       shape("encoder.pos_embedding", {10, 12}),
       {"expected shape [1, 10, 12], found [10, 12]"}},
      {"no class token",
       becomes([](auto& m) { m.pool = "mean"; }),
       {"the file has no class token, but model.pool = \"class\"", "set model.pool = \"mean\""}},
      {"metadata that is not JSON", says("vit"), {"tessera.model", "expected JSON"}},
      {"metadata of an impossible model",
       says(R"({"family": "vit", "dim": 7, "heads": 2})"),
       {"does not divide"}},
      {"metadata with an unknown key",
       says(R"({"family": "vit", "dimm": 7})"),
       {"model.dimm", "did you mean dim"}},
      {"a truthful file that is another model",
       [](Tensors& t) {
         becomes([](auto& m) { m.mlp = 24; })(t);
         says(R"({"family": "vit", "image": 12, "patch": 4, "dim": 12, "mlp": 24})")(t);
       },
       {"found [24, 12]", "the file says that it holds", "\"mlp\":24"}},
  };
}

TEST(Hostile, EachIsRefusedWithItsReason) {
  const Scratch scratch;
  int count = 0;
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    Tensors tensors(small_vit());
    c.change(tensors);
    const auto file = tensors.write(scratch / fmt::format("{}.safetensors", count++));
    std::vector<std::string> notes;
    const Error error = error_of([&] { weights_from(file, small_vit(), {}, notes); });
    EXPECT_EQ(error.exit_code(), 4);
    const std::string text = error.what();
    for (const std::string& words : c.words)
      EXPECT_NE(text.find(words), std::string::npos)
          << "expected: " << words << "\nfound: " << text;
    EXPECT_NE(text.find(file->path().filename().string()), std::string::npos) << text;
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
    EXPECT_LT(text.size(), 4000u);
    EXPECT_LE(error.also.size(), 12u);
    EXPECT_TRUE(!error.hint.empty() || text.find("tessera.model") != std::string::npos) << text;
    EXPECT_TRUE(notes.empty());
    if (c.forgiven) {
      EXPECT_NO_THROW(weights_from(file, small_vit(), {true, true}, notes));
      EXPECT_FALSE(notes.empty());
    } else {
      EXPECT_EQ(error_of([&] {
                  weights_from(file, small_vit(), {true, true}, notes);
                }).exit_code(),
                4);
    }
  }
  EXPECT_GE(count, 15);
}

TEST(Hostile, EveryProblemIsToldAtOnce) {
  const Scratch scratch;
  Tensors t(small_vit());
  t.all.erase("encoder.ln.bias");
  t.all["extra"] = {"F32", {1}};
  t.all.at("conv_proj.bias").dtype = "I32";
  t.all.at("class_token").shape = {12};
  std::vector<std::string> notes;
  const Error error =
      error_of([&] { weights_from(t.write(scratch / "w"), small_vit(), {}, notes); });
  EXPECT_EQ(error.also.size(), 3u) << error.what();
}

TEST(Hostile, AClassTokenIsNotDropped) {
  const Scratch scratch;
  const auto file = Tensors(small_vit()).write(scratch / "w");
  std::vector<std::string> notes;
  const Error error = error_of([&] {
    weights_from(file, with([](auto& m) { m.pool = "mean"; }), {true, true}, notes);
  });
  EXPECT_EQ(error.exit_code(), 4);
  EXPECT_NE(std::string(error.what()).find("the file has a class token ('class_token')"),
            std::string::npos)
      << error.what();
  EXPECT_TRUE(error.also.empty()) << error.what();
}

TEST(Hostile, AFileThatDoesNotSayItsModel) {
  const Scratch scratch;
  const auto file = Tensors(small_vit()).write(scratch / "w");
  const Error error = error_of([&] { model_of(*file); });
  EXPECT_EQ(error.exit_code(), 4);
  EXPECT_NE(error.hint.find("--model NAME"), std::string::npos);
  EXPECT_NE(error.hint.find("--init"), std::string::npos);
}

TEST(Hostile, EveryTruncationIsRefused) {
  const Scratch scratch;
  save_weights(scratch / "w", small_vit(), numbers_of(small_vit()));
  const std::string whole = files::read_text(scratch / "w");
  for (std::size_t keep = 0; keep < whole.size(); keep += keep < 64 ? 1 : 997) {
    std::ofstream(scratch / "cut", std::ios::binary) << whole.substr(0, keep);
    EXPECT_EQ(error_of([&] { files::Safetensors cut(scratch / "cut"); }).exit_code(), 4) << keep;
  }
}

// A file with very many foreign names is refused quickly and in few lines.
TEST(Hostile, ManyForeignNames) {
  const Scratch scratch;
  Tensors t(small_vit());
  t.all.erase("encoder.ln.bias");
  for (int i = 0; i < 50'000; ++i) t.all[fmt::format("encoder.foreign_{}", i)] = {"F32", {0}};
  std::vector<std::string> notes;
  const Error error =
      error_of([&] { weights_from(t.write(scratch / "w"), small_vit(), {}, notes); });
  EXPECT_EQ(error.also.back(), "49989 more problems");
}

TEST(Hostile, AnUnwritablePlaceIsAnErrorOfTheDisk) {
  const Scratch scratch;
  const Error error = error_of(
      [&] { save_weights(scratch / "no/such/folder/w", small_vit(), numbers_of(small_vit())); });
  EXPECT_EQ(error.exit_code(), 9);
}

}  // namespace
}  // namespace tessera::run::hostile_test
