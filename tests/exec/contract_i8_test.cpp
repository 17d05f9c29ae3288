// Products of i8 with scales, a bias and an activation: every micro-kernel of this machine gives
// the same bits, whether it finishes products itself or its sums are finished in memory, for rows,
// columns and depths that end within a tile, and whichever results are wanted; and they are those
// of the reference. A result in bytes has those of the same product with a quantisation behind it.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "exec/cpu/gemm/i8.h"
#include "exec/cpu/simd/instructions.h"
#include "ir/builder.h"
#include "ops/interpret.h"
#include "ops/on_device.h"
#include "portable/micros_in_use.h"

namespace tessera::test::contract_i8_test {
namespace {

using ir::DType;
using ir::Op;

struct Sizes {
  std::int64_t heads, m, n, k;

  std::string text() const { return ir::to_string(ir::Shape{heads, m, n, k}); }
};
// Even depths are those that micro-kernels may finish; 4,160 is more than any takes at once.
const std::vector<Sizes> all = {{1, 1, 1, 2},    {1, 33, 45, 64},    {1, 70, 96, 130},
                                {1, 31, 17, 19}, {1, 300, 400, 192}, {1, 5, 40, 4160},
                                {3, 20, 33, 66}, {3, 20, 33, 35},    {1, 0, 8, 4}};

struct Problem {
  ir::Contract attrs;
  std::vector<Array> in;

  // `turned`: numbers of a row of A lie apart. Heads have matrices of their own.
  Problem(const Sizes& s, const std::string& act, DType out, bool turned)
      : attrs{.sig = turned ? "hkm,hkn,,n,n->hmn" : "hmk,hkn,,n,n->hmn",
              .act = act,
              .out = out,
              .scales = 2} {
    std::mt19937 random(static_cast<unsigned>(1 + s.m * 31 + s.n * 7 + s.k));
    std::normal_distribution<double> normal;
    const auto add = [&](DType type, const ir::Shape& shape, const auto& number) {
      Array& a = in.emplace_back(type, shape);
      for (std::int64_t i = 0; i < a.size(); ++i) a.set(i, number());
    };
    const auto byte = [&] { return static_cast<double>(static_cast<int>(random() % 255) - 127); };
    add(DType::i8, turned ? ir::Shape{s.heads, s.k, s.m} : ir::Shape{s.heads, s.m, s.k}, byte);
    add(DType::i8, {s.heads, s.k, s.n}, byte);
    add(DType::f32, {}, [&] { return 1 / std::sqrt(static_cast<double>(s.k)); });
    add(DType::f32, {s.n}, [&] { return (1 + std::abs(normal(random))) * 1e-4; });
    add(out, {s.n}, [&] { return normal(random); });
  }

  // Results 0 and, where there is an activation, 1 (the value before it), if they are wanted. With
  // a scale the first is in bytes, by the product itself or by an equation behind it.
  enum class Bytes { none, itself, behind };
  Arrays run(int threads, unsigned wanted = 3, Bytes bytes = Bytes::none, float scale = 0) const {
    ir::Builder b;
    Arrays inputs;
    std::vector<ir::Var> operands;
    for (const Array& a : in) {
      const std::string name = "x" + std::to_string(operands.size());
      operands.push_back(b.input(ir::Input::batch, name, a.type()));
      inputs.emplace(name, a);
    }
    ir::Contract with = attrs;
    ir::Var s = ir::none;
    if (bytes != Bytes::none) {
      s = b.input(ir::Input::batch, "s", {DType::f32, {}, {}});
      inputs.emplace("s", Array(DType::f32, {})).first->second.set(0, scale);
    }
    if (bytes == Bytes::itself) {
      with.to = DType::i8;
      with.sig.insert(with.sig.find("->"), ",");
      operands.push_back(s);
    }
    std::vector<std::string> names = {"y0"};
    if (!attrs.act.empty()) names.push_back("y1");
    if (bytes == Bytes::itself) names.insert(names.end(), {"_", "_"});
    std::vector<ir::Var> out = b.emit_named(Op::contract, with, operands, names);
    if (bytes == Bytes::itself) out.resize(2);
    if (bytes == Bytes::behind && (wanted & 1u) != 0)
      out[0] =
          b.emit1(Op::quantize, ir::Quantize{.sig = "hmn,->hmn", .to = DType::i8}, {out[0], s});
    for (std::size_t i = 0; i < out.size(); ++i)
      if (wanted >> i & 1u) b.output("y" + std::to_string(i), out[i]);
    const auto executor = exec::make_executor("cpu", threads);
    return run_program(*executor, b.program(), inputs);
  }
};

// AMX finishes its products with the best vectors of the machine, which multiply and add at once,
// so its bits are not those of portable instructions (TESSERA_PORTABLE).
std::vector<const exec::cpu::Micro*> micros_of_these_vectors() {
  std::vector<const exec::cpu::Micro*> out = exec::cpu::i8_micros();
  if (exec::cpu::instruction_set() == exec::cpu::portable_instruction_set())
    std::erase_if(out, [](const exec::cpu::Micro* micro) { return micro->product != nullptr; });
  return out;
}

class ContractI8 : public ::testing::Test {
 protected:
  MicrosInUse kept_;

  // Those of the micro-kernel that runs everywhere.
  static Arrays plainly(const Problem& p) {
    EXPECT_TRUE(exec::cpu::use_i8_micro(exec::cpu::portable_i8_micro()->name));
    return p.run(1);
  }
  static void expect_of_every_micro(const Problem& p, const Arrays& want) {
    for (const exec::cpu::Micro* micro : micros_of_these_vectors()) {
      SCOPED_TRACE(micro->name);
      ASSERT_TRUE(exec::cpu::use_i8_micro(micro->name));
      for (const unsigned wanted : {1u, 2u, 3u}) {
        if (want.size() == 1 && wanted != 1) continue;
        for (const auto& [name, array] : p.run(static_cast<int>(wanted), wanted))
          EXPECT_TRUE(array.same_bits(want.at(name))) << name << " of " << wanted;
      }
    }
  }
};

TEST_F(ContractI8, EveryMicroKernelHasTheBitsOfOneAndThoseAreRight) {
  ThreadPool pool(2);
  for (const Sizes& sizes : all)
    for (const std::string act : {"", "gelu", "gelu_tanh"})
      for (const DType out : {DType::bf16, DType::f32})
        for (const bool turned : {false, true}) {
          SCOPED_TRACE(sizes.text() + " " + act + " in " + std::string(ir::name(out)) +
                       (turned ? ", turned" : ""));
          const Problem p(sizes, act, out, turned);
          const Arrays want = plainly(p);
          const std::vector<Array> exact = run_reference(Op::contract, p.attrs, p.in, pool);
          for (std::size_t i = 0; i < want.size(); ++i)
            EXPECT_LE(relative_error(want.at("y" + std::to_string(i)), exact[i]),
                      out == DType::f32 ? 2e-6 : 4e-3);
          expect_of_every_micro(p, want);
        }
}

TEST_F(ContractI8, BytesAreThoseOfAQuantisationBehindTheProduct) {
  using enum Problem::Bytes;
  for (const Sizes& sizes : all)
    for (const std::string act : {"gelu", "gelu_tanh"})
      for (const DType out : {DType::bf16, DType::f32})
        for (const float scale : {0.01f, 1e-4f, 0.0f}) {  // the others saturate, or have no inverse
          SCOPED_TRACE(sizes.text() + " " + act + " in " + std::string(ir::name(out)) + " by " +
                       std::to_string(scale));
          if (sizes.n == 1) continue;  // left to the reference, which rounds once
          Problem p(sizes, act, out, false);
          p.in[4].set(1, std::nan(""));
          ASSERT_TRUE(exec::cpu::use_i8_micro(exec::cpu::portable_i8_micro()->name));
          const Arrays want = p.run(1, 3, behind, scale);
          for (const exec::cpu::Micro* micro : micros_of_these_vectors()) {
            SCOPED_TRACE(micro->name);
            ASSERT_TRUE(exec::cpu::use_i8_micro(micro->name));
            for (const unsigned wanted : {1u, 2u, 3u})
              for (const auto& [name, array] :
                   p.run(static_cast<int>(wanted), wanted, itself, scale))
                EXPECT_TRUE(array.same_bits(want.at(name))) << name << " of " << wanted;
          }
        }
}

TEST_F(ContractI8, ScalesThatAreNoNumbersEndTheSameWay) {
  for (const std::string act : {"", "gelu", "gelu_tanh"}) {
    Problem p({1, 40, 45, 130}, act, DType::bf16, false);
    const double limit = std::numeric_limits<double>::infinity();
    const std::vector<double> some = {limit, -limit, std::nan(""), 1e-40, 3e38, 0};
    for (std::size_t i = 0; i < some.size(); ++i) {
      p.in[3].set(static_cast<std::int64_t>(i) * 7, some[i]);
      p.in[4].set(static_cast<std::int64_t>(i) * 7, 0);
    }
    expect_of_every_micro(p, plainly(p));
  }
}

}  // namespace
}  // namespace tessera::test::contract_i8_test
