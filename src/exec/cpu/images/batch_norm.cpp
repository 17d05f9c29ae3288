// Batch norm; sums are f32 or wider, and runs of bf16 rows pass through a buffer of their thread.
// The batch is rows of channels, cut into blocks by shape. Sums are f32 over 32 rows at most, then
// double, in order: what is normalised by them decides which ReLUs are open. Convention:
// coefficients per group and channel are worked out once, so that the passes over the images are
// one multiply-add or two.
#include "exec/cpu/images/batch_norm.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "exec/cpu/simd/vector.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/images/batch_norm.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set
#include "hwy/highway.h"

#include "exec/cpu/images/column_pair-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {

void moments_block(const float* x, const float* shift, int64_t rows, int64_t c, float* sum,
                   float* squares) {
  const F32 d;
  const auto term = [&](int64_t row, int64_t at, V& s, V& q) HWY_ATTR {
    const V v = hn::Sub(hn::LoadU(d, x + row * c + at), hn::LoadU(d, shift + at));
    s = hn::Add(s, v);
    q = hn::MulAdd(v, v, q);
  };
  for (int64_t at = column_pairs(rows, c, sum, squares, term); at < c; ++at) {
    sum[at] = squares[at] = 0;
    for (int64_t row = 0; row < rows; ++row) {
      const float v = x[row * c + at] - shift[at];
      sum[at] += v;
      squares[at] += v * v;
    }
  }
}

// y = (x - mean) scale + bias (+ what is added), then relu where it is asked for. Comparing keeps a
// NaN.
void apply_block(const float* x, const float* mean, const float* scale, const float* bias,
                 Added added, bool relu, float* y, int64_t rows, int64_t c) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t row = 0; row < rows; ++row, x += c, y += c) {
    int64_t i = 0;
    for (; i + lanes <= c; i += lanes) {
      V v = hn::MulAdd(hn::Sub(hn::LoadU(d, x + i), hn::LoadU(d, mean + i)),
                       hn::LoadU(d, scale + i), hn::LoadU(d, bias + i));
      if (added.values) {
        V more = hn::LoadU(d, added.values + i);
        if (added.mean)
          more = hn::MulAdd(hn::Sub(more, hn::LoadU(d, added.mean + i)),
                            hn::LoadU(d, added.scale + i), hn::LoadU(d, added.bias + i));
        v = hn::Add(v, more);
      }
      if (relu) v = hn::IfThenZeroElse(hn::Lt(v, hn::Zero(d)), v);
      hn::StoreU(v, d, y + i);
    }
    for (; i < c; ++i) {
      float v = std::fma(x[i] - mean[i], scale[i], bias[i]);
      if (added.values)
        v += added.mean ? std::fma(added.values[i] - added.mean[i], added.scale[i], added.bias[i])
                        : added.values[i];
      y[i] = relu && v < 0 ? 0.0f : v;
    }
    if (added.values) added.values += c;
  }
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::exec::cpu {

HWY_EXPORT(moments_block);
HWY_EXPORT(apply_block);

void fast_moments(const Call& call) {
  const Blocks blocks(call.in[0].shape, call.attr<ir::BatchNorm>().groups);
  const float* shift = call.in[1].as<float>();
  float* const partials = call.shared_scratch<float>();
  blocks.for_each_run(
      call.pool, [&](int64_t group, int64_t number, int64_t row, int64_t rows, int thread) {
        float* const to = blocks.sums_of(partials, group, number);
        RunOf run(call, blocks, row, rows, thread);
        HWY_DYNAMIC_DISPATCH(moments_block)
        (run.read(call.in[0]), shift, rows, blocks.channels, to, to + blocks.channels);
      });
  add_runs(call.pool, blocks, partials, call.out[0], call.out[1], [](int64_t) { return 1.0; });
}
Scratch scratch_moments(const ir::Attrs& attrs, std::span<const ir::Type> in,
                        std::span<const ir::Type>) {
  return with_room(partials_of(in[0].shape, std::get<ir::BatchNorm>(attrs).groups), in, {}, 1);
}

// Mean and factor by group and channel of the norm whose operands begin with in[6 k].
static void coefficients(const Call& call, const Blocks& blocks, std::size_t k, float* mean,
                         float* scale) {
  const auto& attr = call.attr<ir::BatchNorm>();
  const float *sum = call.in[6 * k + 1].as<float>(), *squares = call.in[6 * k + 2].as<float>(),
              *shift = call.in[6 * k + 3].as<float>(), *gain = call.in[6 * k + 4].as<float>();
  const Tensor &mean_out = call.out[2 * k + 1], &rstd_out = call.out[2 * k + 2];
  for (int64_t group = 0, i = 0; group < blocks.groups; ++group) {
    const double n = count_of(attr, group);
    for (int64_t c = 0; c < blocks.channels; ++c, ++i) {
      const double offset = static_cast<double>(sum[i]) / n;
      const double variance = std::max(0.0, static_cast<double>(squares[i]) / n - offset * offset);
      // As f32, as the gradient finds it: both see the same ReLUs open.
      const float rstd = static_cast<float>(1.0 / std::sqrt(variance + attr.eps));
      mean[i] = static_cast<float>(offset + static_cast<double>(shift[c]));
      scale[i] = rstd * gain[c];
      if (mean_out) mean_out.as<float>()[i] = mean[i];
      if (rstd_out) rstd_out.as<float>()[i] = rstd;
    }
  }
}

void fast_batch_norm(const Call& call) {
  const auto& attr = call.attr<ir::BatchNorm>();
  const Blocks blocks(call.in[0].shape, attr.groups);
  const bool two = call.in.size() == 12;
  float *const mean = call.shared_scratch<float>(), *const scale = mean + blocks.sums(),
               *const mean2 = scale + blocks.sums(), *const scale2 = mean2 + blocks.sums();
  coefficients(call, blocks, 0, mean, scale);
  if (two) coefficients(call, blocks, 1, mean2, scale2);
  const float* bias = call.in[5].as<float>();
  if (!call.out[0]) return;
  blocks.for_each_run(
      call.pool, [&](int64_t group, int64_t, int64_t row, int64_t rows, int thread) {
        const int64_t of = group * blocks.channels;
        RunOf run(call, blocks, row, rows, thread);
        Added added;
        if (call.in.size() > 6) added.values = run.read(call.in[6]);
        if (two) {
          added.mean = mean2 + of;
          added.scale = scale2 + of;
          added.bias = call.in[11].as<float>();
        }
        const float* const x = run.read(call.in[0]);
        float* const y = run.write(call.out[0]);
        HWY_DYNAMIC_DISPATCH(apply_block)
        (x, mean + of, scale + of, bias, added, attr.relu, y, rows, blocks.channels);
        run.done(call.out[0], y);
      });
}
Scratch scratch_batch_norm(const ir::Attrs& attrs, std::span<const ir::Type> in,
                           std::span<const ir::Type> out) {
  return with_room(
      coefficients_of(in[0].shape, std::get<ir::BatchNorm>(attrs).groups, in.size() == 12 ? 4 : 2),
      in, out, 3);
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
  const float *mean = call.in[1].as<float>(), *bias = call.in[4].as<float>();
  blocks.for_each_run(call.pool, [&](int64_t, int64_t, int64_t row, int64_t rows, int thread) {
    RunOf run(call, blocks, row, rows, thread);
    const float* const x = run.read(call.in[0]);
    float* const y = run.write(call.out[0]);
    HWY_DYNAMIC_DISPATCH(apply_block)
    (x, mean, scale, bias, Added{}, false, y, rows, blocks.channels);
    run.done(call.out[0], y);
  });
}
Scratch scratch_batch_norm_fixed(const ir::Attrs&, std::span<const ir::Type> in,
                                 std::span<const ir::Type> out) {
  return with_room(coefficients_of(in[0].shape, 1, 1), in, out, 2);
}

}  // namespace tessera::exec::cpu
#endif
