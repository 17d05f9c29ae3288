// Layering, resolution of what was not given, and the round trip through resolved.toml.
#include <gtest/gtest.h>

#include <cstdint>

#include "config/fields.h"
#include "config/print.h"
#include "config/reader.h"
#include "data/synthetic.h"

namespace tessera::config::load_test {
namespace {

Flag flag(std::string_view name) {
  for (const Flag& f : flags())
    if (f.name == name) return f;
  ADD_FAILURE() << "no flag " << name;
  return {};
}
Override with(std::string_view name, std::string_view value) {
  return from_flag(flag(name), value);
}
Config read(std::string_view text, std::vector<Override> overrides = {}) {
  return load_text(text, "t.toml", overrides, Purpose::other);
}
std::string refusal(std::string_view text, std::vector<Override> overrides = {},
                    Purpose purpose = Purpose::other) {
  try {
    load_text(text, "t.toml", overrides, purpose);
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), 2);
    return e.what();
  }
  return "";
}
void expect_says(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), message.npos) << message << "\nlacks: " << part;
}

TEST(Layers, DefaultsPresetFileSetFlag) {
  EXPECT_EQ(read("").model, models::preset("vit_tiny_cifar"));
  const std::string file =
      "[model]\nname = \"vit_b_16\"\ndepth = 6\n[run]\nseed = 1\n[optim]\nlr = 0.5\n";
  Config c = read(file);
  EXPECT_EQ(c.model.dim, 768);  // preset
  EXPECT_EQ(c.model.depth, 6);  // file over preset
  EXPECT_EQ(c.optim.momentum, 0.9);
  c = read(file, {with("--seed", "3"), from_set("run.seed=2"), from_set("optim.lr=.25"),
                  with("--model", "vit_l_16")});
  EXPECT_EQ(c.run.seed, 3);  // a flag wins over --set whatever the order
  EXPECT_EQ(c.optim.lr, 0.25);
  EXPECT_EQ(c.model.dim, 1024);
  EXPECT_EQ(c.model.depth, 6);
}

TEST(Layers, FamilyWithoutNameStartsFromTorchvision) {
  const Config c = read("[model]\nfamily = \"vit\"\ndepth = 2\n");
  EXPECT_EQ(c.model.name, "");
  EXPECT_EQ(c.model.dim, 768);
  EXPECT_EQ(c.model.image_h, 224);
  EXPECT_EQ(c.model.depth, 2);
}

TEST(Layers, SetValues) {
  const Config c =
      read("", {from_set("model.image=[64, 32]"), from_set("lr.warmup=10%"),
                from_set("optim.betas=[0.8,0.9]"), from_set("run.name=42"),
                from_set("run.out='a b'"), from_set("data.flip = true"), from_set("optim.lr=1")});
  EXPECT_EQ(c.model.image_h, 64);
  EXPECT_EQ(c.model.image_w, 32);
  EXPECT_EQ(c.lr.warmup, (Span{0, 10.0, true}));
  EXPECT_EQ(c.lr.warmup.of(250), 25);
  EXPECT_EQ(c.optim.betas[1], 0.9);
  EXPECT_EQ(c.run.name, "42");
  EXPECT_EQ(c.run.out, "a b");
  EXPECT_EQ(c.data.flip, "random");
}

TEST(Layers, TextsInEveryKindOfQuotes) {
  EXPECT_EQ(
      read("# \u00e9 comment\n[run]\nname = \"\u00e9\\\"\u00e9 # \u00e9\" # \u00e9\n").run.name,
      "\u00e9\"\u00e9 # \u00e9");
  EXPECT_EQ(read("[run]\nname = '\u00e9\\'\n").run.name, "\u00e9\\");
  EXPECT_EQ(read("[run]\nname = \"\"\"a\"\"b\"\"\"\"\" # \u00e9\n").run.name, "a\"\"b\"\"");
  EXPECT_EQ(read("[run]\nname = \'\'\'a\'\'\' # \u00e9\n").run.name, "a");
  EXPECT_EQ(read("[run]\n\"name\" = \"x\"\n'out' = \"\u00e9\"\n").run.out, "\u00e9");
}

TEST(Layers, EveryFlagNamesAKey) {
  for (const Flag& f : flags()) {
    if (f.key == "deepspeed") continue;
    const auto dot = f.key.find('.');
    EXPECT_NE(find_field(f.key.substr(0, dot), f.key.substr(dot + 1)), nullptr) << f.name;
  }
  expect_says(refusal("", {with("--deepspeed", "no such.json")}),
              "no such.json: there is no such file");
}

TEST(Batch, AnyTwoOrGlobalAlone) {
  const auto batch = [](std::string text) { return read("[batch]\n" + text).batch; };
  EXPECT_EQ(batch("global = 64"), (Batch{64, 64, 1}));
  EXPECT_EQ(batch("global = 64\nmicro = 16"), (Batch{64, 16, 4}));
  EXPECT_EQ(batch("global = 64\naccumulate = 2"), (Batch{64, 32, 2}));
  EXPECT_EQ(batch("micro = 16\naccumulate = 3"), (Batch{48, 16, 3}));
  EXPECT_EQ(batch("global = 10\naccumulate = 3"), (Batch{10, 4, 3}));  // 4, 3, 3
  EXPECT_EQ(batch("global = 10\nmicro = 4\naccumulate = 3"), (Batch{10, 4, 3}));
  expect_says(refusal("[batch]\nglobal = 128\nmicro = 32\naccumulate = 3\n"),
              "choose micro = 43, accumulate = 4 or global = 96");
  EXPECT_EQ(batch("global = 10\nmicro = 6"), (Batch{10, 5, 2}));  // parts of at most 6
  expect_says(refusal("[batch]\nmicro = 6\n"),
              "batch.micro = 6 alone does not say how large an update is");
}

TEST(Data, ModelFollowsASourceThatStatesItsSize) {
  Config c = read("", {with("--data", "synthetic:64x48x1,7"), with("--model", "vit_tiny_cifar")});
  EXPECT_EQ(c.model.image_h, 64);
  EXPECT_EQ(c.model.image_w, 48);
  EXPECT_EQ(c.model.channels, 1);
  EXPECT_EQ(c.model.classes, 7);
  c = read("", {with("--data", "cifar100:/d"), with("--model", "vit_tiny_cifar")});
  EXPECT_EQ(c.model.classes, 100);
  c = read("", {with("--data", "synthetic"), with("--model", "vit_b_16")});
  EXPECT_EQ(c.model.image_h, 224);
  expect_says(refusal("[model]\nclasses = 5\n[data]\nsource = \"cifar10:x\"\n"),
              "model.classes = 5 but data.source = \"cifar10:x\" has 10");
  expect_says(refusal("[data]\nsource = \"synthetic:50x50x3,10\"\n"),
              "t.toml:2:10: model.patch = 4 does not divide model.image = [50, 50]");
}

// config/ knows the limits of what is drawn without the code that draws.
TEST(Data, WhatIsDrawnHasTheLimitsOfTheSource) {
  const auto agree = [](std::int64_t h, std::int64_t w, std::int64_t c, std::int64_t classes) {
    const data::SyntheticSpec spec{static_cast<int>(h),
                                   static_cast<int>(w),
                                   static_cast<int>(c),
                                   static_cast<int>(classes),
                                   1,
                                   1};
    const std::string text = "[model]\nname = \"vit_micro\"\npatch = 1\nimage = [" +
                             std::to_string(h) + ", " + std::to_string(w) +
                             "]\nchannels = " + std::to_string(c) +
                             "\nclasses = " + std::to_string(classes) + "\n[run]\nsteps = 1\n";
    EXPECT_EQ(refusal(text, {}, Purpose::train).empty(), data::problems(spec).empty()) << text;
    EXPECT_EQ(refusal(text), "") << "nothing is drawn";
  };
  const std::int64_t side = data::max_synthetic_side, channels = data::max_synthetic_channels,
                     classes = data::max_synthetic_classes;
  agree(4, side, channels, classes);
  agree(side, 4, 1, 2);
  agree(3, 32, 3, 10);
  agree(32, 3, 3, 10);
  agree(side + 1, 32, 3, 10);
  agree(32, side + 1, 3, 10);
  agree(32, 32, channels + 1, 10);
  agree(32, 32, 3, 1);
  agree(32, 32, 3, classes + 1);
}

// Only a check asks for what is named: a run that goes on needs its weights no more, and its data
// says more than that it is not there.
TEST(Data, ACheckLooksForWhatIsNamed) {
  const std::string text =
      "[model]\ninit  = \"nope.safetensors\"\nheads = 5\n[data]\nsource = "
      "\"folder:/nonexistent\"\n[run]\nsteps = 1\n";
  const std::string message = refusal(text, {}, Purpose::check);
  expect_says(message,
              "t.toml:2:9: model.init = \"nope.safetensors\": there is no such file or folder");
  expect_says(message, "t.toml:3:9: model.heads = 5 does not divide");
  expect_says(message,
              "t.toml:5:10: data.source = \"folder:/nonexistent\": there is no such folder");
  EXPECT_EQ(refusal(text, {}, Purpose::train).find("nope"), std::string::npos);
  expect_says(refusal("", {}, Purpose::check), "nothing says how long to train");
  expect_says(refusal("[data]\nsource = \"cifar10:/nonexistent\"\n", {}, Purpose::check),
              "tessera data get cifar10");
  EXPECT_EQ(refusal("[model]\ninit = \".\"\n[data]\nsource = \"cifar10:.\"\n[run]\nsteps = 1\n", {},
                    Purpose::check),
            "");
}

TEST(Optimizer, ATinyEpsilonIsForF64) {
  EXPECT_EQ(refusal("[optim]\neps = 1e-46\n[precision]\ndtype = \"f64\"\n"), "");
  EXPECT_EQ(refusal("[optim]\neps = 1.2e-38\n"), "");
  expect_says(refusal("[optim]\neps = 1e-46\n[precision]\ndtype = \"bf16\"\n"),
              "optim.eps = 1e-46 is too small");
}

TEST(Run, NamesAndLength) {
  EXPECT_EQ(read("").run.name, "t");
  EXPECT_EQ(read("").run.out, "runs/t");
  EXPECT_EQ(read("[run]\nout = \"/x/y z/\"\n").run.name, "y-z");
  EXPECT_EQ(load({}, {}, Purpose::other).run.name,
            "vit_tiny_cifar-synthetic");  // run_name_test.cpp has the rest
  EXPECT_GE(read("").run.threads, 1);
  expect_says(refusal("", {}, Purpose::train), "nothing says how long to train");
  expect_says(refusal("[lr]\nwarmup = 100\n", {with("--steps", "50")}),
              "lr.warmup = 100 is longer than the run of 50 steps");
  expect_says(refusal("[lr]\nwarmup = 65\n", {with("--epochs", "1")}), "the run of 64 steps");
  EXPECT_EQ(total_steps(read("[batch]\nglobal = 100\n", {with("--epochs", "2")})), 164);
  EXPECT_EQ(total_steps(read("", {with("--epochs", "2"), with("--data", "folder:x")})),
            std::nullopt);
}

TEST(Run, ANoteSaysWhereDeepSpeedsCosineRisesAgain) {
  const auto notes = [](std::string_view steps) {
    const std::vector<Override> asked = {from_set("lr.schedule=ds_cosine"), from_set("lr.steps=10"),
                                         with("--steps", steps)};
    return join(load_all_text("", "", asked, Purpose::train).notes, "\n");
  };
  EXPECT_NE(notes("12").find(
                "the run of 12 steps is longer than lr.steps = 10: past it the rate rises again"),
            std::string::npos);
  EXPECT_EQ(notes("11").find("rises again"), std::string::npos);
}

TEST(Later, NeutralValuesPassAndOthersAreRefused) {
  read(
      "[parallel]\ndp=1\ntp=1\npp=1\nsp=1\nzero=0\nsequence=\"none\"\nschedule=\"zb\"\ncompress="
      "\"none\"\ncomm=\"local\"\n[run]\nnp="
      "1\ndevice=\"cpu\"\n[ema]\ndecay=0\n");
  read("[run]\ndevice=\"cuda\"\n[precision]\ndtype=\"f64\"\n");
  const std::string message = refusal("", {from_set("optim.name=lars")});
  expect_says(message, "--set optim.name=lars: ");
  expect_says(message, "this build has adamw, sgd and lamb");
  EXPECT_EQ(message.find("also:"), message.npos) << message;
}

TEST(Precision, Fp8IsForOneRank) {
  EXPECT_EQ(read("[precision]\ndtype=\"fp8\"\n").precision.dtype, "fp8");
  expect_says(refusal("", {with("--dtype", "fp8"), with("--dp", "2")}),
              "precision.dtype = \"fp8\" is for one rank");
}

TEST(Precision, Fp8IsForTransformers) {
  for (const char* model : {"vit_b_16", "swin_t"})
    EXPECT_EQ(read("", {with("--dtype", "fp8"), with("--model", model)}).precision.dtype, "fp8");
  expect_says(refusal("", {with("--dtype", "fp8"), with("--model", "resnet50")}),
              "precision.dtype = \"fp8\" is for the products in blocks of a transformer, and this "
              "model has none");
}

TEST(Swin, KeysOfItsOwn) {
  Config c = read(
      "[model]\nname = \"swin_t\"\ndepths = [2, 3]\nheads = [4, 6]\nwindow = [5, 4]\nmlp_ratio = "
      "3\nimage = [50, 30]\n");
  EXPECT_EQ(c.model.depths, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(c.model.stage_heads, (std::vector<std::int64_t>{4, 6}));
  EXPECT_EQ(c.model.window_h, 5);
  EXPECT_EQ(c.model.window_w, 4);
  EXPECT_EQ(c.model.mlp_ratio, 3.0);
  EXPECT_EQ(c.model.drop_path, 0.2);  // torchvision's
  EXPECT_EQ(load_text(to_toml(c), "x.toml", {}, Purpose::other), c);
  EXPECT_EQ(to_toml(c).find("head_init"), std::string::npos);
  EXPECT_EQ(model_from_json(model_to_json(c.model)), c.model);
  c = read("", {from_set("model.family=swin"), from_set("model.depths=[1,1]"),
                from_set("model.heads=[3,3]"), from_set("model.window=4")});
  EXPECT_EQ(c.model.dim, 96);
  EXPECT_EQ(c.model.window_w, 4);
}

TEST(Swin, EachMistakeHasItsMessage) {
  const auto says = [](const std::string& keys, const std::string& part) {
    expect_says(refusal("[model]\nname = \"swin_t\"\n" + keys), part);
  };
  says("depth = 4\n", "model.depth is not a key of the swin family");
  says("heads = 3\n", "model.heads: expected a list of whole numbers, found 3");
  says("heads = [3, 6]\n", "must have one number for each stage");
  says("heads = [3, 6, 12, 25]\n", "25 must divide 768, the width of stage 4");
  says("depths = []\n", "model.depths = [] must have 1 to 8 stages");
  says("depths = [2, 0]\n", "model.depths = 0 is out of range");
  says("depths = [2, \"x\"]\n", "model.depths: expected a list of whole numbers, found \"x\"");
  says("window = 0\n", "model.window = 0 is out of range");
  says("mlp_ratio = 0\n", "model.mlp_ratio = 0 is out of range");
  says("image = 3\n", "model.patch = 4 is larger than model.image = [3, 3]");
  says("dim = 65535\n", "doubled from stage to stage");
  says("family = \"vit\"\n", "model.name = \"swin_t\" is a swin");
  expect_says(refusal("[model]\nwindow = 4\n"), "model.window is not a key of the vit family");
  expect_says(refusal("[model]\nheads = [3]\n"), "model.heads: expected a whole number");
}

TEST(Syntax, Texts) {
  EXPECT_EQ(parse_recompute("none"), 0);
  EXPECT_EQ(parse_recompute("full"), 1);
  EXPECT_EQ(parse_recompute("every=3"), 3);
  EXPECT_EQ(parse_until("top1=0.94").value, 0.94);
  EXPECT_EQ(parse_source("folder:/a:b").dir, "/a:b");
  EXPECT_EQ(parse_source("synthetic:64x32x3,10").w, 32);
  for (const char* bad :
       {"every=0", "every=", "every=-1", "every=1x", "every=99999999999999999999", "Full", ""})
    EXPECT_THROW(parse_recompute(bad), Error) << bad;
  for (const char* bad :
       {"top1", "top1=", "top1=x", "top1=2", "=1", "foo=1", "loss=nan", "loss=-1"})
    EXPECT_THROW(parse_until(bad), Error) << bad;
  for (const char* bad :
       {"", "synthetic:", "synthetic:64", "synthetic:64x64x3", "synthetic:64x64x3,",
        "synthetic:64x64x3,10x", "synthetic:-1x64x3,10", "synthetic:0x64x3,10",
        "synthetic:99999999999999999999x1x1,1", "cifar10", "cifar10:", "imagenet:x"})
    EXPECT_THROW(parse_source(bad), Error) << bad;
}

}  // namespace
}  // namespace tessera::config::load_test
