// Layouts whose messages NCCL carries, as processes that share one card by the test library:
// started by mpirun with as many ranks as the largest has. Each is a training whose trace must be
// that of one rank, in f64 to 1e-9.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "base/check.h"
#include "exec/device.h"
#include "parallel/world.h"
#include "ranks/carrier.h"

namespace tessera::test::layouts_test {
namespace {

std::unique_ptr<comm::Comm> world;

struct Case {
  std::string model, layout, with = "";
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.model << " " << c.layout << " " << c.with;
}

Training training_of(const Case& c) {
  const auto has = [&](const char* word) { return c.with.find(word) != c.with.npos; };
  Training t{tiny(c.model)};
  config::Config& config = t.config;
  config.run.device = "cuda";
  const bool stages = c.layout.find("pp") != c.layout.npos;
  if (stages && c.model == "vit") config.model.depth = 6;
  if (has("odd")) config.batch = {7, 7, 1};
  if (has("ragged")) t.ragged = 3;
  if (has("dropout")) {
    config.model.dropout = 0.1;
    config.model.drop_path = 0.2;
  }
  if (has("buckets")) config.parallel.bucket_mb = 0.004;
  if (has("no_overlap")) config.parallel.overlap = false;
  if (has("lamb")) config.optim.name = "lamb";
  if (has("shares")) config.parallel.shares.list = {2, 1, 0.5};
  config = with_layout(config, c.layout);
  config.parallel.comm = "nccl";
  return t;
}

class Layouts : public testing::TestWithParam<Case> {};

TEST_P(Layouts, SameTraceAsOneRank) {
  const Training t = training_of(GetParam());
  const int ranks = ranks_of(t.config);
  ASSERT_LE(ranks, world->size());
  try {
    const bool here = world->rank() < ranks;
    const std::unique_ptr<comm::Comm> some = world->split(here ? 0 : 1, world->rank());
    if (here) {
      EXPECT_EQ(run::agree_on_carrier(t.config, some.get()).by, exec::Carrier::nccl);
      const Trace got = train_as(t, some.get());
      if (world->rank() == 0) {
        const Trace& want = on_one_rank(t);
        EXPECT_LE(difference(got.loss, want.loss), 1e-9);
        EXPECT_LE(difference(got.grad_norm, want.grad_norm), 1e-9);
        EXPECT_EQ(got.correct, want.correct);
        EXPECT_LE(weight_difference(got, want), 1e-8);
        EXPECT_GT(want.grad_norm[0], 1e-3);
        EXPECT_GT(got.per_step.total().count, 0);
        RecordProperty("cases", 1);
      }
    }
    world->barrier();
  } catch (const std::exception& error) {  // the others would wait for this one
    world->abort(error.what());
  }
}

const Case cases[] = {
    {"vit", "dp2"},
    {"vit", "dp3", "odd ragged"},
    {"vit", "dp8", "buckets"},
    {"vit", "dp2", "no_overlap"},
    {"vit", "dp2 zero1", "lamb"},
    {"vit", "dp3 zero2 acc2", "odd ragged"},
    {"vit", "dp3 zero2", "shares"},
    {"vit", "dp2 zero3", "dropout"},
    {"vit", "dp8 zero3"},
    {"vit", "tp2"},
    {"vit", "tp4 megatron"},
    {"vit", "sp2"},
    {"vit", "sp3"},
    {"vit", "sp4"},
    {"vit", "dp2 tp2 zero3 recompute"},
    {"vit", "dp2 sp2 tp2 zero3", "dropout"},
    {"vit", "pp2 acc4 gpipe"},
    {"vit", "pp4 acc8 1f1b"},
    {"vit", "pp2 acc4 interleaved2"},
    {"vit", "pp4 acc2 zb"},
    {"vit", "pp2 dp2 tp2 acc2 1f1b zero1"},
    {"swin", "dp2 tp2 megatron zero2 acc2"},
    {"resnet", "dp2 tp4 zero2"},
    {"resnet", "dp3 zero3", "odd ragged"},
};
INSTANTIATE_TEST_SUITE_P(Nccl, Layouts, testing::ValuesIn(cases));

}  // namespace
}  // namespace tessera::test::layouts_test

int main(int argc, char** argv) {
  using namespace tessera;
  testing::InitGoogleTest(&argc, argv);
  try {
    if (const std::string why = exec::missing("cuda"); !why.empty()) {
      std::printf("no card here: %s\n", why.c_str());
      return 0;
    }
    std::unique_ptr<comm::Comm>& world = test::layouts_test::world;
    world = comm::make_mpi();
    if (world->rank() != 0) GTEST_FLAG_SET(output, "");
    std::int32_t failed = RUN_ALL_TESTS();
    world->all_reduce(std::as_writable_bytes(std::span(&failed, 1)), ir::DType::i32,
                      comm::Reduction::max);
    world.reset();
    return failed;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
}
