// Whole plans: known offsets and peaks, memory by kind, weights and state once, and the proof that
// catches a corrupted plan.
#include <gtest/gtest.h>

#include "plan/planned.h"
#include "transforms/tiny_vit.h"

namespace tessera::plan::lower_test {
namespace {

using test::Planned;

// x and w in, y = gelu(x w'), and a parameter that never moves.
constexpr const char* small = R"(program t mesh()
  input x : f32[4,16] batch "x"
  input w : f32[8,16] param "w"
  h : f32[4,8] = contract sig="bc,fc->bf" x w
  y : f32[4,8] = gelu h
  s : f32[] = sum sig="bf->" y
  output "y" = y
  output "s" = s
)";

TEST(Plan, HandComputed) {
  const Planned p(small);
  EXPECT_EQ(p.plan.steps.size(), 3u + 2u);  // two results are copied to where they are read
  EXPECT_EQ(p["x"].base, Slot::feed);
  EXPECT_EQ(p["h"].offset, 0);
  EXPECT_TRUE(p.same("h", "y"));  // gelu in place
  EXPECT_EQ(p["s"].offset, 128);  // y is still to be copied
  EXPECT_EQ(p.plan.arena_bytes, 128 + 64);
  EXPECT_EQ(p.plan.live_bytes, 128 + 64);
  EXPECT_EQ(p.plan.feed_bytes, 256);
  EXPECT_EQ(p.plan.result_bytes, 128 + 64);
  EXPECT_EQ(p.plan.persistent_bytes(), 512);
  EXPECT_EQ(p.plan.peak_bytes(), 512 + 192 + 256 + 192);
  EXPECT_EQ(p.plan.cost.flops, 2.0 * 4 * 16 * 8);
  EXPECT_EQ(p.plan.memory.weights, 512);
  EXPECT_EQ(p.plan.memory.activations, 192 + 256 + 192);
  EXPECT_EQ(p.plan.memory.total(), p.plan.peak_bytes());
}

TEST(Plan, WorkspaceIsThereWhileAStepRuns) {
  auto rule = [](ir::Op op, const ir::Attrs&, const std::vector<ir::Type>&,
                 const std::vector<ir::Type>&) {
    return std::int64_t{op == ir::Op::contract ? 1000 : 0};
  };
  const Plan p = lower(ir::parse(small), 0, {.workspace = rule});
  EXPECT_EQ(p.steps[0].workspace.type.bytes(), 1024);  // rounded up to 64
  EXPECT_FALSE(p.steps[1].workspace);
  EXPECT_EQ(p.arena_bytes, 128 + 1024);
  EXPECT_EQ(p.memory.workspace, 1024);
  EXPECT_EQ(p.memory.total(), p.peak_bytes());
}

TEST(Plan, TheTargetSaysHowBytesAreAligned) {
  const Plan p =
      lower(test::vit_step(test::tiny_model(), ir::DType::f32, {3}), 0, {.alignment = 512});
  for (const Buffer& buffer : p.persistent) EXPECT_EQ(buffer.bytes % 512, 0) << buffer.name;
  std::size_t values = 0;
  for (const Binding& in : p.inputs) EXPECT_EQ(in.slot.offset % 512, 0) << in.name;
  for (const plan::Step& step : p.steps)
    if (step.op == ir::Op::contract && step.out[0].base == 0)
      values += step.out[0].offset % 512 == 0;
  EXPECT_GT(values, 0u);
  EXPECT_GT(p.arena_bytes,
            lower(test::vit_step(test::tiny_model(), ir::DType::f32, {3}), 0, {}).arena_bytes);
}

// A sum over ranks and something that no rank hands over: with a shared half the two lie apart.
TEST(Plan, ATargetMayHaveNoSharedHalf) {
  const ir::Program p = ir::parse(
      "program t mesh(dp=2:data)\n  input x : f32[4,16]{dp:S0} batch \"x\"\n  y : f32[4,16]{dp:S0} "
      "= gelu x\n"
      "  s : f32[16]{dp:P} = sum sig=\"bc->c\" y\n  t : f32[16] = all_reduce axis=\"dp\" s\n  "
      "output \"t\" = t\n");
  ir::verify(p);
  EXPECT_EQ(lower(p, 0, {}).shared_bytes, 4096);
  EXPECT_EQ(lower(p, 0, {.shared_half = 65536}).shared_bytes, 65536);
  const Plan apart = lower(p, 0, {.shared_half = 0});
  EXPECT_EQ(apart.shared_bytes, 0);
  EXPECT_LT(apart.arena_bytes, 4096);
}

TEST(Plan, AMissingKernelIsOneErrorThatNamesIt) {
  const Target target{.device = "abacus", .supports = [](ir::Op op, ir::DType dtype) {
                        return op == ir::Op::contract || dtype != ir::DType::f32;
                      }};
  try {
    lower(ir::parse(small), 0, target);
    ADD_FAILURE() << "gelu and sum have no kernel";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind, ErrorKind::usage);
    const std::string text = e.what();
    for (const char* words :
         {"the device abacus has no kernel for the op gelu with elements of f32",
          "the op sum with elements of f32", "y : f32[4,8] = gelu h"})
      EXPECT_NE(text.find(words), std::string::npos) << words << " in\n" << text;
    EXPECT_EQ(e.also.size(), 1u) << text;
    EXPECT_EQ(text.find("contract with elements"), std::string::npos) << text;
  }
}

TEST(Plan, LocalShapes) {
  const ir::Program p = ir::parse(
      "program t mesh(dp=2:data)\n  input x : f32[5,16]{dp:S0} batch \"x\"\n  y : f32[5,16]{dp:S0} "
      "= gelu x\n  output \"y\" = y\n");
  EXPECT_EQ(lower(p, 0, test::no_workspace).inputs[0].slot.type.shape, (ir::Shape{3, 16}));
  EXPECT_EQ(lower(p, 1, test::no_workspace).inputs[0].slot.type.shape, (ir::Shape{2, 16}));
}

// Six samples in four groups (2, 2, 1, 1) on two ranks of three samples: the second group would lie
// on both.
TEST(Plan, StatisticsGroupsAreCutWhereTheBatchIs) {
  const ir::Program p = ir::parse(
      "program t mesh(dp=2:data)\n  input x : f32[6,2,2,3]{dp:S0} batch \"x\"\n  input c : f32[3] "
      "state \"c\"\n"
      "  s : f32[4,3]{dp:S0}, q : f32[4,3]{dp:S0} = moments groups=4 x c\n  output \"s\" = s\n");
  ir::verify(p);
  try {
    localise(p, 0);
    ADD_FAILURE() << "would give other statistics";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("statistics groups are not cut where the batch is"),
              std::string::npos)
        << e.what();
  }
}

TEST(Plan, PrintsEveryStep) {
  const std::string text = print(Planned(small).plan);
  for (const char* words : {"contract", "arena+0 <- feed+0 w+0", "result+0 <- arena+0"})
    EXPECT_NE(text.find(words), std::string::npos) << words << " in\n" << text;
}

class Step : public testing::TestWithParam<const char*> {};

// Parameters in a bucket, rounded up to 16 elements each.
std::int64_t bucket_bytes(const models::ModelConfig& m, ir::DType real) {
  std::int64_t bytes = 0;
  for (const transforms::Bucket& b : test::vit_buckets(m, real))
    bytes += Target{}.aligned(b.size * ir::size_of(real));
  return bytes;
}

TEST_P(Step, WeightsAndStateExistOnce) {
  const bool adamw = std::string(GetParam()) == "adamw";
  test::StepOptions o;
  o.optimizer.name = GetParam();
  const models::ModelConfig m = test::tiny_model();
  const Planned p(test::vit_step(m, ir::DType::f32, {3}, o));
  EXPECT_EQ(p.plan.persistent_bytes(), bucket_bytes(m, ir::DType::f32) * (adamw ? 3 : 2));
  EXPECT_EQ(p.plan.memory.weights, bucket_bytes(m, ir::DType::f32));
  EXPECT_EQ(p.plan.memory.optimizer, bucket_bytes(m, ir::DType::f32) * (adamw ? 2 : 1));
  EXPECT_EQ(p.plan.memory.total(), p.plan.peak_bytes());
  for (const plan::Step& s : p.plan.steps)
    EXPECT_TRUE(s.eqn >= 0 || s.out[0].base == Slot::result) << "no update is copied";
  for (const ir::Output& out : p.plan.program.outputs)
    if (!out.updates.empty()) {
      EXPECT_EQ(p.plan.output(out.name)->slot.base, p.plan.input(out.updates)->slot.base);
    }
}

TEST_P(Step, GradientsAreProducedInTheirBucket) {
  test::StepOptions o;
  o.optimizer.name = GetParam();
  for (const std::vector<std::int64_t>& micro :
       {std::vector<std::int64_t>{3}, std::vector<std::int64_t>{2, 1}}) {
    const Planned p(test::vit_step(test::tiny_model(), ir::DType::f32, micro, o));
    int packs = 0;
    for (const plan::Step& s : p.plan.steps) {
      if (s.op != ir::Op::pack) continue;
      ++packs;
      const ir::Pack& pack = std::get<ir::Pack>(s.attrs);
      for (std::size_t k = 0; k < s.in.size(); ++k)
        EXPECT_TRUE(s.in[k].base == s.out[0].base &&
                    s.in[k].offset == s.out[0].offset + 4 * pack.offsets[k])
            << p.plan.program.name_of(p.plan.program.eqns[static_cast<std::size_t>(s.eqn)].in[k])
            << " is copied into its bucket";
    }
    EXPECT_EQ(packs, 2);
    EXPECT_EQ(p.steps(ir::Op::stack), 0) << "dq, dk, dv are produced inside d.qkv";
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, Step, testing::Values("adamw", "sgd"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Memory, RecomputationSavesActivations) {
  models::ModelConfig m = test::tiny_model();
  m.depth = 8;
  std::int64_t peak[3];
  for (const int every : {0, 1, 3})
    peak[every == 3 ? 2 : every] =
        Planned(test::vit_step(m, ir::DType::f32, {16}, {.remat = every})).plan.memory.activations;
  EXPECT_LT(peak[1], peak[0] / 2);
  EXPECT_LT(peak[2], peak[0]);
}

TEST(Memory, MicroBatchesShareOneSetOfActivations) {
  const models::ModelConfig m = test::tiny_model();
  const Plan whole = Planned(test::vit_step(m, ir::DType::f32, {16})).plan,
             parts = Planned(test::vit_step(m, ir::DType::f32, {4, 4, 4, 4})).plan;
  EXPECT_LT(parts.memory.activations, whole.memory.activations / 2);
  EXPECT_EQ(parts.persistent_bytes(), whole.persistent_bytes());
}

TEST(Memory, RecomputationIsNotCountedAsModelFlops) {
  const models::ModelConfig m = test::tiny_model();
  const Plan plain = Planned(test::vit_step(m, ir::DType::f32, {4})).plan,
             again = Planned(test::vit_step(m, ir::DType::f32, {4}, {.remat = 1})).plan;
  EXPECT_EQ(plain.cost.flops, again.cost.flops);
  EXPECT_GT(again.steps.size(), plain.steps.size());
}

// The proof: move one slot of a sound plan onto another and verify() must object.
TEST(Verify, CatchesAnOverwrittenOperand) {
  Plan p = lower(ir::parse(small), 0, test::no_workspace);
  EXPECT_NO_THROW(verify(p));
  Plan broken = p;
  broken.steps[1].out[0].offset = 4096;  // y is not where sum looks for it
  try {
    verify(broken);
    FAIL() << "not noticed";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("in `s : f32[] = sum sig=\"bf->\" y`"), std::string::npos)
        << e.what();
  }
}

TEST(Verify, CatchesAResultOverAnOperandThatTheOpStillReads) {
  Plan p = lower(ir::parse(small), 0, test::no_workspace);
  p.steps[0].out[0].base = p.steps[1].in[0].base = Slot::feed;  // a product over its own factor
  try {
    verify(p);
    FAIL() << "not noticed";
  } catch (const Error& e) {
    EXPECT_NE(
        std::string(e.what()).find("result 0 lies over operand 0, which the op does not allow"),
        std::string::npos)
        << e.what();
  }
}

TEST(Verify, CatchesWhatWasNeverWritten) {
  Plan p = lower(ir::parse(small), 0, test::no_workspace);
  p.steps[0].in[1].offset = 64;  // reads past w
  EXPECT_THROW(verify(p), Error);
}

TEST(Verify, CatchesAWorkspaceOverAnOperand) {
  auto rule = [](ir::Op op, const ir::Attrs&, const std::vector<ir::Type>&,
                 const std::vector<ir::Type>&) {
    return std::int64_t{op == ir::Op::gelu ? 64 : 0};
  };
  Plan p = lower(ir::parse("program t mesh()\n  input x : f32[16] batch \"x\"\n  y : f32[16] = "
                           "gelu x\n  z : f32[16] = add sig=\"a,a->a\" "
                           "y x\n  output \"z\" = z\n"),
                 0, {.workspace = rule});
  p.steps[0].workspace.base = p.inputs[0].slot.base;
  p.steps[0].workspace.offset = p.inputs[0].slot.offset;
  EXPECT_THROW(verify(p), Error);
}

TEST(Verify, CatchesAnOverwrittenOutput) {
  Plan p = lower(ir::parse(small), 0, test::no_workspace);
  ASSERT_EQ(p.steps[3].eqn, -1);
  p.steps[2].out[0].offset = p.steps[4].in[0].offset =
      p.steps[3].in[0].offset;  // s over y, which is still to be copied
  EXPECT_THROW(verify(p), Error);
}

// Every operand and every result of a training plan, moved by 64 bytes.
TEST(Verify, CatchesMovedSlotsOfATrainingStep) {
  const Plan sound = Planned(test::vit_step(test::tiny_model(), ir::DType::f32, {2})).plan;
  Plan p = sound;
  auto expect_caught = [&](Slot& slot, const std::string& what) {
    if (!slot) return;
    slot.offset += 64;
    EXPECT_THROW(verify(p), Error) << what;
    slot.offset -= 64;
  };
  for (std::size_t s = 0; s < p.steps.size(); ++s) {
    const int origin = p.steps[s].eqn;
    const std::string eqn =
        origin < 0 ? "a copy"
                   : ir::print(p.program, p.program.eqns[static_cast<std::size_t>(origin)]);
    for (Slot& slot : p.steps[s].in) expect_caught(slot, "operand of " + eqn);
    for (Slot& slot : p.steps[s].out) expect_caught(slot, "result of " + eqn);
  }
  EXPECT_NO_THROW(verify(p));
}

}  // namespace
}  // namespace tessera::plan::lower_test
