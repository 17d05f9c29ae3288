// The gradient of one head of an attention in bf16 by the machine's own kernel
// (Micro::attend_grad), against loops in double. Legend: t query, s key.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "exec/cpu/gemm/gemm.h"
#include "exec/cpu/simd/convert.h"

namespace tessera::test::attend_grad_test {
namespace {

using exec::cpu::Low;
using std::int64_t;

struct GradCase {
  int64_t t, s, d;
  bool bias, mask, sum;  // sum: that of dS is wanted
};
constexpr int64_t gap = 8;    // numbers of other heads between tokens, but for the last one
constexpr Low untouched = 7;  // what they are, and what results are before
constexpr Low minus_infinity = 0xff80;
constexpr double scale = 0.125;  // of the scores

std::size_t size(int64_t n) { return static_cast<std::size_t>(n); }
double wide(const std::vector<Low>& x, int64_t at) {
  return static_cast<double>(exec::cpu::widen_bf16(x[size(at)]));
}

struct GradHead {
  GradCase c;
  int64_t row;
  std::vector<Low> q, k, v, o, d_o, dq, dk, dv;
  std::vector<float> bias, lse, sum;
  std::vector<Low> mask;
  std::vector<double> p, ds;  // expected

  explicit GradHead(const GradCase& sizes) : c(sizes), row(c.d + gap) {
    std::mt19937 random(6);
    std::normal_distribution<float> normal;
    const auto low = [&](int64_t n) {
      std::vector<Low> out;
      for (int64_t i = 0; i < n; ++i) out.push_back(exec::cpu::round_to_bf16(normal(random)));
      return out;
    };
    const int64_t queries = (c.t - 1) * row + c.d, keys = (c.s - 1) * row + c.d;
    q = low(queries);
    k = low(keys);
    v = low(keys);
    o = low(queries);
    d_o = low(queries);
    mask = low(c.t * c.s);
    for (int64_t i = 0; i < c.t * c.s; ++i)
      if (i % c.s % 3 == 2) mask[size(i)] = minus_infinity;  // such pairs have no weight
    for (int64_t i = 0; i < c.t * c.s; ++i) bias.push_back(normal(random));
    sum.assign(size(c.t * c.s), 1.0f);
    dq.assign(size(queries), untouched);
    dk.assign(size(keys), untouched);
    dv.assign(size(keys), untouched);
    expect_of_scores();
  }
  double dot(const std::vector<Low>& a, int64_t i, const std::vector<Low>& b, int64_t j) const {
    double out = 0;
    for (int64_t e = 0; e < c.d; ++e) out += wide(a, i * row + e) * wide(b, j * row + e);
    return out;
  }
  void expect_of_scores() {
    for (int64_t i = 0; i < c.t; ++i) {
      double all = 0, mean = 0;
      std::vector<double> powers;
      for (int64_t j = 0; j < c.s; ++j) {
        double score = scale * dot(q, i, k, j);
        if (c.bias) score += static_cast<double>(bias[size(i * c.s + j)]);
        if (c.mask) score += wide(mask, i * c.s + j);
        powers.push_back(std::exp(score));
        all += powers.back();
      }
      for (int64_t j = 0; j < c.s; ++j) p.push_back(powers[size(j)] / all);
      for (int64_t e = 0; e < c.d; ++e) {
        double value = 0;
        for (int64_t j = 0; j < c.s; ++j) value += p[size(i * c.s + j)] * wide(v, j * row + e);
        o[size(i * row + e)] = exec::cpu::round_to_bf16(static_cast<float>(value));
        mean += wide(o, i * row + e) * wide(d_o, i * row + e);
      }
      for (int64_t j = 0; j < c.s; ++j)
        ds.push_back(p[size(i * c.s + j)] * (dot(d_o, i, v, j) - mean));
      lse.push_back(static_cast<float>(std::log(all)));
    }
  }
  bool run() {
    const std::size_t room_bytes = 4 * exec::cpu::gemm_scratch_bytes;
    const std::unique_ptr<void, void (*)(void*)> room(std::aligned_alloc(64, room_bytes),
                                                      std::free);
    return exec::cpu::micro_low().attend_grad({.q = q.data(),
                                               .k = k.data(),
                                               .v = v.data(),
                                               .o = o.data(),
                                               .d_o = d_o.data(),
                                               .lse = lse.data(),
                                               .dq = dq.data(),
                                               .dk = dk.data(),
                                               .dv = dv.data(),
                                               .bias_sum = c.sum ? sum.data() : nullptr,
                                               .row = row,
                                               .to_row = row,
                                               .t = c.t,
                                               .s = c.s,
                                               .d = c.d,
                                               .scale = static_cast<float>(scale),
                                               .bias = {.wide = c.bias ? bias.data() : nullptr},
                                               .mask = {.low = c.mask ? mask.data() : nullptr},
                                               .room = room.get(),
                                               .room_bytes = static_cast<int64_t>(room_bytes)});
  }
};

// A sum of products one factor of which was rounded to bf16, 2^-9 of each; `absolute` is that of
// their absolute values. The result is rounded too.
void expect_sum(double got, double want, double absolute, const char* what) {
  EXPECT_NEAR(got, want, 0.004 * (absolute + std::abs(want)) + 1e-5) << what;
}
void expect_gradients(const GradCase& c) {
  SCOPED_TRACE(testing::Message() << c.t << " queries, " << c.s << " keys, " << c.d
                                  << " wide, bias " << c.bias << ", mask " << c.mask);
  GradHead h(c);
  ASSERT_TRUE(h.run());
  const auto factor = [&](const std::vector<double>& x, int64_t i, int64_t j) {
    return x[size(i * c.s + j)];
  };
  for (int64_t e = 0; e < c.d; ++e) {
    for (int64_t j = 0; j < c.s; ++j) {
      double dv = 0, dk = 0, all_dv = 0, all_dk = 0;
      for (int64_t i = 0; i < c.t; ++i) {
        const double of_v = factor(h.p, i, j) * wide(h.d_o, i * h.row + e),
                     of_k = scale * factor(h.ds, i, j) * wide(h.q, i * h.row + e);
        dv += of_v;
        dk += of_k;
        all_dv += std::abs(of_v);
        all_dk += std::abs(of_k);
      }
      expect_sum(wide(h.dv, j * h.row + e), dv, all_dv, "dv");
      expect_sum(wide(h.dk, j * h.row + e), dk, all_dk, "dk");
    }
    for (int64_t i = 0; i < c.t; ++i) {
      double dq = 0, all = 0;
      for (int64_t j = 0; j < c.s; ++j) {
        const double of_q = scale * factor(h.ds, i, j) * wide(h.k, j * h.row + e);
        dq += of_q;
        all += std::abs(of_q);
      }
      expect_sum(wide(h.dq, i * h.row + e), dq, all, "dq");
    }
  }
  for (int64_t i = 0; i < c.t * c.s; ++i)
    EXPECT_NEAR(h.sum[size(i)], c.sum ? 1 + h.ds[size(i)] : 1, 1e-4);
  for (const auto* x : {&h.dq, &h.dk, &h.dv})
    for (std::size_t i = size(c.d); i < x->size(); i += size(h.row))
      for (std::size_t j = i; j < i + size(gap); ++j)
        ASSERT_EQ((*x)[j], untouched) << "between tokens";
}

TEST(AttendGradOfOneHead, MatchesLoopsInDouble) {
  if (!exec::cpu::micro_low().attend_grad) GTEST_SKIP() << "this machine has no such kernel";
  for (const int64_t t : {1, 7, 26})
    for (const int64_t s : {1, 3, 5, 8, 17, 49})
      expect_gradients({t, s, 16, s % 2 == 1, t % 2 == 1, s > 3});
  expect_gradients({49, 49, 32, true, true, true});
  expect_gradients({65, 65, 64, false, false, false});
}

TEST(AttendGradOfOneHead, LeavesOtherSizesToOthers) {
  if (!exec::cpu::micro_low().attend_grad) GTEST_SKIP() << "this machine has no such kernel";
  GradHead narrow({3, 5, 8, false, false, false});
  EXPECT_FALSE(narrow.run());
}

}  // namespace
}  // namespace tessera::test::attend_grad_test
