// Products with bias and GELU, of bf16 factors or e4m3 ones with scales, in bf16 or in bytes, large
// enough that a card takes one kernel for all of it, against the double reference: rows and columns
// that end within a tile, depths that end within a block, of bf16 also random shapes; the same bits
// again, and whichever results are wanted; numbers that are none. Convention: the CPU, whose
// kernels other tests try, has a few rows of each.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
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
  // The results of a product of factors with their scales and a bias; `lost` by tensor cores.
  void try_into_bytes(const std::vector<Array>& factors, double lost = 0);
  void try_into_bytes(Sizes s, bool bias) {
    try_into_bytes(operands(here(s), DType::f8e4m3, bias));
  }
  void try_nan(const ir::Contract& attrs, std::vector<Array> in);

  Sizes here(Sizes s) const { return GetParam() == "cpu" ? Sizes{s.m % 50 + 1, s.n, s.k} : s; }
  static std::vector<Array> operands(Sizes s, DType factor, bool bias) {
    const bool bytes = factor == DType::f8e4m3;
    const double width = 1 / std::sqrt(static_cast<double>(s.k));
    std::vector<Array> in;
    in.push_back(random_array({s.m, s.k}, bytes ? 8 : 1, 1, factor));
    in.push_back(random_array({s.n, s.k}, (bytes ? 256 : 1) * width, 2, factor));
    if (bytes) in.insert(in.end(), {scale_of(0x1p-3), scale_of(0x1p-8)});
    if (bias) in.push_back(random_array({s.n}, 0.5, 3));
    return in;
  }

 private:
  void try_product(Sizes s, const ir::Contract& attrs, DType factor, bool bias) {
    s = here(s);
    const std::string what = text(s, factor, bias);
    const std::vector<Array> in = operands(s, factor, bias);
    const std::vector<Array> got = run(Op::contract, attrs, in),
                             again = run(Op::contract, attrs, in);
    ASSERT_EQ(got.size(), 2u) << what;
    EXPECT_TRUE(got[0].same_bits(again[0]) && got[1].same_bits(again[1])) << what;
    EXPECT_TRUE(got[0].same_bits(wanted_of(attrs, in, {0}).at("0"))) << what;
    const std::vector<std::int64_t> rows = rows_to_try(s.m);
    const std::vector<Array> want = reference(attrs, in, rows);
    for (std::size_t i = 0; i < want.size(); ++i)
      expect_near(rows_of(got[i], rows), want[i], what, 0x1p-7, slack(s, factor));
  }

  static std::string text(Sizes s, DType factor, bool bias) {
    return std::to_string(s.m) + " x " + std::to_string(s.n) + " x " + std::to_string(s.k) +
           (bias ? " with bias of " : " of ") + std::string(ir::name(factor));
  }
  // The first tiles and the last, and rows of some others.
  static std::vector<std::int64_t> rows_to_try(std::int64_t m) {
    std::vector<std::int64_t> rows;
    for (std::int64_t row = 0; row < m; ++row)
      if (row < 40 || row >= m - 140 || row % 61 == 0) rows.push_back(row);
    return rows;
  }
  // y and the value before GELU of some rows, unrounded.
  std::vector<Array> reference(ir::Contract attrs, const std::vector<Array>& in,
                               const std::vector<std::int64_t>& rows) {
    const DType factor = in[0].dtype();
    const bool bytes = factor == DType::f8e4m3;
    std::vector<Array> exact = {rows_of(in[0], rows, bytes ? factor : DType::f64)};
    for (std::size_t i = 1; i < in.size(); ++i)
      exact.push_back(bytes ? in[i] : in[i].as(DType::f64));
    if (bytes) attrs.out = DType::f32;
    return run_reference(Op::contract, attrs, exact, pool_);
  }
  // These of the results, with nobody to read the others.
  Arrays wanted_of(const ir::Attrs& attrs, const std::vector<Array>& in,
                   const std::vector<std::size_t>& wanted) {
    ir::Builder b;
    std::vector<ir::Var> vars;
    Arrays inputs;
    for (const Array& a : in) {
      const std::string name = "x" + std::to_string(vars.size());
      vars.push_back(b.input(ir::Input::batch, name, a.type()));
      inputs.emplace(name, a);
    }
    std::vector<std::string> names(std::get<ir::Contract>(attrs).to ? 4 : 2, "_");
    for (const std::size_t i : wanted) names[i] = "y" + std::to_string(i);
    const std::vector<ir::Var> out = b.emit_named(Op::contract, attrs, vars, names);
    for (const std::size_t i : wanted) b.output(std::to_string(i), out[i]);
    return run_program(*executor_, b.program(), inputs);
  }
  // Tensor cores lose up to 2^-13 of the numbers that they add in each step of 32.
  static double slack(Sizes s, DType factor) {
    return 2e-3 + (factor == DType::bf16 ? 0 : 0x1p-13 * static_cast<double>(s.k) / 32);
  }
  // Roundings of the result, or of the sum and the result, by `relative` of it at most.
  static void expect_near(const Array& got, const Array& want, const std::string& what,
                          double relative, double slack, double scale = 1) {
    std::int64_t wrong = 0, first = -1;
    for (std::int64_t i = 0; i < want.size(); ++i) {
      if (std::abs(got[i] * scale - want[i]) <= relative * std::abs(want[i]) + slack) continue;
      ++wrong;
      if (first < 0) first = i;
    }
    if (wrong > 0)
      ADD_FAILURE() << what << ": " << wrong << " of " << want.size() << " elements, the first "
                    << first << ": " << got[first] * scale << " instead of " << want[first];
  }
  ThreadPool pool_{2};
};

// A product whose result is quantised, of the factors of one whose result is not.
ir::Contract into_bytes(ir::Contract plain) {
  plain.sig.insert(plain.sig.find("->"), ",");
  plain.to = DType::f8e4m3;
  return plain;
}

void GeluProducts::try_into_bytes(const std::vector<Array>& factors, double lost) {
  constexpr double scale = 0x1p-4;
  const DType factor = DType::f8e4m3;
  const bool bias = factors.size() > 4;
  const Sizes s{factors[0].shape()[0], factors[1].shape()[0], factors[0].shape()[1]};
  const ir::Contract plain{bias ? "mk,nk,,,n->mn" : "mk,nk,,->mn", "gelu", DType::bf16, 2},
      attrs = into_bytes(plain);
  const std::string what = text(s, factor, bias) + " into bytes";
  std::vector<Array> in = factors;
  in.push_back(scale_of(scale));
  const std::vector<Array> got = run(Op::contract, attrs, in);
  ASSERT_EQ(got.size(), 4u) << what;

  // Other results beside it do not change one; inference wants the first alone.
  const std::vector<std::vector<std::size_t>> some = {{0}, {0, 3}, {1, 2}, {0, 1, 2, 3}};
  for (const std::vector<std::size_t>& wanted : some)
    for (const auto& [name, result] : wanted_of(attrs, in, wanted))
      EXPECT_TRUE(result.same_bits(got[std::stoul(name)])) << what << ", result " << name;

  const std::vector<std::int64_t> rows = rows_to_try(s.m);
  const std::vector<Array> want = reference(plain, factors, rows);
  // A byte is rounded by half of a last place, at most 2^-4 of it.
  expect_near(rows_of(got[0], rows), want[0], what, 0x1p-4, lost + slack(s, factor), scale);
  expect_near(rows_of(got[1], rows), want[1], what + ", before", 0x1p-7, lost + slack(s, factor));
  std::int64_t turned = 0;
  Array largest(DType::f8e4m3, {2});
  for (std::int64_t m = 0; m < s.m; ++m)
    for (std::int64_t n = 0; n < s.n; ++n) {
      const double byte = got[0][m * s.n + n];
      turned += got[2][n * s.m + m] == byte;
      if (std::abs(byte) > largest[0]) largest.set(0, std::abs(byte));
    }
  EXPECT_EQ(turned, s.m * s.n) << what;
  largest.set(1, got[3][0] / scale);
  EXPECT_EQ(largest[1], largest[0]) << what;
}

// One number of A is none: its row of every result is none, and nothing else but the largest.
void GeluProducts::try_nan(const ir::Contract& attrs, std::vector<Array> in) {
  const std::int64_t m = in[0].shape()[0], n = in[1].shape()[0], k = in[0].shape()[1], row = m / 2;
  in[0].set(row * k + k / 3, std::numeric_limits<double>::quiet_NaN());
  const std::vector<Array> got = run(Op::contract, attrs, in);
  std::vector<std::int64_t> wrong(got.size());
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      for (std::size_t r = 0; r < std::min<std::size_t>(got.size(), 3); ++r)
        wrong[r] += std::isnan(got[r][r < 2 ? i * n + j : j * m + i]) != (i == row);
  if (got.size() > 3) wrong[3] = !std::isnan(got[3][0]);
  EXPECT_EQ(wrong, std::vector<std::int64_t>(got.size())) << ir::name(in[0].dtype());
}

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
  const Sizes all[] = {{8192, 1536, 128}, {8192, 3072, 768}, {8176, 1552, 96},  {16912, 384, 96},
                       {5008, 3072, 48},  {5648, 1008, 208}, {3008, 3088, 272}, {4240, 1536, 1536}};
  for (const Sizes& s : all) try_bytes(s, true);
  try_bytes(all[2], false);
}

TEST_P(GeluProducts, IntoBytesMatchTheReference) {
  const Sizes all[] = {{8192, 1536, 128}, {8192, 3072, 768}, {8176, 1552, 96}, {16912, 384, 96},
                       {5008, 3072, 48},  {5648, 1008, 208}, {3008, 3088, 272}};
  for (const Sizes& s : all) try_into_bytes(s, true);
  try_into_bytes(all[2], false);
}

// A tile's rows beyond the result hold the bias alone, here the largest number of all. Sums begin
// with it, and tensor cores cut each product that they add to about 2^-13 of the largest number.
TEST_P(GeluProducts, RowsBeyondTheResultDoNotCountForTheLargest) {
  std::vector<Array> in = operands(here({5008, 3072, 48}), DType::f8e4m3, true);
  for (std::int64_t i = 0; i < in[0].size(); ++i) in[0].set(i, std::abs(in[0][i]));
  for (std::int64_t i = 0; i < in[1].size(); ++i) in[1].set(i, -std::abs(in[1][i]));
  for (std::int64_t i = 0; i < in[4].size(); ++i) in[4].set(i, 8);
  try_into_bytes(in, 8 * 48 * 0x1p-13);
}

TEST_P(GeluProducts, KeepANumberThatIsNoneInItsRow) {
  const Sizes s = here({5648, 1008, 208});
  std::vector<Array> bytes = operands(s, DType::f8e4m3, true);
  const ir::Contract plain{"mk,nk,,,n->mn", "gelu", DType::bf16, 2};
  try_nan({"mk,nk,n->mn", "gelu", {}}, operands(s, DType::bf16, true));
  try_nan(plain, bytes);
  bytes.push_back(scale_of(0x1p-4));
  try_nan(into_bytes(plain), bytes);
}

FOR_EVERY_DEVICE(GeluProducts);

}  // namespace
}  // namespace tessera::test::gelu_products_test
