// The command explain says of a pipeline: every step of a plan belongs to the turn of the schedule,
// memory is what ranks allocate, and the numbers agree with each other.
#include "verbs/explain_pipeline.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "base/check.h"
#include "compile/pipeline.h"
#include "parallel/world.h"
#include "plan/traffic.h"

namespace tessera::test {
namespace {

using nlohmann::ordered_json;
using run::Goal;
using run::PipelineTurn;

config::Config deep(const std::string& layout) {
  config::Config c = tiny("vit", "f32");
  c.model.depth = 6;
  return with_layout(c, layout);
}

int micros_of(const config::Config& c, Goal goal) {
  return static_cast<int>(run::micro_batches_for(c, goal, c.batch.global).size());
}

// The plans of all ranks, as `explain` makes them.
std::vector<plan::Plan> plans_of(const config::Config& c, Goal goal = Goal::train) {
  const plan::Target target = exec::target_of("cpu", static_cast<int>(c.run.threads));
  const std::vector<std::int64_t> micro = run::micro_batches_for(c, goal, c.batch.global);
  const ir::Program program = run::compile(c, goal, micro, target).program;
  std::vector<plan::Plan> out;
  for (int rank = 0; rank < ranks_of(c); ++rank)
    out.push_back(plan::lower(program, rank, target, c.parallel.overlap));
  return out;
}

ordered_json view_of(const config::Config& c, Goal goal = Goal::train) {
  run::PipelineView view(run::resolve(c), goal, micros_of(c, goal));
  for (const plan::Plan& plan : plans_of(c, goal)) view.add(plan);
  EXPECT_NE(view.text().find("predicted"), std::string::npos);
  return view.json();
}

// A rank's plan does the turns of its schedule one after the other; a turn without equations (the
// backward turn of a first stage without its weights) is left out.
TEST(ExplainPipeline, StepsBelongToTurnsInTheOrderOfTheSchedule) {
  for (const char* layout :
       {"pp2 acc4 1f1b", "pp3 acc4 gpipe", "pp2 acc3 interleaved3", "pp3 acc4 zb",
        "pp2 acc3 zb recompute", "pp2 acc4 1f1b every2", "pp2 dp2 zero3 acc2 1f1b",
        "pp2 tp2 acc2 zb", "segments3 acc2 recompute"}) {
    const config::Config c = deep(layout);
    const transforms::Schedule schedule =
        run::schedule_of(c, Goal::train, micros_of(c, Goal::train));
    const int peers = ranks_of(c) / static_cast<int>(c.parallel.pp);
    for (const plan::Plan& plan : plans_of(c)) {
      SCOPED_TRACE(std::string(layout) + ", rank " + std::to_string(plan.rank));
      const std::vector<PipelineTurn> turns = run::turns_of(plan.program);
      std::vector<PipelineTurn> got, want;
      for (const plan::Step& step : plan.steps) {
        if (step.eqn < 0 || plan::crosses_ranks(step.op)) continue;
        const PipelineTurn& turn = turns[static_cast<std::size_t>(step.eqn)];
        if (turn.work != 'U' && (got.empty() || got.back() != turn)) got.push_back(turn);
      }
      const std::set<PipelineTurn> there(got.begin(), got.end());
      for (const transforms::Turn& turn :
           schedule.ranks[static_cast<std::size_t>(plan.rank / peers)]) {
        EXPECT_TRUE(
            there.contains(run::pipeline_turn(turn)) ||
            (turn.stage == 0 && turn.work == transforms::Work::backward && schedule.splits()))
            << transforms::name(turn);
        if (there.contains(run::pipeline_turn(turn))) want.push_back(run::pipeline_turn(turn));
      }
      EXPECT_TRUE(got == want);
    }
  }
}

// After steps have run, every rank has what explain said of its stage, to the byte.
TEST(ExplainPipeline, PeakIsWhatRanksAllocate) {
  for (const char* layout : {"pp2 acc4 1f1b", "pp2 dp2 zero3 acc2 1f1b", "pp2 acc2 interleaved2",
                             "pp3 acc4 zb", "pp2 acc4 1f1b recompute"}) {
    Training t{deep(layout)};
    t.steps = 2;
    t.pixels = true;
    const ordered_json view = view_of(t.config);
    const int peers = ranks_of(t.config) / static_cast<int>(t.config.parallel.pp);
    std::atomic<int> equal = 0;
    t.at_end = [&](run::Session& session, const Trace&) {
      const std::int64_t bytes = session.executor().allocated_bytes();
      equal += bytes == session.compiled(Goal::train, t.config.batch.global).plan.peak_bytes();
      for (const auto& stage : view["stages"])
        if (stage["rank"].get<int>() * peers == session.rank())
          equal += stage["peak_bytes"] == bytes;
    };
    train(t);
    EXPECT_EQ(equal, ranks_of(t.config) + static_cast<int>(view["stages"].size())) << layout;
  }
}

TEST(ExplainPipeline, NumbersAgree) {
  for (const char* layout : {"pp2 acc4 1f1b", "pp3 acc4 gpipe", "pp3 acc4 interleaved2",
                             "pp3 acc4 zb", "pp2 tp2 acc4 1f1b recompute", "segments2 acc4"}) {
    SCOPED_TRACE(layout);
    const config::Config c = deep(layout);
    const ordered_json view = view_of(c);
    const transforms::Schedule schedule = run::schedule_of(c, Goal::train, 4);
    EXPECT_EQ(view["schedule"], schedule.name);
    EXPECT_EQ(view["stages"].size(), static_cast<std::size_t>(schedule.stages));
    std::int64_t blocks = 0, params = 0, want = 0;
    double flops = 0, turns = 0;
    for (const auto& stage : view["stages"]) {
      blocks += stage["blocks"].get<std::int64_t>();
      params += stage["params"].get<std::int64_t>();
      flops += stage["flops"].get<double>();
      std::int64_t memory = 0;
      for (const auto& [kind, bytes] : stage["memory"].items()) memory += bytes.get<std::int64_t>();
      EXPECT_EQ(stage["peak_bytes"], memory);
      EXPECT_EQ(stage["in_flight"], transforms::in_flight(schedule, stage["rank"]));
      EXPECT_EQ(stage["sent_bytes"].get<std::int64_t>() > 0, c.parallel.pp > 1);
    }
    for (const models::Param& p : models::parameters(c.model))
      want += p.buffer ? 0 : ir::elements(p.shape);
    EXPECT_EQ(blocks, 6);
    EXPECT_EQ(params, want);
    std::set<std::string> all;
    for (const auto& turn : view["turns"]) {
      all.insert(turn["work"].get<std::string>() + turn["stage"].dump() + "." +
                 turn["micro"].dump());
      turns += (turn["end"].get<double>() - turn["start"].get<double>()) * 1e9;
    }
    EXPECT_EQ(all.size(),
              static_cast<std::size_t>(schedule.stages * 4 * (schedule.splits() ? 3 : 2)));
    EXPECT_NEAR(turns / flops, 1, 1e-9);
    EXPECT_GE(view["bubble_predicted"].get<double>(), c.parallel.pp > 1 ? 0.05 : -1e-9);
    EXPECT_NEAR(view["bubble_formula"].get<double>(), *run::bubble_formula(c, Goal::train, 4),
                1e-12);
  }
}

// Stages of one cost and backward passes of twice that: the prediction is the formula.
TEST(ExplainPipeline, PredictionMeetsTheFormulaWhereItHolds) {
  config::Config c = deep("pp2 acc8 1f1b");
  c.model.pool = "mean";  // else the last block goes on with the class token alone, and costs less
  const ordered_json view = view_of(c, Goal::predict);
  EXPECT_EQ(view["schedule"], "forward");
  EXPECT_EQ(view["micros"], 8);
  EXPECT_NEAR(view["bubble_predicted"].get<double>(), view["bubble_formula"].get<double>(), 0.05);
}

TEST(ExplainPipeline, OneForwardOneBackwardKeepsLess) {
  const ordered_json gpipe = view_of(deep("pp2 acc8 gpipe")),
                     alternating = view_of(deep("pp2 acc8 1f1b"));
  for (std::size_t stage = 0; stage < 2; ++stage) {
    EXPECT_LT(alternating["stages"][stage]["memory"]["activations"].get<std::int64_t>(),
              gpipe["stages"][stage]["memory"]["activations"].get<std::int64_t>());
    EXPECT_EQ(gpipe["stages"][stage]["in_flight"], 8);
    EXPECT_EQ(alternating["stages"][stage]["in_flight"], 2 - static_cast<int>(stage));
  }
}

}  // namespace
}  // namespace tessera::test
