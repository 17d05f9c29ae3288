// Attention written as its parts is the same attention, with and without bias and mask, in f64 to
// rounding and in bf16 to bf16's; and it is left alone where its lse is read.
#include <gtest/gtest.h>

#include <algorithm>

#include "transforms/evaluate.h"
#include "transforms/tiny_vit.h"

namespace tessera::transforms::split_test {
namespace {

using namespace test;

// The sizes are 3 windows a sample, 4 queries over 6 keys, 2 heads of 5.
Program attention(bool bias, bool mask, const std::string& dtype) {
  const std::string low = dtype == "bf16" ? "f32" : dtype;
  std::string text = "program predict mesh()\n";
  for (const char* name : {"q", "k", "v"})
    text += std::string("  input ") + name + " : " + low +
            (*name == 'q' ? "[2,3,4,2,5]" : "[2,3,6,2,5]") + " batch \"" + name + "\"\n";
  if (bias) text += "  input bias : " + low + "[2,4,6] param \"bias\" (heads,t,s)\n";
  if (mask) text += "  input mask : " + low + "[3,4,6] param \"mask\" (w,t,s)\n";
  std::string end = dtype == low ? "" : "_";
  if (dtype != low)
    for (const char* name : {"q", "k", "v"})
      text += std::string("  ") + name + "_ : bf16" +
              (*name == 'q' ? "[2,3,4,2,5]" : "[2,3,6,2,5]") + " = cast to=bf16 " + name + "\n";
  text += "  o : " + dtype + "[2,3,4,2,5], _ = attention scale=0.4" + (bias ? " bias=true" : "") +
          (mask ? " mask=true" : "") + " q" + end + " k" + end + " v" + end +
          (bias ? " bias" : "") + (mask ? " mask" : "") + "  # blocks.0.msa\n";
  if (dtype != low) text += "  wide : f32[2,3,4,2,5] = cast to=f32 o\n";
  return ir::parse(text + "  output \"o\" = " + (dtype != low ? "wide" : "o") + "\n");
}

std::int64_t count(const Program& p, ir::Op op) {
  return std::count_if(p.eqns.begin(), p.eqns.end(), [&](const ir::Eqn& e) { return e.op == op; });
}

TEST(SplitAttention, IsTheSameAttention) {
  for (const std::string dtype : {"f64", "f32", "bf16"})
    for (const bool bias : {false, true})
      for (const bool mask : {false, true}) {
        const Program p = attention(bias, mask, dtype), parts = split_attention(p);
        ir::verify(parts);
        EXPECT_EQ(count(parts, ir::Op::attention), 0);
        EXPECT_EQ(count(parts, ir::Op::contract), 2);
        EXPECT_EQ(count(parts, ir::Op::softmax), 1);
        EXPECT_EQ(ir::cost(parts).flops, ir::cost(p).flops);
        const Values inputs = draw_inputs(p, 5, 2);
        SCOPED_TRACE(dtype + (bias ? " bias" : "") + (mask ? " mask" : ""));
        expect_same(evaluate(parts, inputs), evaluate(p, inputs),
                    dtype == "f64"   ? 1e-12
                    : dtype == "f32" ? 1e-5
                                     : 1e-2);
      }
}

TEST(SplitAttention, LeavesATrainingStepAlone) {
  const Program step = vit_gradients(tiny_model(), ir::DType::f64, 2);
  EXPECT_EQ(count(split_attention(step), ir::Op::attention), tiny_model().depth);
  const Program forward = simplify(vit_loss(tiny_model(), ir::DType::f64, 2));
  const Program parts = split_attention(forward);
  EXPECT_EQ(count(parts, ir::Op::attention), 0);
  const Values inputs = draw_inputs(forward, static_cast<int>(tiny_model().classes), 2);
  expect_same(evaluate(parts, inputs), evaluate(forward, inputs), 1e-12);
}

}  // namespace
}  // namespace tessera::transforms::split_test
