// Attention that cuts windows itself is the same attention, with its gradients; a program is left
// alone where windows have padding, where the executor has no such kernel, and where something else
// reads them.
#include <gtest/gtest.h>

#include <algorithm>

#include "transforms/evaluate.h"
#include "transforms/tiny_vit.h"

namespace tessera::transforms::windows_test {
namespace {

using namespace test;
using ir::DType;

// Two stages of 6 x 8 and 3 x 4 tokens, windows of 3 x 4 (or others): the first has shifted ones.
models::ModelConfig tiny_swin(std::int64_t window_h, std::int64_t window_w) {
  models::ModelConfig m;
  m.family = "swin";
  m.image_h = 12;
  m.image_w = 16;
  m.channels = 2;
  m.patch = 2;
  m.dim = 6;
  m.depths = {2, 2};
  m.stage_heads = {3, 2};
  m.window_h = window_h;
  m.window_w = window_w;
  m.drop_path = 0.2;
  m.classes = 5;
  return m;
}

std::int64_t count(const Program& p, ir::Op op) {
  return std::count_if(p.eqns.begin(), p.eqns.end(), [&](const ir::Eqn& e) { return e.op == op; });
}
bool takes_all(const ir::Attention&, const ir::Type&) { return true; }

TEST(FuseWindows, IsTheSameAttention) {
  constexpr std::int64_t batch = 3;
  const models::ModelConfig m = tiny_swin(3, 4);
  const Program p = place(strategy(vit_gradients(m, DType::f64, batch), {}));
  const Program fused = fuse_windows(p, takes_all);
  ir::verify(fused);
  EXPECT_EQ(count(p, ir::Op::window), 8);  // forward and backward of four blocks
  EXPECT_EQ(count(p, ir::Op::unwindow), 8);
  EXPECT_EQ(count(fused, ir::Op::window) + count(fused, ir::Op::unwindow), 0);
  EXPECT_EQ(count(fused, ir::Op::attention_grad), 4);
  EXPECT_EQ(ir::cost(fused).flops, ir::cost(p).flops);
  const auto shifted = std::count_if(fused.eqns.begin(), fused.eqns.end(), [](const ir::Eqn& e) {
    return e.op == ir::Op::attention && std::get<ir::Attention>(e.attrs).shift[0] > 0;
  });
  EXPECT_EQ(shifted, 1);
  const Values inputs = draw_inputs(p, static_cast<int>(m.classes), batch);
  const Values before = evaluate(p, inputs);
  expect_same(evaluate(fused, inputs), before, 1e-12);
  expect_same(evaluate(simplify(fuse_attention(fused)), inputs), before, 1e-12);
}

TEST(FuseWindows, LeavesPaddingAlone) {
  // 6 x 8 tokens do not divide by 4 x 3; the second stage has 3 x 4, which do not either.
  const Program p = place(strategy(vit_gradients(tiny_swin(4, 3), DType::f64, 2), {}));
  EXPECT_EQ(ir::print(fuse_windows(p, takes_all)), ir::print(p));
}

TEST(FuseWindows, AsksTheExecutor) {
  const Program p = place(strategy(vit_gradients(tiny_swin(3, 4), DType::f64, 2), {}));
  const auto takes_none = [](const ir::Attention&, const ir::Type&) { return false; };
  EXPECT_EQ(ir::print(fuse_windows(p, takes_none)), ir::print(p));
  // The first stage has heads of 2, the second of 6.
  const auto takes_wide = [](const ir::Attention& attr, const ir::Type& q) {
    EXPECT_EQ(attr.window, (ir::Shape{3, 4}));
    return q.shape.back() == 6;
  };
  const Program some = fuse_windows(p, takes_wide);
  EXPECT_EQ(count(some, ir::Op::window), 4);
}

TEST(FuseWindows, LeavesWindowsThatOthersRead) {
  const std::string text =
      "program p mesh()\n"
      "  input x : f64[2,6,8,4] batch \"x\"\n"
      "  w : f64[2,4,12,4] = window size=[3,4] shift=[0,0] x\n"
      "  y : f64[2,4,12,4] = gelu w\n"
      "  back : f64[2,6,8,4] = unwindow size=[3,4] shift=[0,0] image=[6,8] y\n"
      "  output \"back\" = back\n";
  const Program p = ir::parse(text);
  EXPECT_EQ(ir::print(fuse_windows(p, takes_all)), ir::print(p));
}

// Messages have one order of elements on all ranks: none is sent of windows that are left out.
TEST(FuseWindows, LeavesWindowsThatAreSent) {
  const Program p = ir::parse(
      "program p mesh(tp=2:model)\n"
      "  input x : f64[2,6,8,4]{tp:P} batch \"x\"\n"
      "  w : f64[2,4,12,4]{tp:P} = window size=[3,4] shift=[0,0] x\n"
      "  sum : f64[2,4,12,4] = all_reduce axis=\"tp\" w\n"
      "  back : f64[2,6,8,4] = unwindow size=[3,4] shift=[0,0] image=[6,8] sum\n"
      "  output \"back\" = back\n");
  EXPECT_EQ(ir::print(fuse_windows(p, takes_all)), ir::print(p));
}

// q in other windows than k and v: both stay.
TEST(FuseWindows, LeavesWindowsThatDiffer) {
  const Program p = ir::parse(
      "program p mesh()\n"
      "  input x : f64[2,6,8,2,3] batch \"x\"\n"
      "  flat : f64[2,6,8,6] = reshape shape=[2,6,8,6] x\n"
      "  a : f64[2,4,12,6] = window size=[3,4] shift=[0,0] flat\n"
      "  b : f64[2,4,12,6] = window size=[3,4] shift=[1,1] flat\n"
      "  w : f64[6,2,3] = constant value=0.5 dtype=f64 shape=[6,2,3]\n"
      "  q : f64[2,4,12,2,3] = contract sig=\"bwtc,chd->bwthd\" a w\n"
      "  k : f64[2,4,12,2,3] = contract sig=\"bwtc,chd->bwthd\" b w\n"
      "  o : f64[2,4,12,2,3], _ = attention q k k\n"
      "  output \"o\" = o\n");
  EXPECT_EQ(ir::print(fuse_windows(p, takes_all)), ir::print(p));
}

}  // namespace
}  // namespace tessera::transforms::windows_test
