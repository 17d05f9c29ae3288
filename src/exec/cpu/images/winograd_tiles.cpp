// The transforms of Winograd's algorithm, vectors along channels. Convention: with the points 0,
// +-a, +-b and infinity, a polynomial's values at +p and -p share their even and their odd part.
#include "exec/cpu/simd/vector.h"  // before Highway: the instruction sets we build for; none is
                                   // scalable, so vectors may live in arrays

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/images/winograd_tiles.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "exec/cpu/images/winograd.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using std::int64_t;
using F32 = hn::ScalableTag<float>;
using V = hn::Vec<F32>;

constexpr float a = 0.625f, b = 1.5f;  // the points; all products below are exact

// The first n lanes, where memory has no more.
HWY_INLINE V load_first(const float* HWY_RESTRICT from, std::size_t n) {
  HWY_ALIGN float room[hn::MaxLanes(F32())] = {};
  std::memcpy(room, from, n * sizeof(float));
  return hn::Load(F32(), room);
}
HWY_INLINE void store_first(V v, float* HWY_RESTRICT to, std::size_t n) {
  HWY_ALIGN float room[hn::MaxLanes(F32())];
  hn::Store(v, F32(), room);
  std::memcpy(to, room, n * sizeof(float));
}

// y = B^T x: the six values of what six neighbours make.
struct ToValues {
  static constexpr int results = winograd_reads;

  static HWY_INLINE void apply(const V* HWY_RESTRICT x, V* HWY_RESTRICT y) {
    const F32 d;
    const V aa = hn::Set(d, a * a), bb = hn::Set(d, b * b);
    const V sum = hn::Set(d, a * a + b * b), product = hn::Set(d, a * a * b * b);
    const V even_a = hn::NegMulAdd(bb, x[2], x[4]), odd_a = hn::NegMulAdd(bb, x[1], x[3]);
    const V even_b = hn::NegMulAdd(aa, x[2], x[4]), odd_b = hn::NegMulAdd(aa, x[1], x[3]);
    y[0] = hn::MulAdd(product, x[0], hn::NegMulAdd(sum, x[2], x[4]));
    y[1] = hn::MulAdd(hn::Set(d, a), odd_a, even_a);
    y[2] = hn::NegMulAdd(hn::Set(d, a), odd_a, even_a);
    y[3] = hn::MulAdd(hn::Set(d, b), odd_b, even_b);
    y[4] = hn::NegMulAdd(hn::Set(d, b), odd_b, even_b);
    y[5] = hn::MulAdd(product, x[1], hn::NegMulAdd(sum, x[3], x[5]));
  }
};

// y = A^T x: the four results that six values stand for.
struct ToResults {
  static constexpr int results = winograd_side;

  static HWY_INLINE void apply(const V* HWY_RESTRICT x, V* HWY_RESTRICT y) {
    const F32 d;
    const V even_a = hn::Add(x[1], x[2]), odd_a = hn::Sub(x[1], x[2]);
    const V even_b = hn::Add(x[3], x[4]), odd_b = hn::Sub(x[3], x[4]);
    y[0] = hn::Add(x[0], hn::Add(even_a, even_b));
    y[1] = hn::MulAdd(hn::Set(d, a), odd_a, hn::Mul(hn::Set(d, b), odd_b));
    y[2] = hn::MulAdd(hn::Set(d, a * a), even_a, hn::Mul(hn::Set(d, b * b), even_b));
    y[3] = hn::MulAdd(hn::Set(d, a * a * a), odd_a, hn::MulAdd(hn::Set(d, b * b * b), odd_b, x[5]));
  }
};

// A step along the rows of a tile, then along its columns: load(i) of its 36 numbers, row by row,
// and store(row, col, number) of one vector of channels.
template <class Step, class Load, class Store>
HWY_INLINE void transform(const Load& load, const Store& store) {
  constexpr int n = Step::results;
  V half[winograd_reads * n];  // [col][row's result]
  for (int col = 0; col < winograd_reads; ++col) {
    const V x[winograd_reads] = {load(col),      load(6 + col),  load(12 + col),
                                 load(18 + col), load(24 + col), load(30 + col)};
    Step::apply(x, half + col * n);
  }
  for (int row = 0; row < n; ++row) {
    const V x[winograd_reads] = {half[row],         half[n + row],     half[2 * n + row],
                                 half[3 * n + row], half[4 * n + row], half[5 * n + row]};
    V y[n];
    Step::apply(x, y);
    for (int col = 0; col < n; ++col) store(row, col, y[col]);
  }
}

void input_tile(const float* const* pixels, int64_t channels, float* HWY_RESTRICT to,
                int64_t pitch) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto place = [&](int row, int col, int64_t c)
                         HWY_ATTR { return to + (row * winograd_reads + col) * pitch + c; };
  int64_t c = 0;
  for (; c + lanes <= channels; c += lanes)
    transform<ToValues>([&](int pixel) HWY_ATTR { return hn::LoadU(d, pixels[pixel] + c); },
                        [&](int row, int col, V v)
                            HWY_ATTR { hn::StoreU(v, d, place(row, col, c)); });
  if (c == channels) return;
  const auto rest = static_cast<std::size_t>(channels - c);
  transform<ToValues>([&](int pixel) HWY_ATTR { return load_first(pixels[pixel] + c, rest); },
                      [&](int row, int col, V v)
                          HWY_ATTR { store_first(v, place(row, col, c), rest); });
}

// relu(v scale + offset + addend); load(numbers of a channel each).
template <class Load>
HWY_INLINE V finished(const Finish& f, V v, int64_t channel, int64_t at, const Load& load) {
  const F32 d;
  if (f.scale) v = hn::MulAdd(v, load(f.scale + channel), load(f.offset + channel));
  if (f.addend) v = hn::Add(v, load(f.addend + at + channel));
  return f.relu ? hn::IfThenZeroElse(hn::Lt(v, hn::Zero(d)), v) : v;
}

void output_tile(const float* HWY_RESTRICT from, int64_t pitch, int64_t channels,
                 const WinogradTile& t) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto whole = [&](const float* at) HWY_ATTR { return hn::LoadU(d, at); };
  int64_t c = 0;
  for (; c + lanes <= channels; c += lanes)
    transform<ToResults>([&](int point) HWY_ATTR { return hn::LoadU(d, from + point * pitch + c); },
                         [&](int row, int col, V v) HWY_ATTR {
                           if (row >= t.rows || col >= t.cols) return;
                           const int64_t at = row * t.row + col * t.col;
                           hn::StoreU(finished(t.finish, v, c, at, whole), d, t.to + at + c);
                         });
  if (c == channels) return;
  const auto rest = static_cast<std::size_t>(channels - c);
  const auto part = [&](const float* at) HWY_ATTR { return load_first(at, rest); };
  transform<ToResults>([&](int point)
                           HWY_ATTR { return load_first(from + point * pitch + c, rest); },
                       [&](int row, int col, V v) HWY_ATTR {
                         if (row >= t.rows || col >= t.cols) return;
                         const int64_t at = row * t.row + col * t.col;
                         store_first(finished(t.finish, v, c, at, part), t.to + at + c, rest);
                       });
}

using F64 = hn::ScalableTag<double>;
using Narrow = hn::Rebind<float, F64>;  // as many numbers of f32
using W = hn::Vec<F64>;

// y = G x: three taps at the six points, over the products of the points' distances.
HWY_INLINE void taps_at_points(W x0, W x1, W x2, W* HWY_RESTRICT y) {
  const F64 d;
  constexpr double p = a, q = b, pp = p * p, qq = q * q;
  constexpr double of_p = 1 / (2 * pp * (pp - qq)), of_q = 1 / (2 * qq * (qq - pp));
  const W even_p = hn::Mul(hn::Set(d, of_p), hn::MulAdd(hn::Set(d, pp), x2, x0));
  const W even_q = hn::Mul(hn::Set(d, of_q), hn::MulAdd(hn::Set(d, qq), x2, x0));
  y[0] = hn::Mul(hn::Set(d, 1 / (pp * qq)), x0);
  y[1] = hn::MulAdd(hn::Set(d, of_p * p), x1, even_p);
  y[2] = hn::NegMulAdd(hn::Set(d, of_p * p), x1, even_p);
  y[3] = hn::MulAdd(hn::Set(d, of_q * q), x1, even_q);
  y[4] = hn::NegMulAdd(hn::Set(d, of_q * q), x1, even_q);
  y[5] = x2;
}

// One vector of filters.
HWY_INLINE void filters_at_points(const float* HWY_RESTRICT f, int64_t tap, float* HWY_RESTRICT to,
                                  int64_t pitch) {
  const F64 d;
  const Narrow narrow;
  const auto load = [&](int t)
                        HWY_ATTR { return hn::PromoteTo(d, hn::LoadU(narrow, f + t * tap)); };
  W half[3 * winograd_reads];  // [col][point of the rows]
  for (int col = 0; col < 3; ++col)
    taps_at_points(load(col), load(3 + col), load(6 + col), half + col * winograd_reads);
  for (int row = 0; row < winograd_reads; ++row) {
    W y[winograd_reads];
    taps_at_points(half[row], half[winograd_reads + row], half[2 * winograd_reads + row], y);
    for (int col = 0; col < winograd_reads; ++col)
      hn::StoreU(hn::DemoteTo(narrow, y[col]), narrow, to + (row * winograd_reads + col) * pitch);
  }
}

void filters(const float* HWY_RESTRICT f, int64_t tap, int64_t size, float* HWY_RESTRICT to,
             int64_t pitch) {
  constexpr int64_t most = hn::MaxLanes(Narrow());
  const auto lanes = static_cast<int64_t>(hn::Lanes(Narrow()));
  int64_t i = 0;
  for (; i + lanes <= size; i += lanes) filters_at_points(f + i, tap, to + i, pitch);
  if (i == size) return;
  const auto rest = static_cast<std::size_t>(size - i) * sizeof(float);
  float taps[9 * most] = {}, values[winograd_values * most];
  for (int64_t t = 0; t < 9; ++t) std::memcpy(taps + t * most, f + t * tap + i, rest);
  filters_at_points(taps, most, values, most);
  for (int64_t point = 0; point < winograd_values; ++point)
    std::memcpy(to + point * pitch + i, values + point * most, rest);
}

}  // namespace
}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::exec::cpu {

HWY_EXPORT(input_tile);
HWY_EXPORT(output_tile);
HWY_EXPORT(filters);

void winograd_input(const float* const* pixels, std::int64_t channels, float* to,
                    std::int64_t pitch) {
  HWY_DYNAMIC_DISPATCH(input_tile)(pixels, channels, to, pitch);
}
void winograd_output(const float* from, std::int64_t pitch, std::int64_t channels,
                     const WinogradTile& tile) {
  HWY_DYNAMIC_DISPATCH(output_tile)(from, pitch, channels, tile);
}
void winograd_filters(const float* f, std::int64_t tap, std::int64_t size, float* to,
                      std::int64_t pitch) {
  HWY_DYNAMIC_DISPATCH(filters)(f, tap, size, to, pitch);
}

}  // namespace tessera::exec::cpu
#endif
