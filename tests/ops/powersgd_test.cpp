// PowerSGD as equations, on 1 to 4 ranks: with a full rank the sum is the sum; with a lower one
// nothing is lost, and what is left comes later.
#include <gtest/gtest.h>

#include <cmath>

#include "ir/builder.h"
#include "ops/cases.h"
#include "ops/ranks.h"
#include "transforms/transforms.h"

namespace tessera::test::powersgd_test {
namespace {

using namespace ir;

// A bucket of a matrix, a bias and a filter, as the optimizer hands it to dp: two entries that can
// be matrices.
const transforms::Bucket bucket{
    "decay", {{"w", 0, {6, 9}, -1}, {"bias", 64, {5}, -1}, {"filter", 80, {2, 2, 2, 7}, -1}},
    136,     1,
    true,    1.0,
    false};

Program step(DType dtype, int ranks, bool cut) {
  Builder b;
  b.program().mesh.axes = {{Axis::data, "dp", ranks}};
  b.set_phase(Phase::update);
  Type flat{dtype, {bucket.size}, {}};
  set_place(flat, b.program().mesh, 0, {Place::P, -1});
  const Var g = b.input(Input::batch, "g", flat),
            ok = b.input(Input::batch, "flag", {dtype, {}, {}});
  Collective attrs{"dp", cut ? 0 : -1, -1, {}, {}, 0};
  const Var sum = b.emit_named(cut ? Op::reduce_scatter : Op::all_reduce, attrs, {g}, {"g/dp"})[0];
  set_place(b.program().values[static_cast<std::size_t>(sum)].type, b.program().mesh, 0,
            cut ? Place{Place::S, 0} : Place{});
  b.output("sum", b.emit_named(Op::mark, Mark{"grad", -1}, {sum}, {"optimizer.pinned.decay"})[0]);
  b.output("ok", ok);
  return b.take();
}

// A gradient with zeros where the bucket has gaps.
Array gradient(DType dtype, const std::string& name) {
  Array out(dtype, {bucket.size});
  const Array x = make_normal(dtype, {bucket.size}, name);
  for (const transforms::Bucket::Entry& e : bucket.entries)
    for (std::int64_t i = e.offset; i < e.offset + elements(e.shape); ++i) out.set(i, x[i]);
  return out;
}

Array scalar(DType dtype, double value) {
  Array a(dtype, {});
  a.set(0, value);
  return a;
}

struct State {
  Parts residual, q;
};
// One step: the sum as all ranks have it together, and the state after it. `left`: the residual of
// all ranks.
Array run(const Program& p, const Array& g, double ok, State& state, Array& left) {
  const DType dtype = g.dtype();
  std::vector<Parts> in;
  for (const Input& input : p.inputs) {
    const Type& type = p.type(input.var);
    if (input.name == "g") in.push_back(hand_out(g, type, p.mesh, "g"));
    if (input.name == "flag") in.push_back(hand_out(scalar(dtype, ok), type, p.mesh, "ok"));
    for (auto& [name, parts] :
         {std::pair{"residual.decay", &state.residual}, {"powersgd.decay", &state.q}})
      if (input.name == name) {
        if (parts->empty())
          *parts = Parts(static_cast<std::size_t>(p.mesh.ranks()), Array(dtype, type.shape));
        in.push_back(*parts);
      }
  }
  const std::vector<Parts> out = run_ranks(p, in);
  Array sum;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Type& type = p.type(p.outputs[i].var);
    if (p.outputs[i].name == "sum") sum = put_together(out[i], type, p.mesh);
    if (p.outputs[i].name == "residual.decay") {
      state.residual = out[i];
      left = put_together(out[i], type, p.mesh);
    }
    if (p.outputs[i].name == "powersgd.decay") {
      state.q = out[i];
      put_together(out[i], type, p.mesh);
    }
  }
  return sum;
}

double norm(const Array& a) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) sum += a[i] * a[i];
  return std::sqrt(sum);
}

class PowerSgd : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, PowerSgd, ::testing::Values(DType::f64, DType::f32));

TEST_P(PowerSgd, OfFullRankIsTheSum) {
  for (const int ranks : {1, 2, 3, 4})
    for (const bool cut : {false, true}) {
      const Program p =
          transforms::compress(step(GetParam(), ranks, cut), {"powersgd", 0, 7, true}, {bucket});
      verify(p);
      State state;
      Array left;
      for (int n = 0; n < 3; ++n) {
        const Array g = gradient(GetParam(), "full" + std::to_string(n));
        EXPECT_LE(relative_error(run(p, g, 1, state, left), g.as(DType::f64)),
                  GetParam() == DType::f64 ? 1e-12 : 2e-6)
            << ranks << " ranks";
      }
    }
}

TEST_P(PowerSgd, LosesNothing) {
  const double rounding = GetParam() == DType::f64 ? 1e-12 : 1e-5;
  for (const int ranks : {1, 2, 3, 4})
    for (const bool cut : {false, true}) {
      const Program p =
          transforms::compress(step(GetParam(), ranks, cut), {"powersgd", 0, 2, false}, {bucket});
      verify(p);
      State state;
      Array left(DType::f64, {bucket.size});
      for (int n = 0; n < 4; ++n) {
        const Array g = gradient(GetParam(), "low" + std::to_string(n)), before = left;
        const Array sum = run(p, g, 1, state, left);
        for (std::int64_t i = 0; i < g.size(); ++i)
          ASSERT_NEAR(sum[i] + left[i], g[i] + before[i], rounding) << i;
        for (int i = 64; i < 69; ++i) ASSERT_NEAR(sum[i], g[i], rounding) << "a bias is no matrix";
        EXPECT_GT(norm(left), 0.1);  // rank 2 is not all of it
      }
      // A skipped step.
      const State kept = state;
      run(p, gradient(GetParam(), "skipped"), 0, state, left);
      for (std::size_t r = 0; r < kept.q.size(); ++r)
        EXPECT_TRUE(state.q[r].same_bits(kept.q[r]) &&
                    state.residual[r].same_bits(kept.residual[r]));
    }
}

// The same gradient again and again: what was sent becomes all of it, also from a start where there
// was nothing to find a basis of.
TEST_P(PowerSgd, CatchesUp) {
  const Program p =
      transforms::compress(step(GetParam(), 2, false), {"powersgd", 0, 1, false}, {bucket});
  State state;
  Array left, sent(DType::f64, {bucket.size});
  const Array g = gradient(GetParam(), "constant");
  EXPECT_EQ(norm(run(p, Array(GetParam(), {bucket.size}), 1, state, left)), 0);
  constexpr int steps = 100;
  for (int n = 0; n < steps; ++n) {
    const Array sum = run(p, g, 1, state, left);
    for (std::int64_t i = 0; i < g.size(); ++i) sent.set(i, sent[i] + sum[i] / steps);
  }
  EXPECT_LE(relative_error(sent, g.as(DType::f64)), 0.1);
}

TEST(PowerSgdRules, NothingToGainIsLeftAlone) {
  const Program p = step(DType::f32, 2, false);
  EXPECT_EQ(print(transforms::compress(p, {"powersgd", 0, 7, false}, {bucket})), print(p));
  EXPECT_EQ(print(transforms::compress(p, {"none", 0, 0, false}, {bucket})), print(p));
}

}  // namespace
}  // namespace tessera::test::powersgd_test
