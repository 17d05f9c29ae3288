// Every technique and every hybrid against one rank: the same loss and gradient norm at every step,
// in f64 to 1e-9. With TESSERA_TEST_DTYPE=f32 to 1e-4, which is how a card is tried.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "parallel/world.h"

namespace tessera::test::equivalence_test {
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

Training training_of(const Case& c) {
  Training t{tiny(c.model, test_dtype())};
  config::Config& config = t.config;
  // Batch norm over a few samples makes the changes of rounding larger with every step.
  if (test_dtype() == "f32" && c.model == "resnet") t.steps = std::min(t.steps, 3);
  if (c.with.find("lamb") != c.with.npos) config.optim.name = "lamb";
  if (c.with.find("sgd") != c.with.npos) {
    config.optim.name = "sgd";
    config.optim.momentum = 0.9;
  }
  if (c.with.find("ema") != c.with.npos) config.ema.decay = 0.9;
  if (c.with.find("dropout") != c.with.npos) {
    config.model.dropout = 0.1;
    config.model.drop_path = 0.2;
  }
  if (c.with.find("drop_path") != c.with.npos) config.model.drop_path = 0.2;
  if (c.with.find("smoothing") != c.with.npos) config.loss.label_smoothing = 0.1;
  if (c.with.find("mean") != c.with.npos) config.model.pool = "mean";
  if (c.with.find("bottleneck") != c.with.npos) config.model.block = "bottleneck";
  if (c.with.find("imagenet") != c.with.npos) {
    config.model.stem = "imagenet";
    config.model.image_h = config.model.image_w = 33;
  }
  if (c.with.find("freeze") != c.with.npos) config.optim.freeze = "1";
  if (c.with.find("rates") != c.with.npos) config.optim.layer_decay = 0.7;
  if (c.with.find("odd") != c.with.npos) config.batch = {7, 7, 1};
  if (c.with.find("ragged") != c.with.npos) t.ragged = 3;
  if (c.with.find("mix") != c.with.npos) {
    t.soft = true;
    config.data.mixup = 0.2;
  }
  if (c.with.find("weighted") != c.with.npos) {
    t.weighted = true;
    config.data.class_weights = "balanced";
  }
  if (c.with.find("buckets") != c.with.npos) config.parallel.bucket_mb = 0.004;
  if (c.with.find("no_overlap") != c.with.npos) config.parallel.overlap = false;
  if (c.with.find("late_update") != c.with.npos) config.parallel.overlap_update = false;
  if (c.with.find("no_clip") != c.with.npos) config.optim.clip = 0;
  if (c.with.find("no_prefetch") != c.with.npos) config.parallel.prefetch = false;
  if (c.with.find("wide") != c.with.npos) config.batch = {16, 16, 1};
  config = with_layout(config, c.layout);
  if (c.with.find("as_bucket") != c.with.npos) {  // a batch as long as a bucket that is cut
    config.parallel.persist = 0;
    std::int64_t least = 1 << 20;
    for (const transforms::Bucket& b : run::model_buckets(config)) least = std::min(least, b.size);
    config.batch = {least, least, 1};
  }
  const double shares[] = {2, 1, 0.5, 3};
  if (c.with.find("shares") != c.with.npos)
    config.parallel.shares.list.assign(shares, shares + config.parallel.dp);
  return t;
}

class Equivalence : public testing::TestWithParam<Case> {};

TEST_P(Equivalence, SameTraceAsOneRank) {
  const Training t = training_of(GetParam());
  const Trace got = train(t);
  const Trace& want = on_one_rank(t);
  const bool exact = test_dtype() == "f64";
  EXPECT_LE(difference(got.loss, want.loss), exact ? 1e-9 : 1e-4);
  EXPECT_LE(difference(got.grad_norm, want.grad_norm), exact ? 1e-9 : 1e-4);
  EXPECT_GT(want.grad_norm[0], 1e-3);
  RecordProperty("cases", 1);
  if (!exact) return;  // where a gradient is all rounding, Adam makes it as long as any other
  EXPECT_EQ(got.correct, want.correct);
  EXPECT_LE(weight_difference(got, want), 1e-8);
}

const Case vit[] = {
    // every technique
    {"vit", "dp2"},
    {"vit", "dp3"},
    {"vit", "dp8"},
    {"vit", "dp2 zero1"},
    {"vit", "dp3 zero2"},
    {"vit", "dp2 zero3"},
    {"vit", "dp8 zero3"},
    {"vit", "tp2"},
    {"vit", "tp4"},
    {"vit", "tp2 megatron"},
    {"vit", "tp4 megatron"},
    {"vit", "sp2"},
    {"vit", "sp3"},
    {"vit", "sp4"},
    // products
    {"vit", "dp2 tp2"},
    {"vit", "dp2 tp2 megatron"},
    {"vit", "dp2 sp2"},
    {"vit", "sp2 tp2"},
    {"vit", "dp2 sp2 tp2"},
    {"vit", "dp4 tp2 zero1"},
    {"vit", "dp2 sp2 zero2"},
    {"vit", "dp2 tp2 zero3"},
    {"vit", "dp2 sp2 tp2 zero3"},
    {"vit", "dp2 tp4 megatron zero2"},
    {"vit", "sp4 zero3"},
    {"vit", "dp2 sp3 zero1"},
    {"vit", "dp2 sp4"},
    // with everything a step can have
    {"vit", "dp2 tp2 megatron zero3 acc2"},
    {"vit", "dp3 zero3 acc3"},
    {"vit", "dp2 zero2 acc2"},
    {"vit", "dp2 zero1 acc3", "odd ragged"},
    {"vit", "dp3 zero2 acc2", "odd ragged lamb"},
    {"vit", "dp2 tp2 zero1", "lamb ema smoothing"},
    {"vit", "dp2 sp2 zero3", "lamb dropout"},
    {"vit", "dp2 tp2", "dropout mean"},
    {"vit", "tp2 megatron", "dropout mean sgd"},
    {"vit", "sp2", "dropout mean"},
    {"vit", "dp2 zero2", "mix ema"},
    {"vit", "dp2 tp2 zero3", "weighted rates"},
    {"vit", "dp4 zero3", "freeze rates ema"},
    {"vit", "dp2 tp2 megatron zero1", "freeze ema"},
    {"vit", "dp2 tp2 zero2 recompute"},
    {"vit", "dp2 sp2 zero3 recompute acc2", "dropout"},
    {"vit", "dp8 zero2", "odd ragged"},
    // messages of many sizes, under way or not, and parts of many sizes
    {"vit", "dp2", "buckets"},
    {"vit", "dp3 zero1 acc2", "buckets lamb"},
    {"vit", "dp2 tp2", "buckets ema rates"},
    {"vit", "dp2", "no_overlap"},
    {"vit", "dp2 tp2 zero3", "no_overlap"},
    {"vit", "dp3 zero3", "no_prefetch"},
    {"vit", "dp2", "buckets no_clip"},
    {"vit", "dp2", "buckets no_clip late_update"},
    {"vit", "dp2 tp2 zero3 acc2", "no_clip lamb ema"},
    {"vit", "dp2 sp2 zero1", "no_clip buckets"},
    {"vit", "dp3 zero2 acc2", "no_clip odd ragged"},
    {"vit", "dp3", "shares"},
    {"vit", "dp4 zero3 acc2", "shares odd ragged dropout"},
    {"vit", "dp3 sp2 zero1", "shares buckets"},
    {"vit", "dp2 tp2 zero2 acc2", "shares mix"},
    {"vit", "dp2 zero3", "shares ragged as_bucket"},
    {"vit", "dp2 sp2 zero3", "shares ragged as_bucket"},
    // all of a gradient, in lists
    {"vit", "dp2 compress=topk=1"},
    {"vit", "dp3 zero1 compress=topk=1", "odd ragged"},
    {"vit", "dp4 zero2 acc2 compress=topk=1", "lamb ema"},
    {"vit", "dp2 tp2 megatron compress=topk=1", "sgd"},
    {"vit", "dp2 sp2 zero1 compress=topk=1"},
};
INSTANTIATE_TEST_SUITE_P(Vit, Equivalence, testing::ValuesIn(vit));
const Case swin[] = {
    {"swin", "dp2"},
    {"swin", "dp3 zero1"},
    {"swin", "dp2 zero2 acc2"},
    {"swin", "dp4 zero3"},
    {"swin", "tp2"},
    {"swin", "tp2 megatron"},
    {"swin", "dp2 tp2"},
    {"swin", "dp2 tp2 zero3"},
    {"swin", "dp2 tp2 megatron zero2 acc2", "drop_path lamb"},
    {"swin", "dp2 tp2 megatron", "ema odd ragged"},
    {"swin", "dp4 tp2 zero1", "mix"},
    {"swin", "dp2 tp2 zero3 recompute", "drop_path"},
    {"swin", "dp3 zero1", "shares buckets"},
    {"swin", "dp3 compress=topk=1"},
};
INSTANTIATE_TEST_SUITE_P(Swin, Equivalence, testing::ValuesIn(swin));
const Case resnet[] = {
    {"resnet", "dp2"},
    {"resnet", "dp4 zero1"},
    {"resnet", "dp3 zero2"},
    {"resnet", "dp2 zero3"},
    {"resnet", "tp2"},
    {"resnet", "tp4"},
    {"resnet", "dp2 tp2"},
    {"resnet", "dp2 tp2 zero3"},
    {"resnet", "dp2 tp4 zero2", "bottleneck sgd"},
    {"resnet", "dp2 zero2 acc2", "lamb ema"},
    {"resnet", "dp3 zero3", "imagenet odd ragged"},
    {"resnet", "dp2 tp2 zero1 recompute acc2", "mix"},
    {"resnet", "dp8 zero1", "wide"},
    {"resnet", "dp3 zero2", "shares"},
    {"resnet", "dp3 zero3", "shares ragged as_bucket"},
    {"resnet", "dp2", "buckets"},
    {"resnet", "dp2 tp2 zero2 compress=topk=1"},
};
INSTANTIATE_TEST_SUITE_P(Resnet, Equivalence, testing::ValuesIn(resnet));

}  // namespace
}  // namespace tessera::test::equivalence_test
