// The gradient of batch norm in f32, and of a ReLU behind it. Convention: as batch_norm.cpp. Where
// only the norm is in front of a ReLU, it is worked out again, by the multiply-add that made it.
#include "exec/cpu/images/batch_norm.h"

#include <algorithm>
#include <cmath>

#include "exec/cpu/simd/vector.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/images/batch_norm_gradient.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set
#include "hwy/highway.h"

#include "exec/cpu/images/column_pair-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {

// g where the ReLU is open; `centred`: x - mean.
HWY_INLINE V through(const Behind& relu, int64_t at, V centred, V g) {
  const F32 d;
  const V norm = hn::MulAdd(centred, hn::LoadU(d, relu.scale + at), hn::LoadU(d, relu.bias + at));
  return hn::IfThenElseZero(hn::Gt(norm, hn::Zero(d)), g);
}
inline float through(const Behind& relu, int64_t at, float centred, float g) {
  return std::fma(centred, relu.scale[at], relu.bias[at]) > 0 ? g : 0.0f;
}

// sum of dy, and of dy (x - mean)
void grad_sums_block(const float* dy, const float* x, const float* mean, Behind relu, int64_t rows,
                     int64_t c, float* sum, float* product) {
  const F32 d;
  const auto term = [&](int64_t row, int64_t at, V& s, V& p) HWY_ATTR {
    const V centred = hn::Sub(hn::LoadU(d, x + row * c + at), hn::LoadU(d, mean + at));
    V g = hn::LoadU(d, dy + row * c + at);
    if (relu.scale) g = through(relu, at, centred, g);
    s = hn::Add(s, g);
    p = hn::MulAdd(g, centred, p);
  };
  for (int64_t at = row_pairs(rows, c, sum, product, term); at < c; ++at) {
    sum[at] = product[at] = 0;
    for (int64_t row = 0; row < rows; ++row) {
      const float centred = x[row * c + at] - mean[at];
      float g = dy[row * c + at];
      if (relu.scale) g = through(relu, at, centred, g);
      sum[at] += g;
      product[at] += g * centred;
    }
  }
}

// dx = scale (dy - k1 - (x - mean) k2)
void grad_block(const float* dy, const float* x, const float* mean, Behind relu, const float* scale,
                const float* k1, const float* k2, float* dx, int64_t rows, int64_t c) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t row = 0; row < rows; ++row, dy += c, x += c, dx += c) {
    int64_t i = 0;
    for (; i + lanes <= c; i += lanes) {
      const V centred = hn::Sub(hn::LoadU(d, x + i), hn::LoadU(d, mean + i));
      V g = hn::LoadU(d, dy + i);
      if (relu.scale) g = through(relu, i, centred, g);
      const V v = hn::NegMulAdd(centred, hn::LoadU(d, k2 + i), hn::Sub(g, hn::LoadU(d, k1 + i)));
      hn::StoreU(hn::Mul(v, hn::LoadU(d, scale + i)), d, dx + i);
    }
    for (; i < c; ++i) {
      const float centred = x[i] - mean[i];
      const float g = relu.scale ? through(relu, i, centred, dy[i]) : dy[i];
      dx[i] = scale[i] * std::fma(-centred, k2[i], g - k1[i]);
    }
  }
}

// dz = g (+ h) where y > 0; sum of dz, and of dz (x - mean). dz may lie over g or h; null: nobody
// reads it.
void relu_sums_block(const float* y, const float* g, const float* h, const float* x,
                     const float* mean, float* dz, int64_t rows, int64_t c, float* sum,
                     float* product) {
  const F32 d;
  const auto term = [&](int64_t row, int64_t at, V& s, V& p) HWY_ATTR {
    const int64_t i = row * c + at;
    V v = hn::LoadU(d, g + i);
    if (h) v = hn::Add(v, hn::LoadU(d, h + i));
    v = hn::IfThenElseZero(hn::Gt(hn::LoadU(d, y + i), hn::Zero(d)), v);
    if (dz) hn::StoreU(v, d, dz + i);
    s = hn::Add(s, v);
    p = hn::MulAdd(v, hn::Sub(hn::LoadU(d, x + i), hn::LoadU(d, mean + at)), p);
  };
  for (int64_t at = row_pairs(rows, c, sum, product, term); at < c; ++at) {
    sum[at] = product[at] = 0;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t i = row * c + at;
      const float all = h ? g[i] + h[i] : g[i], v = y[i] > 0 ? all : 0.0f;
      if (dz) dz[i] = v;
      sum[at] += v;
      product[at] += v * (x[i] - mean[at]);
    }
  }
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::exec::cpu {

HWY_EXPORT(grad_sums_block);
HWY_EXPORT(grad_block);
HWY_EXPORT(relu_sums_block);

namespace {

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
  blocks.for_each_run(
      call.pool, [&](int64_t group, int64_t number, int64_t row, int64_t rows, int thread) {
        const int64_t of = group * blocks.channels;
        float* const to = blocks.sums_of(partials, group, number);
        const Behind behind = relu ? Behind{scale + of, call.in[5].as<float>()} : Behind{};
        RunOf run(call, blocks, row, rows, thread);
        const float *const dy = run.read(call.in[0]), *const x = run.read(call.in[1]);
        HWY_DYNAMIC_DISPATCH(grad_sums_block)
        (dy, x, mean + of, behind, rows, blocks.channels, to, to + blocks.channels);
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
  blocks.for_each_run(
      call.pool, [&](int64_t group, int64_t, int64_t row, int64_t rows, int thread) {
        const int64_t of = group * blocks.channels;
        const Behind behind = attr.relu ? Behind{scale + of, call.in[7].as<float>()} : Behind{};
        RunOf run(call, blocks, row, rows, thread);
        const float *const dy = run.read(call.in[0]), *const x = run.read(call.in[1]);
        float* const dx = run.write(call.out[0]);
        HWY_DYNAMIC_DISPATCH(grad_block)
        (dy, x, mean + of, behind, scale + of, k1 + of, k2 + of, dx, rows, blocks.channels);
        run.done(call.out[0], dx);
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
    blocks.for_each_run(
        call.pool, [&](int64_t group, int64_t number, int64_t row, int64_t rows, int thread) {
          float* const to = blocks.sums_of(partials, group, number);
          RunOf run(call, blocks, row, rows, thread);
          const float *const y = run.read(call.in[0]), *const g = run.read(call.in[1]),
                             *const more = run.read(h), *const x = run.read(call.in[first]);
          float* const out = run.write(dz);
          HWY_DYNAMIC_DISPATCH(relu_sums_block)
          (y, g, more, x, mean + group * blocks.channels, out, rows, blocks.channels, to,
           to + blocks.channels);
          run.done(dz, out);
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
