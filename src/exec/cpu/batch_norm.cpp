// Batch norm in f32. The batch is rows of channels, cut into blocks by shape. Sums are f32 over 32
// rows at most, then double, in order: what is normalised by them decides which ReLUs are open.
// Convention: coefficients per group and channel are worked out once, so that the passes over the
// images are one multiply-add or two.
#include "exec/cpu/kernel.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "exec/cpu/simd/vector.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/batch_norm.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using std::int64_t;
using F32 = hn::ScalableTag<float>;
using V = hn::Vec<F32>;

// Sums over the rows of a block for W vectors of channels: term(row, at) gives what is added to
// both sums.
template <int W, class Term>
HWY_INLINE void column_pair(int64_t rows, int64_t at, float* first, float* second,
                            const Term& term) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V a[W], b[W];
  for (int k = 0; k < W; ++k) a[k] = b[k] = hn::Zero(d);
  for (int64_t row = 0; row < rows; ++row)
    for (int k = 0; k < W; ++k) term(row, at + k * lanes, a[k], b[k]);
  for (int k = 0; k < W; ++k)
    hn::StoreU(a[k], d, first + at + k * lanes), hn::StoreU(b[k], d, second + at + k * lanes);
}

void moments_block(const float* x, const float* shift, int64_t rows, int64_t c, float* sum,
                   float* squares) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto term = [&](int64_t row, int64_t at, V& s, V& q) HWY_ATTR {
    const V v = hn::Sub(hn::LoadU(d, x + row * c + at), hn::LoadU(d, shift + at));
    s = hn::Add(s, v);
    q = hn::MulAdd(v, v, q);
  };
  int64_t at = 0;
  for (; at + 4 * lanes <= c; at += 4 * lanes) column_pair<4>(rows, at, sum, squares, term);
  for (; at + lanes <= c; at += lanes) column_pair<1>(rows, at, sum, squares, term);
  for (; at < c; ++at) {
    sum[at] = squares[at] = 0;
    for (int64_t row = 0; row < rows; ++row) {
      const float v = x[row * c + at] - shift[at];
      sum[at] += v;
      squares[at] += v * v;
    }
  }
}

// sum of dy, and of dy (x - mean)
void grad_sums_block(const float* dy, const float* x, const float* mean, int64_t rows, int64_t c,
                     float* sum, float* product) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto term = [&](int64_t row, int64_t at, V& s, V& p) HWY_ATTR {
    const V g = hn::LoadU(d, dy + row * c + at);
    s = hn::Add(s, g);
    p = hn::MulAdd(g, hn::Sub(hn::LoadU(d, x + row * c + at), hn::LoadU(d, mean + at)), p);
  };
  int64_t at = 0;
  for (; at + 4 * lanes <= c; at += 4 * lanes) column_pair<4>(rows, at, sum, product, term);
  for (; at + lanes <= c; at += lanes) column_pair<1>(rows, at, sum, product, term);
  for (; at < c; ++at) {
    sum[at] = product[at] = 0;
    for (int64_t row = 0; row < rows; ++row) {
      sum[at] += dy[row * c + at];
      product[at] += dy[row * c + at] * (x[row * c + at] - mean[at]);
    }
  }
}

// y = (x - mean) scale + bias
void apply_block(const float* x, const float* mean, const float* scale, const float* bias, float* y,
                 int64_t rows, int64_t c) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t row = 0; row < rows; ++row, x += c, y += c) {
    int64_t i = 0;
    for (; i + lanes <= c; i += lanes)
      hn::StoreU(hn::MulAdd(hn::Sub(hn::LoadU(d, x + i), hn::LoadU(d, mean + i)),
                            hn::LoadU(d, scale + i), hn::LoadU(d, bias + i)),
                 d, y + i);
    for (; i < c; ++i) y[i] = std::fma(x[i] - mean[i], scale[i], bias[i]);
  }
}

// dx = scale (dy - k1 - (x - mean) k2)
void grad_block(const float* dy, const float* x, const float* mean, const float* scale,
                const float* k1, const float* k2, float* dx, int64_t rows, int64_t c) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t row = 0; row < rows; ++row, dy += c, x += c, dx += c) {
    int64_t i = 0;
    for (; i + lanes <= c; i += lanes) {
      const V centred = hn::Sub(hn::LoadU(d, dy + i), hn::LoadU(d, k1 + i));
      const V v = hn::NegMulAdd(hn::Sub(hn::LoadU(d, x + i), hn::LoadU(d, mean + i)),
                                hn::LoadU(d, k2 + i), centred);
      hn::StoreU(hn::Mul(v, hn::LoadU(d, scale + i)), d, dx + i);
    }
    for (; i < c; ++i) dx[i] = scale[i] * std::fma(-(x[i] - mean[i]), k2[i], dy[i] - k1[i]);
  }
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::exec::cpu {

HWY_EXPORT(moments_block);
HWY_EXPORT(grad_sums_block);
HWY_EXPORT(apply_block);
HWY_EXPORT(grad_block);

namespace {

// The rows of every group in blocks of about 64 KiB.
struct Blocks {
  int64_t channels, rows, per_sample, groups, samples;
  int64_t block;  // rows of one
  static constexpr int64_t run = 32;

  Blocks(const ir::Shape& x, int64_t groups_)
      : channels(x.back()),
        rows(channels == 0 ? 0 : ir::elements(x) / channels),
        per_sample(x[0] == 0 ? 0 : rows / x[0]),
        groups(groups_),
        samples(x[0]),
        block(std::max<int64_t>(1, chunk / std::max<int64_t>(1, channels) / run) * run) {}
  int64_t begin_of(int64_t group) const {
    return ir::split(samples, static_cast<int>(groups), static_cast<int>(group)).begin * per_sample;
  }
  int64_t rows_of(int64_t group) const {
    return ir::split(samples, static_cast<int>(groups), static_cast<int>(group)).size * per_sample;
  }
  int64_t most() const {
    return (rows_of(0) + block - 1) / block;
  }                                             // of a group; the first is the largest
  int64_t runs() const { return block / run; }  // of a block: rows whose sums are f32
  int64_t sums() const { return groups * channels; }

  // body(group, number in the group, first row, rows)
  template <class Body>
  void for_each(ThreadPool& pool, const Body& body) const {
    pool.parallel_for(groups * most(), [&](int64_t task, int) {
      const int64_t group = task / most(), at = task % most() * block;
      if (const int64_t size = std::min(block, rows_of(group) - at); size > 0)
        body(group, task % most(), begin_of(group) + at, size);
    });
  }
};

double count_of(const ir::BatchNorm& attr, int64_t group) {
  return static_cast<double>(
      ir::split(attr.samples, static_cast<int>(attr.groups), static_cast<int>(group)).size *
      attr.pixels);
}

// Two sums of every group and channel from those of its blocks; the second one times factor(i).
template <class Factor>
void add_blocks(const Blocks& blocks, const float* partials, const Tensor& first,
                const Tensor& second, const Factor& factor) {
  for (int64_t i = 0; i < blocks.sums(); ++i) {
    const int64_t group = i / blocks.channels, c = i % blocks.channels;
    double a = 0, b = 0;
    for (int64_t k = 0; k * Blocks::run < blocks.rows_of(group); ++k) {
      const float* at =
          partials + (group * blocks.most() * blocks.runs() + k) * 2 * blocks.channels + c;
      a += static_cast<double>(at[0]);
      b += static_cast<double>(at[blocks.channels]);
    }
    if (first) first.as<float>()[i] = static_cast<float>(a);
    if (second) second.as<float>()[i] = static_cast<float>(b * factor(i));
  }
}
Scratch partials_of(const ir::Shape& x, int64_t groups) {
  const Blocks blocks(x, groups);
  return {.shared = sizeof(float) * static_cast<std::size_t>(2 * blocks.groups * blocks.most() *
                                                             blocks.runs() * blocks.channels),
          .per_thread = 0};
}
Scratch coefficients_of(const ir::Shape& x, int64_t groups, int64_t arrays) {
  return {.shared = sizeof(float) * static_cast<std::size_t>(arrays * groups * x.back()),
          .per_thread = 0};
}

}  // namespace

void fast_moments(const Call& call) {
  const Blocks blocks(call.in[0].shape, call.attr<ir::BatchNorm>().groups);
  const float *x = call.in[0].as<float>(), *shift = call.in[1].as<float>();
  float* const partials = call.shared_scratch<float>();
  blocks.for_each(call.pool, [&](int64_t group, int64_t number, int64_t row, int64_t rows) {
    float* to = partials + (group * blocks.most() + number) * blocks.runs() * 2 * blocks.channels;
    for (int64_t r = 0; r < rows; r += Blocks::run, to += 2 * blocks.channels)
      HWY_DYNAMIC_DISPATCH(moments_block)
    (x + (row + r) * blocks.channels, shift, std::min(Blocks::run, rows - r), blocks.channels, to,
     to + blocks.channels);
  });
  add_blocks(blocks, partials, call.out[0], call.out[1], [](int64_t) { return 1.0; });
}
Scratch scratch_moments(const ir::Attrs& attrs, std::span<const ir::Type> in,
                        std::span<const ir::Type>) {
  return partials_of(in[0].shape, std::get<ir::BatchNorm>(attrs).groups);
}

void fast_batch_norm(const Call& call) {
  const auto& attr = call.attr<ir::BatchNorm>();
  const Blocks blocks(call.in[0].shape, attr.groups);
  float *const mean = call.shared_scratch<float>(), *const scale = mean + blocks.sums();
  for (int64_t i = 0; i < blocks.sums(); ++i) {
    const int64_t c = i % blocks.channels;
    const double n = count_of(attr, i / blocks.channels),
                 offset = static_cast<double>(call.in[1].as<float>()[i]) / n;
    const double variance =
        std::max(0.0, static_cast<double>(call.in[2].as<float>()[i]) / n - offset * offset);
    const double rstd = 1.0 / std::sqrt(variance + attr.eps);
    mean[i] = static_cast<float>(offset + static_cast<double>(call.in[3].as<float>()[c]));
    scale[i] = static_cast<float>(rstd * static_cast<double>(call.in[4].as<float>()[c]));
    if (call.out[1]) call.out[1].as<float>()[i] = mean[i];
    if (call.out[2]) call.out[2].as<float>()[i] = static_cast<float>(rstd);
  }
  const float *x = call.in[0].as<float>(), *bias = call.in[5].as<float>();
  float* const y = call.out[0].as<float>();
  if (!y) return;
  blocks.for_each(call.pool, [&](int64_t group, int64_t, int64_t row, int64_t rows) {
    const int64_t at = row * blocks.channels, of = group * blocks.channels;
    HWY_DYNAMIC_DISPATCH(apply_block)
    (x + at, mean + of, scale + of, bias, y + at, rows, blocks.channels);
  });
}
Scratch scratch_batch_norm(const ir::Attrs& attrs, std::span<const ir::Type> in,
                           std::span<const ir::Type>) {
  return coefficients_of(in[0].shape, std::get<ir::BatchNorm>(attrs).groups, 2);
}

void fast_batch_norm_sums(const Call& call) {
  const Blocks blocks(call.in[0].shape, call.attr<ir::BatchNorm>().groups);
  const float *dy = call.in[0].as<float>(), *x = call.in[1].as<float>(),
              *mean = call.in[2].as<float>(), *rstd = call.in[3].as<float>();
  float* const partials = call.shared_scratch<float>();
  blocks.for_each(call.pool, [&](int64_t group, int64_t number, int64_t row, int64_t rows) {
    float* to = partials + (group * blocks.most() + number) * blocks.runs() * 2 * blocks.channels;
    for (int64_t r = 0; r < rows; r += Blocks::run, to += 2 * blocks.channels) {
      const int64_t at = (row + r) * blocks.channels;
      HWY_DYNAMIC_DISPATCH(grad_sums_block)
      (dy + at, x + at, mean + group * blocks.channels, std::min(Blocks::run, rows - r),
       blocks.channels, to, to + blocks.channels);
    }
  });
  add_blocks(blocks, partials, call.out[0], call.out[1],
             [&](int64_t i) { return static_cast<double>(rstd[i]); });
}
Scratch scratch_batch_norm_sums(const ir::Attrs& attrs, std::span<const ir::Type> in,
                                std::span<const ir::Type>) {
  return partials_of(in[0].shape, std::get<ir::BatchNorm>(attrs).groups);
}

void fast_batch_norm_grad(const Call& call) {
  const auto& attr = call.attr<ir::BatchNorm>();
  const Blocks blocks(call.in[0].shape, attr.groups);
  const float *dy = call.in[0].as<float>(), *x = call.in[1].as<float>(),
              *mean = call.in[2].as<float>();
  float *const scale = call.shared_scratch<float>(), *const k1 = scale + blocks.sums(),
               *const k2 = k1 + blocks.sums();
  for (int64_t i = 0; i < blocks.sums(); ++i) {
    const double n = count_of(attr, i / blocks.channels),
                 rstd = static_cast<double>(call.in[3].as<float>()[i]);
    scale[i] =
        static_cast<float>(rstd * static_cast<double>(call.in[4].as<float>()[i % blocks.channels]));
    k1[i] = static_cast<float>(static_cast<double>(call.in[5].as<float>()[i]) / n);
    k2[i] = static_cast<float>(static_cast<double>(call.in[6].as<float>()[i]) / n * rstd);
  }
  float* const dx = call.out[0].as<float>();
  blocks.for_each(call.pool, [&](int64_t group, int64_t, int64_t row, int64_t rows) {
    const int64_t at = row * blocks.channels, of = group * blocks.channels;
    HWY_DYNAMIC_DISPATCH(grad_block)
    (dy + at, x + at, mean + of, scale + of, k1 + of, k2 + of, dx + at, rows, blocks.channels);
  });
}
Scratch scratch_batch_norm_grad(const ir::Attrs& attrs, std::span<const ir::Type> in,
                                std::span<const ir::Type>) {
  return coefficients_of(in[0].shape, std::get<ir::BatchNorm>(attrs).groups, 3);
}

void fast_running_stats(const Call& call) {
  reference_running_stats<float>(call);
}  // a few numbers per channel

void fast_batch_norm_fixed(const Call& call) {
  const double eps = call.attr<ir::BatchNorm>().eps;
  const Blocks blocks(call.in[0].shape, 1);
  float* const scale = call.shared_scratch<float>();
  for (int64_t c = 0; c < blocks.channels; ++c)
    scale[c] = static_cast<float>(static_cast<double>(call.in[3].as<float>()[c]) /
                                  std::sqrt(static_cast<double>(call.in[2].as<float>()[c]) + eps));
  const float *x = call.in[0].as<float>(), *mean = call.in[1].as<float>(),
              *bias = call.in[4].as<float>();
  float* const y = call.out[0].as<float>();
  blocks.for_each(call.pool, [&](int64_t, int64_t, int64_t row, int64_t rows) {
    const int64_t at = row * blocks.channels;
    HWY_DYNAMIC_DISPATCH(apply_block)(x + at, mean, scale, bias, y + at, rows, blocks.channels);
  });
}
Scratch scratch_batch_norm_fixed(const ir::Attrs&, std::span<const ir::Type> in,
                                 std::span<const ir::Type>) {
  return coefficients_of(in[0].shape, 1, 1);
}

}  // namespace tessera::exec::cpu
#endif
