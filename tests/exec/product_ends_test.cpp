// Products on the CPU: the end that a micro-kernel gives to its sums has the bits of what bias,
// gelu and rounding give one after the other, and both f32 micro-kernels have the same bits.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <type_traits>
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
  std::vector<float> sums(const exec::cpu::TileEnd& end) const {
    std::vector<float> c(static_cast<std::size_t>(m * pitch));
    exec::cpu::gemm_packed<T>(m, n, k, a.data(), k, 1,
                              {reinterpret_cast<const T*>(panels.get()), k, 0, 0}, 0, c.data(),
                              pitch, room.get(), end);
    return c;
  }
};

template <class T>
void put(const std::vector<float>& from, T* to) {
  const auto n = static_cast<int64_t>(from.size());
  if constexpr (std::is_same_v<T, Low>)
    exec::cpu::round_to_bf16(from.data(), to, n);
  else
    std::memcpy(to, from.data(), from.size() * sizeof(float));
}

template <class T>
void expect_ends(int64_t m, int64_t n, int64_t k, exec::cpu::Act act) {
  std::mt19937 random(9);
  const Packed<T> product(m, n, k, random);
  std::vector<float> bias = numbers<float>(product.pitch, random);
  std::vector<float> z, y;
  const std::vector<float> sums = product.sums({});
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      z.push_back(sums[static_cast<std::size_t>(i * product.pitch + j)] +
                  bias[static_cast<std::size_t>(j)]);
  y.resize(z.size());
  exec::cpu::vector_gelu(z.data(), y.data(), m * n, act == exec::cpu::Act::gelu_tanh);
  std::vector<T> before(z.size()), after(z.size()), want(z.size());
  product.sums({.bias = bias.data(),
                .act = act,
                .before = before.data(),
                .after = act == exec::cpu::Act::none ? nullptr : after.data(),
                .pitch = n});
  put(z, want.data());
  EXPECT_EQ(std::memcmp(want.data(), before.data(), want.size() * sizeof(T)), 0)
      << m << " x " << n << " x " << k;
  if (act == exec::cpu::Act::none) return;
  put(y, want.data());
  EXPECT_EQ(std::memcmp(want.data(), after.data(), want.size() * sizeof(T)), 0)
      << "act, " << m << " x " << n << " x " << k;
}

template <class T>
void expect_all_ends() {
  using exec::cpu::Act;
  if (!exec::cpu::micro<T>().end_column) GTEST_SKIP() << "this machine's products do not end";
  for (const Act act : {Act::none, Act::gelu, Act::gelu_tanh})
    for (const int64_t m : {1, 7, 96, 301})
      for (const int64_t n : {1, 16, 37}) {
        expect_ends<T>(m, n, 33, act);
        expect_ends<T>(m, n, exec::cpu::micro<T>().k_block, act);
      }
}
TEST(ProductEnds, HaveTheBitsOfOneStepAfterTheOther) { expect_all_ends<Low>(); }

TEST(ProductEnds, BothF32MicroKernelsHaveTheSameBits) {
  if (!exec::cpu::machine_f32()) GTEST_SKIP() << "vectors are all that this machine has";
  std::mt19937 random(10);
  for (const int64_t m : {1, 13, 300})
    for (const int64_t n : {1, 8, 45})
      for (const int64_t k : {1, 64, 500}) {
        const std::vector<float> a = numbers<float>(m * k, random),
                                 b = numbers<float>(k * n, random);
        const Bytes room = bytes(exec::cpu::gemm_scratch_bytes);
        std::vector<float> best(static_cast<std::size_t>(m * n)), vectors = best;
        const auto multiply = [&](std::vector<float>& c) {
          exec::cpu::gemm<float>(m, n, k, 1, a.data(), k, 1, b.data(), n, 1, 0, c.data(), n, 1,
                                 room.get());
        };
        multiply(best);
        exec::cpu::use_vector_f32(true);
        multiply(vectors);
        exec::cpu::use_vector_f32(false);
        EXPECT_EQ(std::memcmp(best.data(), vectors.data(), best.size() * sizeof(float)), 0)
            << m << " x " << n << " x " << k;
      }
}

}  // namespace
}  // namespace tessera::test
