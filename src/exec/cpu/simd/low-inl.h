// Two vectors of f32 at a time, from f32 or bf16 in memory and back; included once per instruction
// set by the files that use Highway. Conventions: bf16 is widened and rounded in registers; the
// last numbers of a row go through a buffer that has zeros behind them, so that every number sees
// the same instructions.
#if defined(TESSERA_LOW_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_LOW_INL_H
#undef TESSERA_LOW_INL_H
#else
#define TESSERA_LOW_INL_H
#endif

#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct Two {
  hn::Vec<hn::ScalableTag<float>> a, b;
};
HWY_INLINE Two two_zeros() {
  const hn::ScalableTag<float> d;
  return {hn::Zero(d), hn::Zero(d)};
}
HWY_INLINE std::int64_t lanes_of_two() {
  return 2 * static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<float>()));
}

// The address in one register, for both vectors: g++ 12 keeps one for each of them otherwise, and
// has none left in loops over many rows.
template <class T>
HWY_INLINE T* at_once(T* x) {
#if HWY_TARGET == HWY_NEON
  asm("" : "+r"(x));
#endif
  return x;
}

HWY_INLINE Two load_two(const float* address) {
  const hn::ScalableTag<float> d;
  const float* const x = at_once(address);
  return {hn::LoadU(d, x), hn::LoadU(d, x + hn::Lanes(d))};
}
// One vector of bf16.
HWY_INLINE hn::Vec<hn::ScalableTag<float>> load_widened(const std::uint16_t* x) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::Rebind<std::uint16_t, decltype(d)> half;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(half, x))));
}
HWY_INLINE Two load_two(const std::uint16_t* x) {
  const hn::ScalableTag<float> d;
#if HWY_TARGET == HWY_NEON
  // Zeros below each number: half the operations of widening and shifting.
  const hn::Repartition<std::uint16_t, decltype(d)> low;
  const auto v = hn::LoadU(low, x), zero = hn::Zero(low);
  return {hn::BitCast(d, hn::InterleaveLower(low, zero, v)),
          hn::BitCast(d, hn::InterleaveUpper(low, zero, v))};
#else
  return {load_widened(x), load_widened(x + hn::Lanes(d))};
#endif
}

// To nearest even; a NaN stays one.
template <class V>
HWY_INLINE void store_rounded(V v, std::uint16_t* y) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<std::uint16_t, decltype(d)> half;
  const auto bits = hn::BitCast(du, v), kept = hn::ShiftRight<16>(bits);
  const auto up = hn::Add(hn::Set(du, 0x7fff), hn::And(kept, hn::Set(du, 1)));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, up));
  const auto nan = hn::RebindMask(du, hn::IsNaN(v));
  const auto result = hn::IfThenElse(nan, hn::Or(kept, hn::Set(du, 0x40)), rounded);
  hn::StoreU(hn::DemoteTo(half, hn::BitCast(di, result)), half, y);
}

// To the nearest whole numbers, ties to even, from -127 on and no larger than what a conversion to
// bytes saturates; a NaN becomes 0. Arm's conversions do that but for the -128.
template <class V>
HWY_INLINE auto whole_numbers(V v) {
  const hn::ScalableTag<float> d;
  if constexpr (!HWY_ARCH_ARM)
    v = hn::Min(hn::Max(hn::IfThenZeroElse(hn::IsNaN(v), v), hn::Set(d, -127.0f)),
                hn::Set(d, 127.0f));
  return hn::NearestInt(v);
}

// `machine`: it rounds by an instruction (machine_round()), which Highway's NEON does not know.
// Other instruction sets need no code of their own for it.
constexpr bool rounds_by_instruction = HWY_TARGET == HWY_NEON;
template <bool machine>
HWY_INLINE void store_two(Two v, float* address) {
  const hn::ScalableTag<float> d;
  float* const y = at_once(address);
  hn::StoreU(v.a, d, y);
  hn::StoreU(v.b, d, y + hn::Lanes(d));
}
template <bool machine>
HWY_INLINE void store_two(Two v, std::uint16_t* y) {
#if HWY_TARGET == HWY_NEON
  if constexpr (machine) {
    uint16x8_t rounded;
    asm(".arch_extension bf16\n bfcvtn %0.4h, %1.4s\n bfcvtn2 %0.8h, %2.4s"
        : "=&w"(rounded)
        : "w"(v.a.raw), "w"(v.b.raw));
    vst1q_u16(y, rounded);
    return;
  }
#endif
  store_rounded(v.a, y);
  store_rounded(v.b, y + hn::Lanes(hn::ScalableTag<float>()));
}

template <bool machine>
HWY_INLINE void store_two(Two v, std::int8_t* y) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<std::int16_t, decltype(d)> half;
  const hn::Twice<decltype(half)> both;
  const hn::Rebind<std::int8_t, decltype(both)> bytes;
  const auto pair = hn::Combine(both, hn::DemoteTo(half, whole_numbers(v.b)),
                                hn::DemoteTo(half, whole_numbers(v.a)));
  hn::StoreU(hn::Max(hn::DemoteTo(bytes, pair), hn::Set(bytes, std::int8_t{-127})), bytes, y);
}

// Where in a row: two whole vectors, one with zeros for the other, or n numbers, its last ones.
struct Whole {};
struct One {};
struct Part {
  std::int64_t n;
};
template <class T>
HWY_INLINE Two load_two(Whole, const T* x) {
  return load_two(x);
}
HWY_INLINE Two load_two(One, const float* x) {
  const hn::ScalableTag<float> d;
  return {hn::LoadU(d, x), hn::Zero(d)};
}
HWY_INLINE Two load_two(One, const std::uint16_t* x) {
  return {load_widened(x), hn::Zero(hn::ScalableTag<float>())};
}
// A loop, and no memcpy: before a call, the vectors of the whole row would leave their registers.
template <class T>
HWY_INLINE void copy_few(const T* x, T* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    y[i] = x[i];
    asm volatile("");
  }
}
template <class T>
HWY_INLINE Two load_two(Part part, const T* x) {
  HWY_ALIGN T room[2 * hn::MaxLanes(hn::ScalableTag<float>())] = {};
  copy_few(x, room, part.n);
  return load_two(room);
}
template <bool machine, class T>
HWY_INLINE void store_two(Whole, Two v, T* y) {
  store_two<machine>(v, y);
}
template <bool machine>
HWY_INLINE void store_two(One, Two v, float* y) {
  hn::StoreU(v.a, hn::ScalableTag<float>(), y);
}
template <bool machine>
HWY_INLINE void store_two(One, Two v, std::uint16_t* y) {
  store_rounded(v.a, y);
}
template <bool machine, class T>
HWY_INLINE void store_two(Part part, Two v, T* y) {
  HWY_ALIGN T room[2 * hn::MaxLanes(hn::ScalableTag<float>())];
  store_two<machine>(v, room);
  copy_few(room, y, part.n);
}

// Lambdas that walk a row are inlined at once: else g++ 12 keeps what they capture, sums of a row
// too, in memory.
#ifndef TESSERA_ROW_ATTR
#define TESSERA_ROW_ATTR HWY_ATTR __attribute__((always_inline))
#endif

// body(first, Whole or Part) for a row of n numbers; or body(first, Whole or Part, Turn), with two
// turns, each of which has sums of its own.
template <class Body>
HWY_INLINE void along_row(std::int64_t n, const Body& body) {
  const std::int64_t step = lanes_of_two();
  std::int64_t i = 0;
  for (; i + step <= n; i += step) body(i, Whole{});
  if (i < n) body(i, Part{n - i});
}
// The same for rows that may have one vector in all: body(first, Whole, One or Part).
template <class Body>
HWY_INLINE void along_short_row(std::int64_t n, const Body& body) {
  if (2 * n == lanes_of_two())
    body(0, One{});
  else
    along_row(n, body);
}
template <int turn>
using Turn = std::integral_constant<int, turn>;
template <class Body>
HWY_INLINE void along_row_in_turns(std::int64_t n, const Body& body) {
  const std::int64_t step = lanes_of_two();
  std::int64_t i = 0;
  for (; i + 2 * step <= n; i += 2 * step) {
    body(i, Whole{}, Turn<0>{});
    body(i + step, Whole{}, Turn<1>{});
  }
  for (; i + step <= n; i += step) body(i, Whole{}, Turn<0>{});
  if (i < n) body(i, Part{n - i}, Turn<1>{});
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
