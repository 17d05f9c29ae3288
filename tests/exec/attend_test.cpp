// One head of an attention in bf16 by the machine's own kernel (Micro::attend), against loops in
// double, and the gelu of results that become bf16 against the other one.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "exec/cpu/gemm/gemm.h"
#include "exec/cpu/simd/convert.h"
#include "exec/cpu/simd/vector.h"

namespace tessera::test {
namespace {

using exec::cpu::Low;
using std::int64_t;

struct HeadCase {
  int64_t rows, s, d;
  bool bias, mask, low;  // low: both are bf16
};

// Tokens have a few numbers of other heads between them, but for the last one.
class Head {
 public:
  explicit Head(const HeadCase& c) : c_(c), row_(c.d + 8) {
    std::mt19937 random(5);
    const auto low = [&](int64_t tokens) {
      return numbers<Low>((tokens - 1) * row_ + c.d, 1, random);
    };
    q_ = low(c.rows);
    k_ = low(c.s);
    v_ = low(c.s);
    bias_ = numbers<Low>(c.rows * c.s, 1, random);
    mask_ = numbers<Low>(c.rows * c.s, 1, random);
    for (std::size_t i = 0; i < mask_.size(); ++i)
      if (i % 3 == 1) mask_[i] = exec::cpu::round_to_bf16(-std::numeric_limits<float>::infinity());
    for (const Low x : bias_) wide_bias_.push_back(exec::cpu::widen_bf16(x));
    for (const Low x : mask_) wide_mask_.push_back(exec::cpu::widen_bf16(x));
  }

  // Queries from `first` on; false: the kernel does not take them.
  bool run(int64_t first, int64_t rows, std::vector<Low>& o, std::vector<float>& lse) const {
    std::unique_ptr<void, void (*)(void*)> room(
        std::aligned_alloc(64, exec::cpu::gemm_scratch_bytes), std::free);
    o.assign(static_cast<std::size_t>((rows - 1) * row_ + c_.d), Low{0});
    lse.assign(static_cast<std::size_t>(rows), 0.0f);
    const auto addend = [&](bool there, const std::vector<Low>& low,
                            const std::vector<float>& wide) -> exec::cpu::Addend {
      if (!there) return {};
      if (c_.low) return {.low = low.data() + first * c_.s};
      return {.wide = wide.data() + first * c_.s};
    };
    return exec::cpu::micro_low().attend({.q = q_.data() + first * row_,
                                          .k = k_.data(),
                                          .v = v_.data(),
                                          .o = o.data(),
                                          .lse = lse.data(),
                                          .row = row_,
                                          .rows = rows,
                                          .s = c_.s,
                                          .d = c_.d,
                                          .scale = 0.3f,
                                          .bias = addend(c_.bias, bias_, wide_bias_),
                                          .mask = addend(c_.mask, mask_, wide_mask_),
                                          .room = room.get(),
                                          .room_bytes = exec::cpu::gemm_scratch_bytes});
  }

  // o of a query in double, and its lse behind it.
  std::vector<double> expected(int64_t query) const {
    std::vector<double> scores, out(static_cast<std::size_t>(c_.d) + 1);
    double most = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t key = 0; key < c_.s; ++key) {
      double score = 0;
      for (int64_t i = 0; i < c_.d; ++i)
        score += wide(q_, query * row_ + i) * wide(k_, key * row_ + i);
      score *= static_cast<double>(0.3f);
      if (c_.bias) score += wide(bias_, query * c_.s + key);
      if (c_.mask) score += wide(mask_, query * c_.s + key);
      scores.push_back(score);
      most = std::max(most, score);
    }
    for (double& score : scores) {
      score = std::exp(score - most);
      sum += score;
    }
    for (int64_t key = 0; key < c_.s; ++key)
      for (int64_t i = 0; i < c_.d; ++i)
        out[static_cast<std::size_t>(i)] +=
            scores[static_cast<std::size_t>(key)] / sum * wide(v_, key * row_ + i);
    out.back() = most + std::log(sum);
    return out;
  }
  int64_t row() const { return row_; }

 private:
  template <class T>
  static std::vector<T> numbers(int64_t n, float spread, std::mt19937& random) {
    std::normal_distribution<float> normal(0, spread);
    std::vector<T> out;
    for (int64_t i = 0; i < n; ++i) out.push_back(exec::cpu::round_to_bf16(normal(random)));
    return out;
  }
  static double wide(const std::vector<Low>& x, int64_t at) {
    return static_cast<double>(exec::cpu::widen_bf16(x[static_cast<std::size_t>(at)]));
  }

  HeadCase c_;
  int64_t row_;
  std::vector<Low> q_, k_, v_, bias_, mask_;
  std::vector<float> wide_bias_, wide_mask_;
};

void expect_head(const HeadCase& c) {
  SCOPED_TRACE(testing::Message() << c.rows << " queries, " << c.s << " keys, " << c.d
                                  << " wide, bias " << c.bias << ", mask " << c.mask);
  const Head head(c);
  std::vector<Low> o, one_o;
  std::vector<float> lse, one_lse;
  ASSERT_TRUE(head.run(0, c.rows, o, lse));
  for (int64_t query = 0; query < c.rows; ++query) {
    const std::vector<double> want = head.expected(query);
    const float got_lse = lse[static_cast<std::size_t>(query)];
    EXPECT_NEAR(got_lse, want.back(), 1e-5);
    for (int64_t i = 0; i < c.d; ++i)
      EXPECT_NEAR(exec::cpu::widen_bf16(o[static_cast<std::size_t>(query * head.row() + i)]),
                  want[static_cast<std::size_t>(i)], 0.02);
  }
  const int64_t last = c.rows - 1;  // its bits do not depend on the others
  ASSERT_TRUE(head.run(last, 1, one_o, one_lse));
  EXPECT_EQ(one_lse[0], lse.back());
  EXPECT_EQ(one_o, std::vector<Low>(o.end() - c.d, o.end()));
}

TEST(AttendOneHead, MatchesLoopsInDouble) {
  if (!exec::cpu::micro_low().attend) GTEST_SKIP() << "this machine has no such kernel";
  for (const int64_t rows : {1, 7, 49})
    for (const int64_t s : {2, 3, 4, 5, 16, 49, 131})
      for (const int64_t d : {16, 48}) expect_head({rows, s, d, false, false, false});
  for (const int64_t s : {2, 3, 7, 8, 49})
    for (const bool low : {false, true}) {
      expect_head({26, s, 32, true, false, low});
      expect_head({26, s, 32, false, true, low});
      expect_head({26, s, 32, true, true, low});
    }
  expect_head({5, 1, 16, true, false, false});
}

TEST(AttendOneHead, LeavesOtherSizesToOthers) {
  if (!exec::cpu::micro_low().attend) GTEST_SKIP() << "this machine has no such kernel";
  std::vector<Low> o;
  std::vector<float> lse;
  EXPECT_FALSE(Head({3, 5, 8, false, false, false}).run(0, 3, o, lse));
  EXPECT_FALSE(Head({3, 5000, 64, false, false, false}).run(0, 3, o, lse));
}

TEST(GeluOfLowResults, IsCloseToTheOther) {
  std::vector<float> x, low, other;
  for (int i = -12000; i <= 12000; ++i) x.push_back(static_cast<float>(i) * 1e-3f);
  low.resize(x.size());
  other.resize(x.size());
  exec::cpu::vector_gelu_low(x.data(), low.data(), static_cast<int64_t>(x.size()), false);
  exec::cpu::vector_gelu(x.data(), other.data(), static_cast<int64_t>(x.size()), false);
  // The fit is off by 6e-6; rounding adds a unit in the last place where products are not fused
  // with sums.
  constexpr float fit = 6e-6f, unit = 1.2e-7f;
  for (std::size_t i = 0; i < x.size(); ++i)
    EXPECT_NEAR(low[i], other[i], (fit + unit) * std::max(1.0f, std::abs(x[i]))) << x[i];
}

}  // namespace
}  // namespace tessera::test
