// i8 products: every micro-kernel of this machine gives exact sums, for any shape and strides.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "exec/cpu/gemm/i8.h"
#include "portable/micros_in_use.h"

namespace tessera::test::i8_test {
namespace {

using std::int64_t;

struct Aligned {
  explicit Aligned(int64_t bytes)
      : at(static_cast<std::int8_t*>(
               std::aligned_alloc(64, static_cast<std::size_t>((bytes + 63) / 64 * 64))),
           std::free) {}
  std::unique_ptr<std::int8_t, void (*)(void*)> at;
};

struct Bytes {
  int64_t m, n, k;
  bool turned_a, turned_b;
  std::vector<std::int8_t> a, b;

  // All numbers, -128 too; some products have nothing but the largest ones.
  Bytes(std::mt19937& random, int64_t m_, int64_t n_, int64_t k_) : m(m_), n(n_), k(k_) {
    turned_a = random() % 2 == 0;
    turned_b = random() % 2 == 0;
    const bool extreme = random() % 4 == 0;
    const auto number = [&] {
      return static_cast<std::int8_t>(extreme ? -128 : static_cast<int>(random() % 256) - 128);
    };
    for (int64_t i = 0; i < m * k; ++i) a.push_back(number());
    for (int64_t i = 0; i < k * n; ++i) b.push_back(number());
  }
  int64_t rs_a() const { return turned_a ? 1 : k; }
  int64_t cs_a() const { return turned_a ? m : 1; }
  int64_t rs_b() const { return turned_b ? 1 : n; }
  int64_t cs_b() const { return turned_b ? k : 1; }
  int64_t exact(int64_t i, int64_t j) const {
    int64_t sum = 0;
    for (int64_t p = 0; p < k; ++p)
      sum += int64_t{a[static_cast<std::size_t>(i * rs_a() + p * cs_a())]} *
             b[static_cast<std::size_t>(p * rs_b() + j * cs_b())];
    return sum;
  }
  Aligned packed() const {
    Aligned out(exec::cpu::packed_i8_bytes(k, n));
    for (int64_t n0 = 0; n0 < n; n0 += exec::cpu::panel_columns)
      exec::cpu::pack_i8(k, n0, std::min(exec::cpu::panel_columns, n - n0), b.data(), rs_b(),
                         cs_b(), out.at.get());
    return out;
  }
};

void expect_exact(const Bytes& p, std::string_view micro) {
  const Aligned panels = p.packed(), room(exec::cpu::i8_panel_bytes);
  const int64_t pitch = p.n + 3;
  constexpr std::int32_t untouched = 123456789;
  std::vector<std::int32_t> c(static_cast<std::size_t>(p.m * pitch), untouched);
  // As two tasks, where there are columns for two.
  const int64_t cut = p.n > exec::cpu::panel_columns ? exec::cpu::panel_columns : p.n;
  for (const auto& [n0, size] : {std::pair(int64_t{0}, cut), std::pair(cut, p.n - cut)})
    if (size > 0)
      exec::cpu::gemm_i8(p.m, size, p.k, p.a.data(), p.rs_a(), p.cs_a(), panels.at.get(), n0,
                         c.data() + n0, pitch, room.at.get());
  int64_t wrong = 0;
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < pitch; ++j)
      wrong += c[static_cast<std::size_t>(i * pitch + j)] !=
               (j < p.n ? p.exact(i, j) : int64_t{untouched});
  EXPECT_EQ(wrong, 0) << micro << ": " << p.m << " x " << p.n << " x " << p.k
                      << (p.turned_a ? ", A turned" : "") << (p.turned_b ? ", B turned" : "");
}

class EveryI8Micro : public ::testing::Test {
 protected:
  MicrosInUse kept_;
};

TEST_F(EveryI8Micro, SumsAreExact) {
  for (const exec::cpu::Micro* micro : exec::cpu::i8_micros()) {
    ASSERT_TRUE(exec::cpu::use_i8_micro(micro->name));
    std::mt19937 random(7);
    const auto below = [&](std::uint32_t end) { return static_cast<int64_t>(random() % end); };
    for (int i = 0; i < 40; ++i) {
      const int64_t k = 1 + below(below(8) == 0 ? 1300 : 140);
      expect_exact(Bytes(random, 1 + below(70), 1 + below(70), k), micro->name);
    }
    expect_exact(Bytes(random, 64, 64, 1088), micro->name);  // whole tiles, two blocks of k
    expect_exact(Bytes(random, 3, 5, 0), micro->name);
  }
}

TEST_F(EveryI8Micro, KnowsItsNames) {
  EXPECT_FALSE(exec::cpu::use_i8_micro("no such thing"));
  EXPECT_TRUE(exec::cpu::use_i8_micro(exec::cpu::portable_i8_micro()->name));
}

}  // namespace
}  // namespace tessera::test::i8_test
