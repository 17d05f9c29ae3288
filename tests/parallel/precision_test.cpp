// Layouts in the precisions that train: f32 to 1e-5, bf16 to 2e-2 of one rank; and 32 ranks in f64.
// Convention: a ResNet this small is chaotic, so in f32 only its first two steps can be compared.
#include <gtest/gtest.h>

#include "parallel/world.h"

namespace tessera::test::precision_test {
namespace {

struct Case {
  std::string model, dtype, layout;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.model << " " << c.dtype << " " << c.layout;
}

class Precision : public testing::TestWithParam<Case> {};

TEST_P(Precision, FollowsOneRank) {
  const Case& c = GetParam();
  Training t{with_layout(tiny(c.model, c.dtype), c.layout)};
  if (c.model == "resnet") t.steps = 2;
  const Trace got = train(t);
  const Trace& want = on_one_rank(t);
  const double limit = c.dtype == "bf16" ? 2e-2 : 1e-5;
  EXPECT_LE(difference(got.loss, want.loss), limit);
  if (c.dtype == "f32") {
    EXPECT_LE(difference(got.grad_norm, want.grad_norm), limit);
  }
}

const Case cases[] = {
    {"vit", "f32", "dp2"},
    {"vit", "f32", "dp3 zero1"},
    {"vit", "f32", "dp4 zero3 acc2"},
    {"vit", "f32", "tp2 megatron"},
    {"vit", "f32", "sp3"},
    {"vit", "f32", "dp2 sp2 tp2 zero2"},
    {"swin", "f32", "dp2 zero3"},
    {"swin", "f32", "tp2"},
    {"swin", "f32", "dp2 tp2 megatron zero1"},
    {"resnet", "f32", "dp2"},
    {"resnet", "f32", "dp3 zero3"},
    {"resnet", "f32", "dp2 tp2 zero2"},
    {"vit", "bf16", "dp2"},
    {"vit", "bf16", "dp3 zero1"},
    {"vit", "bf16", "dp2 zero2 acc2"},
    {"vit", "bf16", "dp4 zero3"},
    {"vit", "bf16", "tp2"},
    {"vit", "bf16", "tp4 megatron"},
    {"vit", "bf16", "sp2"},
    {"vit", "bf16", "dp2 sp2 tp2 zero3"},
    {"swin", "bf16", "dp2"},
    {"swin", "bf16", "dp2 zero3 acc2"},
    {"swin", "bf16", "tp2"},
    {"swin", "bf16", "dp2 tp2 megatron zero2"},
};
INSTANTIATE_TEST_SUITE_P(Layouts, Precision, testing::ValuesIn(cases));

class ManyRanks : public testing::TestWithParam<Case> {};

TEST_P(ManyRanks, SameTraceAsOneRank) {
  Training t{with_layout(tiny("vit"), GetParam().layout)};
  t.config.batch = {40, 40, 1};  // uneven over 16 and 32
  ASSERT_EQ(ranks_of(t.config), 32);
  const Trace got = train(t);
  const Trace& want = on_one_rank(t);
  EXPECT_LE(difference(got.loss, want.loss), 1e-9);
  EXPECT_LE(difference(got.grad_norm, want.grad_norm), 1e-9);
  EXPECT_EQ(got.correct, want.correct);
  EXPECT_LE(weight_difference(got, want), 1e-8);
}

INSTANTIATE_TEST_SUITE_P(ThirtyTwo, ManyRanks,
                         testing::Values(Case{"vit", "f64", "dp8 sp2 tp2"},
                                         Case{"vit", "f64", "dp32 zero3"},
                                         Case{"vit", "f64", "dp16 tp2"}));

}  // namespace
}  // namespace tessera::test::precision_test
