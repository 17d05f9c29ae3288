// Max pooling, a few rows of result pixels per task; the gradient asks, for each pixel, which
// windows it won.
#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/index.h"
#include "exec/cpu/images/pool.h"
#include "exec/cpu/kernel.h"
#include "exec/cpu/low.h"
#include "exec/cpu/simd/vector.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/images/pool.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set
#include "hwy/highway.h"

#include "exec/cpu/simd/low-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {

using std::int64_t;

// Winners of the windows: those of a whole step, or the last ones with zeros behind them.
HWY_INLINE const std::uint8_t* bytes_of(Whole, const std::uint8_t* x, std::uint8_t*) { return x; }
HWY_INLINE const std::uint8_t* bytes_of(Part part, const std::uint8_t* x, std::uint8_t* room) {
  copy_few(x, room, part.n);
  return room;
}

// Numbers of 0 to 255 of a whole step, or the last ones, as bytes.
template <class V>
HWY_INLINE void store_bytes(Whole, V a, V b, std::uint8_t* y) {
  const hn::Rebind<std::uint8_t, hn::ScalableTag<float>> bytes;
  hn::StoreU(hn::DemoteTo(bytes, a), bytes, y);
  hn::StoreU(hn::DemoteTo(bytes, b), bytes, y + hn::Lanes(bytes));
}
template <class V>
HWY_INLINE void store_bytes(Part part, V a, V b, std::uint8_t* y) {
  HWY_ALIGN std::uint8_t room[2 * hn::MaxLanes(hn::ScalableTag<float>())];
  store_bytes(Whole{}, a, b, room);
  copy_few(room, y, part.n);
}

// The largest of what `count` pixels of a window have, channel by channel; `which`, unless null,
// gets the number of the pixel that has it. A NaN wins, the first of them; of equal numbers too the
// first.
template <bool names, class T>
HWY_INLINE void largest_of(const T* const* pixels, const std::uint8_t* numbers, int64_t count,
                           int64_t n, T* y, std::uint8_t* which) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto wins = [](auto x, auto best) TESSERA_ROW_ATTR {
    return hn::AndNot(hn::IsNaN(best), hn::Not(hn::Le(x, best)));
  };
  along_row(n, [&](int64_t i, auto where) TESSERA_ROW_ATTR {
    Two best = load_two(where, pixels[0] + i);
    auto place_a = hn::Set(di, numbers[0]), place_b = place_a;
    for (int64_t k = 1; k < count; ++k) {
      const Two x = load_two(where, pixels[k] + i);
#if HWY_TARGET == HWY_NEON
      // One instruction, which Highway does not have: a NaN wins; of zeros and of NaNs, whose place
      // nobody asks for, another may be kept.
      if constexpr (!names) {
        best = {hn::Vec<decltype(d)>(vmaxq_f32(best.a.raw, x.a.raw)),
                hn::Vec<decltype(d)>(vmaxq_f32(best.b.raw, x.b.raw))};
        continue;
      }
#endif
      const auto a = wins(x.a, best.a), b = wins(x.b, best.b);
      best = {hn::IfThenElse(a, x.a, best.a), hn::IfThenElse(b, x.b, best.b)};
      if constexpr (names) {
        const auto number = hn::Set(di, numbers[k]);
        place_a = hn::IfThenElse(hn::RebindMask(di, a), number, place_a);
        place_b = hn::IfThenElse(hn::RebindMask(di, b), number, place_b);
      }
    }
    if (y) store_two<false>(where, best, y + i);
    if constexpr (names) store_bytes(where, place_a, place_b, which + i);
  });
}
// The same of bf16 without names, as whole numbers in the order of what they stand for: those below
// zero have the bits behind their sign turned round. The largest magnitude tells whether there is a
// NaN. Of zeros the positive one is kept, of NaNs the largest.
HWY_INLINE void largest_bits(const Low* const* pixels, int64_t count, int64_t n, Low* y) {
  const hn::ScalableTag<std::uint16_t> du;
  const hn::RebindToSigned<decltype(du)> d;
  const auto magnitude = hn::Set(d, 0x7fff), infinity = hn::Set(d, 0x7f80);
  const auto ordered = [=](auto x) TESSERA_ROW_ATTR {
    return hn::Xor(x, hn::And(hn::BroadcastSignBit(x), magnitude));
  };
  along_row(n, [&](int64_t i, auto where) TESSERA_ROW_ATTR {
    constexpr bool whole = std::is_same_v<decltype(where), Whole>;
    HWY_ALIGN Low room[hn::MaxLanes(du)] = {};
    const auto load = [&](const Low* pixel) TESSERA_ROW_ATTR {
      if constexpr (!whole) copy_few(pixel + i, room, n - i);
      return hn::BitCast(d, hn::LoadU(du, whole ? pixel + i : room));
    };
    auto x = load(pixels[0]), best = ordered(x), size = hn::And(x, magnitude);
    for (int64_t k = 1; k < count; ++k) {
      x = load(pixels[k]);
      best = hn::Max(best, ordered(x));
      size = hn::Max(size, hn::And(x, magnitude));
    }
    best = hn::IfThenElse(hn::Gt(size, infinity), size, ordered(best));
    hn::StoreU(hn::BitCast(du, best), du, whole ? y + i : room);
    if constexpr (!whole) copy_few(room, y + i, n - i);
  });
}
template <class T>
HWY_INLINE void largest(const T* const* pixels, const std::uint8_t* numbers, int64_t count,
                        int64_t n, T* y, std::uint8_t* which) {
  constexpr bool as_bits = std::is_same_v<T, Low> && HWY_TARGET != HWY_NEON;
  if (which)
    largest_of<true>(pixels, numbers, count, n, y, which);
  else if constexpr (as_bits)
    largest_bits(pixels, count, n, y);
  else
    largest_of<false>(pixels, numbers, count, n, y, which);
}
void largest_f32(const float* const* pixels, const std::uint8_t* numbers, int64_t count, int64_t n,
                 float* y, std::uint8_t* which) {
  largest(pixels, numbers, count, n, y, which);
}
void largest_low(const Low* const* pixels, const std::uint8_t* numbers, int64_t count, int64_t n,
                 Low* y, std::uint8_t* which) {
  largest(pixels, numbers, count, n, y, which);
}

// The gradient of a pixel: the sum of those of the windows that it won.
template <class T>
HWY_INLINE void sum_won(const Window* windows, int64_t count, const T* dy,
                        const std::uint8_t* which, int64_t n, T* dx) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<std::uint8_t, decltype(d)> bytes;
  along_row(n, [&](int64_t i, auto where) TESSERA_ROW_ATTR {
    HWY_ALIGN std::uint8_t room[2 * hn::MaxLanes(d)] = {};
    Two sum{hn::Zero(d), hn::Zero(d)};
    for (int64_t k = 0; k < count; ++k) {
      const auto number = hn::Set(di, windows[k].number);
      const auto won = [&](auto g, const std::uint8_t* winner) TESSERA_ROW_ATTR {
        const auto is_this = hn::Eq(hn::PromoteTo(di, hn::LoadU(bytes, winner)), number);
        return hn::IfThenElseZero(hn::RebindMask(d, is_this), g);
      };
      const Two g = load_two(where, dy + windows[k].at + i);
      const std::uint8_t* const winners = bytes_of(where, which + windows[k].at + i, room);
      sum.a = hn::Add(sum.a, won(g.a, winners));
      sum.b = hn::Add(sum.b, won(g.b, winners + hn::Lanes(d)));
    }
    store_two<false>(where, sum, dx + i);
  });
}
void sum_won_f32(const Window* windows, int64_t count, const float* dy, const std::uint8_t* which,
                 int64_t n, float* dx) {
  sum_won(windows, count, dy, which, n, dx);
}
void sum_won_low(const Window* windows, int64_t count, const Low* dy, const std::uint8_t* which,
                 int64_t n, Low* dx) {
  sum_won(windows, count, dy, which, n, dx);
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::exec::cpu {

using std::int64_t;

HWY_EXPORT(largest_f32);
HWY_EXPORT(largest_low);
HWY_EXPORT(sum_won_f32);
HWY_EXPORT(sum_won_low);

namespace {

// A row of windows. Lines that no row above it has read are fetched a few pixels ahead.
template <class T>
void pool_row(const Call& call, int64_t number, const T** pixels) {
  constexpr int64_t ahead = 16, line = 64 / static_cast<int64_t>(sizeof(T));
  const auto& attr = call.attr<ir::Pool>();
  // Where activations are recomputed only the second result may be read.
  const ir::Shape &x = call.in[0].shape, &y = (call.out[0] ? call.out[0] : call.out[1]).shape;
  auto* const numbers = reinterpret_cast<std::uint8_t*>(pixels + attr.size * attr.size);
  const int64_t top = number % y[1] * attr.stride - attr.pad, c = y[3],
                bottom = std::min(x[1], top + attr.size),
                fresh = std::max({int64_t{0}, top, top + attr.size - attr.stride});
  const T* const image = call.in[0].as<T>() + number / y[1] * x[1] * x[2] * c;
  for (int64_t q = 0; q < y[2]; ++q) {
    const int64_t left = q * attr.stride - attr.pad, at = (number * y[2] + q) * c;
    int64_t count = 0;
    const int64_t begin = std::max<int64_t>(0, left), end = std::min(x[2], left + attr.size);
    for (int64_t row = std::max<int64_t>(0, top); row < bottom; ++row)
      for (int64_t col = begin; col < end; ++col) {
        pixels[count] = image + (row * x[2] + col) * c;
        numbers[count++] = static_cast<std::uint8_t>((row - top) * attr.size + col - left);
      }
    CHECK(count > 0, "a window of max pooling has no pixel");
    for (int64_t row = fresh; row < bottom; ++row)
      for (int64_t i = 0; i < attr.stride * c; i += line)
        __builtin_prefetch(image + (row * x[2] + begin + ahead) * c + i);
    T* const result = call.out[0] ? call.out[0].as<T>() + at : nullptr;
    std::uint8_t* const names = call.out[1] ? call.out[1].as<std::uint8_t>() + at : nullptr;
    if constexpr (std::is_same_v<T, Low>)
      HWY_DYNAMIC_DISPATCH(largest_low)(pixels, numbers, count, c, result, names);
    else
      HWY_DYNAMIC_DISPATCH(largest_f32)(pixels, numbers, count, c, result, names);
  }
}
// A few rows of windows are a task, since neighbours read the same lines.
template <class T>
void pool(const Call& call) {
  const ir::Shape& y = (call.out[0] ? call.out[0] : call.out[1]).shape;
  const int64_t rows = y[0] * y[1], each = std::clamp<int64_t>(rows / (8 * call.pool.size()), 1, 4);
  call.pool.parallel_for(ceil_div(rows, each), [&](int64_t task, int thread) {
    for (int64_t row = task * each; row < std::min(rows, (task + 1) * each); ++row)
      pool_row(call, row, call.scratch_of<const T*>(thread));
  });
}

}  // namespace

void fast_max_pool(const Call& call) { is_bf16(call.in[0]) ? pool<Low>(call) : pool<float>(call); }

// The pixels of a window and their numbers in it.
Scratch scratch_max_pool(const ir::Attrs& attrs, std::span<const ir::Type>,
                         std::span<const ir::Type>) {
  const auto& attr = std::get<ir::Pool>(attrs);
  return {.per_thread = static_cast<std::size_t>(attr.size * attr.size) * (sizeof(void*) + 1)};
}

namespace {

// A row of pixels.
template <class T>
void pool_grad_row(const Call& call, int64_t number, Window* windows) {
  const auto& attr = call.attr<ir::Pool>();
  const ir::Shape &g = call.in[0].shape, &x = call.out[0].shape;
  const int64_t row = number % x[1], image = number / x[1], c = x[3];
  // Moves [first, end) on to the windows p that hold pixel r: p stride - pad <= r < p stride - pad
  // + size. Divisions would take as long as the sums.
  const auto hold = [&](int64_t r, int64_t all, int64_t& first, int64_t& end) {
    while (end < all && end * attr.stride - attr.pad <= r) ++end;
    while (first < end && first * attr.stride - attr.pad + attr.size <= r) ++first;
  };
  int64_t p0 = 0, p1 = 0, q0 = 0, q1 = 0;
  hold(row, g[1], p0, p1);
  for (int64_t col = 0; col < x[2]; ++col) {
    hold(col, g[2], q0, q1);
    int64_t count = 0;
    for (int64_t p = p0; p < p1; ++p)
      for (int64_t q = q0; q < q1; ++q)
        windows[count++] = {
            ((image * g[1] + p) * g[2] + q) * c,
            static_cast<std::uint8_t>((row - p * attr.stride + attr.pad) * attr.size + col -
                                      q * attr.stride + attr.pad)};
    const T* const dy = call.in[0].as<T>();
    const auto* const which = call.in[1].as<std::uint8_t>();
    T* const dx = call.out[0].as<T>() + (number * x[2] + col) * c;
    if constexpr (std::is_same_v<T, Low>)
      HWY_DYNAMIC_DISPATCH(sum_won_low)(windows, count, dy, which, c, dx);
    else
      HWY_DYNAMIC_DISPATCH(sum_won_f32)(windows, count, dy, which, c, dx);
  }
}
template <class T>
void pool_grad(const Call& call) {
  const ir::Shape& x = call.out[0].shape;
  call.pool.parallel_for(x[0] * x[1], [&](int64_t row, int thread) {
    pool_grad_row<T>(call, row, call.scratch_of<Window>(thread));
  });
}

}  // namespace

void fast_max_pool_grad(const Call& call) {
  is_bf16(call.in[0]) ? pool_grad<Low>(call) : pool_grad<float>(call);
}
// The windows that hold a pixel.
Scratch scratch_max_pool_grad(const ir::Attrs& attrs, std::span<const ir::Type>,
                              std::span<const ir::Type>) {
  const auto& attr = std::get<ir::Pool>(attrs);
  const int64_t most = ceil_div(attr.size, attr.stride);
  return {.per_thread = sizeof(Window) * static_cast<std::size_t>(most * most)};
}

}  // namespace tessera::exec::cpu
#endif
