// Convolution in f32 and bf16 as matrix products: a row of the first factor is what the taps of one
// pixel read, named by one pointer per tap and never gathered; filters are packed once. Convention:
// a task is a tile of pixels and channels (or of filter rows); the order of sums is a function of
// the shapes alone. (Tiles may depend on the number of threads, which no bit does.)
#include <algorithm>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "base/index.h"
#include "exec/cpu/gemm/gemm.h"
#include "exec/cpu/images/conv.h"
#include "exec/cpu/images/narrow.h"
#include "exec/cpu/images/winograd.h"
#include "exec/cpu/kernel.h"
#include "exec/cpu/low.h"
#include "exec/cpu/simd/vector.h"

namespace tessera::exec::cpu {

namespace {

using std::int64_t;

// Result pixels in an order of their own: pixel i of an h x w lattice inside each image, written at
// `first` + `step` times its place.
struct Lattice {
  int64_t images, h, w;
  int64_t first_row = 0, first_col = 0, step = 1;  // where its pixels lie in the result
};

// result[pixel, n] = sum over taps and channels of source[pixel * scale + tap, channel] *
// filters[tap][channel, n]
template <class T>
struct Product {
  Gather<T> source;
  Lattice lattice;
  int64_t scale;                  // source pixels per lattice pixel
  std::vector<Tap> taps;          // in source pixels
  std::vector<const T*> filters;  // of each tap, or of each pixel under it: numbers x n
  int64_t numbers;                // of one of them
  int64_t rs, cs;                 // distance of their rows and columns
  int64_t n;
  T* result;
  int64_t result_h, result_w;
  Finish finish = {};  // of the whole result; what is bf16 there, too
};

// Shared: the packed filters, then a row of zeros for what lies outside the images.
template <class T>
std::size_t shared_bytes(int64_t taps, int64_t length, int64_t n) {
  return sizeof(T) *
         static_cast<std::size_t>(packed_elements(Scattered<T>{taps, length}, n) + length);
}
struct Own {
  std::byte* panel;
  float* tile;
  const void** rows;
};
Own own_of(const Call& call, int thread) {
  std::byte* const at = call.scratch_of<std::byte>(thread);
  float* const tile = reinterpret_cast<float*>(at + panel_bytes);
  return {at, tile, reinterpret_cast<const void**>(tile + Tiles::most_rows * Tiles::most_columns)};
}
std::size_t own_bytes(int64_t taps) {
  return panel_bytes + sizeof(float) * Tiles::most_rows * Tiles::most_columns +
         sizeof(void*) * static_cast<std::size_t>(taps * Tiles::most_rows);
}

// Where the taps of lattice pixels read, `count` of them from `first` on: one pointer per tap,
// those of a tap `pitch` apart. Behind the last pixel it is repeated.
template <class T>
void point_at(const Product<T>& p, int64_t first, int64_t count, const T* zeros, const void** to,
              int64_t pitch) {
  const int64_t h = p.lattice.h, w = p.lattice.w, c = p.source.c,
                there = std::min(count, p.lattice.images * h * w - first);
  for (int64_t r = 0, size = 0; r < there; r += size) {  // pixels side by side
    const int64_t pixel = first + r, x = pixel % w, y = pixel / w % h;
    size = std::min(w - x, there - r);
    const void** at = to + r;
    for (const Tap& tap : p.taps) {
      const int64_t row = y * p.scale + tap.row;
      const bool inside = row >= 0 && row < p.source.h;
      const T* const line =
          p.source.data + (pixel / (h * w) * p.source.h + (inside ? row : 0)) * p.source.w * c;
      // Pixels [begin, end) of them are inside.
      const int64_t col = x * p.scale + tap.col, last = p.source.w - 1 - col,
                    end = inside && last >= 0 ? std::min(size, last / p.scale + 1) : 0,
                    begin = std::min(end, col < 0 ? ceil_div(-col, p.scale) : 0);
      std::fill_n(at, begin, zeros);
      for (int64_t i = begin; i < end; ++i) at[i] = line + (col + i * p.scale) * c;
      std::fill(at + end, at + size, zeros);
      at += pitch;
    }
  }
  for (std::size_t tap = 0; tap < p.taps.size(); ++tap, to += pitch)
    std::fill(to + there, to + count, to[there - 1]);
}

// `length` numbers are read under each tap: the channels of a pixel, or of several side by side.
template <class T>
void multiply(const Call& call, const Product<T>& p, int64_t length, T* shared) {
  constexpr bool low = std::is_same_v<T, Low>;
  const int64_t pixels = p.lattice.images * p.lattice.h * p.lattice.w,
                taps = static_cast<int64_t>(p.taps.size());
  const Micro& kernel = micro<T>();
  const bool small = !kernel.packs_rows() && call.threading == Threading::automatic;
  const Tiles tiles = small ? Tiles::small(pixels, p.n, taps * length, call.pool.size(), kernel)
                            : Tiles(pixels, p.n, low);
  const bool dense = p.lattice.step == 1;
  const Scattered<T> shape{static_cast<int64_t>(p.filters.size()), p.numbers};
  CHECK(shape.k() == (Scattered<T>{taps, length}.k()), "filters are packed for another product");
  T* const zeros = shared + packed_elements(shape, p.n);
  const T* const packed = call.packed ? reinterpret_cast<const T*>(call.packed) : shared;
  std::fill_n(zeros, length, T{0});
  if (!call.packed)
    call.pool.parallel_for(pack_tasks(shape, p.n), [&](int64_t task, int) {
      gemm_pack<T>(shape, p.n, p.filters.data(), p.rs, p.cs, task, shared);
    });
  const int64_t across = ceil_div(p.n, tiles.n), down = ceil_div(pixels, tiles.m);
  call.share_out(down * across, across, 1, [&](int64_t task, int thread) {
    const Own own = own_of(call, thread);
    // Filters that tasks share stay in a thread's cache where those of the same columns follow each
    // other.
    const int64_t first = (small ? task % down : task / across) * tiles.m,
                  n0 = (small ? task / down : task % across) * tiles.n,
                  rows = std::min(tiles.m, pixels - first), columns = std::min(tiles.n, p.n - n0);
    const int64_t at = first * p.n + n0;  // in a dense result
    point_at(p, first, tiles.m, zeros, own.rows, tiles.m);
    float* c = own.tile;
    int64_t pitch = ceil_div(columns, scattered_columns) * scattered_columns;
    if constexpr (!low)
      if (dense) {
        c = p.result + at;
        pitch = p.n;
      }
    Finish finish = p.finish;
    finish.pitch = p.n;
    if (finish.scale) {
      finish.scale += n0;
      finish.offset += n0;
    }
    if (finish.addend) finish.addend += at;
    if (finish.low_addend) finish.low_addend += at;
    if constexpr (low)
      if (dense) finish.low = p.result + at;
    gemm_scattered<T>({taps, length, own.rows, tiles.m}, rows, p.n, packed, n0, columns, c, pitch,
                      finish, own.panel);
    if (dense) return;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t image = (first + r) / (p.lattice.h * p.lattice.w),
                    rest = (first + r) % (p.lattice.h * p.lattice.w);
      const int64_t row = p.lattice.first_row + rest / p.lattice.w * p.lattice.step,
                    col = p.lattice.first_col + rest % p.lattice.w * p.lattice.step;
      T* const to = p.result + ((image * p.result_h + row) * p.result_w + col) * p.n + n0;
      if constexpr (low)
        round_to_bf16(c + r * pitch, to, columns);
      else
        vector_copy(c + r * pitch, to, columns);
    }
  });
}

template <class T>
void pack_filters(const Call& call) {
  const ir::Shape& f = call.in[1].shape;
  const Form form = form_here<T>(f);
  const Scattered<T> shape{form.parts, form.numbers};
  std::vector<const T*> parts;
  for (int64_t part = 0; part < form.parts; ++part)
    parts.push_back(call.in[1].as<T>() + part * form.numbers * f[3]);
  call.pool.parallel_for(pack_tasks(shape, f[3]), [&](int64_t task, int) {
    gemm_pack<T>(shape, f[3], parts.data(), f[3], 1, task, reinterpret_cast<T*>(call.packed));
  });
}
// By any micro-kernel, so that a plan does not depend on it.
template <class T>
std::size_t most_packed_bytes(const ir::Shape& f) {
  const auto bytes = [&](const Form& form) {
    return sizeof(T) *
           static_cast<std::size_t>(packed_elements(Scattered<T>{form.taps, form.length}, f[3]));
  };
  return std::max(bytes({f, false}), bytes({f, std::is_same_v<T, Low>}));
}
template <class T>
std::size_t most_shared_bytes(const ir::Shape& x, const ir::Shape& f, int64_t pad) {
  const auto bytes = [&](const Form& form) {
    return sizeof(T) * static_cast<std::size_t>(form.elements(x, pad)) +
           shared_bytes<T>(form.taps, form.length, f[3]);
  };
  return std::max(bytes({f, false}), bytes({f, std::is_same_v<T, Low>}));
}

template <class T>
void conv(const Call& call) {
  const auto& attr = call.attr<ir::Conv>();
  const ir::Shape &x = call.in[0].shape, &f = call.in[1].shape, &y = call.out[0].shape;
  if (call.out[0].elements() == 0) return;
  Product<T> p{.source = {call.in[0].as<T>(), x[1], x[2], x[3]},
               .lattice = {y[0], y[1], y[2]},
               .scale = attr.stride,
               .taps = {},
               .filters = {},
               .numbers = 0,
               .rs = f[3],
               .cs = 1,
               .n = y[3],
               .result = call.out[0].as<T>(),
               .result_h = y[1],
               .result_w = y[2]};
  p.finish.relu = attr.relu;
  std::vector<float> wide_scale, wide_offset;
  if (call.in.size() > 2) {
    wide_scale.resize(static_cast<std::size_t>(y[3]));
    wide_offset.resize(wide_scale.size());
    p.finish.scale = wide(call.in[2], 0, y[3], wide_scale.data());
    p.finish.offset = wide(call.in[3], 0, y[3], wide_offset.data());
  }
  if (call.in.size() > 4 && is_bf16(call.in[4]))
    p.finish.low_addend = call.in[4].as<Low>();
  else if (call.in.size() > 4)
    p.finish.addend = call.in[4].as<float>();
  const Form form = form_here<T>(f);
  p.numbers = form.numbers;
  for (int64_t part = 0; part < form.parts; ++part)
    p.filters.push_back(call.in[1].as<T>() + part * form.numbers * f[3]);
  T* shared = call.shared_scratch<T>();
  if (form.borders) {
    add_borders(call.pool, call.in[0], form.channels, attr.pad, shared);
    p.source = {shared, x[1] + 2 * attr.pad, x[2] + 2 * attr.pad, form.channels};
    for (int64_t k = 0; k < f[0]; ++k) p.taps.push_back({k, 0});
    shared += form.elements(x, attr.pad);
  } else {
    for (int64_t k = 0; k < f[0]; ++k)
      for (int64_t l = 0; l < f[1]; ++l) p.taps.push_back({k - attr.pad, l - attr.pad});
  }
  multiply<T>(call, p, form.length, shared);
}

}  // namespace

// Only inference folds a norm into a conv, so that trainings reserve nothing for it.
static bool winograd_serves(const ir::Conv& attr, std::span<const ir::Type> in) {
  return in.size() > 2 && winograd_pays(attr, in);
}

plan::PackedForm packed_conv(const ir::Attrs& attrs, std::span<const ir::Type> in, int operand,
                             const Liberties& liberties) {
  const ir::Type& f = in[1];
  const bool low = f.dtype == ir::DType::bf16;
  if (operand == 1 && f.dtype == ir::DType::i8) return packed_conv_i8(f.shape);
  if (operand != 1 || (!low && f.dtype != ir::DType::f32) || in[0].dtype != f.dtype) return {};
  if (liberties.winograd && winograd_serves(std::get<ir::Conv>(attrs), in))
    return {winograd_bytes(f.shape), "winograd" + ir::to_string(f.shape)};
  return {static_cast<int64_t>(low ? most_packed_bytes<Low>(f.shape)
                                   : most_packed_bytes<float>(f.shape)),
          (low ? "bf16 conv" : "conv") + ir::to_string(f.shape)};
}
// Filters at Winograd's points are four times as many as those that are packed as they are.
static bool by_winograd(const Call& call) {
  return call.packed && call.in[1].dtype == ir::DType::f32 && call.in[1].shape[0] == 3 &&
         call.in[1].shape[1] == 3 && call.packed_bytes >= winograd_bytes(call.in[1].shape);
}
// A conv or the gradient of its images `x` whose filters nobody packed.
static bool trains_by_winograd(const Call& call, const ir::Shape& x) {
  return call.winograd && !call.packed && call.in.size() == 2 &&
         winograd_trains(call.attr<ir::Conv>(), x, {call.in[1].dtype, call.in[1].shape, {}});
}
void pack_conv(const Call& call) {
  if (call.in[1].dtype == ir::DType::i8) return pack_conv_i8(call);
  if (by_winograd(call)) return winograd_pack(call);
  is_bf16(call.in[1]) ? pack_filters<Low>(call) : pack_filters<float>(call);
}
void fast_conv(const Call& call) {
  if (call.in[0].dtype == ir::DType::i8) return conv_i8(call);
  if (by_winograd(call)) return winograd_conv(call);
  if (trains_by_winograd(call, call.in[0].shape)) return winograd_train_conv(call);
  is_bf16(call.in[0]) ? conv<Low>(call) : conv<float>(call);
}
Scratch scratch_conv(const ir::Attrs& attrs, std::span<const ir::Type> in,
                     std::span<const ir::Type>) {
  const ir::Shape& f = in[1].shape;
  if (in[0].dtype == ir::DType::i8) return scratch_conv_i8(f);
  const auto& attr = std::get<ir::Conv>(attrs);
  const Scratch plain = {.shared = in[0].dtype == ir::DType::bf16
                                       ? most_shared_bytes<Low>(in[0].shape, f, attr.pad)
                                       : most_shared_bytes<float>(in[0].shape, f, attr.pad),
                         .per_thread = own_bytes(f[0] * f[1])};
  if (winograd_serves(attr, in)) return larger(plain, winograd_scratch(attr, in[0].shape, f));
  if (in.size() == 2 && winograd_trains(attr, in[0].shape, in[1]))
    return larger(plain, winograd_training_scratch(attr, in[0].shape, f));
  return plain;
}

// dx[row] collects dy[p] f[k] where row = p stride + k - pad. Rows of one remainder modulo the
// stride meet the same taps: each of the stride^2 classes of pixels is a product of its own, with
// filters transposed as they are packed.
namespace {
template <class T>
void input_grad(const Call& call) {
  const auto& attr = call.attr<ir::Conv>();
  const ir::Shape &g = call.in[0].shape, &f = call.in[1].shape, &x = call.out[0].shape;
  if (call.out[0].elements() == 0) return;
  const int64_t s = attr.stride, c = f[2], o = f[3];
  for (int64_t a = 0; a < std::min(s, x[1]); ++a)
    for (int64_t b = 0; b < std::min(s, x[2]); ++b) {
      Product<T> p{.source = {call.in[0].as<T>(), g[1], g[2], o},
                   .lattice = {x[0], ceil_div(x[1] - a, s), ceil_div(x[2] - b, s), a, b, s},
                   .scale = 1,
                   .taps = {},
                   .filters = {},
                   .numbers = o,
                   .rs = 1,
                   .cs = o,
                   .n = c,
                   .result = call.out[0].as<T>(),
                   .result_h = x[1],
                   .result_w = x[2]};
      for (int64_t k = 0; k < f[0]; ++k)
        for (int64_t l = 0; l < f[1]; ++l)
          if ((a + attr.pad - k) % s == 0 && (b + attr.pad - l) % s == 0) {
            p.taps.push_back({(a + attr.pad - k) / s, (b + attr.pad - l) / s});
            p.filters.push_back(call.in[1].as<T>() + (k * f[1] + l) * c * o);
          }
      multiply<T>(call, p, o, call.shared_scratch<T>());
    }
}
}  // namespace
void fast_conv_input_grad(const Call& call) {
  if (trains_by_winograd(call, call.out[0].shape)) return winograd_input_grad(call);
  is_bf16(call.in[0]) ? input_grad<Low>(call) : input_grad<float>(call);
}
Scratch scratch_conv_input_grad(const ir::Attrs& attrs, std::span<const ir::Type> in,
                                std::span<const ir::Type> out) {
  const ir::Shape& f = in[1].shape;
  const auto& attr = std::get<ir::Conv>(attrs);
  const Scratch plain = {.shared = in[0].dtype == ir::DType::bf16
                                       ? shared_bytes<Low>(f[0] * f[1], f[3], f[2])
                                       : shared_bytes<float>(f[0] * f[1], f[3], f[2]),
                         .per_thread = own_bytes(f[0] * f[1])};
  if (!winograd_trains(attr, out[0].shape, in[1])) return plain;
  return larger(plain, winograd_training_scratch(attr, out[0].shape, f));
}

}  // namespace tessera::exec::cpu
