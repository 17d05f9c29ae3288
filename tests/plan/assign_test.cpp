// Values share storage with others, or must not.
#include <gtest/gtest.h>

#include "plan/planned.h"

namespace tessera::plan::assign_test {
namespace {

using test::Planned;

const std::string head = "program t mesh()\n  input x : f32[4,16] batch \"x\"\n";
// The same x in the arena: what a run is fed with lies outside of it.
const std::string made =
    "program t mesh()\n  input fed : f32[4,16] batch \"x\"\n  x : f32[4,16] = scale factor=3 fed\n";

TEST(InPlace, AResultTakesADyingOperand) {
  const Planned p(
      made + "  a : f32[4,16] = scale factor=2 x\n  b : f32[4,16] = gelu a\n  output \"b\" = b\n");
  EXPECT_FALSE(p.same("fed", "x")) << "what a run is fed with stays as it is";
  EXPECT_TRUE(p.same("x", "a") && p.same("a", "b"));
  EXPECT_EQ(p.plan.arena_bytes, 256);
}

TEST(InPlace, NotWhenTheOperandIsReadLater) {
  const Planned p(head +
                  "  a : f32[4,16] = scale factor=2 x\n  b : f32[4,16] = gelu a\n  c : f32[4,16] = "
                  "add sig=\"ab,ab->ab\" b a\n  output \"c\" = c\n");
  EXPECT_FALSE(p.same("a", "b"));
  EXPECT_TRUE(p.same("b", "c")) << "add overwrites its first operand";
}

TEST(InPlace, NotWhenTheOperandIsAnOutput) {
  const Planned p(head +
                  "  a : f32[4,16] = gelu x\n  b : f32[4,16] = gelu a\n  output \"a\" = a\n  "
                  "output \"b\" = b\n");
  EXPECT_FALSE(p.same("a", "b"));
}

TEST(InPlace, NotWhenAViewIsReadLater) {
  const Planned p(made +
                  "  v : f32[64] = reshape shape=[64] x\n  a : f32[4,16] = gelu x\n  w : f32[64] = "
                  "gelu v\n  output \"a\" = a\n  output \"w\" = w\n");
  EXPECT_TRUE(p.same("x", "v"));
  EXPECT_FALSE(p.same("x", "a")) << "v still reads x's bytes";
  EXPECT_TRUE(p.same("v", "w"));
}

TEST(InPlace, NotWhenAnOperandStandsTwice) {
  const Planned p(made + "  y : f32[4,16] = mul sig=\"ab,ab->ab\" x x\n  output \"y\" = y\n");
  EXPECT_FALSE(p.same("x", "y"));
}

TEST(InPlace, NotWhenAnotherOperandSharesTheBytes) {
  // v is a view of x: element i of x would be gone when v's turn comes in another order.
  const Planned p(made +
                  "  v : f32[4,16] = mark label=\"m\" x\n  y : f32[4,16] = softmax_grad x v\n  "
                  "output \"y\" = y\n");
  EXPECT_FALSE(p.same("x", "y"));
}

TEST(InPlace, NotWhenSizesDiffer) {
  const Planned p(
      made +
      "  low : bf16[4,16] = cast to=bf16 x\n  y : bf16[4,16] = gelu low\n  output \"y\" = y\n");
  EXPECT_FALSE(p.same("x", "low"));
  EXPECT_TRUE(p.same("low", "y"));
}

TEST(InPlace, TwoResultsNeverTakeOneOperand) {
  const Planned p(
      "program t mesh()\n  input fed : f32[4,16] batch \"x\"\n"
      "  input y : f32[4,16] batch \"y\"\n  input g : f32[16] param \"g\"\n  x : f32[4,16] = scale "
      "factor=3 fed\n  s : f32[4,16], n : f32[4,16], _, _ = add_norm x y g g\n"
      "  output \"s\" = s\n  output \"n\" = n\n");
  EXPECT_TRUE(p.same("s", "x")) << "the sum takes the first operand";
  EXPECT_FALSE(p.same("n", "x") || p.same("n", "y"));
}

TEST(Views, ShareStorageAndAreNoSteps) {
  const Planned p(head +
                  "  input w : f32[64] param \"weights.a\"\n  m : f32[2,8] = view offset=16 "
                  "shape=[2,8] w\n  r : f32[64] = reshape shape=[64] x\n"
                  "  q : f32[16], _, k : f32[16], _ = unstack x\n  s : f32[1,16] = slice dim=0 "
                  "start=2 size=1 x\n  pin : f32[4,16] = mark "
                  "label=\"residual\" x\n"
                  "  output \"m\" = m\n  output \"r\" = r\n  output \"q\" = q\n  output \"k\" = "
                  "k\n  output \"s\" = s\n  output \"pin\" = pin\n");
  for (const Step& step : p.plan.steps)
    EXPECT_EQ(step.eqn, -1) << "only results are copied\n" << plan::print(p.plan);
  EXPECT_TRUE(p.inside("m", "w", 64));
  EXPECT_TRUE(p.same("r", "x") && p.same("q", "x") && p.same("pin", "x"));
  EXPECT_TRUE(p.inside("k", "x", 128));
  EXPECT_TRUE(p.same("s", "k"));
}

TEST(Views, ASliceOfAnInnerDimIsACopy) {
  const Planned p(
      head +
      "  s : f32[4,2] = slice dim=1 start=1 size=2 x\n  output \"s\" = s\n  output \"x\" = x\n");
  EXPECT_EQ(p.steps(ir::Op::slice), 1);
  EXPECT_FALSE(p.same("s", "x"));
}

const std::string update =
    "program t mesh()\n  input w : f32[32] param \"weights.a\"\n  input m : f32[32] state "
    "\"m.a\"\n  input g : f32[32] batch \"g\"\n"
    "  input lr : f32[] scalar \"lr\"\n";

TEST(Donation, UpdatesHappenInTheirOwnBuffers) {
  const Planned p(update +
                  "  w1 : f32[32], m1 : f32[32] = sgd momentum=0.9 w m g lr\n  output \"w\" = w1 "
                  "updates \"weights.a\"\n  output \"m\" = "
                  "m1 updates \"m.a\"\n");
  EXPECT_TRUE(p.same("w", "w1") && p.same("m", "m1"));
  EXPECT_EQ(p.plan.persistent_bytes(), 2 * 128);
  EXPECT_EQ(p.plan.steps.size(), 1u);
}

TEST(Donation, ThroughSelectToo) {
  const Planned p(
      update +
      "  ok : f32[] = finite lr\n  w1 : f32[32], m1 : f32[32] = sgd momentum=0.9 w m g lr\n  w2 : "
      "f32[32] = select ok w1 w\n"
      "  output \"w\" = w2 updates \"weights.a\"\n  output \"m\" = m1 updates \"m.a\"\n");
  EXPECT_TRUE(p.same("w2", "w"));
  EXPECT_FALSE(p.same("w1", "w")) << "select still needs the old value";
}

TEST(Donation, NotWhileTheOldValueIsStillRead) {
  const Planned p(update +
                  "  w1 : f32[32], m1 : f32[32] = sgd momentum=0.9 w m g lr\n  late : f32[32] = "
                  "scale factor=3 w\n"
                  "  output \"w\" = w1 updates \"weights.a\"\n  output \"m\" = m1 updates "
                  "\"m.a\"\n  output \"late\" = late\n");
  EXPECT_FALSE(p.same("w1", "w"));
  ASSERT_EQ(p.steps(ir::Op::mark), 2) << "so the plan copies at the end, behind the result";
  EXPECT_EQ(p.plan.steps.back().eqn, -1);
  EXPECT_EQ(p.plan.output("w")->slot.base, p.plan.input("weights.a")->slot.base);
}

TEST(Donation, WeightsAreNeverOverwrittenByOthers) {
  const Planned p(update +
                  "  a : f32[32] = scale factor=2 w\n  output \"a\" = a\n  output \"g\" = g\n");
  EXPECT_FALSE(p.same("a", "w")) << "w is persistent and a is not its update";
}

TEST(Donation, AnOutputOfTheOldValueLeavesBeforeTheNewOneIsCopied) {
  const Planned p(update +
                  "  w1 : f32[32], m1 : f32[32] = sgd momentum=0.9 w m g lr\n  output \"w\" = w1 "
                  "updates \"weights.a\"\n  output \"old\" = w\n");
  EXPECT_FALSE(p.same("w1", "w"));
  ASSERT_EQ(p.plan.steps.size(), 3u);
  EXPECT_EQ(p.plan.steps[1].out[0].base, Slot::result);
  EXPECT_EQ(p.plan.steps[2].out[0].base, p.plan.input("weights.a")->slot.base);
  Plan broken = p.plan;
  std::swap(broken.steps[1], broken.steps[2]);
  EXPECT_THROW(verify(broken), Error);
}

TEST(Gather, PackedOperandsAreProducedInTheBucket) {
  const Planned p(head +
                  "  a : f32[4] = sum sig=\"ab->a\" x\n  b : f32[16] = sum sig=\"ab->b\" x\n  flat "
                  ": f32[48] = pack offsets=[0,16] size=48 "
                  "a b\n  output \"flat\" = flat\n");
  EXPECT_TRUE(p.inside("a", "flat", 0));
  EXPECT_TRUE(p.inside("b", "flat", 64));
  EXPECT_EQ(p.steps(ir::Op::pack), 1) << "it still clears what lies between";
  EXPECT_EQ(p.plan.arena_bytes, 192);
}

TEST(Gather, ABucketOfSeveralPartsTakesCopies) {
  const Planned p(head +
                  "  a : f32[4,16] = gelu x\n  b : f32[2,32] = pack offsets=[0] size=32 parts=2 "
                  "dims=[1] a\n  output \"b\" = b\n");
  EXPECT_FALSE(p.inside("a", "b", 0)) << "its rows are scattered over the bucket's";
  EXPECT_EQ(p.steps(ir::Op::pack), 1);
}

TEST(Gather, AnOperandMayBeReadAfterwards) {
  const Planned p(head +
                  "  a : f32[16] = sum sig=\"ab->b\" x\n  flat : f32[16] = pack offsets=[0] "
                  "size=16 a\n  late : f32[16] = gelu a\n"
                  "  output \"flat\" = flat\n  output \"late\" = late\n");
  EXPECT_TRUE(p.same("a", "flat"));
  EXPECT_FALSE(p.same("late", "a"));
}

TEST(Gather, StackInPlaceIsNoStep) {
  const Planned p(head +
                  "  a : f32[4,16] = scale factor=2 x\n  b : f32[4,16] = scale factor=3 x\n  s : "
                  "f32[2,4,16] = stack a b\n  output \"s\" = s\n");
  EXPECT_TRUE(p.inside("a", "s", 0));
  EXPECT_TRUE(p.inside("b", "s", 256));
  EXPECT_EQ(p.steps(ir::Op::stack), 0);
}

TEST(Gather, WhatCannotBeMovedIsCopied) {
  // x is an input and stands twice; v is a view; o is an output of its own.
  for (const char* line : {"  s : f32[2,4,16] = stack x x\n",
                           "  v : f32[4,16] = mark label=\"m\" x\n  s : f32[1,4,16] = stack v\n"}) {
    const Planned p(head + line + "  output \"s\" = s\n");
    EXPECT_EQ(p.steps(ir::Op::stack), 1) << line;
  }
  const Planned p(head +
                  "  o : f32[4,16] = scale factor=2 x\n  s : f32[1,4,16] = stack o\n  output \"s\" "
                  "= s\n  output \"o\" = o\n");
  EXPECT_EQ(p.steps(ir::Op::stack), 1);
}

TEST(Gather, AccumulatorsLiveInTheBucket) {
  const Planned p(head +
                  "  input y : f32[4,16] batch \"y\"\n  a : f32[16] = sum sig=\"ab->b\" x\n  b : "
                  "f32[16] = sum sig=\"ab->b\" y\n"
                  "  total : f32[16] = add sig=\"a,a->a\" a b\n  flat : f32[32] = pack "
                  "offsets=[16] size=32 total\n  output \"flat\" = flat\n");
  EXPECT_TRUE(p.inside("total", "flat", 64));
  EXPECT_TRUE(p.same("a", "total")) << "the first part is produced where the total will be";
  EXPECT_FALSE(p.same("b", "total"));
}

}  // namespace
}  // namespace tessera::plan::assign_test
