// However threads share work out (run.threading), a model computes the same bits; and `bench
// layers` compares the ways.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "parallel/world.h"
#include "session/init.h"
#include "session/session.h"
#include "verbs/verbs.h"

namespace tessera::test::threading_test {
namespace {

config::Config of(const std::string& model, const std::string& dtype, bool fuse) {
  config::Config c;
  c.model = models::preset(model);
  c.model.head_init = "normal";
  c.precision.dtype = dtype;
  c.run.fuse = fuse;
  c.batch = {3, 3, 1};
  return c;
}

// Losses and weights of two steps, then logits.
std::vector<double> computed(const config::Config& c) {
  run::Session session(c);
  session.load(run::initial_weights(3));
  std::vector<double> out;
  for (int step = 1; step <= 2; ++step) {
    const Samples samples = samples_of(c.model, step, c.batch.global);
    out.push_back(session.train_step(samples.images, samples.labels, 1e-3, step, 0).loss);
  }
  for (const auto& [name, values] : session.parameters(run::Weights::live))
    out.insert(out.end(), values.begin(), values.end());
  const Samples samples = samples_of(c.model, 3, c.batch.global);
  const std::vector<double> logits = session.predict(samples.images, c.batch.global);
  out.insert(out.end(), logits.begin(), logits.end());
  return out;
}

TEST(Threading, SameBits) {
  for (const char* model : {"vit_micro", "swin_micro", "resnet_micro_cifar"})
    for (const char* dtype : {"f32", "bf16"})
      for (const bool fuse : {true, false}) {
        config::Config c = of(model, dtype, fuse);
        const std::vector<double> one = computed(c);
        c.run.threads = 3;
        for (const char* way : {"auto", "heads", "rows", "products"}) {
          c.run.threading = way;
          EXPECT_TRUE(computed(c) == one) << model << " " << dtype << " " << fuse << " " << way;
        }
      }
}

// One sample: a head's queries are cut into blocks.
TEST(Threading, SameBitsOfOneSample) {
  config::Config c = of("vit_micro", "f32", true);
  c.model.image_h = c.model.image_w = 64;
  c.batch = {1, 1, 1};
  const std::vector<double> one = computed(c);
  c.run.threads = 2;
  for (const char* way : {"auto", "heads", "rows", "products"}) {
    c.run.threading = way;
    EXPECT_TRUE(computed(c) == one) << way;
  }
}

std::string said(const config::Config& c, bool json) {
  run::BenchOptions options;
  options.what = "layers";
  options.batch = 2;
  options.repeats = 2;
  options.compare_threading = true;
  options.json = json;
  ::testing::internal::CaptureStdout();
  const int code = run::bench_layers(c, options);
  std::string text = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(code, 0);
  return text;
}

TEST(Threading, Compared) {
  config::Config c = of("vit_micro", "f32", true);
  c.run.threads = 2;
  const auto document = nlohmann::json::parse(said(c, true));
  EXPECT_EQ(document["runs"], 2);
  std::vector<std::string> ways;
  for (const auto& way : document["ways"]) {
    ways.push_back(way["threading"].get<std::string>() + " " + way["threads"].dump());
    EXPECT_EQ(way["busy"].size(), way["threads"].get<std::size_t>());
    EXPECT_LE(way["whole_s"]["min"].get<double>(), way["whole_s"]["median"].get<double>());
    EXPECT_GT(way["times_one_thread"].get<double>(), 0);
    ASSERT_EQ(way["parts"].size(), document["ways"][0]["parts"].size());
    for (const auto& part : way["parts"]) {
      const std::size_t shown = part["name"] == "rest" ? 0 : way["threads"].get<std::size_t>();
      ASSERT_EQ(part["busy"].size(), shown);
      for (const auto& share : part["busy"]) {
        EXPECT_GE(share.get<double>(), 0);
        EXPECT_LE(share.get<double>(), 1);
      }
    }
  }
  const std::vector<std::string> expected{"auto 1", "heads 2", "rows 2", "products 2", "auto 2"};
  EXPECT_EQ(ways, expected);
  const std::string text = said(c, false);
  for (const char* word : {"one thread", "heads", "products", "msa.qkv", "whole pass", "least",
                           "times one thread", "thread 1 busy"})
    EXPECT_NE(text.find(word), std::string::npos) << word << "\n" << text;
}

// There is nothing to compare.
TEST(Threading, ComparesThreads) {
  run::BenchOptions options;
  options.compare_threading = true;
  EXPECT_THROW(run::bench_layers(of("vit_micro", "f32", true), options), Error);
}

}  // namespace
}  // namespace tessera::test::threading_test
