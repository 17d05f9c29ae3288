// Steps that are submitted before the one before them is known: a skipped one hands its number, its
// rate and its random numbers on, and a training that runs ahead leaves the same bits as one that
// waits.
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/rng.h"
#include "files/scratch.h"
#include "files/text.h"
#include "session/init.h"
#include "session/session.h"
#include "verbs/verbs.h"

namespace tessera::run::ahead_test {
namespace {

config::Config tiny() {
  config::Config c;
  c.model = models::preset("vit_micro");
  c.model.depth = 1;
  c.model.dropout = 0.1;
  c.model.head_init = "normal";
  c.run.threads = 1;
  c.batch = {4, 4, 1};
  return c;
}

struct Data {
  std::vector<float> images;
  std::vector<std::int32_t> labels;
};
Data data(const config::Config& c, std::uint64_t seed) {
  Data d{std::vector<float>(
             static_cast<std::size_t>(4 * c.model.image_h * c.model.image_w * c.model.channels)),
         {1, 2, 3, 4}};
  for (std::size_t i = 0; i < d.images.size(); ++i)
    d.images[i] = static_cast<float>(normal(Key{seed}, i));
  return d;
}

double rate(std::int64_t step) { return 1e-2 / static_cast<double>(step); }
StepInputs inputs(const Data& d, std::int64_t first, std::int64_t position) {
  return {.images = d.images,
          .labels = d.labels,
          .lr = rate(first),
          .step = first,
          .position = position,
          .next_lr = rate(first + 1)};
}

TEST(Ahead, ASkippedStepHandsItsNumberOn) {
  for (const char* optimizer : {"adamw", "lamb", "sgd"}) {
    config::Config c = tiny();
    c.optim.name = optimizer;
    std::vector<Data> batches;
    for (std::uint64_t seed = 1; seed <= 4; ++seed) batches.push_back(data(c, seed));
    batches[1].images[7] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<std::int64_t> numbers = {1, 2, 2, 3};

    Session waits(c), ahead(c);
    std::vector<double> want, got;
    waits.load(initial_weights(1));
    for (std::size_t i = 0; i < batches.size(); ++i) {
      const StepResult r =
          waits.train_step(inputs(batches[i], numbers[i], static_cast<std::int64_t>(i) * 4));
      EXPECT_EQ(r.ok, i != 1) << optimizer;
      EXPECT_EQ(r.step, numbers[i]) << optimizer;
      if (r.ok) want.push_back(r.loss);
    }

    ahead.load(initial_weights(1));
    ahead.compiled(Goal::train, 4);
    ahead.set_step(0);
    std::vector<PendingStep> pending;
    std::int64_t applied = 0;
    const auto account = [&](std::size_t i) {
      const StepResult r = pending[i].wait();
      EXPECT_EQ(r.step, numbers[i]) << optimizer;
      applied += r.ok;
      if (r.ok) got.push_back(r.loss);
    };
    for (std::size_t i = 0; i < batches.size(); ++i) {
      pending.push_back(
          ahead.submit(inputs(batches[i], applied + 1, static_cast<std::int64_t>(i) * 4)));
      if (i > 0) account(i - 1);
    }
    account(3);
    EXPECT_EQ(got, want) << optimizer;
    EXPECT_EQ(ahead.parameters(Weights::live), waits.parameters(Weights::live)) << optimizer;
  }
}

// Two epochs with a ragged tail, saved every third step.
std::vector<std::string> trained(const std::filesystem::path& out, int ahead) {
  config::Config c = tiny();
  c.data.source = "synthetic:32x32x3,10";
  c.data.train_size = 14;
  c.data.test_size = 4;
  c.data.workers = 1;
  c.run.epochs = 2;
  c.run.out = out.string();
  c.run.name = "ahead";
  c.checkpoint.every = 3;
  TrainOptions options;
  options.quiet = true;
  options.ahead = ahead;
  EXPECT_EQ(run::train(c, options), 0);
  std::vector<std::string> lines;
  std::ifstream file(out / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json m = nlohmann::json::parse(line);
    std::string kept = m["kind"].get<std::string>();
    for (const char* key : {"step", "epoch", "loss", "top1", "lr", "grad_norm", "test_loss"})
      if (m.contains(key)) kept += " " + m[key].dump();
    lines.push_back(kept);
  }
  std::set<std::string> saved;
  for (const auto& entry : std::filesystem::directory_iterator(out / "ckpt"))
    saved.insert(entry.path().filename().string());
  lines.insert(lines.end(), saved.begin(), saved.end());
  lines.push_back(files::read_text(out / "weights.safetensors"));
  return lines;
}

TEST(Ahead, ATrainingLeavesTheSameBits) {
  const test::Scratch scratch;
  const std::vector<std::string> waits = trained(scratch / "waits", 0),
                                 ahead = trained(scratch / "ahead", 1);
  EXPECT_GE(waits.size(), 8u + 2 + 1);
  ASSERT_EQ(waits.size(), ahead.size());
  for (std::size_t i = 0; i + 1 < waits.size(); ++i) EXPECT_EQ(waits[i], ahead[i]);
  EXPECT_TRUE(waits.back() == ahead.back()) << "other weights";
}

// A rate that blows the weights up: the run gives up and says where the numbers went bad first. The
// steps before it were submitted ahead of their results, and the one that is run again is the same.
std::string given_up(const std::filesystem::path& out, int ahead) {
  config::Config c = tiny();
  c.data.source = "synthetic:32x32x3,10";
  c.data.train_size = 80;
  c.data.test_size = 4;
  c.data.workers = 1;
  c.run.epochs = 1;
  c.run.out = out.string();
  c.run.name = "given_up";
  c.optim.name = "sgd";
  c.optim.lr = 1e30;
  TrainOptions options;
  options.quiet = true;
  options.ahead = ahead;
  try {
    run::train(c, options);
    return "it came to its end";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind, ErrorKind::nonfinite) << e.what();
    return e.message.substr(0, e.message.rfind(';'));  // without its folder
  }
}

TEST(Ahead, WhatWentBadIsFoundAgain) {
  const test::Scratch scratch;
  const std::string waits = given_up(scratch / "waits", 0), ahead = given_up(scratch / "ahead", 1);
  EXPECT_NE(waits.find("10 steps in a row"), waits.npos) << waits;
  EXPECT_NE(waits.find("are finite; first bad tensor: "), waits.npos) << waits;
  EXPECT_NE(waits.find(" pass, has "), waits.npos) << waits;
  EXPECT_EQ(ahead, waits);
}

}  // namespace
}  // namespace tessera::run::ahead_test
