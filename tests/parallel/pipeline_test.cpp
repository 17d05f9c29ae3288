// Pipelines against one rank with the same micro-batches: the same loss and gradient norm at every
// step, in f64 to 1e-9, for every schedule, every model and the hybrids. With
// TESSERA_TEST_DTYPE=f32 to 1e-4, and with TESSERA_STEPS over as many steps, as for a card.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "base/check.h"
#include "input/dataset.h"
#include "parallel/world.h"
#include "train/batches.h"

namespace tessera::test::pipeline_test {
namespace {

struct Case {
  std::string model, layout, with = "";
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.model << " " << c.layout << " " << c.with;
}

std::string test_dtype() {
  const char* given = std::getenv("TESSERA_TEST_DTYPE");
  return given ? given : "f64";
}
int test_steps() { return std::getenv("TESSERA_STEPS") ? usual_steps() : 5; }

// Models with a block for each of many stages.
config::Config deep(const std::string& family) {
  config::Config c = tiny(family, test_dtype());
  if (family == "vit") c.model.depth = 6;
  if (family == "swin") c.model.depths = {2, 3};  // with the merge 6 blocks
  if (family == "resnet") c.model.layers = {2, 4};
  return c;
}

Training training_of(const Case& c, int steps) {
  Training t{deep(c.model), steps};
  config::Config& config = t.config;
  // Batch norm over a few samples makes the changes of rounding larger with every step.
  if (test_dtype() == "f32" && c.model == "resnet") t.steps = std::min(t.steps, 3);
  if (c.with.find("eight") != c.with.npos) config.model.depth = 8;
  if (c.with.find("wide") != c.with.npos) config.batch = {16, 16, 1};
  if (c.with.find("odd") != c.with.npos) config.batch = {7, 7, 1};
  if (c.with.find("ragged") != c.with.npos) t.ragged = 3;
  if (c.with.find("lamb") != c.with.npos) config.optim.name = "lamb";
  if (c.with.find("ema") != c.with.npos) config.ema.decay = 0.9;
  if (c.with.find("dropout") != c.with.npos) {
    config.model.dropout = 0.1;
    config.model.drop_path = 0.2;
  }
  if (c.with.find("mix") != c.with.npos) {
    t.soft = true;
    config.data.mixup = 0.2;
  }
  if (c.with.find("no_clip") != c.with.npos) config.optim.clip = 0;
  if (c.with.find("no_overlap") != c.with.npos) config.parallel.overlap = false;
  if (c.with.find("buckets") != c.with.npos) config.parallel.bucket_mb = 0.004;
  if (c.with.find("freeze") != c.with.npos) config.optim.freeze = "3";
  config = with_layout(config, c.layout);
  if (c.with.find("by_hand") != c.with.npos) config.parallel.stages = {{1, 5}, ""};
  return t;
}

void same_as_one_rank(const Case& c, int steps) {
  const Training t = training_of(c, steps);
  const Trace got = train(t);
  const Trace& want = on_one_rank(t);
  const bool exact = test_dtype() == "f64";
  EXPECT_LE(difference(got.loss, want.loss), exact ? 1e-9 : 1e-4);
  EXPECT_LE(difference(got.grad_norm, want.grad_norm), exact ? 1e-9 : 1e-4);
  EXPECT_GT(want.grad_norm[0], 1e-3);
  testing::Test::RecordProperty("cases", 1);
  if (!exact) return;  // where a gradient is all rounding, Adam makes it as long as any other
  EXPECT_EQ(got.correct, want.correct);
  EXPECT_LE(weight_difference(got, want), 1e-8);
}

class Pipeline : public testing::TestWithParam<Case> {};

TEST_P(Pipeline, SameTraceAsOneRank) { same_as_one_rank(GetParam(), test_steps()); }

const Case cases[] = {
    // every schedule
    {"vit", "pp2 acc1 1f1b"},
    {"vit", "pp2 acc4 gpipe"},
    {"vit", "pp3 acc4 1f1b"},
    {"vit", "pp4 acc8 1f1b"},
    {"vit", "pp2 acc4 interleaved2"},
    {"vit", "pp2 acc3 interleaved3"},
    {"vit", "pp3 acc8 zb"},
    {"vit", "pp4 acc2 zb"},
    {"vit", "pp4 acc4 gpipe"},
    {"vit", "pp4 acc4 interleaved2", "eight"},
    {"vit", "segments2 acc4"},
    {"vit", "pp4 acc16 1f1b", "wide"},
    {"swin", "pp2 acc4 gpipe"},
    {"swin", "pp3 acc4 1f1b"},
    {"swin", "pp3 acc3 interleaved2"},
    {"swin", "pp2 acc4 zb"},
    {"resnet", "pp2 acc4 gpipe"},
    {"resnet", "pp3 acc4 1f1b"},
    {"resnet", "pp2 acc2 interleaved2"},
    {"resnet", "pp4 acc4 zb"},
    {"resnet", "segments3 acc2 recompute"},
    // hybrids
    {"vit", "pp2 dp2 acc2 1f1b"},
    {"vit", "pp2 tp2 acc2 1f1b"},
    {"vit", "pp2 sp2 acc2 gpipe"},
    {"vit", "pp2 dp2 zero1 acc2 1f1b"},
    {"vit", "pp2 dp2 zero2 acc2 gpipe"},
    {"vit", "pp2 dp2 zero3 acc2 1f1b"},
    {"vit", "pp2 dp2 tp2 zero3 acc2 zb"},
    {"vit", "pp2 tp2 megatron acc3 interleaved2"},
    {"swin", "pp2 dp2 zero2 acc2 1f1b"},
    {"swin", "pp2 tp2 acc2 zb"},
    {"resnet", "pp2 dp2 zero3 acc2 1f1b"},
    {"resnet", "pp2 tp2 acc2 1f1b"},
    // with everything a step can have
    {"vit", "pp2 acc4 1f1b recompute"},
    {"vit", "pp3 acc4 gpipe every2", "dropout"},
    {"vit", "pp2 acc3 zb recompute", "odd ragged lamb"},
    {"vit", "pp2 dp2 zero1 acc2 1f1b", "ema mix no_clip buckets"},
    {"vit", "pp2 dp2 acc2 interleaved3", "no_overlap ema"},
    {"vit", "pp3 acc2 1f1b", "freeze"},
    {"vit", "pp2 acc2 1f1b", "by_hand"},
    {"vit", "pp2 dp2 zero2 acc2 1f1b compress=topk=1"},
    {"resnet", "pp2 dp2 zero2 acc2 1f1b recompute", "ema odd ragged"},
};
INSTANTIATE_TEST_SUITE_P(All, Pipeline, testing::ValuesIn(cases));

// Every schedule, 2 to 4 stages, 1 to 16 micro-batches.
void every_pipeline(const std::string& model) {
  for (int stages = 2; stages <= 4; ++stages)
    for (const std::string schedule : {"gpipe", "1f1b", "interleaved2", "zb"})
      for (const int micros : {1, 2, 3, 4, 5, 7, 8, 11, 16}) {
        if (schedule == "interleaved2" && stages == 4)
          continue;  // 8 stages, but there are 6 blocks
        const Case c{
            model, "pp" + std::to_string(stages) + " acc" + std::to_string(micros) + " " + schedule,
            "wide"};
        SCOPED_TRACE(testing::PrintToString(c));
        same_as_one_rank(c, 2);
      }
}
TEST(Long, EveryPipelineOfVit) { every_pipeline("vit"); }
TEST(Long, EveryPipelineOfSwin) { every_pipeline("swin"); }
TEST(Long, EveryPipelineOfResnet) { every_pipeline("resnet"); }

// Some images are torn, all of one class: each is replaced by one of the other.
class Torn : public data::Dataset {
 public:
  Torn() {
    bad().say = [](const std::string&) {};
  }
  std::int64_t size() const override { return 4000; }
  const std::vector<std::string>& class_names() const override { return names_; }
  int height() const override { return 12; }
  int width() const override { return 8; }
  int channels() const override { return 3; }
  std::int32_t label(std::int64_t index) const override { return index == 1 || index == 5 ? 0 : 1; }
  void get(std::int64_t index, const data::Wants&, data::Image& image) const override {
    if (label(index) == 0) throw Error(ErrorKind::data, "torn", "picture " + std::to_string(index));
    image.reshape(12, 8, 3);
  }

 private:
  std::vector<std::string> names_ = {"torn", "whole"};
};

// The last stage reads no images, but it has the labels of those that took the place of others.
TEST(PipelineData, LabelsOfReplacedImages) {
  config::Config c = with_layout(tiny("vit"), "pp2 dp2 acc2");
  c.data.source = "folder:nowhere";
  const Torn images;
  comm::run_local(4, [&](comm::Comm& world) {
    const run::Session session(c, {}, &world);
    data::LoaderOptions options;
    options.batch = 8;
    options.shuffle = false;
    options.workers = 0;
    options.wants = session.own_samples_of(run::Goal::train);
    options.class_weights = {3, 1};
    data::Loader loader(images, options);
    data::Batch batch;
    ASSERT_TRUE(run::next_batch(loader, session, c, batch));
    for (std::size_t i = 0; i < 8; ++i) {
      const std::size_t half = world.rank() % 2 == 0 ? 0 : 2;  // of each micro-batch, by dp
      if (i % 4 < half || i % 4 >= half + 2) continue;
      EXPECT_EQ(batch.labels[i], 1) << "rank " << world.rank() << " sample " << i;
      EXPECT_EQ(batch.weights[i], 1) << "rank " << world.rank() << " sample " << i;
    }
  });
}

// Inference: evaluate and predict on stages and on stages of several ranks.
TEST(PipelineInference, SameLogits) {
  for (const char* model : {"vit", "swin", "resnet"}) {
    std::vector<double> want;
    double loss = 0;
    for (const char* layout : {"", "pp2", "pp3 interleaved2", "pp2 dp2", "pp2 tp2"}) {
      SCOPED_TRACE(std::string(model) + " " + layout);
      Training t{with_layout(deep(model), layout), 1};
      run::EvalResult result;
      std::vector<double> predicted;
      const auto work = [&](comm::Comm* world) {
        run::Session session(t.config, {}, world);
        session.load([](const models::Param& p) {
          std::vector<double> values(static_cast<std::size_t>(ir::elements(p.shape)));
          for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = 0.5 + 0.1 * static_cast<double>((i * 7 + p.name.size()) % 13);
          return values;
        });
        const Samples samples = samples_of(t.config.model, 1, 11);
        const run::EvalResult r = session.evaluate(samples.images, samples.labels);
        const std::vector<double> p = session.predict(samples.images, 11);
        if (!world || world->rank() == world->size() - 1) {
          result = r;
          predicted = p;
        }
      };
      if (ranks_of(t.config) == 1)
        work(nullptr);
      else
        comm::run_local(ranks_of(t.config), [&](comm::Comm& world) { work(&world); });
      if (want.empty()) {
        want = result.logits;
        loss = result.loss_sum;
      }
      EXPECT_LE(difference(result.logits, want), 1e-9);
      EXPECT_LE(difference(predicted, want), 1e-9);
      EXPECT_LE(difference({result.loss_sum}, {loss}), 1e-9);
    }
  }
}

}  // namespace
}  // namespace tessera::test::pipeline_test
