// DeepSpeed files: the ViT study's configuration, what maps to what, whose word counts, and what is
// warned about or refused. Convention: expectations follow DeepSpeed 0.15.3.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "config/print.h"
#include "config/reader.h"
#include "config/study.h"
#include "files/scratch.h"

namespace tessera::config::deepspeed_test {
namespace {

Loaded read(std::string_view json, int world = 1, const std::vector<std::string>& sets = {},
            std::string_view toml = "") {
  Inputs inputs{toml, "t.toml", json, "ds.json", {}, Purpose::other, world};
  for (const std::string& set : sets) inputs.overrides.push_back(from_set(set));
  return load_inputs(inputs);
}

std::string refusal(std::string_view json, int world = 1, std::string_view toml = "") {
  try {
    read(json, world, {}, toml);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind, ErrorKind::usage);
    EXPECT_EQ(e.exit_code(), 2);
    return e.what();
  }
  return "(accepted)";
}

void expect_says(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), message.npos) << message << "\nlacks: " << part;
}
std::string notes(const Loaded& loaded) { return join(loaded.notes, "\n"); }

const Effective& row(const Loaded& loaded, std::string_view key) {
  static const Effective none;
  for (const Effective& e : loaded.deepspeed)
    if (e.key == key || e.deepspeed == key) return e;
  ADD_FAILURE() << "no row " << key;
  return none;
}

using test::study;

TEST(Study, TwoRanksAreAccepted) {
  const Loaded two = read(study, 2);
  EXPECT_EQ(two.config.batch, (Batch{32, 16, 1}));
  EXPECT_EQ(two.config.parallel.dp, 2);
  EXPECT_EQ(two.config.parallel.zero, 0);
  EXPECT_EQ(two.config.optim.clip, 0.0);
  EXPECT_TRUE(two.config.optim.decay_all);
  EXPECT_EQ(two.notes.size(), 2u) << notes(two);
  expect_says(notes(two), "ds.json:14:3: pin_memory is no key of DeepSpeed's and is ignored");
  expect_says(notes(two),
              "ds.json:4:3: micro_batch_per_gpu = 16 is no key of DeepSpeed's "
              "(train_micro_batch_size_per_gpu is); it fits: 32 = 16 x 1 x 2");
}

TEST(Study, ThreeRanksAreRefusedWithTheEquation) {
  EXPECT_EQ(
      "error: " + refusal(study, 3) + "\n",
      R"(error: ds.json:2:23: train_batch_size = 32 is not train_micro_batch_size_per_gpu x gradient_accumulation_steps x dp: 32 != 10 x 1 x 3 = 30
    2 |   "train_batch_size": 32,
      |                       ^ choose 30 = 10 x 1 x 3 or 33 = 11 x 1 x 3; or dp = 2 or 4 for this batch
   help: `tessera config check t.toml --deepspeed ds.json` re-checks without running
)");
}

TEST(Study, DeepSpeedsOwnMicroBatchStandsWhereTheOtherDoesNotFit) {
  const Loaded four = read(study, 4);
  EXPECT_EQ(four.config.batch, (Batch{32, 8, 1}));
  expect_says(notes(four),
              "micro_batch_per_gpu = 16 is no key of DeepSpeed's (train_micro_batch_size_per_gpu "
              "is) and is ignored: 16 x 1 x 4 is not 32; "
              "used: 32 = 8 x 1 x 4");
}

TEST(Study, TableSaysWhereEachValueCameFrom) {
  const Loaded two = read(study, 2, {"optim.lr=0.5"}, "[optim]\neps = 1e-6\n");
  EXPECT_EQ(row(two, "batch.global").source, "deepspeed");
  EXPECT_EQ(row(two, "batch.micro").source, "derived");
  EXPECT_EQ(row(two, "batch.micro").value, "16");
  EXPECT_EQ(row(two, "parallel.dp").source, "derived");
  EXPECT_EQ(row(two, "optim.lr").source, "flag");
  EXPECT_EQ(row(two, "optim.eps").source, "config");
  EXPECT_EQ(row(two, "optim.clip").source, "default");
  expect_says(row(two, "optim.clip").note, "0.15.3");
  EXPECT_EQ(row(two, "pin_memory").note, "no key of DeepSpeed's, ignored");
  EXPECT_EQ(row(two, "pipeline.pipe_partitioned").note, "no effect here");
  expect_says(effective_text(two.deepspeed), "train_micro_batch_size_per_gpu");
  const auto json = nlohmann::json::parse(to_json(two));
  EXPECT_EQ(json["deepspeed"][0]["key"], "batch.global");
  EXPECT_EQ(json["notes"].size(), two.notes.size());
  EXPECT_EQ(json["batch"]["micro"], 16);
  EXPECT_EQ(load_text(to_toml(two.config), "resolved.toml", {}, Purpose::other, 2), two.config);
}

TEST(Mapping, OptimizersAndTheirDefaults) {
  Config c =
      read(
          R"({train_batch_size: 8, optimizer: {type: "Adam", params: {lr: 0.01, betas: [0.8, 0.99], eps: 1e-7}}})")
          .config;
  EXPECT_EQ(c.optim.name, "adamw");
  EXPECT_EQ(c.optim.lr, 0.01);
  EXPECT_EQ(c.optim.betas, (std::array<double, 2>{0.8, 0.99}));
  EXPECT_EQ(c.optim.eps, 1e-7);
  EXPECT_EQ(c.optim.weight_decay, 0.0);  // DeepSpeed's default, not ours
  EXPECT_EQ(c.lr.schedule, "constant");
  EXPECT_EQ(c.lr.warmup, (Span{0, 0.0, false}));
  c = read(
          R"({"train_batch_size": 8, "optimizer": {"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9, "nesterov": true, "weight_decay": 5e-4}}})")
          .config;
  EXPECT_EQ(c.optim.name, "sgd");
  EXPECT_EQ(c.optim.weight_decay, 5e-4);
  EXPECT_TRUE(c.optim.nesterov);
  EXPECT_EQ(read(R"({"train_batch_size": 8, "optimizer": {"type": "SGD"}})").config.optim.momentum,
            0.0);
  const Loaded lamb = read(
      R"({"train_batch_size": 8, "optimizer": {"type": "LAMB", "params": {"max_coeff": 10}}})");
  EXPECT_EQ(lamb.config.optim.name, "lamb");
  expect_says(notes(lamb), "trust ratio is not clamped");
  EXPECT_EQ(
      read(
          R"({"train_batch_size": 8, "optimizer": {"type": "Adam", "params": {"adam_w_mode": false}}})",
          1, {}, "[optim]\nweight_decay = 0.1\n")
          .config.optim.weight_decay,
      0.0);
  EXPECT_EQ(
      read(
          R"({"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"torch_adam": true}}})")
          .config.optim.weight_decay,
      0.01);
}

TEST(Mapping, Schedulers) {
  Config c =
      read(
          R"({"train_batch_size": 8, "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0.001, "warmup_max_lr": 0.01, "warmup_num_steps": 50, "warmup_type": "linear"}}})")
          .config;
  EXPECT_EQ(c.lr.schedule, "ds_warmup");
  EXPECT_EQ(c.optim.lr, 0.01);
  EXPECT_DOUBLE_EQ(c.lr.start, 0.1);
  EXPECT_EQ(c.lr.warmup, (Span{50, 0.0, false}));
  EXPECT_EQ(c.lr.rise, "linear");
  Loaded l = read(
      R"({"train_batch_size": 8, "optimizer": {"type": "Adam", "params": {"lr": 0.5}}, "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 5e3}}})");
  EXPECT_EQ(l.config.lr.schedule, "ds_decay");
  EXPECT_EQ(l.config.lr.steps, 5000);
  EXPECT_EQ(l.config.lr.warmup, (Span{1000, 0.0, false}));
  EXPECT_EQ(l.config.lr.rise, "log");
  EXPECT_EQ(l.config.optim.lr, 0.001);
  expect_says(notes(l),
              "optimizer.params.lr = 0.5 gives way to scheduler.params.warmup_max_lr = 0.001, "
              "DeepSpeed 0.15.3's default");
  l = read(
      R"({"train_batch_size": 8, "optimizer": {"type": "Adam", "params": {"lr": 0.5}}, "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": "auto", "warmup_min_ratio": 0.1}}})");
  EXPECT_EQ(l.config.lr.schedule, "ds_cosine");
  EXPECT_EQ(l.config.optim.lr, 0.5);
  EXPECT_EQ(l.config.lr.start, 0.1);
  EXPECT_EQ(l.config.lr.final, 1e-4);
  EXPECT_EQ(row(l, "lr.schedule").source, "deepspeed");
  l = read(
      R"({"train_batch_size": 8, "scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 1}}})");
  EXPECT_EQ(l.config.lr.schedule, "cosine");
  EXPECT_EQ(notes(l),
            "ds.json:1:47: scheduler.type = \"OneCycle\" is not supported and is ignored: [lr] "
            "says what is used; choose WarmupLR, "
            "WarmupDecayLR or WarmupCosineLR, or write [lr] in a TOML file");
}

TEST(Mapping, TheRest) {
  const Loaded l = read(R"({
    "train_micro_batch_size_per_gpu": 4, "gradient_clipping": 1.0, "bf16": {"enabled": true}, "steps_per_print": 10,
    "zero_optimization": {"stage": 3, "reduce_bucket_size": 5e8, "overlap_comm": true, "stage3_param_persistence_threshold": 1e4,
                          "contiguous_gradients": true, "offload_optimizer": {"device": "cpu", "pin_memory": true}},
    "tensorboard": {"enabled": false}, "csv_monitor": {"enabled": true}, "dataloader_drop_last": true, "sequence_parallel_size": 3,
    "amp": {"enabled": false}, "wandb": {"enabled": true}, "sparse_attention": {"mode": "fixed"}, "flops_profiler": {"enabled": true}
  })",
                        6);
  const Config& c = l.config;
  EXPECT_EQ(c.batch, (Batch{8, 4, 1}));  // W is dp: the sequence-parallel ranks share samples
  EXPECT_EQ(c.optim.clip, 1.0);
  EXPECT_EQ(c.precision.dtype, "bf16");
  EXPECT_EQ(c.parallel.zero, 3);
  EXPECT_EQ(c.parallel.persist, 10000);
  EXPECT_NEAR(c.parallel.bucket_mb, 1907.35, 0.01);
  EXPECT_EQ(c.parallel.sp, 3);
  EXPECT_EQ(c.parallel.sequence, "ulysses");
  EXPECT_EQ(c.parallel.offload_optimizer, "host");
  EXPECT_FALSE(c.run.tensorboard);
  EXPECT_TRUE(c.data.drop_last);
  const std::string said = notes(l);
  for (const char* part :
       {"wandb is not supported and is ignored", "sparse_attention is not supported",
        "flops_profiler.enabled is not supported"})
    expect_says(said, part);
  EXPECT_EQ(said.find("amp"), said.npos) << said;
  EXPECT_EQ(row(l, "steps_per_print").value, "10");
  EXPECT_EQ(read(R"({"train_batch_size": 4, "zero_optimization": true})", 2).config.parallel.zero,
            1);
  EXPECT_EQ(
      read(R"({"train_batch_size": 4, "bfloat16": {"enabled": true}})").config.precision.dtype,
      "bf16");
}

TEST(Layers, FlagsOverDeepSpeedOverToml) {
  const std::string_view json =
      R"({"train_batch_size": 8, "gradient_clipping": 2, "bf16": {"enabled": true}})";
  const std::string_view toml =
      "[batch]\nglobal = 128\nmicro = 16\n[optim]\nclip = 5.0\nlr = 0.25\ndecay_all = "
      "false\n[precision]\ndtype = \"f64\"\n";
  const Loaded l = read(json, 1, {"precision.dtype=f32"}, toml);
  EXPECT_EQ(l.config.batch, (Batch{8, 8, 1}));
  EXPECT_EQ(l.config.optim.clip, 2.0);
  EXPECT_EQ(l.config.optim.lr, 0.25);
  EXPECT_EQ(l.config.precision.dtype, "f32");
  const std::string said = notes(l);
  expect_says(said, "t.toml:2:10: batch.global gives way to the batch of the DeepSpeed file");
  expect_says(said, "t.toml:3:9: batch.micro gives way");
  expect_says(said, "ds.json:1:46: optim.clip = 2.0 wins over 5.0 of the TOML file");
  expect_says(said, "ds.json: optim.decay_all = true wins over false");
  expect_says(said, "precision.dtype = \"bf16\" wins over \"f64\"");
  EXPECT_EQ(row(l, "precision.dtype").source, "flag");
  // The optimizer's defaults are DeepSpeed's only where nobody speaks.
  const std::string_view adam = R"({"train_batch_size": 8, "optimizer": {"type": "AdamW"}})";
  EXPECT_EQ(read(adam, 1, {}, "[optim]\nweight_decay = 0.3\n").config.optim.weight_decay, 0.3);
  EXPECT_EQ(read(adam, 2, {"batch.global=6"}).config.batch, (Batch{6, 3, 1}));
}

TEST(Layers, AutoIsOurValue) {
  const Loaded l = read(
      R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto", "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto", "betas": "auto"}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
    "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}, "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}})",
      2, {}, "[optim]\nlr = 0.2\n[batch]\nglobal = 64\n");
  EXPECT_EQ(l.config.batch, (Batch{64, 32, 1}));
  EXPECT_EQ(l.config.optim.lr, 0.2);
  for (const char* key : {"batch.global", "batch.micro", "batch.accumulate", "optim.lr",
                          "optim.clip", "optim.weight_decay", "lr.warmup", "precision.dtype"})
    EXPECT_EQ(row(l, key).source, "auto") << key;
  EXPECT_EQ(read(R"({"train_batch_size": "auto"})", 4).config.batch, (Batch{128, 32, 1}));
}

TEST(Refused, EachWithItsPlaceAndNumber) {
  struct Bad {
    std::string json;
    int world;
    std::vector<std::string> says;
  };
  const auto with = [](const std::string& rest) {
    return "{\"train_batch_size\": 8, " + rest + "}";
  };
  for (
      const Bad& bad : std::vector<Bad>{
          {"{}", 1, {"neither train_batch_size nor train_micro_batch_size_per_gpu"}},
          {"", 1, {"neither train_batch_size"}},
          {R"({"gradient_accumulation_steps": 4})", 1, {"ds.json:1:33: neither train_batch_size"}},
          {R"({"micro_batch_per_gpu": 16})", 2, {"neither train_batch_size"}},
          {R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 16, "gradient_accumulation_steps": 1})",
           4,
           {"32 != 16 x 1 x 4 = 64", "choose 32 = 8 x 1 x 4"}},
          {R"({"train_batch_size": 30, "train_micro_batch_size_per_gpu": 4})",
           2,
           {"30 != 4 x 3 x 2 = 24"}},
          {R"({"train_batch_size": 2})",
           4,
           {"2 != 0 x 1 x 4 = 0", "choose 4 = 1 x 1 x 4; or dp = 2"}},
          {R"({"train_batch_size": 0})", 1, {"batch.global = 0 is out of range"}},
          {R"({"train_batch_size": -8})", 1, {"batch.global = -8 is out of range"}},
          {R"({"train_batch_size": "32"})",
           1,
           {"train_batch_size: expected a whole number, found \"32\""}},
          {R"({"train_batch_size": 8.5})",
           1,
           {"train_batch_size: expected a whole number, found 8.5"}},
          {with(R"("gradient_accumulation_steps": 1000)"),
           1,
           {"batch.accumulate = 1000 is out of range"}},
          {with(R"("gradient_clipping": -1)"), 1, {"optim.clip = -1.0 is out of range"}},
          {with(R"("gradient_clipping": true)"),
           1,
           {"gradient_clipping: expected a number, found true"}},
          {with(R"("fp16": {"enabled": true}, "bf16": {"enabled": true})"),
           1,
           {"fp16.enabled and bf16.enabled are both true", "switch one of them off"}},
          {with(R"("fp16": {"enabled": true, "hysteresis": 0})"),
           1,
           {"precision.hysteresis = 0 is out of range"}},
          {with(R"("fp16": {"enabled": true, "initial_scale_power": 3, "min_loss_scale": 16})"),
           1,
           {"precision.min_loss_scale = 16.0 is more than the scale begins with, 2^3"}},
          {with(R"("fp16": {"enabled": 1})"), 1, {"fp16.enabled: expected true or false, found 1"}},
          {with(R"("fp16": {"loss_scal": 1})"),
           1,
           {"there is no key fp16.loss_scal", "did you mean loss_scale?"}},
          {with(R"("zero_optimization": {"stage": 4})"), 1, {"parallel.zero = 4 is out of range"}},
          {with(R"("zero_optimization": {"stages": 2})"),
           1,
           {"there is no key zero_optimization.stages, and DeepSpeed refuses it",
            "did you mean stage?"}},
          {with(R"("zero_optimization": {"pin_memory": true})"),
           1,
           {"there is no key zero_optimization.pin_memory",
            "it is a key of zero_optimization.offload_optimizer"}},
          {with(R"("zero_optimization": 2)"),
           1,
           {"zero_optimization: expected an object, found 2"}},
          {with(R"("optimizer": "Adam")"), 1, {"optimizer: expected an object, found \"Adam\""}},
          {with(R"("optimizer": {"type": "OneBitAdam"})"),
           1,
           {"optimizer.type = \"OneBitAdam\" is not supported", "choose Adam, AdamW, Lamb or SGD"}},
          {with(R"("optimizer": {"type": "sgd"})"), 1, {"DeepSpeed knows it as \"SGD\""}},
          {with(
               R"("optimizer": {"type": "Adam", "params": {"adam_w_mode": false, "weight_decay": 0.1}})"),
           1,
           {"adam_w_mode = false: Adam with L2"}},
          {with(R"("optimizer": {"type": "Adam", "params": {"amsgrad": true}})"),
           1,
           {"optimizer.params.amsgrad = true is not supported"}},
          {with(R"("optimizer": {"type": "Adam", "params": {"bias_correction": false}})"),
           1,
           {"bias_correction = false is not supported"}},
          {with(R"("optimizer": {"type": "Adam", "params": {"max_grad_norm": 1}})"),
           1,
           {"max_grad_norm is refused", "use gradient_clipping"}},
          {with(R"("optimizer": {"type": "Adam", "params": {"lr": 0}})"),
           1,
           {"optim.lr = 0.0 is out of range"}},
          {with(R"("optimizer": {"type": "Adam", "params": {"betas": [0.9]}})"),
           1,
           {"optim.betas: expected a list of two numbers"}},
          {with(R"("scheduler": {"type": "WarmupDecayLR"})"), 1, {"total_num_steps is missing"}},
          {with(R"("scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 1}})"),
           1,
           {"warmup_min_lr = 1 is not between 0 and warmup_max_lr = 0.001"}},
          {with(R"("gradient_allreduce_op": "sum")"),
           1,
           {"gradient_allreduce_op = \"sum\" is not supported"}},
          {with(R"("tensor_parallel": {"autotp_size": 2})"),
           2,
           {"parallel.tp = 2 does not divide model.heads = 3"}},
      }) {
    const std::string message = refusal(bad.json, bad.world);
    for (const std::string& part : bad.says)
      EXPECT_NE(message.find(part), message.npos) << bad.json << "\n"
                                                  << message << "\nlacks: " << part;
    expect_says(message, "ds.json");
  }
}

TEST(Refused, TogetherWithTheProblemsOfTheTomlFile) {
  const std::string message =
      refusal("{\n  \"train_batch_size\": 8,\n  \"fp16\": {\"enabled\": \"yes\"}\n}", 1,
              "[model]\ndpeth = 4\n");
  expect_says(message, "ds.json:3:23: fp16.enabled: expected true or false");
  expect_says(message, "    3 |   \"fp16\": {\"enabled\": \"yes\"}\n");
  expect_says(message, "also: t.toml:2:1: there is no key model.dpeth\n    2 | dpeth = 4");
}

TEST(Refused, AllProblemsOfOneFileAtOnce) {
  const std::string message = refusal(
      "{\n  \"train_batch_size\": 8,\n  \"fp16\": {\"enabled\": \"yes\"},\n  "
      "\"zero_optimization\": {\"stages\": 2},\n  \"gradient_clipping\": \"much\"\n}");
  expect_says(message, "ds.json:3:23: fp16.enabled: expected true or false");
  expect_says(message, "there is no key zero_optimization.stages");
  expect_says(message, "gradient_clipping");
}

TEST(CommandLine, PathsAndBase64) {
  const test::Scratch scratch;
  const std::string path = (scratch / "ds.json").string();
  std::ofstream(path) << study;
  const auto load_with = [](const std::string& value) {
    return load_all_text("", "", {{"deepspeed", value, "--deepspeed " + value, true}},
                         Purpose::other, 2);
  };
  EXPECT_EQ(load_with(path).config.batch, (Batch{32, 16, 1}));
  EXPECT_EQ(load_with("eyJ0cmFpbl9iYXRjaF9zaXplIjogNn0=").config.batch, (Batch{6, 3, 1}));
  for (const std::string& bad :
       {std::string("nowhere.json"), scratch.folder().string(), std::string(), std::string("eyJ0")})
    EXPECT_EQ(test::error_of([&] { load_with(bad); }).exit_code(), 2) << bad;
  std::ofstream(path) << std::string((1 << 20) + 1, ' ');
  expect_says(test::error_of([&] { load_with(path); }).what(), "larger than 1 MiB");
}

}  // namespace
}  // namespace tessera::config::deepspeed_test
