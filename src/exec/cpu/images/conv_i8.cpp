// conv of i8 images and filters, which inference has: rows of windows are gathered, multiplied with
// exact sums in i32 (gemm/i8.h), and finished row by row: relu(sums times all scales + offset +
// addend). Convention: a task is a tile of pixels and channels with all of k.
#include "exec/cpu/simd/vector.h"  // before Highway: the instruction sets we build for

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/images/conv_i8.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/index.h"
#include "exec/cpu/gemm/i8.h"
#include "exec/cpu/images/conv.h"
#include "exec/cpu/kernel.h"
#include "exec/cpu/low.h"
#include "exec/cpu/reference/quantised.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One row of the result; the addend may be null.
void finish_sums(const std::int32_t* HWY_RESTRICT sums, const float* HWY_RESTRICT factor,
                 const float* HWY_RESTRICT offset, const float* HWY_RESTRICT addend, bool relu,
                 std::int64_t n, float* HWY_RESTRICT to) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t j = 0;
  for (; j + lanes <= n; j += lanes) {
    auto v = hn::MulAdd(hn::ConvertTo(d, hn::LoadU(di, sums + j)), hn::LoadU(d, factor + j),
                        hn::LoadU(d, offset + j));
    if (addend) v = hn::Add(v, hn::LoadU(d, addend + j));
    if (relu) v = hn::IfThenZeroElse(hn::Lt(v, hn::Zero(d)), v);
    hn::StoreU(v, d, to + j);
  }
  for (; j < n; ++j) {
    float v = std::fma(static_cast<float>(sums[j]), factor[j], offset[j]);
    if (addend) v += addend[j];
    to[j] = relu && v < 0 ? 0.0f : v;
  }
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::exec::cpu {

HWY_EXPORT(finish_sums);

namespace {

using std::int64_t;

constexpr int64_t block_rows = 96;  // pixels that are gathered and multiplied together

// Numbers under a filter.
int64_t window_of(const ir::Shape& f) { return f[0] * f[1] * f[2]; }

// A thread's own scratch, in the order in which it lies.
struct OwnI8 {
  std::byte* panel;
  std::int32_t* sums;
  float *row, *addend;
  std::int8_t* windows;

  explicit OwnI8(std::byte* at) : panel(at) {
    sums = reinterpret_cast<std::int32_t*>(at + i8_panel_bytes);
    row = reinterpret_cast<float*>(sums + block_rows * Tiles::most_columns);
    addend = row + Tiles::most_columns;
    windows = reinterpret_cast<std::int8_t*>(addend + Tiles::most_columns);
  }
  static std::size_t bytes(int64_t window) {
    return i8_panel_bytes + sizeof(float) * (block_rows + 2) * Tiles::most_columns +
           static_cast<std::size_t>(block_rows * window);
  }
};

// The windows of `rows` result pixels from `first` on, one after the other. Taps of a row of the
// filter lie side by side in the image too.
void gather_windows(const Call& call, int64_t first, int64_t rows, std::int8_t* to) {
  const auto& attr = call.attr<ir::Conv>();
  const ir::Shape &x = call.in[0].shape, &f = call.in[1].shape, &y = call.out[0].shape;
  const int64_t c = x[3];
  const auto size = [](int64_t n) { return static_cast<std::size_t>(n); };
  for (int64_t i = first; i < first + rows; ++i) {
    const int64_t image = i / (y[1] * y[2]), top = i / y[2] % y[1] * attr.stride - attr.pad,
                  left = i % y[2] * attr.stride - attr.pad;
    const int64_t before = std::clamp<int64_t>(-left, 0, f[1]),
                  inside = std::clamp<int64_t>(x[2] - left, before, f[1]) - before,
                  after = f[1] - before - inside;
    for (int64_t row = top; row < top + f[0]; ++row, to += f[1] * c) {
      if (row < 0 || row >= x[1]) {
        std::memset(to, 0, size(f[1] * c));
        continue;
      }
      const int64_t at = ((image * x[1] + row) * x[2] + left + before) * c;
      std::memset(to, 0, size(before * c));
      std::memcpy(to + before * c, call.in[0].as<std::int8_t>() + at, size(inside * c));
      std::memset(to + (before + inside) * c, 0, size(after * c));
    }
  }
}

// All scales of a channel as one factor, and its offset.
struct Columns {
  float *factor, *offset;

  static std::size_t bytes(int64_t n) {
    return (2 * sizeof(float) * static_cast<std::size_t>(n) + 63) / 64 * 64;
  }
  Columns(const Call& call, std::byte* room) {
    const int64_t n = call.in[1].shape[3];
    factor = reinterpret_cast<float*>(room);
    offset = factor + n;
    const float images = call.in[2].as<float>()[0], *filters = call.in[3].as<float>();
    const bool affine = call.in.size() > 4;
    for (int64_t j = 0; j < n; ++j) {
      const float scale = images * filters[j];
      factor[j] = affine ? scale * call.in[4].as<float>()[j] : scale;
      offset[j] = affine ? call.in[5].as<float>()[j] : 0.0f;
    }
  }
};

void finish_block(const Call& call, const Columns& columns, int64_t first, int64_t rows, int64_t n0,
                  int64_t n, const OwnI8& own) {
  const int64_t all = call.out[0].shape[3];
  const Tensor addend = call.in.size() > 6 ? call.in[6] : Tensor{};
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = (first + r) * all + n0;
    float* const to = room_for(call.out[0], at, own.row);
    HWY_DYNAMIC_DISPATCH(finish_sums)
    (own.sums + r * Tiles::most_columns, columns.factor + n0, columns.offset + n0,
     wide(addend, at, n, own.addend), call.attr<ir::Conv>().relu, n, to);
    give(call.out[0], at, n, to);
  }
}

void pack_filters(const Call& call, std::byte* to) {
  const ir::Shape& f = call.in[1].shape;
  const int64_t k = window_of(f);
  call.pool.parallel_for(ceil_div(f[3], panel_columns), [&](int64_t task, int) {
    const int64_t n0 = task * panel_columns;
    pack_i8(k, n0, std::min(panel_columns, f[3] - n0), call.in[1].as<std::int8_t>(), f[3], 1,
            reinterpret_cast<std::int8_t*>(to));
  });
}

}  // namespace

plan::PackedForm packed_conv_i8(const ir::Shape& f) {
  const int64_t k = window_of(f);
  if (k > i8_most_k) return {};
  return {packed_i8_bytes(k, f[3]), "i8 conv" + ir::to_string(f)};
}
void pack_conv_i8(const Call& call) { pack_filters(call, call.packed); }

void conv_i8(const Call& call) {
  const auto& attr = call.attr<ir::Conv>();
  const ir::Shape &f = call.in[1].shape, &y = call.out[0].shape;
  const int64_t k = window_of(f), n = y[3], pixels = y[0] * y[1] * y[2];
  if (pixels * n == 0) return;
  if (k > i8_most_k) return conv_quantised(call);
  const std::byte* packed = call.packed;
  if (!packed) {
    std::byte* const to = call.shared + Columns::bytes(n);
    pack_filters(call, to);
    packed = to;
  }
  const bool in_place = f[0] == 1 && f[1] == 1 && attr.stride == 1;
  const Tiles tiles(pixels, n, true);
  const Columns columns(call, call.shared);
  const int64_t across = ceil_div(n, tiles.n);
  call.share_out(ceil_div(pixels, tiles.m) * across, across, 1, [&](int64_t task, int thread) {
    const OwnI8 own(call.scratch_of<std::byte>(thread));
    const int64_t end = std::min(pixels, (task / across + 1) * tiles.m);
    const int64_t n0 = task % across * tiles.n, wide = std::min(tiles.n, n - n0);
    for (int64_t first = task / across * tiles.m; first < end; first += block_rows) {
      const int64_t rows = std::min(block_rows, end - first);
      if (!in_place) gather_windows(call, first, rows, own.windows);
      gemm_i8(rows, wide, k, in_place ? call.in[0].as<std::int8_t>() + first * k : own.windows, k,
              1, reinterpret_cast<const std::int8_t*>(packed), n0, own.sums, Tiles::most_columns,
              own.panel);
      finish_block(call, columns, first, rows, n0, wide, own);
    }
  });
}

Scratch scratch_conv_i8(const ir::Shape& f) {
  const int64_t k = window_of(f);
  if (k > i8_most_k) return {};
  return {.shared = Columns::bytes(f[3]) + static_cast<std::size_t>(packed_i8_bytes(k, f[3])),
          .per_thread = OwnI8::bytes(k)};
}

}  // namespace tessera::exec::cpu
#endif
