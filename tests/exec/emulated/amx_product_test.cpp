// Whole products by AMX (amx_product_x86.h), instructions emulated: which rows tiles read, copies
// of those that are not equally far apart, edges, sums that go on, and every end, against plain
// loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "base/float8.h"
#include "exec/cpu/gemm/amx_product_x86.h"
#include "exec/cpu/gemm/gemm.h"
#include "exec/cpu/gemm/i8.h"
#include "exec/cpu/simd/convert.h"

namespace tessera::test {
namespace {

using exec::cpu::Act;
using exec::cpu::Finish;
using exec::cpu::Low;
using exec::cpu::LowProduct;
using exec::cpu::widen_bf16;
using std::int64_t;

struct Ends {
  bool more = false, low = false, scaled = false, addend = false, relu = false, gelu = false;
};

class Product {
 public:
  int64_t m, n, k, k0 = 0;

  Product(int64_t rows, int64_t columns, int64_t length)
      : m(rows), n(columns), k(length), a_(static_cast<std::size_t>(m * k)) {}

  // A matrix whose rows have others' numbers between them.
  void matrix() {
    row_ = k + 7;
    pool_ = lows(m * row_);
    from_each([&](int64_t i, int64_t p) { return widen_bf16(pool_[at(i * row_ + p)]); });
  }
  // Pieces of `length`, in order or not, of which the numbers from k0 on count.
  void pieces(int64_t length, bool even, int64_t first) {
    k0 = first;
    length_ = length;
    const int64_t padded = (length + 3) / 4 * 4, parts = (k0 + k + padded - 1) / padded;
    pitch_ = m + 32;
    pool_ = lows((m + 40) * (length + 3) + 3 * parts);
    for (int64_t part = 0; part < parts; ++part)
      for (int64_t i = 0; i < pitch_; ++i) {
        const int64_t r = std::min(i, m - 1);
        rows_.push_back(pool_.data() + (even ? r * (length + 2) + 3 * part
                                             : (7 * r + part) % (m + 30) * (length + 1)));
      }
    from_each([&](int64_t i, int64_t p) {
      const int64_t part = (k0 + p) / padded, in = (k0 + p) % padded;
      const void* const piece = rows_[at(part * pitch_ + i)];
      return in < length ? widen_bf16(static_cast<const Low*>(piece)[in]) : 0.0f;
    });
  }

  // Rows of B that have columns in common begin `apart` columns after each other.
  void expect(const Ends& ends, int64_t apart = 0) {
    const int64_t panels = (n + 31) / 32, b_row = apart > 0 ? 4 * apart : 128,
                  b_pitch = apart > 0 ? 128 : (k + 31) / 32 * 2048 + 128, rs = 32 * panels + 3;
    const std::vector<Low> packed = lows(panels * b_pitch / 2 + (k + 64) * b_row / 4 + 4096);
    std::vector<Low> low(at(m * n), Low{7}), before = low;
    std::vector<float> b(at(k * n));
    for (int64_t p = 0; p < k; ++p)
      for (int64_t j = 0; j < n; ++j)
        b[at(p * n + j)] =
            widen_bf16(packed[at(j / 32 * b_pitch / 2 + p / 2 * b_row / 2 + j % 32 * 2 + p % 2)]);
    std::vector<float> c = floats(m * rs);
    const std::vector<float> old = c, scale = floats(n), offset = floats(n);
    const std::vector<Low> addend = lows(m * n);
    // A product that reads behind its room, or numbers that nobody put there, is caught.
    const std::unique_ptr<void, void (*)(void*)> room(std::malloc(at(exec::cpu::panel_bytes)),
                                                      std::free);
    std::fill_n(static_cast<Low*>(room.get()), exec::cpu::panel_bytes / 2, Low{0x7fc0});
    Finish f;
    if (ends.low)
      f = {.scale = ends.scaled ? scale.data() : nullptr,
           .offset = ends.scaled || ends.gelu ? offset.data() : nullptr,
           .low_addend = ends.addend ? addend.data() : nullptr,
           .relu = ends.relu,
           .low = low.data(),
           .pitch = n,
           .act = ends.gelu ? Act::gelu : Act::none,
           .before = ends.gelu ? before.data() : nullptr};
    exec::cpu::product_amx<float>({.m = m,
                                   .n = n,
                                   .k = k,
                                   .a = length_ == 0 ? pool_.data() : nullptr,
                                   .row = row_,
                                   .pieces = {length_, rows_.data(), pitch_},
                                   .k0 = k0,
                                   .b = reinterpret_cast<const std::byte*>(packed.data()),
                                   .b_pitch = b_pitch,
                                   .b_row = b_row,
                                   .more = ends.more,
                                   .c = c.data(),
                                   .rs = rs,
                                   .finish = f,
                                   .room = room.get()});
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < rs; ++j) {
        float sum = ends.more ? old[at(i * rs + j)] : 0;
        for (int64_t p = 0; p < k && j < n; ++p) sum += a_[at(i * k + p)] * b[at(p * n + j)];
        const float want = ends.low || j >= n ? old[at(i * rs + j)] : sum;
        ASSERT_EQ(want, c[at(i * rs + j)]) << "row " << i << ", column " << j;
        if (!ends.low || j >= n) continue;
        Low rounded = exec::cpu::round_to_bf16(ended(f, sum, i, j));
        if (ends.gelu) {
          ASSERT_EQ(rounded, before[at(i * n + j)]) << "before, row " << i << ", column " << j;
          rounded = exec::cpu::round_to_bf16(gelu(widen_bf16(rounded)));
        }
        ASSERT_EQ(rounded, low[at(i * n + j)]) << "end, row " << i << ", column " << j;
      }
  }

 private:
  static std::size_t at(int64_t i) { return static_cast<std::size_t>(i); }
  static float ended(const Finish& f, float v, int64_t i, int64_t j) {
    if (f.scale)
      v = std::fma(v, f.scale[j], f.offset[j]);
    else if (f.offset)
      v += f.offset[j];
    if (f.low_addend) v += widen_bf16(f.low_addend[i * f.pitch + j]);
    return f.relu && v < 0 ? 0.0f : v;
  }
  static float gelu(float x) {
    float wide[16];
    _mm512_store_ps(wide, exec::cpu::gelu_low_16(_mm512_set1_ps(x)));
    return wide[0];
  }
  std::vector<float> floats(int64_t count) {
    std::vector<float> out(at(count));
    std::generate(out.begin(), out.end(), [&] { return normal_(random_); });
    return out;
  }
  std::vector<Low> lows(int64_t count) {
    std::vector<Low> out(at(count));
    std::generate(out.begin(), out.end(),
                  [&] { return exec::cpu::round_to_bf16(normal_(random_)); });
    return out;
  }
  template <class Number>
  void from_each(const Number& number) {
    for (int64_t i = 0; i < m; ++i)
      for (int64_t p = 0; p < k; ++p) a_[at(i * k + p)] = number(i, p);
  }

  std::mt19937 random_{5};
  std::normal_distribution<float> normal_;
  std::vector<float> a_;  // as numbers
  std::vector<Low> pool_;
  int64_t row_ = 0, length_ = 0, pitch_ = 0;
  std::vector<const void*> rows_;
};

const Ends all_ends[] = {{},
                         {.more = true},
                         {.low = true},
                         {.more = true, .low = true, .scaled = true},
                         {.low = true, .addend = true, .relu = true},
                         {.more = true, .low = true, .scaled = true, .addend = true, .relu = true},
                         {.low = true, .gelu = true},
                         {.more = true, .low = true, .gelu = true}};

TEST(AmxProduct, OfAMatrixHasTheBitsOfPlainLoops) {
  for (const int64_t m : {1, 16, 17, 32, 33, 70})
    for (const int64_t n : {1, 17, 32, 45})
      for (const int64_t k : {5, 32, 33, 96, 130})
        for (const Ends& ends : all_ends) {
          SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k);
          Product product(m, n, k);
          product.matrix();
          ASSERT_NO_FATAL_FAILURE(product.expect(ends));
        }
}

TEST(AmxProduct, OfOverlappingRowsHasTheBitsOfPlainLoops) {
  for (const int64_t m : {32, 64})
    for (const int64_t n : {9, 21, 75})
      for (const int64_t apart : {2, 12})
        for (const Ends& ends : {all_ends[0], all_ends[1]}) {
          SCOPED_TRACE(testing::Message() << m << " x " << n << ", " << apart << " apart");
          Product product(m, n, 96);
          product.matrix();
          ASSERT_NO_FATAL_FAILURE(product.expect(ends, apart));
        }
}

TEST(AmxProduct, OfPiecesHasTheBitsOfPlainLoops) {
  for (const bool even : {true, false})
    for (const int64_t m : {1, 16, 20, 33, 64})
      for (const int64_t length : {3, 8, 12, 28, 32, 96})
        for (const int64_t parts : {1, 3, 20})
          for (const int64_t first : {0, 32})
            for (const Ends& ends : {all_ends[0], all_ends[5]}) {
              const int64_t all = parts * ((length + 3) / 4 * 4);
              if (all <= first) continue;
              SCOPED_TRACE(testing::Message() << m << " rows, " << parts << " pieces of " << length
                                              << " from " << first << (even ? ", even" : ""));
              Product product(m, 40, all - first);
              product.pieces(length, even, first);
              ASSERT_NO_FATAL_FAILURE(product.expect(ends));
            }
}

// A product of i8, as finished_i8() (gemm/i8.h) asks for it; scales and offsets may be anything.
// With an `inverse` results are bytes as well.
void expect_bytes(int64_t m, int64_t n, int64_t k, Act act, bool before, bool wild,
                  float inverse = 0) {
  const auto at = [](int64_t i) { return static_cast<std::size_t>(i); };
  std::mt19937 random(9);
  const auto byte = [&] {
    return static_cast<std::int8_t>(static_cast<int>(random() % 256) - 128);
  };
  std::normal_distribution<float> normal;
  const int64_t panels = (n + 31) / 32, b_pitch = (k + 63) / 64 * 2048 + 128, row = k + 6,
                pitch = n + 5;
  std::vector<Low> a(at(m * row / 2));
  auto* const rows = reinterpret_cast<std::int8_t*>(a.data());
  std::generate_n(rows, m * row, byte);
  std::vector<std::int8_t> b(at(k * n)), packed(at(panels * b_pitch));
  for (int64_t p = 0; p < k; ++p)
    for (int64_t j = 0; j < n; ++j)
      packed[at(j / 32 * b_pitch + p / 4 * 128 + j % 32 * 4 + p % 4)] = b[at(p * n + j)] = byte();
  std::vector<float> scale(at(n)), offset(at(n));
  for (int64_t j = 0; j < n; ++j) {
    const float kinds[] = {1e-4f * normal(random), INFINITY, NAN, 1e-40f, -INFINITY, 0.0f, 3e38f};
    scale[at(j)] = kinds[wild ? j % 7 : 0];
    offset[at(j)] = wild && j % 7 == 3 ? 0.0f : wild && j % 7 == 5 ? kinds[j % 6] : normal(random);
  }
  // A product that reads numbers that nobody put into its room is caught.
  const std::unique_ptr<void, void (*)(void*)> room(std::malloc(at(exec::cpu::i8_panel_bytes)),
                                                    std::free);
  std::fill_n(static_cast<std::int8_t*>(room.get()), exec::cpu::i8_panel_bytes, std::int8_t{77});
  std::vector<Low> low(at(m * pitch), Low{7}), z = low;
  std::vector<std::int8_t> bytes(at(m * pitch), std::int8_t{7});
  exec::cpu::product_amx<std::int32_t>({.m = m,
                                        .n = n,
                                        .k = k / 2,
                                        .a = a.data(),
                                        .row = row / 2,
                                        .b = reinterpret_cast<const std::byte*>(packed.data()),
                                        .b_pitch = b_pitch,
                                        .finish = {.scale = scale.data(),
                                                   .offset = offset.data(),
                                                   .low = inverse != 0 ? nullptr : low.data(),
                                                   .pitch = pitch,
                                                   .act = act,
                                                   .before = before ? z.data() : nullptr,
                                                   .bytes = inverse != 0 ? bytes.data() : nullptr,
                                                   .inverse = inverse},
                                        .room = room.get()});
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < pitch; ++j) {
      Low want = 7, want_z = 7;
      std::int8_t want_byte = 7;
      if (j < n) {
        std::int32_t sum = 0;
        for (int64_t p = 0; p < k; ++p) sum += rows[i * row + p] * b[at(p * n + j)];
        want = exec::cpu::round_to_bf16(
            std::fma(static_cast<float>(sum), scale[at(j)], offset[at(j)]));
        if (act != Act::none && before) want_z = want;
        float wide[16];
        _mm512_store_ps(wide, exec::cpu::acted_16(act, _mm512_set1_ps(widen_bf16(want))));
        if (act != Act::none) want = exec::cpu::round_to_bf16(wide[0]);
        want_byte = to_int8(widen_bf16(want) * inverse);
      }
      const bool in_bytes = inverse != 0;
      ASSERT_EQ(in_bytes ? Low{7} : want, low[at(i * pitch + j)])
          << "row " << i << ", column " << j;
      ASSERT_EQ(in_bytes ? want_byte : std::int8_t{7}, bytes[at(i * pitch + j)])
          << "byte, row " << i << ", column " << j;
      ASSERT_EQ(want_z, z[at(i * pitch + j)]) << "before, row " << i << ", column " << j;
    }
}

TEST(AmxProduct, OfBytesHasTheBitsOfPlainLoops) {
  for (const int64_t m : {1, 16, 17, 32, 33, 70})
    for (const int64_t n : {1, 17, 32, 45, 96})
      for (const int64_t k : {2, 64, 66, 192, 250})
        for (const Act act : {Act::none, Act::gelu, Act::gelu_tanh})
          for (const bool before : {false, true}) {
            SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k);
            ASSERT_NO_FATAL_FAILURE(expect_bytes(m, n, k, act, before, false));
            if (act == Act::none) continue;
            ASSERT_NO_FATAL_FAILURE(expect_bytes(m, n, k, act, before, false, 9.0f));
          }
}
TEST(AmxProduct, OfBytesEndsWithAnyScale) {
  for (const Act act : {Act::none, Act::gelu, Act::gelu_tanh})
    for (const float inverse : {0.0f, 9.0f, INFINITY}) {
      if (inverse != 0 && act == Act::none) continue;
      ASSERT_NO_FATAL_FAILURE(expect_bytes(40, 45, 130, act, true, true, inverse));
    }
}
// Sums are exact: on their way to a small odd number they pass 2^25, beside which a float holds no
// odd one.
TEST(AmxProduct, OfBytesAddsThemExactly) {
  constexpr int64_t k = 4096;
  std::vector<Low> a(k / 2, Low{0x8080}), low(1);
  a[0] = 0x8001;  // the first number is 1
  std::vector<std::int8_t> b(k * 32, std::int8_t{-128});
  for (int64_t p = k / 2; p < k; ++p) b[static_cast<std::size_t>(p / 4 * 128 + p % 4)] = 127;
  b[0] = 1;
  // 1 + 2,047 x 128^2 - 2,048 x 128 x 127 is 245,761.
  const float scale = 1, offset = -245760;
  std::vector<std::byte> room(exec::cpu::i8_panel_bytes);
  exec::cpu::product_amx<std::int32_t>(
      {.m = 1,
       .n = 1,
       .k = k / 2,
       .a = a.data(),
       .row = k / 2,
       .b = reinterpret_cast<const std::byte*>(b.data()),
       .b_pitch = k * 32,
       .finish = {.scale = &scale, .offset = &offset, .low = low.data(), .pitch = 1},
       .room = room.data()});
  EXPECT_EQ(widen_bf16(low[0]), 1);
}

// Against the definition, and not against the function that finishes products.
TEST(AmxProduct, TakesGelu) {
  for (const auto& [act, inner] : {std::pair{Act::gelu, 0}, std::pair{Act::gelu_tanh, 1}})
    for (float x = -9; x < 9; x += 0.0625f) {
      float found[16];
      _mm512_store_ps(found, exec::cpu::acted_16(act, _mm512_set1_ps(x)));
      const double wide = x, u = std::sqrt(2 / M_PI) * (wide + 0.044715 * wide * wide * wide),
                   want = wide / 2 *
                          (inner == 0 ? 1 + std::erf(wide / std::sqrt(2.0)) : 1 + std::tanh(u));
      EXPECT_NEAR(found[0], want, 7e-6 * std::max(1.0, std::abs(wide))) << x;
    }
}

TEST(AmxProduct, RoundsTheSmallestNumbersToo) {
  float wide[32], some[32];
  for (int i = 0; i < 32; ++i) {
    wide[i] = std::ldexp(1.0f + static_cast<float>(i) / 40, i < 16 ? -130 : -140 + i);
    some[i] = i == 5 ? std::nanf("") : static_cast<float>(i) / 3 - 5;
  }
  for (const float* const x : {wide, some}) {
    const __m512i rounded = exec::cpu::rounded_32(_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16));
    Low found[32];
    _mm512_storeu_si512(found, rounded);
    for (int i = 0; i < 32; ++i) EXPECT_EQ(exec::cpu::round_to_bf16(x[i]), found[i]) << x[i];
  }
}

}  // namespace
}  // namespace tessera::test
