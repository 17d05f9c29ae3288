// Products with bias and GELU in bf16, of bf16 factors or e4m3 ones with scales, large enough that
// a card takes one kernel for all of it, against the double reference: rows and columns that end
// within a tile, depths that end within a block, random shapes; the same bits again, and whether
// the value before GELU is kept or not. Convention: the CPU, whose kernels other tests try, has a
// few rows of each.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/rng.h"
#include "ir/builder.h"
#include "ops/interpret.h"
#include "ops/on_device.h"

namespace tessera::test::gelu_products_test {
namespace {

using ir::DType;
using ir::Op;

struct Sizes {
  std::int64_t m, n, k;
};

Array random_array(const ir::Shape& shape, double scale, std::uint64_t seed,
                   DType dtype = DType::bf16) {
  Array made(dtype, shape);
  for (std::int64_t i = 0; i < made.size(); ++i)
    made.set(i, scale * normal(Key{seed}, static_cast<std::uint64_t>(i)));
  return made;
}

// Rows of a matrix, as doubles or as they are.
Array rows_of(const Array& x, const std::vector<std::int64_t>& rows, DType dtype = DType::f64) {
  const std::int64_t width = x.shape()[1];
  Array out(dtype, {static_cast<std::int64_t>(rows.size()), width});
  for (std::size_t r = 0; r < rows.size(); ++r)
    for (std::int64_t i = 0; i < width; ++i)
      out.set(static_cast<std::int64_t>(r) * width + i, x[rows[r] * width + i]);
  return out;
}

Array scale_of(double value) {
  Array made(DType::f32, {});
  made.set(0, value);
  return made;
}

class GeluProducts : public EveryDevice {
 protected:
  void try_sizes(Sizes s, bool bias) {
    const ir::Contract attrs{bias ? "mk,nk,n->mn" : "mk,nk->mn", "gelu", {}};
    try_product(s, attrs, DType::bf16, bias);
  }
  void try_bytes(Sizes s, bool bias) {
    const ir::Contract attrs{bias ? "mk,nk,,,n->mn" : "mk,nk,,->mn", "gelu", DType::bf16, 2};
    try_product(s, attrs, DType::f8e4m3, bias);
  }

 private:
  void try_product(Sizes s, ir::Contract attrs, DType factor, bool bias) {
    if (GetParam() == "cpu") s.m = s.m % 50 + 1;
    const std::string what = std::to_string(s.m) + " x " + std::to_string(s.n) + " x " +
                             std::to_string(s.k) + (bias ? " with bias of " : " of ") +
                             std::string(ir::name(factor));
    const bool bytes = factor == DType::f8e4m3;
    const double width = 1 / std::sqrt(static_cast<double>(s.k));
    std::vector<Array> in;
    in.push_back(random_array({s.m, s.k}, bytes ? 8 : 1, 1, factor));
    in.push_back(random_array({s.n, s.k}, (bytes ? 256 : 1) * width, 2, factor));
    if (bytes) in.insert(in.end(), {scale_of(0x1p-3), scale_of(0x1p-8)});
    if (bias) in.push_back(random_array({s.n}, 0.5, 3));
    const std::vector<Array> got = run(Op::contract, attrs, in),
                             again = run(Op::contract, attrs, in);
    ASSERT_EQ(got.size(), 2u) << what;
    EXPECT_TRUE(got[0].same_bits(again[0]) && got[1].same_bits(again[1])) << what;
    EXPECT_TRUE(got[0].same_bits(without_before(attrs, in))) << what;

    // The first tiles and the last, and rows of some others.
    std::vector<std::int64_t> rows;
    for (std::int64_t row = 0; row < s.m; ++row)
      if (row < 40 || row >= s.m - 140 || row % 61 == 0) rows.push_back(row);
    std::vector<Array> exact = {rows_of(in[0], rows, bytes ? factor : DType::f64)};
    for (std::size_t i = 1; i < in.size(); ++i)
      exact.push_back(bytes ? in[i] : in[i].as(DType::f64));
    if (bytes) attrs.out = DType::f32;
    const std::vector<Array> want = run_reference(Op::contract, attrs, exact, pool_);
    for (std::size_t i = 0; i < want.size(); ++i) expect_near(rows_of(got[i], rows), want[i], what);
  }

  Array without_before(const ir::Attrs& attrs, const std::vector<Array>& in) {
    ir::Builder b;
    std::vector<ir::Var> vars;
    Arrays inputs;
    for (const Array& a : in) {
      const std::string name = "x" + std::to_string(vars.size());
      vars.push_back(b.input(ir::Input::batch, name, a.type()));
      inputs.emplace(name, a);
    }
    b.output("y", b.emit(Op::contract, attrs, vars)[0]);
    return run_program(*executor_, b.program(), inputs).at("y");
  }
  // Two roundings to bf16, of the sum and of the result, in each element.
  static void expect_near(const Array& got, const Array& want, const std::string& what) {
    std::int64_t wrong = 0, first = -1;
    for (std::int64_t i = 0; i < want.size(); ++i) {
      if (std::abs(got[i] - want[i]) <= 0x1p-7 * std::abs(want[i]) + 2e-3) continue;
      ++wrong;
      if (first < 0) first = i;
    }
    if (wrong > 0)
      ADD_FAILURE() << what << ": " << wrong << " of " << want.size() << " elements, the first "
                    << first << ": " << got[first] << " instead of " << want[first];
  }
  ThreadPool pool_{2};
};

TEST_P(GeluProducts, OfTilesThatEndWithinTheResultMatchTheReference) {
  // A card with 132 multiprocessors takes 264 tiles of 128 x 192 or more by its own kernel.
  const Sizes all[] = {{8192, 1536, 64}, {8191, 1544, 96},  {16897, 384, 96},
                       {5000, 3072, 40}, {5633, 1000, 200}, {3001, 3080, 264}};
  for (const Sizes& s : all) try_sizes(s, true);
  try_sizes(all[1], false);
}

TEST_P(GeluProducts, OfRandomShapesMatchTheReference) {
  const int trials = GetParam() == "cpu" ? 2 : 12;
  for (int trial = 0; trial < trials; ++trial) {
    const Key key = Key{23}.with(static_cast<std::uint64_t>(trial));
    const auto between = [&](std::uint64_t which, std::int64_t low, std::int64_t high) {
      const auto range = static_cast<std::uint64_t>(high - low + 1);
      return low + static_cast<std::int64_t>(random_bits(key, which) % range);
    };
    const std::int64_t n = 8 * between(0, 12, 400), k = 8 * between(1, 1, 50);
    try_sizes({between(2, 0, 4000) + 8'000'000 / n, n, k}, trial % 3 != 0);
  }
}

TEST_P(GeluProducts, OfBytesMatchTheReference) {
  const Sizes all[] = {{8192, 1536, 128}, {8192, 3072, 768}, {8176, 1552, 96},  {16400, 384, 96},
                       {5008, 3072, 48},  {4112, 1008, 208}, {3008, 3088, 272}, {4096, 1536, 1536}};
  for (const Sizes& s : all) try_bytes(s, true);
  try_bytes(all[2], false);
}

FOR_EVERY_DEVICE(GeluProducts);

}  // namespace
}  // namespace tessera::test::gelu_products_test
