// Plans at work: random programs give the same bits with a plan as without, and the executor allocates what the plan says, to the byte.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "plan/planned.h"
#include "plan/random_program.h"
#include "transforms/evaluate.h"
#include "transforms/tiny_vit.h"

namespace tessera::plan::execute_test {
namespace {

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}

class RandomPrograms : public testing::TestWithParam<ir::DType> {};

TEST_P(RandomPrograms, PlannedEqualsUnplanned) {
  const char* raised = std::getenv("TESSERA_FUZZ_ITERATIONS");
  const int programs = raised ? std::atoi(raised) : 150;
  int in_place = 0, gathered = 0, donated = 0;
  for (int n = 0; n < programs; ++n) {
    const ir::Program p = test::RandomProgram(static_cast<std::uint64_t>(n), GetParam()).write(4 + n % 24);
    ir::verify(p);
    if (p.outputs.empty()) continue;
    SCOPED_TRACE("program " + std::to_string(n) + "\n" + ir::print(p));
    ASSERT_NO_THROW(lower(p, 0, test::no_workspace));
    const test::Values inputs = test::draw_inputs(p, 4, 4);
    const test::Values planned = test::evaluate(p, inputs, 1 + n % 2), unplanned = test::interpret(p, inputs);
    for (const auto& [name, want] : unplanned)
      ASSERT_TRUE(same_bits(planned.at(name), want)) << name << "\n" << print(test::Planned(p).plan);
    const Plan plan = test::Planned(p).plan;
    for (const Step& s : plan.steps)
      for (const Slot& y : s.out)
        for (const Slot& x : s.in) {
          const bool shares = x && y && x.base == y.base && x.offset == y.offset;
          in_place += shares && !ir::def(s.op).gathers, gathered += shares && ir::def(s.op).gathers, donated += shares && x.base > 0;
        }
  }
  EXPECT_GT(in_place, programs);  // otherwise this test proves little
  EXPECT_GT(gathered, programs / 20);
  EXPECT_GT(donated, programs / 20);
}

INSTANTIATE_TEST_SUITE_P(Types, RandomPrograms, testing::Values(ir::DType::f64, ir::DType::f32),
                         [](const auto& info) { return std::string(ir::name(info.param)); });

TEST(Training, PlannedEqualsUnplanned) {
  const models::ModelConfig m = test::tiny_model_with_dropout();
  for (const bool bf16 : {false, true})
    for (const int every : {0, 2}) {
      const ir::Program p = test::vit_step(m, ir::DType::f32, {3, 2}, {.bf16 = bf16, .remat = every});
      const test::Values parameters = test::draw_inputs(test::vit_loss(m, ir::DType::f32, 5), 5, 5);
      const test::Values inputs = test::into_buckets(parameters, test::vit_buckets(m, ir::DType::f32), test::draw_inputs(p, 5, 5));
      const test::Values unplanned = test::interpret(p, inputs);
      for (const int threads : {1, 3}) test::expect_same(test::evaluate(p, inputs, threads), unplanned, 0);
    }
}

TEST(Peak, EqualsWhatTheExecutorAllocates) {
  const models::ModelConfig m = test::tiny_model();
  for (const int threads : {1, 2, 3})
    for (const char* dtype : {"f32", "f64", "bf16"})
      for (const int every : {0, 1}) {
        const ir::DType real = std::string(dtype) == "f64" ? ir::DType::f64 : ir::DType::f32;
        test::StepOptions options;
        options.bf16 = std::string(dtype) == "bf16", options.remat = every;
        const auto executor = exec::make_cpu_executor(threads);
        const Plan p = lower(test::vit_step(m, real, {4, 3}, options), 0, executor->workspace_rule());
        EXPECT_EQ(executor->allocated_bytes(), 0);
        executor->prepare(p);
        EXPECT_EQ(executor->allocated_bytes(), p.peak_bytes()) << dtype << ", " << threads << " threads";
        EXPECT_EQ(p.memory.total(), p.peak_bytes()) << dtype << ", " << threads << " threads";
        executor->run(p);
        EXPECT_EQ(executor->allocated_bytes(), p.peak_bytes()) << "running allocates nothing";
      }
}

TEST(Peak, PlansShareWeightsAndTheLargerArena) {
  const models::ModelConfig m = test::tiny_model();
  const auto executor = exec::make_cpu_executor(1);
  const Plan small = lower(test::vit_step(m, ir::DType::f32, {2}), 0, executor->workspace_rule());
  const Plan large = lower(test::vit_step(m, ir::DType::f32, {9}), 0, executor->workspace_rule());
  executor->prepare(small);
  executor->prepare(large);
  executor->prepare(small);
  EXPECT_EQ(executor->allocated_bytes(), large.peak_bytes());
}

}  // namespace
}  // namespace tessera::plan::execute_test
