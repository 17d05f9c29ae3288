// Plans at work: random programs give the same bits with a plan as without, and the executor
// allocates what the plan says, to the byte.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <optional>

#include "plan/planned.h"
#include "plan/random_program.h"
#include "transforms/evaluate.h"
#include "transforms/tiny_vit.h"

namespace tessera::plan::execute_test {
namespace {

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}

class RandomPrograms : public testing::TestWithParam<ir::DType> {};

TEST_P(RandomPrograms, PlannedEqualsUnplanned) {
  const char* raised = std::getenv("TESSERA_FUZZ_ITERATIONS");
  const int programs = raised ? std::atoi(raised) : 150;
  int in_place = 0, gathered = 0, donated = 0;
  for (int n = 0; n < programs; ++n) {
    const ir::Program p =
        test::RandomProgram(static_cast<std::uint64_t>(n), GetParam()).write(4 + n % 24);
    ir::verify(p);
    if (p.outputs.empty()) continue;
    SCOPED_TRACE("program " + std::to_string(n) + "\n" + ir::print(p));
    ASSERT_NO_THROW(lower(p, 0, test::no_workspace));
    const test::Values inputs = test::draw_inputs(p, 4, 4);
    const test::Values planned = test::evaluate(p, inputs, 1 + n % 2),
                       unplanned = test::interpret(p, inputs);
    for (const auto& [name, want] : unplanned)
      ASSERT_TRUE(same_bits(planned.at(name), want)) << name << "\n"
                                                     << print(test::Planned(p).plan);
    const Plan plan = test::Planned(p).plan;
    for (const Step& s : plan.steps)
      for (const Slot& y : s.out)
        for (const Slot& x : s.in) {
          const bool shares = x && y && x.base == y.base && x.offset == y.offset;
          in_place += shares && !ir::def(s.op).gathers;
          gathered += shares && ir::def(s.op).gathers;
          donated += shares && x.base > 0;
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
      const ir::Program p =
          test::vit_step(m, ir::DType::f32, {3, 2}, {.bf16 = bf16, .remat = every});
      const test::Values parameters = test::draw_inputs(test::vit_loss(m, ir::DType::f32, 5), 5, 5);
      const test::Values inputs = test::into_buckets(
          parameters, test::vit_buckets(m, ir::DType::f32), test::draw_inputs(p, 5, 5));
      const test::Values unplanned = test::interpret(p, inputs);
      for (const int threads : {1, 3})
        test::expect_same(test::evaluate(p, inputs, threads), unplanned, 0);
    }
}

TEST(Peak, EqualsWhatTheExecutorAllocates) {
  const models::ModelConfig m = test::tiny_model();
  for (const int threads : {1, 2, 3})
    for (const char* dtype : {"f32", "f64", "bf16"})
      for (const int every : {0, 1}) {
        const ir::DType real = std::string(dtype) == "f64" ? ir::DType::f64 : ir::DType::f32;
        test::StepOptions options;
        options.bf16 = std::string(dtype) == "bf16";
        options.remat = every;
        const auto executor = exec::make_executor("cpu", threads);
        const Plan p = lower(test::vit_step(m, real, {4, 3}, options), 0, executor->target());
        EXPECT_EQ(executor->allocated_bytes(), 0);
        const auto loaded = executor->load(p);
        EXPECT_EQ(executor->allocated_bytes(), p.peak_bytes())
            << dtype << ", " << threads << " threads";
        EXPECT_EQ(p.memory.total(), p.peak_bytes()) << dtype << ", " << threads << " threads";
        loaded->run();
        EXPECT_EQ(executor->allocated_bytes(), p.peak_bytes()) << "running allocates nothing";
      }
}

TEST(Peak, PlansShareWeightsAndTheLargerArena) {
  const models::ModelConfig m = test::tiny_model();
  const auto executor = exec::make_executor("cpu", 1);
  const Plan small = lower(test::vit_step(m, ir::DType::f32, {2}), 0, executor->target());
  const Plan large = lower(test::vit_step(m, ir::DType::f32, {9}), 0, executor->target());
  executor->load(small);
  executor->load(large);
  executor->load(small);
  EXPECT_EQ(executor->allocated_bytes(), large.peak_bytes());
}

// x + 1 for n numbers, summed.
constexpr auto counting = [](std::int64_t n) {
  const std::string shape = "f32[" + std::to_string(n) + "]";
  return ir::parse("program t mesh()\n  input x : " + shape + " batch \"x\"\n  one : " + shape +
                   " = constant value=1 shape=[" + std::to_string(n) + "]\n  y : " + shape +
                   " = add sig=\"a,a->a\" x one\n  s : f32[] = sum sig=\"a->\" y\n" +
                   "  output \"y\" = y\n  output \"s\" = s\n");
};

// A larger plan moves the arena: what was bound before must follow it.
TEST(Loaded, FollowsTheMemory) {
  const auto executor = exec::make_executor("cpu", 1);
  const Plan small = lower(counting(8), 0, executor->target()),
             large = lower(counting(1 << 20), 0, executor->target());
  const auto first = executor->load(small);
  const std::vector<float> eight(8, 2.0F);
  first->write("x", std::as_bytes(std::span(eight)));
  EXPECT_EQ(first->run().scalar("s"), 24);
  const auto second = executor->load(large);
  const std::vector<float> many(1 << 20, 3.0F);
  second->write("x", std::as_bytes(std::span(many)));
  EXPECT_EQ(second->run().scalar("s"), 4.0 * (1 << 20));
  first->write("x", std::as_bytes(std::span(eight)));
  EXPECT_EQ(first->run().scalar("s"), 24);
}

// Numbers of a run are copies. Its tensors are not: they are refused when another run may have
// written over them.
TEST(Loaded, ResultsComeWithTheTicket) {
  const auto executor = exec::make_executor("cpu", 1);
  const Plan plan = lower(counting(2), 0, executor->target());
  const auto first = executor->load(plan), second = executor->load(plan);
  const std::vector<float> ones(2, 1.0F), twos(2, 2.0F);
  std::vector<float> y(2);
  const auto read = [&](exec::Loaded& loaded) {
    loaded.read("y", std::as_writable_bytes(std::span(y)));
    return y;
  };
  first->write("x", std::as_bytes(std::span(ones)));
  exec::Ticket ticket = first->submit();
  EXPECT_THROW(read(*first), Error) << "nobody waited for it";
  second->write("x", std::as_bytes(std::span(twos)));
  EXPECT_EQ(second->run().scalar("s"), 6);
  EXPECT_EQ(read(*second), (std::vector<float>{3, 3}));
  EXPECT_EQ(ticket.wait().scalar("s"), 4) << "of the first run, though the second is over";
  EXPECT_THROW(read(*first), Error) << "the second may lie over it";
}

// With two copies the next run is fed, and even over, before the last one is read.
TEST(Loaded, TwoRunsMayBeUnderWay) {
  const auto executor = exec::make_executor("cpu", 1);
  Target target = executor->target();
  const std::int64_t one = lower(counting(64), 0, target).outside_bytes();
  target.copies = 2;
  const Plan plan = lower(counting(64), 0, target);
  EXPECT_EQ(one, 256 + 256 + 64) << "x, y and s, whole lines of each";
  EXPECT_EQ(plan.outside_bytes(), 2 * one);
  const auto loaded = executor->load(plan);
  EXPECT_EQ(executor->allocated_bytes(), plan.peak_bytes());
  EXPECT_EQ(plan.memory.total(), plan.peak_bytes());
  std::vector<float> y(64);
  std::optional<exec::Ticket> before;
  for (int i = 0; i < 5; ++i) {
    const std::vector<float> x(64, static_cast<float>(i));
    loaded->write("x", std::as_bytes(std::span(x)));
    exec::Ticket now = loaded->submit();
    if (before) {
      EXPECT_EQ(before->wait().scalar("s"), 64 * i);
      loaded->read("y", std::as_writable_bytes(std::span(y)));
      EXPECT_EQ(y[63], static_cast<float>(i));
    }
    before.emplace(std::move(now));
  }
}

TEST(Devices, AreKnownByName) {
  for (const int threads : {1, 3}) {
    const Target alone = exec::target_of("cpu", threads),
                 of_executor = exec::make_executor("cpu", threads)->target();
    const ir::Program program = test::vit_step(test::tiny_model(), ir::DType::f32, {4});
    EXPECT_EQ(lower(program, 0, alone).arena_bytes, lower(program, 0, of_executor).arena_bytes)
        << threads << " threads";
  }
  EXPECT_EQ(exec::device_info("cpu", 1).name, "cpu");
  EXPECT_GT(exec::device_info("cpu", 1).memory(), 0);
  try {
    exec::make_executor("abacus", 1);
    ADD_FAILURE() << "there is no such device";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind, ErrorKind::usage);
    EXPECT_NE(std::string(e.what()).find("abacus"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace tessera::plan::execute_test
