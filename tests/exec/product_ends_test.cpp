// Products on the CPU: the end that a micro-kernel gives to its sums has the bits of what bias,
// rounding, gelu and rounding give one after the other, and both f32 micro-kernels have the same
// bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <ostream>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "exec/cpu/gemm/gemm.h"
#include "exec/cpu/simd/convert.h"
#include "exec/cpu/simd/vector.h"

namespace tessera::test {
namespace {

using exec::cpu::Low;
using std::int64_t;

using Bytes = std::unique_ptr<std::byte, void (*)(void*)>;
Bytes bytes(std::size_t size) {
  return {static_cast<std::byte*>(std::aligned_alloc(64, (size + 63) / 64 * 64)), std::free};
}

template <class T>
std::vector<T> numbers(int64_t n, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<T> out;
  for (int64_t i = 0; i < n; ++i)
    if constexpr (std::is_same_v<T, Low>)
      out.push_back(exec::cpu::round_to_bf16(normal(random)));
    else
      out.push_back(normal(random));
  return out;
}

template <class T>
struct Packed {
  int64_t m, n, k, pitch;
  std::vector<T> a;
  Bytes panels, room = bytes(exec::cpu::gemm_scratch_bytes);

  Packed(int64_t rows, int64_t columns, int64_t length, std::mt19937& random)
      : m(rows),
        n(columns),
        k(length),
        pitch(exec::cpu::packed_columns(columns)),
        a(numbers<T>(rows * length, random)),
        panels(bytes(sizeof(T) *
                     static_cast<std::size_t>(exec::cpu::packed_b_elements<T>(length, columns)))) {
    const std::vector<T> b = numbers<T>(k * n, random);
    for (int64_t n0 = 0; n0 < n; n0 += exec::cpu::panel_columns)
      exec::cpu::gemm_pack_b<T>(k, n0, std::min(exec::cpu::panel_columns, n - n0), b.data(), n, 1,
                                reinterpret_cast<T*>(panels.get()));
  }
  std::vector<float> sums(const exec::cpu::Finish& finish) const {
    std::vector<float> c(static_cast<std::size_t>(m * pitch));
    exec::cpu::gemm_packed<T>(m, n, k, a.data(), k, 1,
                              {reinterpret_cast<const T*>(panels.get()), k, 0, 0}, 0, c.data(),
                              pitch, room.get(), finish);
    return c;
  }
};

// Shapes of a product of bf16, its activation, and whether what that is applied to is wanted too.
struct EndCase {
  int64_t m, n, k;
  exec::cpu::Act act;
  bool before;
};
void expect_ends(const EndCase& c) {
  std::mt19937 random(9);
  const Packed<Low> product(c.m, c.n, c.k, random);
  const std::vector<float> bias = numbers<float>(product.pitch, random);
  std::vector<float> z;
  const std::vector<float> sums = product.sums({});
  for (int64_t i = 0; i < c.m; ++i)
    for (int64_t j = 0; j < c.n; ++j)
      z.push_back(sums[static_cast<std::size_t>(i * product.pitch + j)] +
                  bias[static_cast<std::size_t>(j)]);
  std::vector<float> y = z;
  std::vector<Low> before(z.size()), after(z.size()), want(z.size());
  if (c.act != exec::cpu::Act::none) {
    exec::cpu::round_to_bf16(z.data(), want.data(), c.m * c.n);
    exec::cpu::widen_bf16(want.data(), y.data(), c.m * c.n);
    exec::cpu::vector_gelu_low(y.data(), y.data(), c.m * c.n, c.act == exec::cpu::Act::gelu_tanh);
  }
  product.sums({.offset = bias.data(),
                .low = after.data(),
                .pitch = c.n,
                .act = c.act,
                .before = c.before ? before.data() : nullptr});
  exec::cpu::round_to_bf16(y.data(), want.data(), c.m * c.n);
  EXPECT_EQ(want, after) << c.m << " x " << c.n << " x " << c.k;
  if (!c.before) return;
  exec::cpu::round_to_bf16(z.data(), want.data(), c.m * c.n);
  EXPECT_EQ(want, before) << "before act, " << c.m << " x " << c.n << " x " << c.k;
}
TEST(ProductEnds, HaveTheBitsOfOneStepAfterTheOther) {
  using exec::cpu::Act;
  if (!exec::cpu::micro<Low>().tile_low && !exec::cpu::micro<Low>().product)
    GTEST_SKIP() << "this machine's tiles are not finished";
  const int64_t block = exec::cpu::micro<Low>().k_block;
  for (const Act act : {Act::none, Act::gelu, Act::gelu_tanh})
    for (const int64_t m : {1, 7, 96, 301})
      for (const int64_t n : {1, 16, 37})
        for (const int64_t k : {int64_t{33}, int64_t{96}, int64_t{130}, block, 2 * block + 5}) {
          expect_ends({m, n, k, act, false});
          if (act != Act::none) expect_ends({m, n, k, act, true});
        }
}

// One panel of each factor through tile and through tile_low, with all that may finish it.
TEST(ProductEnds, TileLowHasTheBitsOfTile) {
  const exec::cpu::Micro& micro = exec::cpu::micro<Low>();
  if (!micro.tile_low) GTEST_SKIP() << "this machine's tiles are not finished";
  std::mt19937 random(11);
  const int64_t k = micro.padded(40), columns = micro.columns;
  const std::vector<Low> a = numbers<Low>(micro.rows * k, random),
                         b = numbers<Low>(columns * k, random),
                         addend = numbers<Low>(micro.rows * columns, random);
  const std::vector<float> c = numbers<float>(micro.rows * columns, random),
                           scale = numbers<float>(columns, random),
                           offset = numbers<float>(columns, random);
  if (micro.begin) micro.begin();
  for (int64_t rows = 1; rows <= micro.rows; ++rows)
    for (const int64_t cols : {int64_t{1}, int64_t{9}, columns})
      for (int flags = 0; flags < 16; ++flags) {
        const bool more = flags & 1, scaled = flags & 2, added = flags & 4, relu = flags & 8;
        std::vector<float> sums = c;
        exec::cpu::TileOut out{.c = sums.data(),
                               .rs = columns,
                               .rows = rows,
                               .cols = cols,
                               .beta = more ? 1.0f : 0.0f};
        micro.tile(k, a.data(), b.data(), out);
        std::vector<float> kept = c;
        out.c = kept.data();
        std::vector<Low> low(a.size() + c.size(), Low{7}), want = low;
        for (int64_t i = 0; i < rows; ++i)
          for (int64_t j = 0; j < cols; ++j) {
            const auto at = static_cast<std::size_t>(i * columns + j);
            const auto column = static_cast<std::size_t>(j);
            float v = sums[at];
            if (scaled) v = std::fma(v, scale[column], offset[column]);
            if (added) v += exec::cpu::widen_bf16(addend[at]);
            want[at] = exec::cpu::round_to_bf16(relu && v <= 0 ? 0.0f : v);
          }
        micro.tile_low(k, a.data(), b.data(), out,
                       {.scale = scaled ? scale.data() : nullptr,
                        .offset = scaled ? offset.data() : nullptr,
                        .low_addend = added ? addend.data() : nullptr,
                        .relu = relu,
                        .low = low.data(),
                        .pitch = columns});
        EXPECT_EQ(want, low) << rows << " x " << cols << ", case " << flags;
        EXPECT_EQ(kept, c) << "C was written, case " << flags;
      }
  if (micro.end) micro.end();
}

// A product of f32 by the micro-kernel in use; turned: lanes of both factors lie side by side.
struct F32Product {
  int64_t m, n, k;
  bool turned;
  std::vector<float> a, b, c;
  float alpha = 1, beta = 0;

  F32Product(int64_t rows, int64_t columns, int64_t length, bool sides, std::mt19937& random)
      : m(rows),
        n(columns),
        k(length),
        turned(sides),
        a(numbers<float>(m * k, random)),
        b(numbers<float>(k * n, random)),
        c(numbers<float>(m * n, random)) {}

  int64_t rs_a() const { return turned ? 1 : k; }
  int64_t cs_a() const { return turned ? m : 1; }
  std::vector<float> plain(void* room) const {
    std::vector<float> to = c;
    exec::cpu::gemm<float>(m, n, k, alpha, a.data(), rs_a(), cs_a(), b.data(), turned ? n : 1,
                           turned ? 1 : k, beta, to.data(), n, 1, room);
    return to;
  }
  // B packed in tasks of so many columns and rows.
  std::vector<float> packed(int64_t columns, int64_t rows, void* room,
                            const exec::cpu::Finish& finish = {}) const {
    const Bytes panels =
        bytes(sizeof(float) * static_cast<std::size_t>(exec::cpu::packed_b_elements<float>(k, n)));
    float* const to_panels = reinterpret_cast<float*>(panels.get());
    for (int64_t n0 = 0; n0 < n; n0 += columns)
      for (int64_t k0 = 0; k0 < k; k0 += rows)
        exec::cpu::gemm_pack_b<float>(k, n0, std::min(columns, n - n0), b.data(), turned ? n : 1,
                                      turned ? 1 : k, to_panels, {k0, rows});
    std::vector<float> to = c;
    exec::cpu::gemm_packed<float>(m, n, k, a.data(), rs_a(), cs_a(), {to_panels, k, 0, 0}, beta,
                                  to.data(), n, room, finish);
    return to;
  }
  // Both packed; A in tasks of so many of k. Rows are multiplied in two parts.
  std::vector<float> both_packed(int64_t part, void* room) const {
    const auto panels = [](int64_t elements) {
      return bytes(sizeof(float) * static_cast<std::size_t>(elements));
    };
    const Bytes rows = panels(exec::cpu::packed_a_elements(m, k)),
                columns = panels(exec::cpu::packed_b_elements<float>(k, n));
    auto* const of_a = reinterpret_cast<float*>(rows.get());
    auto* const of_b = reinterpret_cast<float*>(columns.get());
    for (int64_t k0 = 0; k0 < k; k0 += part)
      exec::cpu::gemm_pack_a(m, k, a.data(), rs_a(), cs_a(), of_a, {k0, part});
    exec::cpu::gemm_pack_b<float>(k, 0, n, b.data(), turned ? n : 1, turned ? 1 : k, of_b);
    std::vector<float> to = c;
    for (int64_t first = 0, next = 0; first < m; first = next) {
      next = first == 0 ? std::min(m, 2 * exec::cpu::scattered_rows) : m;
      exec::cpu::gemm_packed<float>(next - first, n, k, a.data() + first * rs_a(), rs_a(), cs_a(),
                                    {of_b, k, 0, 0}, beta, to.data() + first * n, n, room, {},
                                    {of_a, k, 0, first});
    }
    return to;
  }
  friend std::ostream& operator<<(std::ostream& out, const F32Product& p) {
    return out << p.m << " x " << p.n << " x " << p.k << (p.turned ? ", turned" : "") << ", alpha "
               << p.alpha << ", beta " << p.beta;
  }
};
bool same_bits(const std::vector<float>& x, const std::vector<float>& y) {
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
}

class F32Products : public ::testing::Test {
 protected:
  void TearDown() override { exec::cpu::use_vector_f32(false); }

  // 300 rows of k 384 and 1,100 are more than one block of A; 49 columns leave a single one.
  template <class Body>
  void for_products(const Body& body) {
    std::mt19937 random(10);
    for (const int64_t m : {1, 6, 13, 29, 300})
      for (const int64_t n : {1, 16, 45, 49, 147})
        for (const int64_t k : {1, 2, 33, 384, 1100})
          for (const bool turned : {false, true}) body(F32Product(m, n, k, turned, random));
  }
  Bytes room = bytes(exec::cpu::gemm_scratch_bytes);
};

TEST_F(F32Products, HaveTheSameBitsByBothMicroKernels) {
  if (!exec::cpu::machine_f32()) GTEST_SKIP() << "vectors are all that this machine has";
  for_products([&](F32Product p) {
    for (const auto& [alpha, beta] : {std::pair(1.0f, 0.0f), {1.0f, 1.0f}, {0.5f, 2.0f}}) {
      p.alpha = alpha;
      p.beta = beta;
      exec::cpu::use_vector_f32(false);
      const std::vector<float> best = p.plain(room.get());
      exec::cpu::use_vector_f32(true);
      EXPECT_TRUE(same_bits(best, p.plain(room.get()))) << p;
    }
  });
}

TEST_F(F32Products, HaveTheSameBitsFromPackedPanels) {
  for (const bool vectors : {false, true}) {
    exec::cpu::use_vector_f32(vectors);
    for_products([&](F32Product p) {
      for (const float beta : {0.0f, 1.0f}) {
        p.beta = beta;
        const std::vector<float> plain = p.plain(room.get());
        EXPECT_TRUE(same_bits(plain, p.packed(exec::cpu::panel_columns, p.k, room.get()))) << p;
        EXPECT_TRUE(same_bits(plain, p.packed(p.n, exec::cpu::low_group, room.get()))) << p;
        EXPECT_TRUE(same_bits(plain, p.packed(p.n, 2 * exec::cpu::low_group, room.get()))) << p;
        EXPECT_TRUE(same_bits(plain, p.both_packed(2 * exec::cpu::low_group, room.get()))) << p;
        EXPECT_TRUE(same_bits(plain, p.both_packed(p.k, room.get()))) << p;
      }
    });
  }
}

TEST_F(F32Products, AddOffsetsToCompleteSums) {
  if (!exec::cpu::micro_f32().offsets) GTEST_SKIP() << "tiles of this machine add none";
  std::mt19937 random(11);
  const std::vector<float> offset = numbers<float>(147, random);
  for_products([&](const F32Product& p) {
    std::vector<float> want = p.plain(room.get());
    for (std::size_t i = 0; i < want.size(); ++i)
      want[i] += offset[i % static_cast<std::size_t>(p.n)];
    EXPECT_TRUE(
        same_bits(want, p.packed(p.n, exec::cpu::low_group, room.get(), {.offset = offset.data()})))
        << p;
  });
}

}  // namespace
}  // namespace tessera::test
