// Every contraction and convolution of the case table with its second operand as a weight: packed
// once by the executor it gives the bits that it gives unpacked, also after the weight was written
// anew.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "exec/executor.h"
#include "ir/builder.h"
#include "ops/cases.h"

namespace tessera::test::packed_test {
namespace {

struct Ran {
  std::vector<Array> results;
  bool packed = false;
};

// Runs with the operands as given, or first with zeros for the weight.
Ran run_case(const Case& c, bool packs, bool twice, int threads) {
  const auto executor = exec::make_executor("cpu", threads, {}, exec::Carrier::host, "",
                                            {.winograd = false});  // which has bits of its own
  const std::vector<Array> in = make_operands(c, ir::DType::f32);
  ir::Builder b;
  std::vector<ir::Var> operands;
  for (const Array& a : in) {
    const std::string name = "x" + std::to_string(operands.size());
    operands.push_back(
        b.input(operands.size() == 1 ? ir::Input::param : ir::Input::batch, name, a.type()));
  }
  const std::vector<ir::Var> out = b.emit(c.op, c.attrs, operands);
  for (std::size_t i = 0; i < out.size(); ++i) b.output("y" + std::to_string(i), out[i]);
  plan::Target target = executor->target();
  target.packs = packs;
  const plan::Plan plan = plan::lower(b.program(), 0, target);
  const auto loaded = executor->load(plan);
  EXPECT_EQ(executor->allocated_bytes(), plan.peak_bytes());
  const auto feed = [&] {
    for (std::size_t i = 0; i < in.size(); ++i)
      if (i != 1) loaded->write("x" + std::to_string(i), {in[i].data(), in[i].bytes()});
  };
  if (twice) {
    feed();
    loaded->run();
  }
  executor->write_persistent("x1", 0, {in[1].data(), in[1].bytes()});
  feed();
  loaded->run();
  Ran ran;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const ir::Type& type = plan.output("y" + std::to_string(i))->slot.type;
    Array& y = ran.results.emplace_back(type.dtype, type.shape);
    loaded->read("y" + std::to_string(i), {y.data(), y.bytes()});
  }
  for (const plan::Step& step : plan.steps) ran.packed |= static_cast<bool>(step.packed);
  return ran;
}

TEST(Packed, ProductsGiveTheSameBits) {
  int packed = 0, all = 0;
  for (const Case& c : cases()) {
    if ((c.op != ir::Op::contract && c.op != ir::Op::conv) || c.fixed) continue;
    const Ran plain = run_case(c, false, false, 2);
    EXPECT_FALSE(plain.packed) << c.name;
    for (const bool twice : {false, true}) {
      const Ran ran = run_case(c, true, twice, twice ? 3 : 2);
      ASSERT_EQ(ran.results.size(), plain.results.size());
      for (std::size_t i = 0; i < ran.results.size(); ++i)
        EXPECT_TRUE(ran.results[i].same_bits(plain.results[i])) << c.name << ", result " << i;
      packed += ran.packed;
    }
    all += 2;
  }
  EXPECT_GT(packed, all / 2) << "too few cases pack their second operand";
}

// A product that is large enough for few threads to take larger tiles, or all chunks of k in turn,
// has the bits of one that many share out.
TEST(Packed, TilesThatGrowGiveTheSameBits) {
  using enum ir::DType;
  struct Sizes {
    std::int64_t m, k, n;
  };
  const auto try_product = [](Sizes s, ir::DType factors, ir::DType result, std::string_view sig) {
    const ir::Shape addends[] = {{s.n}, {s.m, s.n}};
    // Operands of a name are drawn once (fill.cpp).
    const std::string what = fmt::format("{} of {} x {} x {}, {} into {}", sig, s.m, s.n, s.k,
                                         name(factors), name(result));
    Case c{.name = what,
           .op = ir::Op::contract,
           .attrs = ir::Contract{.sig = std::string(sig), .act = "", .out = result},
           .in = {{.shape = {s.m, s.k}, .dtype = factors}, {.shape = {s.k, s.n}, .dtype = factors}},
           .tolerance = {}};
    for (std::int64_t i = 0; i + 1 < std::ranges::count(sig, ','); ++i)
      c.in.push_back({.shape = addends[i], .dtype = result});
    const Ran many = run_case(c, false, false, 16);
    for (const int threads : {1, 2})
      for (const bool packs : {false, true})
        EXPECT_TRUE(run_case(c, packs, false, threads).results[0].same_bits(many.results[0]))
            << what << ", " << threads << " threads" << (packs ? ", packed" : "");
  };
  // One block of k; a chunk of several blocks; several chunks, of many rows and of few.
  for (const Sizes s :
       {Sizes{2000, 300, 768}, Sizes{2000, 1100, 768}, Sizes{500, 1500, 390}, Sizes{90, 1500, 700}})
    for (const auto& [factors, result] : {std::pair{f32, f32}, {bf16, f32}, {bf16, bf16}})
      for (const char* sig : {"bi,io->bo", "bi,io,o->bo", "bi,io,o,bo->bo"})
        try_product(s, factors, result, sig);
}

}  // namespace
}  // namespace tessera::test::packed_test
