// The plans of a pipeline promise about time and memory: what another stage waits for leaves
// first, what arrives is asked for a turn early, and ZeRO saves in a pipeline what it saves without
// one.
#include <gtest/gtest.h>

#include "compile/pipeline.h"
#include "parallel/world.h"

namespace tessera::test::pipeline_plan_test {
namespace {

config::Config config_of(const std::string& layout) {
  config::Config c = tiny("vit", "f32");
  c.model.depth = 6;
  c.parallel.persist = 0;
  return with_layout(c, layout);
}

run::Compiled compiled(const config::Config& c, run::Goal goal, int rank = 0) {
  return run::compile(c, goal, run::micro_batches_for(c, goal, c.batch.global), plan::Target{}, {},
                      run::Weights::live, rank);
}

TEST(PipelinePlan, WhatAnotherStageWaitsForLeavesFirst) {
  for (const char* layout :
       {"pp2 dp2 zero2 acc4 1f1b", "pp3 acc4 zb", "pp2 dp2 zero3 acc2 gpipe"}) {
    const ir::Program p = compiled(config_of(layout), run::Goal::train).program;
    int transfers = 0;
    for (std::size_t i = 1; i < p.eqns.size(); ++i) {
      if (p.eqns[i].op != ir::Op::transfer) continue;
      ++transfers;
      const auto& out = p.eqns[i - 1].out;
      EXPECT_TRUE(p.eqns[i - 1].op == ir::Op::transfer ||
                  std::find(out.begin(), out.end(), p.eqns[i].in[0]) != out.end())
          << layout << ": " << ir::print(p, p.eqns[i]) << "\ncomes after "
          << ir::print(p, p.eqns[i - 1]);
    }
    EXPECT_GT(transfers, 3) << layout;
  }
}

TEST(PipelinePlan, ReceivesAreUnderWayWhileTheTurnBeforeComputes) {
  for (const char* layout : {"pp3 acc4 1f1b", "pp3 dp2 zero2 acc4 1f1b"}) {
    const config::Config c = config_of(layout);
    const int rank = static_cast<int>(c.parallel.dp);  // of the stage in the middle
    const plan::Plan plan = compiled(c, run::Goal::train, rank).plan;
    int early = 0, receives = 0;
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
      if (plan.steps[i].op != ir::Op::recv) continue;
      ++receives;
      EXPECT_EQ(plan.steps[i].stream, 1);
      int computed = 0;
      for (std::size_t j = i + 1; j < plan.steps.size(); ++j) {
        const auto& waits = plan.steps[j].waits;
        if (std::find(waits.begin(), waits.end(), static_cast<int>(i)) != waits.end()) break;
        computed += plan.steps[j].op == ir::Op::contract;
      }
      early += computed > 3;
    }
    EXPECT_EQ(receives, 8) << layout;          // four micro-batches from either side
    EXPECT_GE(early, receives - 1) << layout;  // nothing can be computed before the first
  }
}

TEST(PipelinePlan, WholeGradientsAreGivenBackInWeightTurnsToo) {
  for (const int rank : {0, 2}) {
    const plan::Gradients
        zb = compiled(config_of("pp2 dp2 zero2 acc2 zb"), run::Goal::train, rank).plan.gradients,
        plain =
            compiled(config_of("pp2 dp2 zero2 acc2 1f1b"), run::Goal::train, rank).plan.gradients;
    EXPECT_LE(zb.kept, plain.kept) << rank;
    EXPECT_LE(zb.in_flight, plain.in_flight * 5 / 4)
        << rank;  // weight turns make gradients in another order
  }
}

TEST(PipelinePlan, InferenceGathersWeightsForEveryTurn) {
  const config::Config c = config_of("pp2 dp2 zero3");
  const ir::Program p = compiled(c, run::Goal::predict).program;
  const std::size_t micros = run::micro_batches_for(c, run::Goal::predict, c.batch.global).size();
  ASSERT_GT(micros, 1u);
  std::size_t gathers = 0, buckets = 0;
  for (const ir::Input& in : p.inputs) buckets += in.kind == ir::Input::param;
  for (const ir::Eqn& e : p.eqns)
    for (const ir::Input& in : p.inputs)
      gathers += e.op == ir::Op::all_gather && e.in[0] == in.var && in.kind == ir::Input::param;
  EXPECT_EQ(gathers, micros * buckets);
}

}  // namespace
}  // namespace tessera::test::pipeline_plan_test
