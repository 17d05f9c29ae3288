// The gradient of batch norm, and of a ReLU behind it. Convention: as batch_norm.cpp. Where
// only the norm is in front of a ReLU, it is worked out again, by the multiply-add that made it.
#include "exec/cpu/images/batch_norm.h"

#include <algorithm>
#include <cmath>

#include "exec/cpu/simd/vector.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/images/batch_norm_gradient.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set
#include "hwy/highway.h"

#include "exec/cpu/images/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {

// The ReLU behind a norm, at some channels.
class Gate {
 public:
  template <class Where>
  HWY_INLINE Gate(const Behind& relu, int64_t i, Where where)
      : there_(relu.scale != nullptr), scale_(two_zeros()), bias_(two_zeros()) {
    if (!there_) return;
    scale_ = load_two(where, relu.scale + i);
    bias_ = load_two(where, relu.bias + i);
  }
  // `centred`: x - mean.
  HWY_INLINE Two through(Two centred, Two g) const {
    return there_ ? where_positive(mul_add(centred, scale_, bias_), g) : g;
  }

 private:
  bool there_;
  Two scale_, bias_;
};

template <class T>
HWY_NOINLINE void grad_sums_of(const GradSums& n) {
  const T *const dy = n.dy.at<T>(0), *const x = n.x.at<T>(0);
  const int64_t ahead = ahead_of(n.c);
  sum_rows(n.rows, n.c, n.sum, n.product,
           [&](int64_t row, auto count, int64_t i, auto where, Two& s, Two& p) TESSERA_ROW_ATTR {
             const Two mean = load_two(where, n.mean + i);
             const Gate relu(n.relu, i, where);
             for (int r = 0; r < count; ++r) {
               const int64_t at = (row + r) * n.c + i;
               const Two centred = load_and_fetch(where, x + at, ahead) - mean,
                         g = relu.through(centred, load_and_fetch(where, dy + at, ahead));
               s = s + g;
               p = mul_add(g, centred, p);
             }
           });
}
void grad_sums_rows(const GradSums& n) { n.x.low ? grad_sums_of<Low>(n) : grad_sums_of<float>(n); }

template <bool machine, class T>
HWY_NOINLINE void grad_of(const GradPass& n) {
  const T *const dy = n.dy.at<T>(0), *const x = n.x.at<T>(0);
  T* const dx = n.dx.at<T>(0);
  const int64_t ahead = ahead_of(n.c);
  in_rows(n.rows, n.c, [&](int64_t row, auto count, int64_t i, auto where) TESSERA_ROW_ATTR {
    const Two mean = load_two(where, n.mean + i), scale = load_two(where, n.scale + i),
              k1 = load_two(where, n.k1 + i), k2 = load_two(where, n.k2 + i);
    const Gate relu(n.relu, i, where);
    for (int r = 0; r < count; ++r) {
      const int64_t at = (row + r) * n.c + i;
      const Two centred = load_and_fetch(where, x + at, ahead) - mean,
                g = relu.through(centred, load_and_fetch(where, dy + at, ahead));
      store_two<machine>(where, neg_mul_add(centred, k2, g - k1) * scale, dx + at);
    }
  });
}
void grad_rows(const GradPass& n) { n.x.low ? grad_of<false, Low>(n) : grad_of<false, float>(n); }
void grad_rows_rounding(const GradPass& n) {
  n.x.low ? grad_of<rounds_by_instruction, Low>(n) : grad_of<false, float>(n);
}

template <bool machine, class T>
HWY_NOINLINE void relu_sums_of(const ReluSums& n) {
  const T *const y = n.y.at<T>(0), *const g = n.g.at<T>(0), *const h = n.h.at<T>(0),
                 *const x = n.x.at<T>(0);
  T* const dz = n.dz.at<T>(0);
  const int64_t ahead = ahead_of(n.c);
  sum_rows(n.rows, n.c, n.sum, n.product,
           [&](int64_t row, auto count, int64_t i, auto where, Two& s, Two& p) TESSERA_ROW_ATTR {
             const Two mean = load_two(where, n.mean + i);
             for (int r = 0; r < count; ++r) {
               const int64_t at = (row + r) * n.c + i;
               Two v = load_and_fetch(where, g + at, ahead);
               if (h) v = v + load_and_fetch(where, h + at, ahead);
               v = where_positive(load_and_fetch(where, y + at, ahead), v);
               if (dz) store_two<machine>(where, v, dz + at);
               s = s + v;
               p = mul_add(v, load_and_fetch(where, x + at, ahead) - mean, p);
             }
           });
}
void relu_sums_rows(const ReluSums& n) {
  n.x.low ? relu_sums_of<false, Low>(n) : relu_sums_of<false, float>(n);
}
void relu_sums_rows_rounding(const ReluSums& n) {
  n.x.low ? relu_sums_of<rounds_by_instruction, Low>(n) : relu_sums_of<false, float>(n);
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::exec::cpu {

HWY_EXPORT(grad_sums_rows);
HWY_EXPORT(grad_rows);
HWY_EXPORT(grad_rows_rounding);
HWY_EXPORT(relu_sums_rows);
HWY_EXPORT(relu_sums_rows_rounding);

namespace {

bool rounds() {
  static const bool machine = machine_round() != nullptr;
  return machine;
}

// The factor of the norm, by group and channel, as batch_norm worked it out.
void scale_of(const Blocks& blocks, const float* rstd, const float* gain, float* scale) {
  for (int64_t i = 0; i < blocks.sums(); i += blocks.channels)
    for (int64_t c = 0; c < blocks.channels; ++c) scale[i + c] = rstd[i + c] * gain[c];
}

}  // namespace

void fast_batch_norm_sums(const Call& call) {
  const Blocks blocks(call.in[0].shape, call.attr<ir::BatchNorm>().groups);
  const float *mean = call.in[2].as<float>(), *rstd = call.in[3].as<float>();
  const bool relu = call.attr<ir::BatchNorm>().relu;
  float* const scale = call.shared_scratch<float>();
  float* const partials = scale + (relu ? blocks.sums() : 0);
  if (relu) scale_of(blocks, rstd, call.in[4].as<float>(), scale);
  const bool low = all_bf16({call.in[0], call.in[1]});
  blocks.for_each_run(
      call.pool, [&](int64_t group, int64_t number, int64_t row, int64_t rows, int thread) {
        const int64_t of = group * blocks.channels;
        float* const to = blocks.sums_of(partials, group, number);
        const Behind behind = relu ? Behind{scale + of, call.in[5].as<float>()} : Behind{};
        RunOf run(call, blocks, low, row, rows, thread);
        HWY_DYNAMIC_DISPATCH(grad_sums_rows)
        ({.dy = run.read(call.in[0]),
          .x = run.read(call.in[1]),
          .mean = mean + of,
          .relu = behind,
          .sum = to,
          .product = to + blocks.channels,
          .rows = rows,
          .c = blocks.channels});
      });
  add_runs(call.pool, blocks, partials, call.out[0], call.out[1],
           [&](int64_t i) { return static_cast<double>(rstd[i]); });
}
Scratch scratch_batch_norm_sums(const ir::Attrs& attrs, std::span<const ir::Type> in,
                                std::span<const ir::Type>) {
  const auto& attr = std::get<ir::BatchNorm>(attrs);
  Scratch scratch = partials_of(in[0].shape, attr.groups);
  if (attr.relu) scratch.shared += coefficients_of(in[0].shape, attr.groups, 1).shared;
  return with_room(scratch, in, {}, 2);
}

void fast_batch_norm_grad(const Call& call) {
  const auto& attr = call.attr<ir::BatchNorm>();
  const Blocks blocks(call.in[0].shape, attr.groups);
  const float* mean = call.in[2].as<float>();
  float *const scale = call.shared_scratch<float>(), *const k1 = scale + blocks.sums(),
               *const k2 = k1 + blocks.sums();
  scale_of(blocks, call.in[3].as<float>(), call.in[4].as<float>(), scale);
  for (int64_t group = 0, i = 0; group < blocks.groups; ++group) {
    const double n = count_of(attr, group);
    for (int64_t c = 0; c < blocks.channels; ++c, ++i) {
      const double rstd = static_cast<double>(call.in[3].as<float>()[i]);
      k1[i] = static_cast<float>(static_cast<double>(call.in[5].as<float>()[i]) / n);
      k2[i] = static_cast<float>(static_cast<double>(call.in[6].as<float>()[i]) / n * rstd);
    }
  }
  const bool low = all_bf16({call.in[0], call.in[1], call.out[0]});
  blocks.for_each_run(
      call.pool, [&](int64_t group, int64_t, int64_t row, int64_t rows, int thread) {
        const int64_t of = group * blocks.channels;
        const Behind behind = attr.relu ? Behind{scale + of, call.in[7].as<float>()} : Behind{};
        RunOf run(call, blocks, low, row, rows, thread);
        const GradPass pass{.dy = run.read(call.in[0]),
                            .x = run.read(call.in[1]),
                            .dx = run.write(call.out[0]),
                            .mean = mean + of,
                            .scale = scale + of,
                            .k1 = k1 + of,
                            .k2 = k2 + of,
                            .relu = behind,
                            .rows = rows,
                            .c = blocks.channels};
        if (rounds())
          HWY_DYNAMIC_DISPATCH(grad_rows_rounding)(pass);
        else
          HWY_DYNAMIC_DISPATCH(grad_rows)(pass);
        run.done(call.out[0], pass.dx);
      });
}
Scratch scratch_batch_norm_grad(const ir::Attrs& attrs, std::span<const ir::Type> in,
                                std::span<const ir::Type> out) {
  return with_room(coefficients_of(in[0].shape, std::get<ir::BatchNorm>(attrs).groups, 3), in, out,
                   3);
}

void fast_relu_grad_sums(const Call& call) {
  const Blocks blocks(call.in[0].shape, call.attr<ir::BatchNorm>().groups);
  const Tensor h = call.in.size() % 3 == 0 ? call.in.back() : Tensor{};
  float* const partials = call.shared_scratch<float>();
  // Sums for the norm whose operands begin with in[first]; dz may lie over g, which is read first.
  const auto sums = [&](std::size_t first, const Tensor& dz, const Tensor& sum,
                        const Tensor& product) {
    const float *mean = call.in[first + 1].as<float>(), *rstd = call.in[first + 2].as<float>();
    const bool low = all_bf16({call.in[0], call.in[1], h, call.in[first], dz});
    blocks.for_each_run(call.pool,
                        [&](int64_t group, int64_t number, int64_t row, int64_t rows, int thread) {
                          float* const to = blocks.sums_of(partials, group, number);
                          RunOf run(call, blocks, low, row, rows, thread);
                          const ReluSums pass{.y = run.read(call.in[0]),
                                              .g = run.read(call.in[1]),
                                              .h = run.read(h),
                                              .x = run.read(call.in[first]),
                                              .dz = run.write(dz),
                                              .mean = mean + group * blocks.channels,
                                              .sum = to,
                                              .product = to + blocks.channels,
                                              .rows = rows,
                                              .c = blocks.channels};
                          if (rounds())
                            HWY_DYNAMIC_DISPATCH(relu_sums_rows_rounding)(pass);
                          else
                            HWY_DYNAMIC_DISPATCH(relu_sums_rows)(pass);
                          run.done(dz, pass.dz);
                        });
    add_runs(call.pool, blocks, partials, sum, product,
             [&](int64_t i) { return static_cast<double>(rstd[i]); });
  };
  if (call.in.size() >= 8) sums(5, Tensor{}, Tensor{}, call.out[3]);
  sums(2, call.out[0], call.out[1], call.out[2]);
}
Scratch scratch_relu_grad_sums(const ir::Attrs& attrs, std::span<const ir::Type> in,
                               std::span<const ir::Type> out) {
  return with_room(partials_of(in[0].shape, std::get<ir::BatchNorm>(attrs).groups), in, out, 5);
}

}  // namespace tessera::exec::cpu
#endif
