// Jobs of CPU and GPU ranks: messages pass through the host, and the trace is that of one rank.
#include <fstream>
#include <nlohmann/json.hpp>

#include "compile/compile.h"
#include "compile/pipeline.h"
#include "cuda/card.h"
#include "files/scratch.h"
#include "ir/program.h"
#include "plan/plan.h"
#include "ranks/carrier.h"
#include "verbs/verbs.h"

namespace tessera::test::mixed_card_test {
namespace {

class OnCardMixed : public OnCard {
 protected:
  void TearDown() override { RecordProperty("cases", seen_); }

  void same_as_one_rank(const std::string& family, const std::string& dtype,
                        const std::string& layout, const std::string& devices, double tolerance) {
    SCOPED_TRACE(family + " " + dtype + " " + layout + " on " + devices);
    Training t;
    t.config = tiny(family, dtype);
    t.config.run.device = "cpu";
    t.steps = 20;
    const Trace want = on_one_rank(t);
    t.config = with_layout(t.config, layout);
    t.config.run.device = devices;
    t.config.parallel.comm = "local";
    const Trace got = train(t);
    EXPECT_LE(difference(got.loss, want.loss), tolerance);
    EXPECT_LE(difference(got.grad_norm, want.grad_norm), tolerance);
    ++seen_;
  }
  int seen_ = 0;
};

TEST_F(OnCardMixed, HaveTheTraceOfOneRank) {
  for (const char* devices : {"cpu,cuda", "cuda,cpu"}) {
    same_as_one_rank("vit", "f32", "dp2", devices, 1e-4);
    same_as_one_rank("vit", "f64", "dp2 zero1", devices, 1e-9);
    same_as_one_rank("vit", "f64", "pp2 acc4", devices, 1e-9);
    same_as_one_rank("swin", "f64", "tp2", devices, 1e-9);
  }
  same_as_one_rank("vit", "f64", "dp2 tp2 zero3", "cuda,cpu,cpu,cuda", 1e-9);
}

// The whole way, with shares by measured speed: the card gets more of the batch than the core.
TEST_F(OnCardMixed, ARunSharesTheBatchOutBySpeed) {
  const Scratch scratch;
  config::Config c = preset_on("cuda,cpu", "vit_tiny_cifar", "f32", 32);
  c.batch = {32, 16, 1};
  c.parallel.dp = 2;
  c.parallel.zero = 1;
  c.parallel.comm = "local";
  c.run.np = 2;
  c.parallel.shares.word = "measured";
  c.data.source = "synthetic:32x32x3,10";
  c.data.train_size = 32 * 30;
  c.data.test_size = 32;
  c.data.workers = 1;
  c.run.threads = 1;
  c.run.epochs = 1;
  c.run.out = (scratch / "run").string();
  c.run.name = "mix";
  comm::run_local(2, [&](comm::Comm& world) {
    run::TrainOptions options;
    options.quiet = true;
    EXPECT_EQ(run::train(c, options, &world), 0);
  });
  std::ifstream file(scratch / "run" / "summary.json");
  const nlohmann::json summary = nlohmann::json::parse(file);
  EXPECT_EQ(summary["ranks"][0]["device"], "cuda");
  EXPECT_EQ(summary["ranks"][1]["device"], "cpu");
  std::ifstream log(scratch / "run" / "log.txt");
  const std::string said((std::istreambuf_iterator<char>(log)), {});
  const std::size_t at = said.rfind("shares of the batch by measured speed: ");
  ASSERT_NE(at, said.npos) << said;
  int card = 0, core = 0;
  ASSERT_EQ(
      std::sscanf(said.c_str() + at, "shares of the batch by measured speed: %d %d", &card, &core),
      2);
  EXPECT_GT(card, core);
  ++seen_;
}

// Without a card every rank that needs one is named; with one nothing is in the way.
TEST(MixedDevices, AreCheckedOnEveryRank) {
  config::Config c = tiny("vit", "f32");
  c.parallel.dp = 4;
  c.run.device = "cpu,cuda,cpu,cuda";
  const bool card = exec::missing("cuda").empty();
  comm::run_local(4, [&](comm::Comm& world) {
    try {
      run::check_devices(c, &world);
      EXPECT_TRUE(card);
    } catch (const Error& e) {
      EXPECT_FALSE(card) << e.what();
      EXPECT_EQ(e.kind, ErrorKind::device);
      const std::string said = e.what();
      EXPECT_NE(said.find("rank 1"), said.npos) << said;
      EXPECT_NE(said.find("cuda on "), said.npos) << said;
      EXPECT_NE(said.find("rank 3: the same"), said.npos) << said;
      EXPECT_EQ(said.find("rank 2"), said.npos) << said;
    }
  });
  c.run.device = "cuda";  // of one device each rank says it itself
  comm::run_local(4, [&](comm::Comm& world) { EXPECT_NO_THROW(run::check_devices(c, &world)); });
}

TEST(MixedDevices, ACardThatLacksATypeSaysSo) {
  EXPECT_EQ(exec::lacks("cpu", "bf16"), "");
  if (exec::missing("cuda").empty()) {
    ::setenv("TESSERA_CUDA_ARCH", "75", 1);
    EXPECT_NE(exec::lacks("cuda", "bf16").find("bf16"), std::string::npos);
    EXPECT_EQ(exec::lacks("cuda", "f16"), "");
    ::unsetenv("TESSERA_CUDA_ARCH");
  } else {
    EXPECT_EQ(exec::lacks("cuda", "bf16"), exec::missing("cuda"));
  }
}

// Ranks must have this in common: the program, the order of steps, and what waits for which
// message.
TEST(MixedDevices, PlansDifferInWhereThingsLieAlone) {
  for (const char* layout : {"dp2", "dp2 zero3", "tp2", "pp2 acc4", "sp2"}) {
    const config::Config c = with_layout(tiny("vit", "f32"), layout);
    const std::vector<std::int64_t> micro =
        run::micro_batches_for(c, run::Goal::train, c.batch.global);
    for (const int rank : {0, 1}) {
      const auto plan_for = [&](const char* device) {
        return run::compile(c, run::Goal::train, micro, exec::target_of(device, 1), {},
                            run::Weights::live, rank)
            .plan;
      };
      const plan::Plan cpu = plan_for("cpu"), cuda = plan_for("cuda");
      EXPECT_EQ(ir::print(cpu.program), ir::print(cuda.program)) << layout;
      ASSERT_EQ(cpu.steps.size(), cuda.steps.size()) << layout;
      int messages = 0;
      for (std::size_t i = 0; i < cpu.steps.size(); ++i) {
        const plan::Step &a = cpu.steps[i], &b = cuda.steps[i];
        EXPECT_TRUE(a.op == b.op && a.eqn == b.eqn && a.stream == b.stream && a.waits == b.waits)
            << layout << ", step " << i;
        EXPECT_EQ(ir::print(a.attrs), ir::print(b.attrs));
        messages += plan::crosses_ranks(a.op);
      }
      EXPECT_GT(messages, 0) << layout;
    }
  }
}

TEST(MixedDevices, TalkThroughTheHost) {
  config::Config c = tiny("vit", "f32");
  c.run.device = "cuda,cpu";
  c.parallel.dp = 2;
  for (const char* comm : {"auto", "mpi", "local"}) {
    c.parallel.comm = comm;
    const run::Carriage taken = run::choose_carrier(c, std::vector<run::RankCard>(2));
    EXPECT_EQ(taken.by, exec::Carrier::host);
    EXPECT_NE(taken.text.find("not every rank has a card"), std::string::npos) << taken.text;
  }
}

}  // namespace
}  // namespace tessera::test::mixed_card_test
