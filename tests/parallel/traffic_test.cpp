// The communication of a step is known before it runs: what a plan predicts is what the groups
// count, byte for byte, on every rank.
#include "plan/traffic.h"

#include <gtest/gtest.h>

#include <mutex>

#include "parallel/world.h"

namespace tessera::test::traffic_test {
namespace {

// The table of a plan in the form in which groups count.
comm::Traffic predicted(const plan::Plan& plan) {
  comm::Traffic out;
  for (const plan::CommRow& row : plan::communication(plan))
    for (int i = 0; i < comm::verb_count; ++i)
      if (const auto verb = static_cast<comm::Verb>(i); comm::name(verb) == ir::name(row.op)) {
        out[verb].count += row.count;
        out[verb].bytes += row.bytes;
      }
  return out;
}

struct Case {
  std::string model, dtype, layout;
  std::int64_t batch = 8;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.model << " " << c.dtype << " " << c.layout << " of " << c.batch;
}

class Traffic : public testing::TestWithParam<Case> {};

TEST_P(Traffic, PredictedIsMeasured) {
  const Case& c = GetParam();
  Training t{with_layout(tiny(c.model, c.dtype), c.layout)};
  t.config.batch.global = c.batch;
  t.steps = 2;
  std::mutex mutex;
  int checked = 0;
  t.at_end = [&](run::Session& session, const Trace& mine) {
    const plan::Plan& plan = compiled_step(session, c.batch).plan;
    const comm::Traffic want = predicted(plan);
    const std::lock_guard lock(mutex);
    ++checked;
    for (int i = 0; i < comm::verb_count; ++i) {
      const auto verb = static_cast<comm::Verb>(i);
      EXPECT_EQ(mine.per_step[verb].count, want[verb].count)
          << "rank " << session.rank() << " " << comm::name(verb);
      EXPECT_EQ(mine.per_step[verb].bytes, want[verb].bytes)
          << "rank " << session.rank() << " " << comm::name(verb);
    }
    EXPECT_EQ(want.total().count > 0, ranks_of(t.config) > 1);
  };
  train(t);
  EXPECT_EQ(checked, ranks_of(t.config));
}

const Case cases[] = {
    {"vit", "f64", "dp1"},
    {"vit", "f64", "dp2"},
    {"vit", "f32", "dp3", 7},
    {"vit", "bf16", "dp2"},
    {"vit", "f32", "dp4 zero1"},
    {"vit", "bf16", "dp2 zero1", 5},
    {"vit", "f32", "dp3 zero2 acc2", 7},
    {"vit", "bf16", "dp2 zero3"},
    {"vit", "f32", "dp3 zero3 acc3", 8},
    {"vit", "bf16", "tp2"},
    {"vit", "f32", "tp4 megatron"},
    {"vit", "bf16", "tp2 megatron"},
    {"vit", "bf16", "sp3"},
    {"vit", "f64", "sp4"},
    {"vit", "f32", "dp2 sp2 tp2 zero3", 3},
    {"vit", "bf16", "dp2 tp2 megatron zero3 acc2 recompute"},
    {"vit", "f64", "dp8 zero2", 5},
    {"swin", "f32", "dp2"},
    {"swin", "bf16", "dp3 zero1", 7},
    {"swin", "f32", "dp2 tp2 zero3 acc2"},
    {"swin", "bf16", "tp2 megatron"},
    {"swin", "f64", "dp2 tp2 megatron zero2", 3},
    {"resnet", "f32", "dp2"},
    {"resnet", "f64", "dp3 zero2", 7},
    {"resnet", "bf16", "dp2 tp2 zero1"},
    {"resnet", "f32", "dp2 tp4 zero3 acc2"},
    {"vit", "f32", "dp2 compress=fp16"},
    {"vit", "f64", "dp3 compress=fp16", 7},
    {"vit", "f32", "dp3 zero1 compress=bf16", 7},
    {"vit", "f32", "dp2 compress=int8"},
    {"vit", "f64", "dp5 compress=int8", 7},
    {"vit", "bf16", "dp3 zero2 acc2 compress=int8", 7},
    {"vit", "f32", "dp2 tp2 zero1 compress=int8"},
    {"vit", "f32", "dp2 sp2 zero2 compress=int8"},
    {"vit", "f32", "dp3 compress=topk=0.05"},
    {"vit", "f64", "dp2 zero1 compress=topk=0.05"},
    {"vit", "f32", "dp3 compress=onebit"},
    {"vit", "f64", "dp2 tp2 megatron zero2 compress=onebit"},
    {"vit", "f32", "dp3 compress=powersgd=2"},
    {"vit", "f64", "dp2 tp2 zero1 compress=powersgd=1"},
    {"vit", "f32", "dp2 zero2 acc2 compress=powersgd=1"},
    {"swin", "f32", "dp2 compress=int8"},
    {"resnet", "f32", "dp3 zero1 compress=onebit"},
    {"resnet", "f64", "dp2 compress=powersgd=2"},
    {"vit", "f32", "pp2"},
    {"vit", "bf16", "pp2 acc4 gpipe"},
    {"vit", "f64", "pp2 acc3 zb", 7},
    {"vit", "f32", "pp2 dp2 zero3 acc2"},
    {"vit", "bf16", "pp2 tp2 megatron acc2 1f1b"},
    {"vit", "f32", "pp2 dp2 sp2 zero1 acc2 compress=int8"},
    {"swin", "f32", "pp2 acc4 interleaved2"},
    {"swin", "bf16", "pp5 acc2"},
    {"resnet", "f32", "pp2 dp2 zero2 acc2"},
};
INSTANTIATE_TEST_SUITE_P(Layouts, Traffic, testing::ValuesIn(cases));

// The rows say what a message is for.
TEST(TrafficRows, NameTheirPurpose) {
  Training t{with_layout(tiny("vit"), "dp2 tp2 zero3")};
  t.steps = 1;
  std::vector<std::string> rows;
  t.at_end = [&](run::Session& session, const Trace&) {
    if (session.rank() != 0) return;
    for (const plan::CommRow& row : plan::communication(compiled_step(session, 8).plan))
      rows.push_back(std::string(plan::name(row.phase)) + " " + std::string(ir::name(row.op)) +
                     " " + row.axis + " " + row.what);
  };
  train(t);
  const std::vector<std::string> want = {
      "forward all_gather dp weights",      "forward all_reduce tp activations",
      "backward all_gather dp weights",     "backward all_reduce tp activations",
      "update reduce_scatter dp gradients", "update all_reduce tp scalars",
      "update all_reduce dp scalars",
  };
  for (const std::string& row : want)
    EXPECT_NE(std::find(rows.begin(), rows.end(), row), rows.end()) << row;
}

}  // namespace
}  // namespace tessera::test::traffic_test
