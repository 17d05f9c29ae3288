// Every row of the case table in every mode: forward, gradient, bitwise, alias, poison, absent. See
// cases.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <memory>

#include "base/rng.h"
#include "ir/builder.h"
#include "ops/cases.h"
#include "ops/interpret.h"

namespace tessera::test::run_cases_test {

using exec::cpu::Kernel;
using exec::cpu::Tensor;
using ir::DType;
using ir::Op;

// GoogleTest prints this when a case fails.
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

namespace {

ThreadPool& pool_of(int threads) {
  static std::map<int, std::unique_ptr<ThreadPool>> pools;
  std::unique_ptr<ThreadPool>& pool = pools[threads];
  if (!pool) pool = std::make_unique<ThreadPool>(threads);
  return *pool;
}

Kernel reference_in_float(Op op) {
  static constexpr std::array<Kernel, ir::op_count> table = {
#define X(op, attrs) exec::cpu::reference_##op<float>,
      TESSERA_OPS(X)
#undef X
  };
  return table[static_cast<std::size_t>(op)];
}

struct How {
  int threads = 2;
  int skew = 0;            // elements by which every tensor is off its boundary
  std::byte before{0xff};  // what results hold before the call
  int absent = -1;         // the result nobody reads
  std::vector<ir::OpDef::Alias> alias = {};
  Kernel kernel = nullptr;  // null: the f32 row of the table
};

std::vector<Array> run_f32(const Case& c, const How& how = {}) {
  const ir::Attrs attrs = attrs_for(c, DType::f32);
  std::vector<Array> in, out;
  for (const Array& a : make_operands(c, DType::f32)) in.emplace_back(a, how.skew);
  std::vector<Array> given = in;  // copies, to see that operands stay as they are
  std::vector<Tensor> operands, results;
  for (const Array& a : in) operands.push_back(a.tensor());
  for (const ir::Type& t : ir::infer(c.op, attrs, types_of(in))) {
    out.emplace_back(t.dtype, t.shape, how.skew).set_bytes(how.before);
    results.push_back(out.back().tensor());
  }
  for (const auto& [result, operand] : how.alias)
    results[static_cast<std::size_t>(result)].data =
        operands[static_cast<std::size_t>(operand)].data;
  if (how.absent >= 0) results[static_cast<std::size_t>(how.absent)].data = nullptr;

  const exec::cpu::KernelRow& row = exec::cpu::kernel(c.op);
  call_kernel(how.kernel ? how.kernel : row.f32, how.kernel ? nullptr : row.scratch, c.op, attrs,
              operands, results, pool_of(how.threads));

  for (const Array& a : in) EXPECT_TRUE(a.guards_intact()) << "wrote around an operand";
  for (const Array& a : out) EXPECT_TRUE(a.guards_intact()) << "wrote around a result";
  std::vector<bool> shared(in.size());
  for (const auto& [result, operand] : how.alias) {
    shared[static_cast<std::size_t>(operand)] = true;
    out[static_cast<std::size_t>(result)] = in[static_cast<std::size_t>(operand)];
  }
  for (std::size_t i = 0; i < in.size(); ++i)
    EXPECT_TRUE(shared[i] || in[i].same_bits(given[i])) << "operand " << i << " was changed";
  return out;
}

std::vector<Array> run_f64(const Case& c) {
  return run_reference(c.op, attrs_for(c, DType::f64), make_operands(c, DType::f64), pool_of(2));
}

void expect_same_bits(const std::vector<Array>& a, const std::vector<Array>& b,
                      const std::string& what, int except = -1) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(static_cast<int>(i) == except || a[i].same_bits(b[i]))
        << "result " << i << " differs: " << what;
}

void expect_near(const Case& c, const std::vector<Array>& got, const std::vector<Array>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].shape(), want[i].shape());
    // written so that a NaN fails
    EXPECT_TRUE(relative_error(got[i], want[i]) <= c.tolerance.error)
        << "result " << i << ": relative error " << relative_error(got[i], want[i]) << " > "
        << c.tolerance.error << " (" << c.tolerance.reason << ")";
  }
}

// loss = sum over the first results of result * cotangent, as the f64 reference computes it
struct Objective {
  const Case& c;
  ir::Attrs attrs;
  std::vector<Array> cotangents;

  double operator()(const std::vector<Array>& in) const {
    const std::vector<Array> out = run_reference(c.op, attrs, in, pool_of(2));
    double loss = 0;
    for (std::size_t n = 0; n < cotangents.size(); ++n)
      for (std::int64_t i = 0; i < out[n].size(); ++i) loss += out[n][i] * cotangents[n][i];
    return loss;
  }
  double slope(std::vector<Array> in, std::size_t operand,
               const std::vector<std::pair<std::int64_t, double>>& direction) const {
    constexpr double h = 1e-5;  // truncation about h^2, rounding about 1e-16 / h
    const Array middle = in[operand];
    const auto at = [&](double step) {
      for (const auto& [i, u] : direction) in[operand].set(i, middle[i] + step * u);
      return (*this)(in);
    };
    return (at(h) - at(-h)) / (2 * h);
  }
};

std::vector<Case> cases_where(bool (*keep)(const Case&)) {
  std::vector<Case> kept;
  std::copy_if(cases().begin(), cases().end(), std::back_inserter(kept), keep);
  return kept;
}
bool has_gradient(const Case& c) { return !c.grad.empty(); }
bool may_alias(const Case& c) { return !ir::def(c.op).may_alias.empty(); }
// No tensor of a bucket of several parts lies together.
bool gathers(const Case& c) {
  const auto* pack = std::get_if<ir::Pack>(&c.attrs);
  return ir::def(c.op).gathers && (!pack || pack->parts == 1);
}
// Updated weights and state are always read: they are the next step's operands.
bool may_be_absent(const Case& c) {
  if (c.op == Op::sgd || c.op == Op::adamw) return false;
  std::vector<ir::Type> in;
  for (const Operand& o : c.in) in.push_back({o.dtype, o.shape, {}});
  return ir::infer(c.op, attrs_for(c, DType::f32), in).size() > 1;
}

class OpCase : public ::testing::TestWithParam<Case> {};
class OpGradient : public OpCase {};
class OpAlias : public OpCase {};
class OpGather : public OpCase {};
class OpAbsent : public OpCase {};

std::string name_of(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(All, OpCase, ::testing::ValuesIn(cases()), name_of);
INSTANTIATE_TEST_SUITE_P(All, OpGradient, ::testing::ValuesIn(cases_where(has_gradient)), name_of);
INSTANTIATE_TEST_SUITE_P(All, OpAlias, ::testing::ValuesIn(cases_where(may_alias)), name_of);
INSTANTIATE_TEST_SUITE_P(All, OpGather, ::testing::ValuesIn(cases_where(gathers)), name_of);
INSTANTIATE_TEST_SUITE_P(All, OpAbsent, ::testing::ValuesIn(cases_where(may_be_absent)), name_of);

TEST_P(OpCase, Forward) { expect_near(GetParam(), run_f32(GetParam()), run_f64(GetParam())); }

TEST_P(OpCase, ReferenceInFloat) {
  expect_near(GetParam(), run_f32(GetParam(), {.kernel = reference_in_float(GetParam().op)}),
              run_f64(GetParam()));
}

TEST_P(OpGradient, EqualsFiniteDifferences) {
  const Case& c = GetParam();
  const std::vector<Array> in = make_operands(c, DType::f64);
  Objective objective{c, attrs_for(c, DType::f64), {}};

  ir::Builder b;
  std::map<std::string, Array> bindings;
  std::vector<ir::Var> operands;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::string name = "x" + std::to_string(i);
    operands.push_back(b.input(ir::Input::batch, name, in[i].type()));
    bindings.emplace(name, in[i]);
  }
  const std::vector<ir::Var> results = b.emit(c.op, objective.attrs, operands);
  const ir::Eqn eqn = b.program().eqns.back();  // a copy: the vjp appends
  std::vector<ir::Var> cotangents(results.size(), ir::none);
  for (int n = 0; n < c.cotangents; ++n) {
    const std::string name = "g" + std::to_string(n);
    const ir::Type type = b.type(results[static_cast<std::size_t>(n)]);
    objective.cotangents.push_back(make_normal(type.dtype, type.shape, c.name + name));
    cotangents[static_cast<std::size_t>(n)] = b.input(ir::Input::batch, name, type);
    bindings.emplace(name, objective.cotangents.back());
  }
  ASSERT_NE(ir::def(c.op).vjp, nullptr);
  const std::vector<ir::Var> gradients = ir::def(c.op).vjp(b, eqn, cotangents);
  ASSERT_EQ(gradients.size(), operands.size()) << "one gradient, or none, per operand";
  ir::verify(b.program());
  const std::map<ir::Var, Array> values = interpret(b.program(), bindings, pool_of(2));

  for (const int n : c.grad) {
    const auto operand = static_cast<std::size_t>(n);
    ASSERT_NE(gradients[operand], ir::none) << "operand " << n;
    const Array& gradient = values.at(gradients[operand]);
    ASSERT_EQ(gradient.type(), in[operand].type()) << "operand " << n;
    // The whole tensor along one random direction, then single elements.
    std::vector<std::vector<std::pair<std::int64_t, double>>> directions(1);
    const Key key = Key{}.with(c.name).with("direction").with(operand);
    for (std::int64_t i = 0; i < gradient.size(); ++i)
      directions[0].emplace_back(i, tessera::normal(key, static_cast<std::uint64_t>(i)));
    for (std::uint64_t i = 0; i < 8 && gradient.size() > 0; ++i)
      directions.push_back({{static_cast<std::int64_t>(random_bits(key.with("element"), i) %
                                                       static_cast<std::uint64_t>(gradient.size())),
                             1.0}});
    for (const auto& direction : directions) {
      double want = 0, size = 0;
      for (const auto& [i, u] : direction) {
        want += gradient[i] * u;
        size += std::abs(gradient[i] * u);
      }
      // The objective is a sum of many terms, whose rounding the difference quotient magnifies by 1
      // / h.
      EXPECT_NEAR(objective.slope(in, operand, direction), want, 1e-7 * (1 + size))
          << "operand " << n << ", direction of " << direction.size() << " elements from "
          << direction[0].first;
    }
  }
}

TEST_P(OpCase, Bitwise) {
  const std::vector<Array> one = run_f32(GetParam(), {.threads = 1});
  for (int threads : {2, 3, 5})
    expect_same_bits(run_f32(GetParam(), {.threads = threads}), one,
                     std::to_string(threads) + " threads");
  expect_same_bits(run_f32(GetParam(), {.threads = 2, .skew = 1}), one,
                   "tensors off their boundary by one element");
}

// Results do not depend on what was in their storage: every element is written and none is read.
TEST_P(OpCase, Poison) {
  expect_same_bits(run_f32(GetParam(), {.before = std::byte{0xff}}),
                   run_f32(GetParam(), {.before = std::byte{0x01}}),
                   "storage held something else before");
}

TEST_P(OpAlias, InPlaceIsTheSame) {
  const Case& c = GetParam();
  const std::vector<Array> in = make_operands(c, DType::f32), apart = run_f32(c);
  const ir::OpDef& def = ir::def(c.op);
  std::vector<ir::OpDef::Alias> possible;
  for (const ir::OpDef::Alias& a : def.may_alias) {
    if (a.in >= static_cast<int>(in.size()) ||
        in[static_cast<std::size_t>(a.in)].type() != apart[static_cast<std::size_t>(a.out)].type())
      continue;
    possible.push_back(a);
    expect_same_bits(run_f32(c, {.alias = {a}}), apart,
                     "result " + std::to_string(a.out) + " over operand " + std::to_string(a.in));
  }
  const bool independent = std::any_of(possible.begin(), possible.end(), [](const auto& a) {
    return a.out > 0;
  });  // w, m and v of an update
  if (independent) expect_same_bits(run_f32(c, {.alias = possible}), apart, "everything in place");
}

// stack and pack: operands already lie where the result wants them.
TEST_P(OpGather, OperandsInPlaceAreTheSame) {
  const Case& c = GetParam();
  const std::vector<Array> in = make_operands(c, DType::f32), apart = run_f32(c);
  Array result = apart[0];
  result.set_bytes(std::byte{0xff});
  std::vector<Tensor> operands;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const auto* pack = std::get_if<ir::Pack>(&c.attrs);
    const std::int64_t offset =
        pack ? pack->offsets[i] : static_cast<std::int64_t>(i) * in[i].size();
    Tensor t = in[i].tensor();
    t.data = result.data() + offset * ir::size_of(t.dtype);
    std::copy_n(in[i].data(), in[i].bytes(), t.data);
    operands.push_back(t);
  }
  const exec::cpu::KernelRow& row = exec::cpu::kernel(c.op);
  for (auto [kernel, scratch] : {std::pair{row.f32, row.scratch},
                                 std::pair{reference_in_float(c.op), exec::cpu::ScratchRule{}}}) {
    call_kernel(kernel, scratch, c.op, c.attrs, operands, {result.tensor()}, pool_of(2));
    EXPECT_TRUE(result.same_bits(apart[0]));
  }
}

// A result nobody reads is absent; the others do not change.
TEST_P(OpAbsent, OthersStayTheSame) {
  const Case& c = GetParam();
  const std::vector<Array> all = run_f32(c);
  for (int i = 0; i < static_cast<int>(all.size()); ++i)
    expect_same_bits(run_f32(c, {.absent = i}), all, "result " + std::to_string(i) + " absent", i);
}

TEST(OpCoverage, EveryOpHasKernelsAndCases) {
  for (int i = 0; i < ir::op_count; ++i) {
    const Op op = static_cast<Op>(i);
    const std::string name(ir::name(op));
    EXPECT_NE(exec::cpu::kernel(op).f64, nullptr) << name;
    EXPECT_NE(exec::cpu::kernel(op).f32, nullptr) << name;
    EXPECT_EQ(exec::cpu::kernel(op).op, op) << name;
    bool forward = false, gradient = false;
    for (const Case& c : cases())
      if (c.op == op) {
        forward = true;
        gradient = gradient || !c.grad.empty();
      }
    const bool moves =
        ir::moves(ir::default_attrs(op));  // between ranks: sharded_test.cpp tries every move
    EXPECT_TRUE(forward || moves) << name << " has no case";
    EXPECT_TRUE(gradient || !ir::def(op).vjp) << name << " has a derivative and no case for it";
  }
}

}  // namespace
}  // namespace tessera::test::run_cases_test
