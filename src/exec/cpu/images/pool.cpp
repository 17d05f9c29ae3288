// Max pooling, a row of result pixels per task; the gradient asks, for each pixel, which
// windows it won.
#include <algorithm>
#include <bit>
#include <utility>

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

// sum += dy where the window's winner is this number.
template <class T>
HWY_INLINE void add_won_of(const std::uint8_t* which, std::uint8_t number, const T* dy, int64_t n,
                           float* sum) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<std::uint8_t, decltype(d)> bytes;
  const auto this_one = hn::Set(di, number);
  along_row(n, [&](int64_t i, auto where) TESSERA_ROW_ATTR {
    HWY_ALIGN std::uint8_t room[2 * hn::MaxLanes(d)] = {};
    const std::uint8_t* const winners = bytes_of(where, which + i, room);
    const auto won = [&](auto g, const std::uint8_t* winner) TESSERA_ROW_ATTR {
      const auto is_this = hn::Eq(hn::PromoteTo(di, hn::LoadU(bytes, winner)), this_one);
      return hn::IfThenElseZero(hn::RebindMask(d, is_this), g);
    };
    const Two g = load_two(where, dy + i), s = load_two(where, sum + i);
    store_two<false>(
        where, Two{hn::Add(s.a, won(g.a, winners)), hn::Add(s.b, won(g.b, winners + hn::Lanes(d)))},
        sum + i);
  });
}
void add_won(const Tensor& dy, int64_t at, const std::uint8_t* which, std::uint8_t number,
             int64_t n, float* sum) {
  if (is_bf16(dy))
    add_won_of(which + at, number, dy.as<Low>() + at, n, sum);
  else
    add_won_of(which + at, number, dy.as<float>() + at, n, sum);
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::exec::cpu {

using std::int64_t;

HWY_EXPORT(add_won);

namespace {

// A NaN wins, the first of them; of equal numbers too the first.
void keep_largest(const float* __restrict__ x, std::int32_t number, int64_t n,
                  float* __restrict__ best, std::int32_t* __restrict__ place) {
  for (int64_t i = 0; i < n; ++i) {
    const bool wins = (x[i] > best[i]) | ((x[i] != x[i]) & (best[i] == best[i]));
    best[i] = wins ? x[i] : best[i];
    place[i] = wins ? number : place[i];
  }
}

float wide_of(Low x) { return std::bit_cast<float>(std::uint32_t{x} << 16); }
float wide_of(float x) { return x; }

// Keeps the larger of what is there and n numbers; the first numbers are copied. A NaN wins here,
// too; of zeros of both signs and of several NaNs another one may be kept than above, since columns
// come first.
template <class T>
void keep(bool first, const T* __restrict__ x, int64_t n, float* __restrict__ best) {
  if (first)
    for (int64_t i = 0; i < n; ++i) best[i] = wide_of(x[i]);
  else
    for (int64_t i = 0; i < n; ++i) {
      const float v = wide_of(x[i]);
      best[i] = ((v > best[i]) | ((v != v) & (best[i] == best[i]))) ? v : best[i];
    }
}

// Nobody asks which pixel won: a window's largest number is that of its columns, whose largest come
// first, for a whole row of windows.
template <class T>
void largest(const Call& call) {
  const auto& attr = call.attr<ir::Pool>();
  const ir::Shape &x = call.in[0].shape, &y = call.out[0].shape;
  const int64_t c = y[3], row = x[2] * c;
  call.pool.parallel_for(y[0] * y[1], [&](int64_t task, int thread) {
    const int64_t b = task / y[1], top = task % y[1] * attr.stride - attr.pad;
    float *const columns = call.scratch_of<float>(thread), *const best = columns + row;
    bool first = true;
    for (int64_t k = std::max<int64_t>(top, 0); k < std::min(top + attr.size, x[1]); ++k)
      keep(std::exchange(first, false), call.in[0].as<T>() + (b * x[1] + k) * row, row, columns);
    for (int64_t q = 0; q < y[2]; ++q) {
      const int64_t left = q * attr.stride - attr.pad, at = (task * y[2] + q) * c;
      float* const to = room_for(call.out[0], at, best);
      first = true;
      for (int64_t l = std::max<int64_t>(left, 0); l < std::min(left + attr.size, x[2]); ++l)
        keep(std::exchange(first, false), columns + l * c, c, to);
      give(call.out[0], at, c, to);
    }
  });
}

}  // namespace

void fast_max_pool(const Call& call) {
  if (!call.out[1]) return is_bf16(call.in[0]) ? largest<Low>(call) : largest<float>(call);

  const auto& attr = call.attr<ir::Pool>();
  // Where activations are recomputed only the second result may be read.
  const ir::Shape &x = call.in[0].shape, &y = (call.out[0] ? call.out[0] : call.out[1]).shape;
  std::uint8_t* const which = call.out[1].as<std::uint8_t>();
  call.pool.parallel_for(y[0] * y[1], [&](int64_t task, int thread) {
    const int64_t b = task / y[1], p = task % y[1], c = y[3];
    float *const best = call.scratch_of<float>(thread), *const room = best + c;
    // As wide as a float, so that both loops below are vectors.
    std::int32_t* const place = reinterpret_cast<std::int32_t*>(room + c);
    for (int64_t q = 0; q < y[2]; ++q) {
      bool first = true;
      for (int64_t k = 0; k < attr.size * attr.size; ++k) {
        const int64_t row = p * attr.stride + k / attr.size - attr.pad,
                      col = q * attr.stride + k % attr.size - attr.pad;
        if (row < 0 || row >= x[1] || col < 0 || col >= x[2]) continue;
        const float* at = wide(call.in[0], ((b * x[1] + row) * x[2] + col) * c, c, room);
        if (std::exchange(first, false)) {
          std::copy_n(at, c, best);
          std::fill_n(place, c, static_cast<std::int32_t>(k));
        } else {
          keep_largest(at, static_cast<std::int32_t>(k), c, best, place);
        }
      }
      if (call.out[0] && is_bf16(call.out[0]))
        give(call.out[0], (task * y[2] + q) * c, c, best);
      else if (call.out[0])
        std::copy_n(best, c, call.out[0].as<float>() + (task * y[2] + q) * c);
      for (int64_t i = 0; i < c; ++i)
        which[(task * y[2] + q) * c + i] = static_cast<std::uint8_t>(place[i]);
    }
  });
}

// The largest numbers of columns and of a window; or those of a window beside which pixel each of
// them is and a pixel that is widened.
Scratch scratch_max_pool(const ir::Attrs&, std::span<const ir::Type> in,
                         std::span<const ir::Type>) {
  const int64_t c = in[0].shape[3], columns = std::max<int64_t>(in[0].shape[2], 2);
  return {.per_thread = sizeof(float) * static_cast<std::size_t>((columns + 1) * c)};
}

void fast_max_pool_grad(const Call& call) {
  const auto& attr = call.attr<ir::Pool>();
  const ir::Shape &g = call.in[0].shape, &x = call.out[0].shape;
  const std::uint8_t* which = call.in[1].as<std::uint8_t>();
  // Windows p that hold row r: p stride - pad <= r < p stride - pad + size.
  const auto windows = [&](int64_t r, int64_t count) {
    const int64_t low = r + attr.pad - attr.size + 1,
                  first = low <= 0 ? 0 : (low + attr.stride - 1) / attr.stride;
    return std::pair{first, std::min(count - 1, (r + attr.pad) / attr.stride)};
  };
  call.pool.parallel_for(x[0] * x[1], [&](int64_t task, int thread) {
    const int64_t b = task / x[1], row = task % x[1], c = x[3];
    const auto [p0, p1] = windows(row, g[1]);
    float* const sum = call.scratch_of<float>(thread);
    for (int64_t col = 0; col < x[2]; ++col) {
      float* to = room_for(call.out[0], (task * x[2] + col) * c, sum);
      std::fill_n(to, c, 0.0f);
      const auto [q0, q1] = windows(col, g[2]);
      for (int64_t p = p0; p <= p1; ++p)
        for (int64_t q = q0; q <= q1; ++q) {
          const auto number = static_cast<std::uint8_t>(
              (row - p * attr.stride + attr.pad) * attr.size + col - q * attr.stride + attr.pad);
          const int64_t at = ((b * g[1] + p) * g[2] + q) * c;
          HWY_DYNAMIC_DISPATCH(add_won)(call.in[0], at, which, number, c, to);
        }
      give(call.out[0], (task * x[2] + col) * c, c, to);
    }
  });
}
// A pixel that is summed up.
Scratch scratch_max_pool_grad(const ir::Attrs&, std::span<const ir::Type> in,
                              std::span<const ir::Type>) {
  return {.per_thread = sizeof(float) * static_cast<std::size_t>(in[0].shape[3])};
}

}  // namespace tessera::exec::cpu
#endif
