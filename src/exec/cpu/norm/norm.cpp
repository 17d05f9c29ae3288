// Fast layer norm over the last dim and the residual add in front of it; rows are f32 or bf16 in
// memory and f32 in registers. Convention: a row is one task's affair from start to end.
#include "exec/cpu/norm/norm.h"

#include <cmath>
#include <limits>

#include "exec/cpu/gemm/micro.h"
#include "exec/cpu/reference/quantised.h"
#include "exec/cpu/simd/vector.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/norm/norm.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set
#include "hwy/highway.h"

#include "exec/cpu/simd/low-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {

struct RowSums {
  float sum, squares;
};

// Adds up numbers and their squares, in two turns: a sum can take in a number every fourth cycle.
class Summing {
 public:
  HWY_INLINE Summing() : sum_{two_zeros(), two_zeros()}, squares_{two_zeros(), two_zeros()} {}
  template <int turn>
  HWY_INLINE void take(Two v, Turn<turn>) {
    sum_[turn] = {hn::Add(sum_[turn].a, v.a), hn::Add(sum_[turn].b, v.b)};
    squares_[turn] = {hn::MulAdd(v.a, v.a, squares_[turn].a),
                      hn::MulAdd(v.b, v.b, squares_[turn].b)};
  }
  HWY_INLINE RowSums total() const { return {total(sum_), total(squares_)}; }

 private:
  static HWY_INLINE float total(const Two* v) {
    const hn::ScalableTag<float> d;
    return hn::GetLane(
        hn::SumOfLanes(d, hn::Add(hn::Add(v[0].a, v[0].b), hn::Add(v[1].a, v[1].b))));
  }
  Two sum_[2], squares_[2];
};

template <class X>
HWY_INLINE RowSums sums_of(const X* x, std::int64_t c) {
  Summing sums;
  along_row_in_turns(c, [&](std::int64_t i, auto where, auto turn)
                            TESSERA_ROW_ATTR { sums.take(load_two(where, x + i), turn); });
  return sums.total();
}

// The same of x + r, which is written to `wide` and, where it is not null, to `low`. Either may be
// x or r.
template <bool machine, class X, class R>
HWY_INLINE RowSums add_and_sum(const X* x, const R* r, float* wide, std::uint16_t* low,
                               std::int64_t c) {
  Summing sums;
  along_row_in_turns(c, [&](std::int64_t i, auto where, auto turn) TESSERA_ROW_ATTR {
    const Two p = load_two(where, x + i), q = load_two(where, r + i);
    const Two s{hn::Add(p.a, q.a), hn::Add(p.b, q.b)};
    store_two<machine>(where, s, wide + i);
    if (low != nullptr) store_two<machine>(where, s, low + i);
    sums.take(s, turn);
  });
  return sums.total();
}

template <class X>
HWY_INLINE float squares_around(const X* x, std::int64_t c, float mean) {
  const hn::ScalableTag<float> d;
  const auto m = hn::Set(d, mean);
  const std::int64_t lanes = lanes_of_two() / 2;
  auto a = hn::Zero(d), b = a;
  along_row(c, [&](std::int64_t i, auto where) TESSERA_ROW_ATTR {
    const Two v = load_two(where, x + i);
    auto p = hn::Sub(v.a, m), q = hn::Sub(v.b, m);
    if (c - i < 2 * lanes) {
      const auto first = [&](std::int64_t n) TESSERA_ROW_ATTR {
        return hn::FirstN(d, static_cast<std::size_t>(std::clamp<std::int64_t>(n, 0, lanes)));
      };
      p = hn::IfThenElseZero(first(c - i), p);
      q = hn::IfThenElseZero(first(c - i - lanes), q);
    }
    a = hn::MulAdd(p, p, a);
    b = hn::MulAdd(q, q, b);
  });
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b)));
}

// y = (x - mean) rstd g + b of one row or of two, which share the loads of g and b. `near`: the
// mean is no larger than the deviation, so that nothing is lost by x rstd - mean rstd, one
// operation less. Bytes are y times `inverse`.
template <bool machine, bool near, int count, class X, class Y>
HWY_INLINE void normalise_rows(const X* x, const float* g, const float* b, Y* y, std::int64_t c,
                               const float* mean, const float* rstd, float inverse) {
  const hn::ScalableTag<float> d;
  [[maybe_unused]] const auto factor = hn::Set(d, inverse);
  const auto moved = [&](int k) TESSERA_ROW_ATTR {
    return hn::Set(d, near ? -mean[k] * rstd[k] : mean[k]);
  };
  const auto m0 = moved(0), m1 = moved(count - 1), r0 = hn::Set(d, rstd[0]),
             r1 = hn::Set(d, rstd[count - 1]);
  along_row(c, [&](std::int64_t i, auto where) TESSERA_ROW_ATTR {
    const Two gain = load_two(where, g + i), bias = load_two(where, b + i);
    const auto row = [&](const X* from, Y* to, auto m, auto r) TESSERA_ROW_ATTR {
      const Two v = load_two(where, from);
      const auto h = [&](auto value) TESSERA_ROW_ATTR {
        return near ? hn::MulAdd(value, r, m) : hn::Mul(hn::Sub(value, m), r);
      };
      Two result{hn::MulAdd(h(v.a), gain.a, bias.a), hn::MulAdd(h(v.b), gain.b, bias.b)};
      if constexpr (std::is_same_v<Y, std::int8_t>)
        result = {hn::Mul(result.a, factor), hn::Mul(result.b, factor)};
      store_two<machine>(where, result, to);
    };
    row(x + i, y + i, m0, r0);
    if constexpr (count == 2) row(x + c + i, y + c + i, m1, r1);
  });
}
template <bool machine, class X, class Y>
HWY_NOINLINE void normalise_block(const NormRows& n, const X* x, Y* y, std::int64_t count,
                                  const float* mean, const float* rstd, const bool* near) {
  const auto rows = [&](auto two, std::int64_t k) TESSERA_ROW_ATTR {
    constexpr int at_once = two ? 2 : 1;
    const std::int64_t at = k * n.c;
    if (near[k])
      normalise_rows<machine, true, at_once>(x + at, n.g, n.b, y + at, n.c, mean + k, rstd + k,
                                             n.inverse);
    else
      normalise_rows<machine, false, at_once>(x + at, n.g, n.b, y + at, n.c, mean + k, rstd + k,
                                              n.inverse);
  };
  // Two at a time where both are alike: no row's bits depend on its neighbour.
  for (std::int64_t k = 0; k < count;) {
    if (k + 1 < count && near[k] == near[k + 1]) {
      rows(std::true_type{}, k);
      k += 2;
    } else {
      rows(std::false_type{}, k++);
    }
  }
}

// A block of rows x whose sums are known.
template <bool machine, class X>
HWY_INLINE void finish_block(const NormRows& n, const X* x, std::int64_t first, std::int64_t count,
                             const RowSums* sums) {
  const float size = static_cast<float>(n.c);
  float mean[norm_block], rstd[norm_block];
  bool near[norm_block];
  for (std::int64_t k = 0; k < count; ++k) {
    mean[k] = sums[k].sum / size;
    // The difference is as good as a second walk unless the mean is the larger part of the squares,
    // or these are more than a float holds.
    float variance = sums[k].squares / size - mean[k] * mean[k];
    near[k] = mean[k] * mean[k] <= variance && variance <= std::numeric_limits<float>::max();
    if (!near[k]) variance = squares_around(x + k * n.c, n.c, mean[k]) / size;
    rstd[k] = 1.0f / std::sqrt(variance + n.eps);
    if (n.mean != nullptr) n.mean[first + k] = mean[k];
    if (n.rstd != nullptr) n.rstd[first + k] = rstd[k];
  }
  if (n.bytes != nullptr)
    normalise_block<machine>(n, x, n.bytes + first * n.c, count, mean, rstd, near);
  else if (n.y && n.y.low)
    normalise_block<machine>(n, x, n.y.at<Low>(first * n.c), count, mean, rstd, near);
  else if (n.y)
    normalise_block<machine>(n, x, n.y.at<float>(first * n.c), count, mean, rstd, near);
}

// A function for each pair of types: g++ takes minutes for one that has all of them in it.
template <bool machine, class X>
HWY_NOINLINE void norm_blocks(const NormRows& n) {
  for (std::int64_t row = 0; row < n.rows; row += norm_block) {
    const std::int64_t count = std::min(norm_block, n.rows - row);
    const X* x = n.x.at<X>(row * n.c);
    RowSums sums[norm_block];
    for (std::int64_t k = 0; k < count; ++k) sums[k] = sums_of(x + k * n.c, n.c);
    finish_block<machine>(n, x, row, count, sums);
  }
}

template <bool machine, class X, class R>
HWY_NOINLINE void add_norm_blocks(const NormRows& n) {
  const bool kept = n.s && !n.s.low;
  for (std::int64_t row = 0; row < n.rows; row += norm_block) {
    const std::int64_t count = std::min(norm_block, n.rows - row), at = row * n.c;
    float* const wide = kept ? n.s.at<float>(at) : n.room;
    RowSums sums[norm_block];
    for (std::int64_t k = 0; k < count; ++k)
      sums[k] =
          add_and_sum<machine>(n.x.at<X>(at + k * n.c), n.r.at<R>(at + k * n.c), wide + k * n.c,
                               n.s && n.s.low ? n.s.at<Low>(at + k * n.c) : nullptr, n.c);
    finish_block<machine>(n, wide, row, count, sums);
  }
}

template <bool machine>
void norm_rows_by(const NormRows& n) {
  if (!n.r) return n.x.low ? norm_blocks<machine, Low>(n) : norm_blocks<machine, float>(n);
  if (n.r.low)
    return n.x.low ? add_norm_blocks<machine, Low, Low>(n)
                   : add_norm_blocks<machine, float, Low>(n);
  return n.x.low ? add_norm_blocks<machine, Low, float>(n)
                 : add_norm_blocks<machine, float, float>(n);
}
void norm_rows(const NormRows& n) { norm_rows_by<false>(n); }
void norm_rows_rounding(const NormRows& n) { norm_rows_by<rounds_by_instruction>(n); }

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::exec::cpu {

HWY_EXPORT(norm_rows);
HWY_EXPORT(norm_rows_rounding);

namespace {
// Operands and results of a norm; r and s may be absent.
struct NormOf {
  Tensor x, r{}, g, b, s{}, y, mean, rstd;
};

// Bytes are those of i8, without a turned copy of them or the largest number.
bool gives_bytes(const Call& call, const NormOf& n) {
  const std::size_t more = call.out.size() - 2;
  return n.y.dtype == ir::DType::i8 && !call.out[more] && !call.out[more + 1];
}

void norm(const Call& call, const NormOf& n) {
  const bool quantised = ir::is_quantised(n.y.dtype), in_bytes = quantised && gives_bytes(call, n);
  if (quantised && !in_bytes) return norm_quantised(call, call.op == ir::Op::add_norm);
  static const bool rounds = machine_round() != nullptr;
  const std::int64_t c = row_size(n.x.shape), rows = rows_of(n.x),
                     grain = std::max<std::int64_t>(1, chunk / std::max<std::int64_t>(1, c));
  const auto at = [](const Tensor& t, std::int64_t i) { return t ? t.as<float>() + i : nullptr; };
  call.pool.parallel_for((rows + grain - 1) / grain, [&](std::int64_t task, int thread) {
    const std::int64_t row = task * grain, e = row * c;
    const NormRows of_task{.x = {n.x, e},
                           .r = {n.r, e},
                           .s = {n.s, e},
                           .y = in_bytes ? Numbers() : Numbers(n.y, e),
                           .bytes = in_bytes && n.y ? n.y.as<std::int8_t>() + e : nullptr,
                           .inverse = in_bytes ? 1 / call.in.back().as<float>()[0] : 1,
                           .g = n.g.as<float>(),
                           .b = n.b.as<float>(),
                           .mean = at(n.mean, row),
                           .rstd = at(n.rstd, row),
                           .room = n.r ? call.scratch_of<float>(thread) : nullptr,
                           .rows = std::min(grain, rows - row),
                           .c = c,
                           .eps = static_cast<float>(call.attr<ir::Norm>().eps)};
    if (rounds)
      HWY_DYNAMIC_DISPATCH(norm_rows_rounding)(of_task);
    else
      HWY_DYNAMIC_DISPATCH(norm_rows)(of_task);
  });
}
}  // namespace

void fast_layer_norm(const Call& call) {
  norm(call, {.x = call.in[0],
              .g = call.in[1],
              .b = call.in[2],
              .y = call.out[0],
              .mean = call.out[1],
              .rstd = call.out[2]});
}

void fast_add_norm(const Call& call) {
  norm(call, {.x = call.in[0],
              .r = call.in[1],
              .g = call.in[2],
              .b = call.in[3],
              .s = call.out[0],
              .y = call.out[1],
              .mean = call.out[2],
              .rstd = call.out[3]});
}

Scratch scratch_add_norm(const ir::Attrs&, std::span<const ir::Type> in,
                         std::span<const ir::Type>) {
  return {.per_thread =
              sizeof(float) * static_cast<std::size_t>(norm_block * row_size(in[0].shape))};
}

}  // namespace tessera::exec::cpu
#endif
