// Files of other people: which model they hold, how their images are prepared, what their classes
// are called, and what is no safetensors file at all.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "checkpoint/weights_open.h"
#include "checkpoint/weights_recognise.h"
#include "data/fixtures.h"
#include "weights/fixture.h"

namespace tessera::run::recognise_test {
namespace {

using namespace test;
using nlohmann::json;

models::ModelConfig small_resnet() {
  models::ModelConfig m = models::preset("resnet18_cifar");
  m.stem = "imagenet";
  m.image_h = m.image_w = 224;
  m.width = 4;
  m.layers = {1, 2};
  m.block = "bottleneck";
  m.classes = 3;
  return m;
}

// The same tensors without a word of ours.
void write_silent(const std::filesystem::path& path, const models::ModelConfig& m, Naming naming) {
  save_weights(path, m, numbers_of(m), naming, "F32", {}, {}, Extras::counts);
  const files::Safetensors file(path);
  std::vector<files::TensorBytes> kept;
  std::vector<files::NamedTensor> tensors;
  for (const auto& [name, place] : file.tensors()) kept.push_back(file.read(name));
  std::size_t i = 0;
  for (const auto& [name, place] : file.tensors())
    tensors.push_back({name, place.dtype, place.shape, kept[i++].bytes});
  files::write_safetensors(path, tensors);
}

Error error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was refused";
  return {ErrorKind::internal, ""};
}

TEST(Recognise, EveryFamilyInEveryNaming) {
  const Scratch scratch;
  models::ModelConfig mean = small_vit(), swin = small_swin();
  mean.pool = "mean";
  swin.image_h = swin.image_w = 224;
  for (models::ModelConfig m : {small_vit(), mean, swin, small_resnet()})
    for (const Naming naming : {Naming::torchvision, Naming::timm, Naming::hf}) {
      const auto folder = scratch / "w";
      std::filesystem::create_directories(folder);
      write_silent(folder / "model.safetensors", m, naming);
      write_bytes(folder / "config.json",
                  json{{"num_attention_heads", m.heads}, {"id2label", json::object()}}.dump());
      OpenedWeights w = open_weights(folder);
      m.name = w.model.name;
      m.head_init = w.model.head_init;
      m.dropout = w.model.dropout;
      m.batch_norm = w.model.batch_norm;
      m.drop_path = w.model.drop_path;
      const models::ModelConfig start = models::preset(models::find_family(m.family)->preset);
      if (m.family != "vit") {
        m.heads = start.heads;
        m.mlp = start.mlp;
        m.depth = start.depth;
      }
      EXPECT_TRUE(w.model == m) << m.family << " " << static_cast<int>(naming);
      for (const models::Param& p : models::parameters(w.model))
        ASSERT_EQ(w.source(p), numbers_of(m)(p.name)) << p.name;
      EXPECT_NE(w.notes.back().find("recognised"), std::string::npos);
    }
}

// The same tensors may stand for another function; only config.json knows.
TEST(Recognise, WhatIsComputedOtherwiseIsRefusedOrNoted) {
  const Scratch scratch;
  models::ModelConfig swin = small_swin();
  swin.image_h = swin.image_w = 224;
  const auto write = [&](const models::ModelConfig& m, json config) {
    std::filesystem::create_directories(scratch / "w");
    write_silent(scratch / "w" / "model.safetensors", m, Naming::hf);
    config["num_attention_heads"] = m.heads;
    write_bytes(scratch / "w" / "config.json", config.dump());
  };
  const std::vector<std::pair<models::ModelConfig, json>> others = {
      {small_vit(), {{"hidden_act", "quick_gelu"}}},
      {swin, {{"hidden_act", "gelu_new"}}},
      {small_resnet(), {{"downsample_in_bottleneck", true}}},
      {small_resnet(), {{"downsample_in_first_stage", true}}},
      {small_vit(), {{"architecture", "vit_base_patch32_clip_quickgelu_224"}}},
      {small_vit(), {{"model_args", {{"act_layer", "silu"}}}}},
      {small_resnet(), {{"architecture", "resnetblur50"}}}};
  for (const auto& [m, config] : others) {
    write(m, config);
    const Error error = error_of([&] { open_weights(scratch / "w"); });
    EXPECT_EQ(error.kind, ErrorKind::weights);
    for (const auto& [key, value] : config.items())
      EXPECT_NE(error.message.find(value.is_object() ? "act_layer" : key), std::string::npos)
          << error.message;
    config::Config run;  // a training may start from them, and is told
    run.model = m;
    run.init = (scratch / "w").string();
    std::vector<std::string> notes;
    weights_to_start_from(run, notes);
    EXPECT_NE(notes.empty() ? notes.end()
                            : std::find_if(notes.begin(), notes.end(),
                                           [](const std::string& note) {
                                             return note.find("another function") != note.npos;
                                           }),
              notes.end());
  }
  write(small_vit(), {{"hidden_act", "gelu"}, {"layer_norm_eps", 1e-6}});
  const auto plain = open_weights(scratch / "w").notes;
  write(swin, {{"hidden_act", "gelu"}, {"layer_norm_eps", 1e-6}});
  const auto told = open_weights(scratch / "w").notes;
  const auto of_norms = [](const std::string& note) { return note.starts_with("the norms of"); };
  EXPECT_TRUE(std::none_of(plain.begin(), plain.end(), of_norms));
  EXPECT_TRUE(std::any_of(told.begin(), told.end(), of_norms)) << "Swin's norms add 1e-05";
}

TEST(Recognise, StrangersAreRefused) {
  const Scratch scratch;
  Tensors tensors(small_vit());
  tensors.all.clear();
  tensors.all["lstm.weight"] = {"F32", {2, 2}};
  tensors.write(scratch / "w.safetensors");
  const Error none = error_of([&] { open_weights(scratch / "w.safetensors"); });
  EXPECT_EQ(none.kind, ErrorKind::weights);
  EXPECT_NE(none.hint.find("--model"), std::string::npos);
  // One of query, key and value alone.
  Tensors broken(small_vit(), Naming::hf);
  broken.all.erase("vit.encoder.layer.1.attention.attention.key.bias");
  broken.write(scratch / "w.safetensors");
  const Error part = error_of([&] { open_weights(scratch / "w.safetensors"); });
  EXPECT_NE(std::string(part.what()).find("another one is missing"), std::string::npos)
      << part.what();
}

TEST(Recognise, PreprocessingInTheirWords) {
  const models::ModelConfig m = models::preset("vit_b_16");
  std::vector<std::string> notes;
  const auto timm = [&](const json& cfg) {
    Beside said;
    said.config = {{"pretrained_cfg", cfg}};
    return recognise_preprocess(said, m, notes);
  };
  const auto hf = [&](const json& processor) {
    Beside said;
    said.processor = processor;
    return recognise_preprocess(said, m, notes);
  };
  EXPECT_EQ(
      timm({{"mean", {0.5}}, {"std", {0.5}}, {"interpolation", "bicubic"}, {"crop_pct", 0.9}}),
      (json{{"mean", {0.5}}, {"std", {0.5}}, {"interpolation", "bicubic"}, {"resize", 248}}));
  EXPECT_EQ(timm({{"interpolation", "bilinear"}, {"crop_pct", 1.0}, {"crop_mode", "squash"}}),
            (json{{"interpolation", "bilinear"}, {"resize", 224}, {"crop", "squash"}}));
  EXPECT_EQ(hf({{"image_mean", {0.5, 0.5, 0.5}},
                {"image_std", {0.5, 0.5, 0.5}},
                {"resample", 3},
                {"size", {{"height", 224}, {"width", 224}}}}),
            (json{{"mean", {0.5, 0.5, 0.5}},
                  {"std", {0.5, 0.5, 0.5}},
                  {"interpolation", "bicubic"},
                  {"crop", "squash"}}));
  EXPECT_EQ(
      hf({{"image_mean", {0.4}},
          {"image_std", {0.2}},
          {"crop_pct", 0.875},
          {"size", {{"shortest_edge", 224}}}}),
      (json{{"mean", {0.4}}, {"std", {0.2}}, {"interpolation", "bilinear"}, {"resize", 256}}));
  EXPECT_EQ(hf({{"image_processor_type", "CLIPImageProcessor"},
                {"do_center_crop", true},
                {"size", {{"shortest_edge", 235}}}}),
            (json{{"interpolation", "bilinear"}, {"resize", 235}}));
  EXPECT_TRUE(notes.empty());
  timm({{"interpolation", "random"}});
  hf({{"image_mean", {0.5}}, {"resample", 1}});
  EXPECT_EQ(notes.size(), 2u);
  EXPECT_TRUE(recognise_preprocess({}, m, notes).empty());
  // Anything may stand in a stranger's file.
  for (const json& odd : {json("x"), json(1e300), json::array({json::object()}), json()})
    EXPECT_NO_THROW(timm({{"mean", odd}, {"interpolation", odd}, {"crop_pct", odd}}));
}

TEST(Recognise, ATrainingIsToldOfOtherStatistics) {
  const Scratch scratch;
  config::Config config;
  config.model = small_vit();
  config.init = (scratch / "w").string();
  const auto notes_of = [&](const std::string& preprocess) {
    save_weights(scratch / "w", config.model, numbers_of(config.model), Naming::timm, "F32", {},
                 preprocess);
    std::vector<std::string> notes;
    weights_to_start_from(config, notes);
    return notes;
  };
  EXPECT_TRUE(notes_of("").empty());
  EXPECT_TRUE(notes_of(R"({"mean": [0.5, 0.5, 0.5], "std": [0.5]})").empty());
  const auto told = notes_of(R"({"mean": [0.1, 0.2, 0.3], "std": [0.5, 0.5, 0.5]})");
  ASSERT_EQ(told.size(), 1u);
  EXPECT_NE(told[0].find("--set data.mean='[0.1,0.2,0.3]'"), std::string::npos) << told[0];
}

TEST(Recognise, ClassesInTheirWords) {
  models::ModelConfig m = small_vit();
  m.classes = 2;
  Beside hf, timm, few;
  hf.config = {{"id2label", {{"0", "cat"}, {"1", "dog"}}}};
  timm.config = {{"label_names", {"cat", "dog"}}, {"pretrained_cfg", json::object()}};
  few.config = {{"id2label", {{"0", "cat"}}}};
  const std::vector<std::string> names = {"cat", "dog"};
  EXPECT_EQ(recognise_classes(hf, m), names);
  EXPECT_EQ(recognise_classes(timm, m), names);
  EXPECT_TRUE(recognise_classes(few, m).empty());
}

TEST(Foreign, PicklesAreNamedWithTheLineThatConvertsThem) {
  const Scratch scratch;
  for (const auto& [bytes, words] : std::vector<std::pair<std::string, std::string>>{
           {std::string("PK\x03\x04\x00\x00\x08\x08 and so on", 20), "torch.save"},
           {std::string("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.", 16), "pickle"},
           {"\x89HDF\r\n\x1a\n........", "HDF5"},
           {"\x93NUMPY.............", "NumPy"},
           {"GGUF..............", "GGUF"}}) {
    write_bytes(scratch / "x y.pth", bytes);
    const Error error = error_of([&] { open_weights(scratch / "x y.pth"); });
    EXPECT_EQ(error.kind, ErrorKind::weights);
    EXPECT_NE(error.message.find(words), std::string::npos) << error.what();
    const bool torch = bytes[0] == 'P' || bytes[0] == '\x80';
    EXPECT_EQ(error.hint.find("python3 -c") != std::string::npos, torch) << error.hint;
    EXPECT_EQ(error.hint.find("x y.safetensors'") != std::string::npos, torch) << error.hint;
  }
  // A header of 640 bytes begins as a pickle of protocol 2 does.
  models::ModelConfig m = small_vit();
  Tensors one(m);
  one.all.clear();
  one.all["a"] = {"F32", {1}};
  bool met = false;
  for (std::size_t length = 520; length < 620; length += 8) {
    one.metadata = {{"x", std::string(length, 'x')}};
    EXPECT_NO_THROW(one.write(scratch / "w"));
    met = met || read_bytes(scratch / "w").starts_with("\x80\x02");
  }
  EXPECT_TRUE(met);
}

}  // namespace
}  // namespace tessera::run::recognise_test
