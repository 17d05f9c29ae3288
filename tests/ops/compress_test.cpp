// Compressed reductions on 1 to 5 ranks: nothing is lost (the sum and what all ranks have left are
// what went in), every rank has the same bits, parts may be uneven or empty, and what is not finite
// reaches everybody.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ir/builder.h"
#include "ir/wire.h"
#include "ops/cases.h"
#include "ops/ranks.h"

namespace tessera::test::compress_test {
namespace {

using namespace ir;

struct Kind {
  std::string wire;
  double keep = 0;
};
const Kind kinds[] = {{"fp16"}, {"bf16"}, {"int8"}, {"onebit"}, {"topk", 0.1}, {"topk", 1.0}};
void PrintTo(const Kind& k, std::ostream* out) { *out << k.wire << k.keep; }

// Two axes: the other one cuts the rows of the bucket.
Program reducing(const Kind& kind, DType dtype, const Shape& shape, int ranks, bool cut) {
  Builder b;
  b.program().mesh.axes = {{Axis::data, "dp", ranks}};
  if (shape.size() == 2)
    b.program().mesh.axes.push_back({Axis::model, "tp", static_cast<int>(shape[0])});
  const Mesh& mesh = b.program().mesh;
  const int last = static_cast<int>(shape.size()) - 1;
  Type type{dtype, shape, {}};
  set_place(type, mesh, 0, partial);
  if (last == 1) set_place(type, mesh, 1, {Place::S, 0});
  std::vector<Var> in = {b.input(Input::batch, "x", type)};
  if (has_residual(*parse_wire(kind.wire))) in.push_back(b.input(Input::batch, "residual", type));
  const std::vector<Var> out = b.emit(
      Op::compressed_reduce, Compressed{"dp", kind.wire, kind.keep, cut ? last : -1, {}, 0}, in);
  b.output("left", out.size() > 1 ? out[1] : in[0]);  // of two bytes nothing is left
  if (out.size() > 1) b.program().values[static_cast<std::size_t>(out[1])].type.at = type.at;
  set_place(type, mesh, 0, cut ? Place{Place::S, last} : whole);
  b.program().values[static_cast<std::size_t>(out[0])].type.at = type.at;
  b.output("sum", out[0]);
  return b.take();
}

class Compression : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Compression, ::testing::ValuesIn(kinds));

TEST_P(Compression, LosesNothing) {
  const Kind& kind = GetParam();
  const bool feedback = has_residual(*parse_wire(kind.wire));
  for (const DType dtype : {DType::f64, DType::f32})
    for (const Shape& shape :
         {Shape{5000}, Shape{1029}, Shape{3}, Shape{1}, Shape{0}, Shape{2, 1500}})
      for (const int ranks : {1, 2, 3, 4, 5})
        for (const bool cut : {false, true}) {
          const Program p = reducing(kind, dtype, shape, ranks, cut);
          SCOPED_TRACE(print(p));
          verify(p);
          std::vector<Parts> inputs;
          Array total(DType::f64, shape);
          for (const Input& in : p.inputs) {
            const Array x = make_normal(dtype, shape, in.name);
            inputs.push_back(hand_out(x, p.type(in.var), p.mesh, in.name));
            for (std::int64_t i = 0; i < x.size(); ++i) total.set(i, total[i] + x[i]);
          }
          const std::vector<Parts> out = run_ranks(p, inputs);
          const Array left = put_together(out[0], p.type(p.outputs[0].var), p.mesh);
          const Array sum = put_together(out[1], p.type(p.outputs[1].var),
                                         p.mesh);  // expects the same bits on every rank
          double most = 0;
          for (std::int64_t i = 0; i < total.size(); ++i)
            most = std::max(most, std::abs(sum[i] + (feedback ? left[i] : 0) - total[i]));
          const double rounding = dtype == DType::f64 ? 1e-12 : 1e-5;
          EXPECT_LE(most, feedback              ? rounding
                          : kind.wire == "fp16" ? 0.02
                                                : 0.15)
              << "at " << ranks << " ranks";
          if (kind.keep == 1.0) {
            for (std::int64_t i = 0; i < left.size(); ++i) ASSERT_EQ(left[i], 0);
          }
        }
}

TEST_P(Compression, WhatIsNotFiniteReachesEverybody) {
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    for (const bool cut : {false, true}) {
      const Program p = reducing(GetParam(), DType::f32, {2100}, 3, cut);
      std::vector<Parts> inputs;
      for (const Input& in : p.inputs)
        inputs.push_back(
            hand_out(make_normal(DType::f32, {2100}, in.name), p.type(in.var), p.mesh, in.name));
      inputs[0][1].set(1700, bad);
      const std::vector<Parts> out = run_ranks(p, inputs);
      int ranks = 0;
      for (const Array& sum : out[1]) {
        bool finite = true;
        for (std::int64_t i = 0; i < sum.size(); ++i) finite = finite && std::isfinite(sum[i]);
        ranks += !finite;
      }
      EXPECT_EQ(ranks, cut ? 1 : 3);  // where it is cut, the one whose part it is in
    }
}

// With error feedback the mean of what arrives becomes what was sent: what is left stays bounded.
TEST_P(Compression, FeedbackCatchesUp) {
  const Kind& kind = GetParam();
  if (!has_residual(*parse_wire(kind.wire))) return;
  const Shape shape = {1300};
  const Program p = reducing(kind, DType::f64, shape, 3, false);
  const Array x = make_normal(DType::f64, shape, "constant");
  const Parts gradient = hand_out(x, p.type(p.inputs[0].var), p.mesh, "constant");
  Parts left = hand_out(Array(DType::f64, shape), Type{DType::f64, shape, {}}, p.mesh, "zero");
  Array sent(DType::f64, shape);
  constexpr int steps = 400;
  for (int step = 0; step < steps; ++step) {
    std::vector<Parts> out = run_ranks(p, {gradient, left});
    left = std::move(out[0]);
    for (std::int64_t i = 0; i < x.size(); ++i) sent.set(i, sent[i] + out[1][0][i] / steps);
  }
  EXPECT_LE(
      relative_error(sent, x),
      kind.wire == "onebit" ? 0.2 : 0.05);  // one bit takes long to say which numbers are large
}

TEST(Orthogonalise, GivesABasis) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    Builder b;
    b.output("y", b.emit1(Op::orthogonalise, Stream{"w"},
                          {b.input(Input::batch, "x", {dtype, {9, 4}, {}})}));
    Array x = make_normal(dtype, {9, 4}, "basis");
    for (int i = 0; i < 9; ++i)
      x.set(i * 4 + 2, 2 * x[i * 4] - x[i * 4 + 1]);  // column 2 follows from 0 and 1
    for (int i = 0; i < 9; ++i) x.set(i * 4 + 3, 0);
    const Array y = run_ranks(b.program(), {{x}})[0][0];
    for (int c = 0; c < 4; ++c)
      for (int d = 0; d < 4; ++d) {
        double dot = 0;
        for (int i = 0; i < 9; ++i) dot += y[i * 4 + c] * y[i * 4 + d];
        EXPECT_NEAR(dot, c == d, 1e-6) << c << " " << d;
      }
    for (int i = 0; i < 9; ++i)
      EXPECT_NEAR(y[i * 4] * x[0], x[i * 4] * y[0], 1e-6);  // the first keeps its direction
  }
}

TEST(CompressedRules, AreChecked) {
  const auto refused = [](const std::string& line) -> std::string {
    try {
      verify(
          parse("program p mesh(dp=2:data, tp=2:model)\n  input x : f32[8]{dp:P} batch \"x\"\n  "
                "input e : f32[8] batch \"e\"\n"
                "  input t : f32[8]{dp:P tp:P} batch \"t\"\n  " +
                line + "\n  output \"y\" = y\n"));
    } catch (const std::exception& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refused("y : f32[8] = compressed_reduce axis=\"dp\" wire=\"fp16\" x"), "accepted");
  EXPECT_EQ(refused("y : f32[8]{dp:S0} = compressed_reduce axis=\"dp\" wire=\"bf16\" dim=0 x"),
            "accepted");
  EXPECT_EQ(
      refused("y : f32[8], z : f32[8]{dp:P} = compressed_reduce axis=\"dp\" wire=\"int8\" x x"),
      "accepted");
  EXPECT_NE(
      refused("y : f32[8] = compressed_reduce axis=\"dp\" wire=\"zip\" x").find("not \"zip\""),
      std::string::npos);
  EXPECT_NE(refused("y : f32[8] = compressed_reduce axis=\"dp\" wire=\"int8\" x")
                .find("takes a tensor and"),
            std::string::npos);
  EXPECT_NE(refused("y : f32[8]{tp:P} = compressed_reduce axis=\"dp\" wire=\"fp16\" t")
                .find("on no other axis"),
            std::string::npos);
  EXPECT_NE(
      refused("y : f32[8], z : f32[8]{dp:P} = compressed_reduce axis=\"dp\" wire=\"int8\" x e")
          .find("of which it is left"),
      std::string::npos);
  EXPECT_NE(refused("y : f32[8]{dp:S0} = compressed_reduce axis=\"dp\" wire=\"fp16\" x")
                .find("does not lead"),
            std::string::npos);
  EXPECT_NE(refused("y : f32[8] = compressed_reduce axis=\"pp\" wire=\"fp16\" x")
                .find("no axis of the mesh"),
            std::string::npos);
  EXPECT_NE(
      refused("y : f32[8], z : f32[8]{dp:P} = compressed_reduce axis=\"dp\" wire=\"topk\" x x")
          .find("keeps a share"),
      std::string::npos);
}

}  // namespace
}  // namespace tessera::test::compress_test
