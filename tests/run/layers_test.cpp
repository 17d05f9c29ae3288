// The parts of a forward pass: every step has its row in every family, the rows are those that
// fusion leaves, they add up to the whole; and fusion changes nothing but rounding.
#include "measure/layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/rng.h"
#include "session/init.h"
#include "session/session.h"

namespace tessera::run::layers_test {
namespace {

config::Config tiny(const std::string& model, bool fuse) {
  config::Config c;
  c.model = models::preset(model);
  if (model == "vit_micro") {
    c.model.depth = 3;
    c.model.pool = "class";
  }
  c.model.head_init = "normal";
  c.run.threads = 2;
  c.run.fuse = fuse;
  c.batch = {3, 3, 1};
  return c;
}

std::map<std::string, std::int64_t> counts(const std::vector<LayerRow>& rows) {
  std::map<std::string, std::int64_t> out;
  for (const LayerRow& row : rows)
    EXPECT_TRUE(out.emplace(row.name, row.count).second) << row.name << " stands twice";
  return out;
}

std::map<std::string, std::int64_t> planned(const config::Config& c) {
  Session session(c);
  return counts(layer_rows(session.compiled(Goal::predict, 3).plan).rows);
}

using Counts = std::map<std::string, std::int64_t>;

TEST(Layers, OfAVit) {
  EXPECT_EQ(planned(tiny("vit_micro", true)),
            (Counts{{"normalise", 1},
                    {"embeddings", 1},
                    {"ln_1", 1},  // of the first layer; the others follow a residual
                    {"msa.qkv", 3},
                    {"msa.scores+softmax+values", 3},
                    {"msa.projection", 3},
                    {"residual_1+ln_2", 3},
                    {"residual_1", 1},  // takes the class token
                    {"mlp", 3},
                    {"residual_2+ln_1", 2},
                    {"residual_2", 1},  // only the class token goes on to the last norm
                    {"ln_final", 1},
                    {"head", 1}}));
  const Counts parts = {
      {"normalise", 1},  {"embeddings", 1},  {"ln_1", 3},       {"msa.qkv", 3},
      {"msa.scores", 3}, {"msa.softmax", 3}, {"msa.values", 3}, {"msa.projection", 3},
      {"residual_1", 3}, {"ln_2", 3},        {"mlp", 3},        {"residual_2", 3},
      {"ln_final", 1},   {"head", 1}};
  EXPECT_EQ(planned(tiny("vit_micro", false)), parts);
  config::Config mean = tiny("vit_micro", true);
  mean.model.pool = "mean";
  EXPECT_EQ(planned(mean).at("residual_2+ln_final"), 1);
  mean.run.fuse = false;
  EXPECT_EQ(planned(mean), parts);
}

TEST(Layers, OfASwin) {  // two stages of two blocks
  EXPECT_EQ(planned(tiny("swin_micro", true)),
            (Counts{{"normalise", 1},
                    {"embeddings", 1},
                    {"ln_1", 2},  // of the first block of each stage
                    {"msa.windows", 4},
                    {"msa.qkv", 4},
                    {"msa.scores+softmax+values", 4},
                    {"msa.projection", 4},
                    {"residual_1+ln_2", 4},
                    {"mlp", 4},
                    {"residual_2+ln_1", 2},
                    {"residual_2", 1},
                    {"merge", 1},
                    {"residual_2+ln_final", 1},
                    {"ln_final", 1},
                    {"head", 1}}));
  EXPECT_EQ(planned(tiny("swin_micro", false)), (Counts{{"normalise", 1},
                                                        {"embeddings", 1},
                                                        {"ln_1", 4},
                                                        {"msa.windows", 4},
                                                        {"msa.qkv", 4},
                                                        {"msa.scores", 4},
                                                        {"msa.softmax", 4},
                                                        {"msa.values", 4},
                                                        {"msa.projection", 4},
                                                        {"residual_1", 4},
                                                        {"ln_2", 4},
                                                        {"mlp", 4},
                                                        {"residual_2", 4},
                                                        {"merge", 1},
                                                        {"ln_final", 1},
                                                        {"head", 1}}));
}

TEST(Layers, OfAResnet) {  // three stages of one block
  const Counts fused = planned(tiny("resnet_micro_cifar", true)),
               apart = planned(tiny("resnet_micro_cifar", false));
  for (const std::string stage : {"stage1.", "stage2.", "stage3."}) {
    for (const char* part : {"conv+norm+activation", "conv+norm+residual+activation", "norm"})
      EXPECT_TRUE(fused.contains(stage + part)) << stage << part;
    for (const char* part : {"conv", "norm", "activation", "residual"})
      EXPECT_TRUE(apart.contains(stage + part)) << stage << part;
    EXPECT_EQ(fused.contains(stage + "downsample"), stage != "stage1.");
    EXPECT_EQ(apart.contains(stage + "downsample"), stage != "stage1.");
  }
  for (const Counts& rows : {fused, apart})
    for (const char* part : {"normalise", "stem", "head"}) EXPECT_TRUE(rows.contains(part)) << part;
  EXPECT_EQ(fused.size(), 3u + 3 * 3 + 2);
  EXPECT_EQ(apart.size(), 3u + 3 * 4 + 2);
  config::Config deep = tiny("resnet_micro_cifar", false);
  deep.model.layers = {2, 3, 1};
  EXPECT_EQ(planned(deep).at("stage2.conv"), 3);
}

// In bf16 there are casts; they have a row, too.
TEST(Layers, EveryStepHasARow) {
  for (const char* model :
       {"vit_micro", "vit_b_16", "swin_micro", "swin_t", "resnet_micro_cifar", "resnet50"})
    for (const char* dtype : {"f32", "bf16"})
      for (const bool fuse : {true, false}) {
        config::Config c;
        c.model = models::preset(model);
        c.precision.dtype = dtype;
        c.run.fuse = fuse;
        const Compiled compiled = compile(c, Goal::predict, {1}, plan::Target{});
        const LayerRows rows = layer_rows(compiled.plan);
        ASSERT_EQ(rows.of_step.size(), compiled.plan.steps.size());
        const Counts all = counts(rows.rows);
        EXPECT_FALSE(all.contains(other_part)) << model << " " << dtype << " " << fuse;
        EXPECT_TRUE(c.model.family == "resnet" ||
                    all.contains("casts") == (dtype == std::string("bf16")))
            << model;
        double flops = 0;
        for (const LayerRow& row : rows.rows) flops += row.flops;
        EXPECT_NEAR(flops / compiled.plan.cost.flops, 1, 1e-9) << model;
      }
}

TEST(Layers, AddUp) {
  for (const char* model : {"vit_micro", "swin_micro", "resnet_micro_cifar"})
    for (const bool fuse : {true, false}) {
      const LayerTimes times = measure_layers(tiny(model, fuse), 2, 3);
      EXPECT_EQ(times.runs, 3);
      ASSERT_EQ(times.rows.back().name, rest_part);
      double sum = 0, shares = 0;
      for (const LayerRow& row : times.rows) {
        sum += row.seconds() * static_cast<double>(row.count);
        shares += times.share(row);
        EXPECT_LE(row.all.min, row.all.median) << row.name;
        EXPECT_LE(row.all.median, row.all.max) << row.name;
        EXPECT_GE(row.all.min, 0) << row.name;
      }
      EXPECT_NEAR(sum, times.total_s, 1e-12) << model;
      EXPECT_NEAR(shares, 1, 1e-9) << model;
      EXPECT_GT(times.whole_s.median, 0);
      EXPECT_EQ(times.layers, model[0] == 's' ? 4 : 3) << model;
    }
}

std::vector<double> logits(config::Config c, bool fuse) {
  c.run.fuse = fuse;
  Session session(c);
  session.load(initial_weights(3));
  std::vector<float> images(
      static_cast<std::size_t>(3 * c.model.image_h * c.model.image_w * c.model.channels));
  for (std::size_t i = 0; i < images.size(); ++i) images[i] = static_cast<float>(normal(Key{7}, i));
  return session.predict(images, 3);
}

TEST(Fuse, ChangesNothingButRounding) {
  for (const char* model : {"vit_micro", "swin_micro", "resnet_micro_cifar"})
    for (const char* dtype : {"f32", "f64"}) {
      config::Config c = tiny(model, true);
      c.precision.dtype = dtype;
      const std::vector<double> fused = logits(c, true), apart = logits(c, false);
      double most = 0;
      for (const double v : fused) most = std::max(most, std::abs(v));
      ASSERT_GT(most, 0) << model;
      ASSERT_EQ(fused.size(), apart.size());
      for (std::size_t i = 0; i < fused.size(); ++i)
        EXPECT_NEAR(fused[i], apart[i], most * (dtype == std::string("f64") ? 1e-12 : 1e-5))
            << model << " " << dtype;
    }
}

TEST(Fuse, AlsoOfATrainingStep) {
  for (const char* model : {"vit_micro", "swin_micro", "resnet_micro_cifar"}) {
    std::vector<double> losses[2];
    for (const bool fuse : {false, true}) {
      config::Config c = tiny(model, fuse);
      c.precision.dtype = "f64";
      Session session(c);
      session.load(initial_weights(3));
      std::vector<float> images(
          static_cast<std::size_t>(3 * c.model.image_h * c.model.image_w * c.model.channels));
      for (std::size_t i = 0; i < images.size(); ++i)
        images[i] = static_cast<float>(normal(Key{7}, i));
      for (int step = 1; step <= 3; ++step)
        losses[fuse ? 1 : 0].push_back(
            session.train_step(images, std::vector<std::int32_t>{1, 2, 3}, 1e-3, step, 0).loss);
    }
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(losses[0][i], losses[1][i], 1e-9 * losses[0][i]) << model;
  }
}

}  // namespace
}  // namespace tessera::run::layers_test
