// Batch norm; images are f32 or bf16 in memory and f32 in registers, sums are f32 or wider.
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

#include "exec/cpu/images/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {

template <class T>
HWY_NOINLINE void moments_of(const T* x, const float* shift, int64_t rows, int64_t c, float* sum,
                             float* squares) {
  const int64_t ahead = ahead_of(c);
  sum_rows(rows, c, sum, squares,
           [&](int64_t row, auto count, int64_t i, auto where, Two& s, Two& q) TESSERA_ROW_ATTR {
             const Two from = load_two(where, shift + i);
             for (int r = 0; r < count; ++r) {
               const Two v = load_and_fetch(where, x + (row + r) * c + i, ahead) - from;
               s = s + v;
               q = mul_add(v, v, q);
             }
           });
}
void moments_rows(const Numbers& x, const float* shift, int64_t rows, int64_t c, float* sum,
                  float* squares) {
  x.low ? moments_of(x.at<Low>(0), shift, rows, c, sum, squares)
        : moments_of(x.at<float>(0), shift, rows, c, sum, squares);
}

template <bool machine, class T>
HWY_NOINLINE void apply_of(const NormPass& n) {
  const T *const x = n.x.at<T>(0), *const more = n.added.values.at<T>(0);
  T* const y = n.y.at<T>(0);
  const int64_t ahead = ahead_of(n.c);
  in_rows(n.rows, n.c, [&](int64_t row, auto count, int64_t i, auto where) TESSERA_ROW_ATTR {
    const Two mean = load_two(where, n.mean + i), scale = load_two(where, n.scale + i),
              bias = load_two(where, n.bias + i);
    Two mean2 = two_zeros(), scale2 = mean2, bias2 = mean2;
    if (n.added.mean) {
      mean2 = load_two(where, n.added.mean + i);
      scale2 = load_two(where, n.added.scale + i);
      bias2 = load_two(where, n.added.bias + i);
    }
    for (int r = 0; r < count; ++r) {
      const int64_t at = (row + r) * n.c + i;
      Two v = mul_add(load_and_fetch(where, x + at, ahead) - mean, scale, bias);
      if (more) {
        const Two a = load_and_fetch(where, more + at, ahead);
        v = v + (n.added.mean ? mul_add(a - mean2, scale2, bias2) : a);
      }
      store_two<machine>(where, n.relu ? relu_of(v) : v, y + at);
    }
  });
}
void apply_rows(const NormPass& n) {
  n.x.low ? apply_of<false, Low>(n) : apply_of<false, float>(n);
}
void apply_rows_rounding(const NormPass& n) {
  n.x.low ? apply_of<rounds_by_instruction, Low>(n) : apply_of<false, float>(n);
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::exec::cpu {

HWY_EXPORT(moments_rows);
HWY_EXPORT(apply_rows);
HWY_EXPORT(apply_rows_rounding);

static void apply(const NormPass& n) {
  static const bool rounds = machine_round() != nullptr;
  if (rounds)
    HWY_DYNAMIC_DISPATCH(apply_rows_rounding)(n);
  else
    HWY_DYNAMIC_DISPATCH(apply_rows)(n);
}

void fast_moments(const Call& call) {
  const Blocks blocks(call.in[0].shape, call.attr<ir::BatchNorm>().groups);
  const float* shift = call.in[1].as<float>();
  float* const partials = call.shared_scratch<float>();
  blocks.for_each_run(call.pool,
                      [&](int64_t group, int64_t number, int64_t row, int64_t rows, int) {
                        float* const to = blocks.sums_of(partials, group, number);
                        HWY_DYNAMIC_DISPATCH(moments_rows)
                        (Numbers(call.in[0], row * blocks.channels), shift, rows, blocks.channels,
                         to, to + blocks.channels);
                      });
  add_runs(call.pool, blocks, partials, call.out[0], call.out[1], [](int64_t) { return 1.0; });
}
Scratch scratch_moments(const ir::Attrs& attrs, std::span<const ir::Type> in,
                        std::span<const ir::Type>) {
  return partials_of(in[0].shape, std::get<ir::BatchNorm>(attrs).groups);
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
  const Tensor more = call.in.size() > 6 ? call.in[6] : Tensor{};
  const bool low = all_bf16({call.in[0], more, call.out[0]});
  blocks.for_each_run(call.pool,
                      [&](int64_t group, int64_t, int64_t row, int64_t rows, int thread) {
                        const int64_t of = group * blocks.channels;
                        RunOf run(call, blocks, low, row, rows, thread);
                        Added added{.values = run.read(more)};
                        if (two) {
                          added.mean = mean2 + of;
                          added.scale = scale2 + of;
                          added.bias = call.in[11].as<float>();
                        }
                        const NormPass pass{.x = run.read(call.in[0]),
                                            .y = run.write(call.out[0]),
                                            .mean = mean + of,
                                            .scale = scale + of,
                                            .bias = bias,
                                            .added = added,
                                            .relu = attr.relu,
                                            .rows = rows,
                                            .c = blocks.channels};
                        apply(pass);
                        run.done(call.out[0], pass.y);
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
  const bool low = all_bf16({call.in[0], call.out[0]});
  blocks.for_each_run(call.pool, [&](int64_t, int64_t, int64_t row, int64_t rows, int thread) {
    RunOf run(call, blocks, low, row, rows, thread);
    const NormPass pass{.x = run.read(call.in[0]),
                        .y = run.write(call.out[0]),
                        .mean = mean,
                        .scale = scale,
                        .bias = bias,
                        .added = {},
                        .relu = false,
                        .rows = rows,
                        .c = blocks.channels};
    apply(pass);
    run.done(call.out[0], pass.y);
  });
}
Scratch scratch_batch_norm_fixed(const ir::Attrs&, std::span<const ir::Type> in,
                                 std::span<const ir::Type> out) {
  return with_room(coefficients_of(in[0].shape, 1, 1), in, out, 2);
}

}  // namespace tessera::exec::cpu
#endif
