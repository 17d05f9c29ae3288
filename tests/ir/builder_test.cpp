// The builder: names come from scopes, and a pass can go on where a program ends.
#include <gtest/gtest.h>

#include "ir/builder.h"
#include "ir/texts.h"

namespace tessera::ir::builder_test {
namespace {

using test::message_of;

TEST(Builder, NamesComeFromScopes) {
  Builder b;
  const Var x = b.input(Input::batch, "x", {DType::f32, {2, 3}, {}});
  Var h = none, y = none;
  {
    const auto outer = b.scope("blocks.0");
    {
      const auto inner = b.scope("mlp");
      h = b.scale(x, 2, "h");
    }
    y = b.add(h, x);
  }
  EXPECT_EQ(b.name_of(h), "blocks.0.mlp.h");
  EXPECT_EQ(b.name_of(y), "blocks.0.add") << "without a hint the op names the result";
  EXPECT_EQ(b.current_scope(), "");
  EXPECT_EQ(b.program().eqns[0].scope, "blocks.0.mlp");
  EXPECT_EQ(b.program().eqns[1].scope, "blocks.0");
}

TEST(Builder, ATakenNameGetsItsOwnCount) {
  Builder b;
  const Var x = b.input(Input::batch, "x", {DType::f32, {2}, {}});
  EXPECT_EQ(b.name_of(b.scale(x, 2, "h")), "h");
  EXPECT_EQ(b.name_of(b.scale(x, 3, "h")), "h~2");
  EXPECT_EQ(b.name_of(b.scale(x, 4, "other")), "other")
      << "a name never shifts another name's count";
  EXPECT_EQ(b.name_of(b.scale(x, 5, "h")), "h~3");
  Builder more(b.take());
  EXPECT_EQ(more.name_of(more.scale(0, 6, "h")), "h~4")
      << "going on with a program knows its names";
}

TEST(Builder, RenameFreesTheOldName) {
  Builder b;
  const Var x = b.input(Input::batch, "x", {DType::f32, {2}, {}});
  const Var h = b.scale(x, 2, "h");
  b.rename(h, "g");
  EXPECT_EQ(b.name_of(h), "g");
  EXPECT_EQ(b.name_of(b.scale(x, 3, "h")), "h");
  b.rename(h, "h");
  EXPECT_EQ(b.name_of(h), "h~2");
}

TEST(Builder, AbsentResultsAndPhases) {
  Builder b;
  const Var x = b.input(Input::batch, "x", {DType::f32, {2, 3}, {}}),
            g = b.input(Input::param, "g", {DType::f32, {3}, {}});
  b.set_phase(Phase::backward);
  const std::vector<Var> out = b.emit(Op::layer_norm, Norm{}, {x, g, g}, {"y", "_", "rstd"});
  EXPECT_EQ(out[1], none);
  EXPECT_EQ(b.program().eqns[0].phase, Phase::backward);
  verify(b.program());
}

TEST(Builder, AnErrorNamesTheScopeAndTheOp) {
  Builder b;
  const Var x = b.input(Input::batch, "x", {DType::f32, {2, 3}, {}}),
            w = b.input(Input::param, "w", {DType::f32, {4, 5}, {}});
  const auto scope = b.scope("head");
  const std::string said = message_of([&] {
    b.emit_named(Op::contract, Contract{"bc,kc->bk", {}, {}}, {x, w}, {"y"});
  });
  EXPECT_SAYS(said, "[head] contract");
  EXPECT_SAYS(said, "operand 1 of \"bc,kc->bk\" is [4,5] but c is 3");
}

TEST(Builder, WrongAttributesAreRefused) {
  Builder b;
  const Var x = b.input(Input::batch, "x", {DType::f32, {2}, {}});
  EXPECT_SAYS(message_of([&] { b.emit_named(Op::scale, Gelu{}, {x}, {"y"}); }),
              "scale was given the attributes of another op");
}

TEST(Rewriter, CopiesAProgramAsItIs) {
  const Program p = parse(test::every_op());
  Rewriter r(p);
  for (const Eqn& e : p.eqns) r.copy(e);
  EXPECT_EQ(print(r.finish()), print(p));
}

// Types are copied where operands are as they were, and inferred where one became another.
TEST(Rewriter, AnOperandOfAnotherTypeIsInferredAnew) {
  Builder b;
  const Var x = b.input(Input::batch, "x", {DType::f32, {4, 3}, {}});
  b.output("y", b.scale(b.scale(x, 2, "a"), 3, "b"));
  const Program p = b.take();
  Rewriter r(p);
  r.copy(p.eqns[0]);
  const Var part = r.to.emit1(Op::slice, Slice{0, 1, 2}, {r(p.eqns[0].out[0])}, "part");
  r.copy_on(p.eqns[1], {part});
  const Program q = r.finish();
  verify(q);
  EXPECT_EQ(q.type(q.outputs[0].var).shape, (Shape{2, 3}));
  EXPECT_EQ(q.name_of(q.outputs[0].var), "b");
}

TEST(Rewriter, InputsKeepTheirOwnNames) {
  // The value's name and the name that a run binds may differ, and may even be crossed.
  const Program p = parse(
      "program t mesh()\n  input a : f32[2] batch \"b\"\n  input b : f32[2] batch \"a\"\n  output "
      "\"y\" = b\n");
  EXPECT_EQ(print(Rewriter(p).finish()), print(p));
}

}  // namespace
}  // namespace tessera::ir::builder_test
