// bf16 into panels, once per instruction set. Bits are moved, never computed with.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "exec/cpu/gemm/micro.h"

#if defined(TESSERA_PACK_LOW_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_PACK_LOW_INL_H
#undef TESSERA_PACK_LOW_INL_H
#else
#define TESSERA_PACK_LOW_INL_H
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {
namespace low {

namespace hn = hwy::HWY_NAMESPACE;
using std::int64_t;
using D8 = hn::FixedTag<std::uint16_t, 8>;
using D4 = hn::FixedTag<std::uint16_t, 4>;
using W4 = hn::FixedTag<std::uint32_t, 4>;
using W2 = hn::FixedTag<std::uint64_t, 2>;

// Group `p` of every lane, one number at a time: edges, and strides of neither kind.
template <int P, int G>
HWY_INLINE void pack_group(const Lanes& l, int64_t p, int64_t first_lane, Low* HWY_RESTRICT to) {
  const Low* from = static_cast<const Low*>(l.from);
  for (int64_t lane = first_lane; lane < P; ++lane)
    for (int64_t i = 0; i < G; ++i) {
      const bool there = lane < l.used && p * G + i < l.k;
      to[lane * G + i] = there ? from[lane * l.lane_step + (p * G + i) * l.k_step] : Low{0};
    }
}

// Lanes side by side in memory, G of their rows at once; `lane` counts up to where vectors reach.
template <int G>
HWY_INLINE void interleave_4(const Low* HWY_RESTRICT from, int64_t k_step, Low* HWY_RESTRICT to) {
  const D8 d8;
  const D4 d4;
  const auto row = [&](int i) HWY_ATTR {
    return hn::ZeroExtendVector(d8, hn::LoadU(d4, from + i * k_step));
  };
  if constexpr (G == 2) {
    hn::StoreU(hn::InterleaveLower(d8, row(0), row(1)), d8, to);
  } else {
    const auto even = hn::InterleaveLower(d8, row(0), row(2)),
               odd = hn::InterleaveLower(d8, row(1), row(3));
    hn::StoreU(hn::InterleaveLower(d8, even, odd), d8, to);
    hn::StoreU(hn::InterleaveUpper(d8, even, odd), d8, to + 8);
  }
}

// Four lanes whose numbers follow each other: four groups of two at once.
HWY_INLINE void transpose_pairs(const Low* HWY_RESTRICT row, int64_t lane_step,
                                Low* HWY_RESTRICT to, int64_t pitch) {
  const W4 w4;
  const W2 w2;
  const D8 d8;
  const auto load = [&](int64_t lane)
                        HWY_ATTR { return hn::BitCast(w4, hn::LoadU(d8, row + lane * lane_step)); };
  const auto r0 = load(0), r1 = load(1), r2 = load(2), r3 = load(3);
  const auto low01 = hn::BitCast(w2, hn::InterleaveLower(w4, r0, r1)),
             low23 = hn::BitCast(w2, hn::InterleaveLower(w4, r2, r3)),
             high01 = hn::BitCast(w2, hn::InterleaveUpper(w4, r0, r1)),
             high23 = hn::BitCast(w2, hn::InterleaveUpper(w4, r2, r3));
  hn::StoreU(hn::BitCast(d8, hn::InterleaveLower(w2, low01, low23)), d8, to);
  hn::StoreU(hn::BitCast(d8, hn::InterleaveUpper(w2, low01, low23)), d8, to + pitch);
  hn::StoreU(hn::BitCast(d8, hn::InterleaveLower(w2, high01, high23)), d8, to + 2 * pitch);
  hn::StoreU(hn::BitCast(d8, hn::InterleaveUpper(w2, high01, high23)), d8, to + 3 * pitch);
}

// Two lanes side by side in memory, four of their rows: one group of four of each.
HWY_INLINE void interleave_2(const Low* HWY_RESTRICT from, int64_t k_step, Low* HWY_RESTRICT to) {
  const D8 d8;
  const hn::FixedTag<std::uint16_t, 2> d2;
  const auto row = [&](int i) HWY_ATTR {
    return hn::ZeroExtendVector(d8, hn::ZeroExtendVector(D4(), hn::LoadU(d2, from + i * k_step)));
  };
  const auto even = hn::InterleaveLower(d8, row(0), row(2)),
             odd = hn::InterleaveLower(d8, row(1), row(3));
  hn::StoreU(hn::InterleaveLower(d8, even, odd), d8, to);
}

// Six lanes side by side in memory, four of their rows; reads two lanes more.
HWY_INLINE void interleave_6(const Low* HWY_RESTRICT from, int64_t k_step, Low* HWY_RESTRICT to) {
  const D8 d8;
  const auto r0 = hn::LoadU(d8, from), r1 = hn::LoadU(d8, from + k_step),
             r2 = hn::LoadU(d8, from + 2 * k_step), r3 = hn::LoadU(d8, from + 3 * k_step);
  const auto even = hn::InterleaveLower(d8, r0, r2), odd = hn::InterleaveLower(d8, r1, r3);
  hn::StoreU(hn::InterleaveLower(d8, even, odd), d8, to);
  hn::StoreU(hn::InterleaveUpper(d8, even, odd), d8, to + 8);
  hn::StoreU(
      hn::InterleaveLower(d8, hn::InterleaveUpper(d8, r0, r2), hn::InterleaveUpper(d8, r1, r3)), d8,
      to + 16);
}

// Lanes whose numbers follow each other: two lanes and two groups of four at once. The lanes behind
// them, which are packed next, are fetched meanwhile: a row is too short for the machine to see it.
template <int P>
HWY_INLINE void pair_quads(const Lanes& l, int64_t groups, Low* HWY_RESTRICT to) {
  const W2 w2;
  const D8 d8;
  constexpr int64_t pitch = P * 4;
  for (int64_t lane = 0; lane < P; lane += 2) {
    const bool there = lane < l.used, both = lane + 1 < l.used;
    const Low* HWY_RESTRICT row =
        static_cast<const Low*>(l.from) + (there ? lane * l.lane_step : 0);
    const int64_t next = both ? l.lane_step : 0;
    Low* HWY_RESTRICT at = to + lane * 4;
    for (int64_t p = 0; p < groups; p += 2, row += 8, at += 2 * pitch) {
      if (p % 8 == 0) {
        __builtin_prefetch(row + P * l.lane_step);
        __builtin_prefetch(row + P * l.lane_step + next);
      }
      auto r0 = hn::BitCast(w2, hn::LoadU(d8, row)),
           r1 = hn::BitCast(w2, hn::LoadU(d8, row + next));
      if (!both) r1 = hn::Zero(w2);
      if (!there) r0 = hn::Zero(w2);
      hn::StoreU(hn::BitCast(d8, hn::InterleaveLower(w2, r0, r1)), d8, at);
      hn::StoreU(hn::BitCast(d8, hn::InterleaveUpper(w2, r0, r1)), d8, at + pitch);
    }
  }
}

// [padded / G][P][G]
template <int P, int G>
void pack_groups(const Lanes& l, void* panel) {
  Low* HWY_RESTRICT to = static_cast<Low*>(panel);
  const Low* HWY_RESTRICT from = static_cast<const Low*>(l.from);
  const int64_t whole = l.k / G, groups = l.padded / G, used = std::min<int64_t>(l.used, P);
  constexpr int64_t pitch = P * G;
  int64_t done = 0, lanes = used / 4 * 4;  // done: groups of the first `lanes` lanes
  if (l.lane_step == 1) {
    if constexpr (G == 4) lanes = used / 2 * 2;
    // Whole vectors reach two lanes into the row after the last they are of.
    if constexpr (P == 6 && G == 4)
      for (; used == P && l.k_step >= 2 && done + 1 < whole; ++done)
        interleave_6(from + done * G * l.k_step, l.k_step, to + done * pitch);
    for (; done < whole; ++done) {
      const Low* HWY_RESTRICT at = from + done * G * l.k_step;
      for (int64_t lane = 0; lane + 4 <= lanes; lane += 4)
        interleave_4<G>(at + lane, l.k_step, to + done * pitch + lane * G);
      if constexpr (G == 4)
        if (lanes % 4 != 0)
          interleave_2(at + lanes - 2, l.k_step, to + done * pitch + (lanes - 2) * G);
    }
  } else if (l.k_step == 1 && G == 2) {
    done = whole / 4 * 4;
    for (int64_t lane = 0; lane < lanes; lane += 4)
      for (int64_t p = 0; p < done; p += 4)
        transpose_pairs(from + lane * l.lane_step + p * G, l.lane_step, to + p * pitch + lane * G,
                        pitch);
  } else if (l.k_step == 1 && G == 4) {
    done = whole / 2 * 2;
    lanes = P;
    pair_quads<P>(l, done, to);
  }
  if (lanes == P) to += done * pitch;
  for (int64_t p = lanes == P ? done : 0; p < groups; ++p, to += pitch)
    pack_group<P, G>(l, p, p < done ? lanes : 0, to);
}

// Eight numbers of eight lanes that lie side by side, turned.
HWY_INLINE void transpose_8(const Low* HWY_RESTRICT from, int64_t k_step, Low* HWY_RESTRICT to,
                            int64_t pitch) {
  const D8 d8;
  const W4 w4;
  const W2 w2;
  const auto load = [&](int64_t p) HWY_ATTR { return hn::LoadU(d8, from + p * k_step); };
  const auto low = [&](auto a, auto b) HWY_ATTR { return hn::InterleaveLower(d8, a, b); };
  const auto up = [&](auto a, auto b) HWY_ATTR { return hn::InterleaveUpper(d8, a, b); };
  const auto low4 = [&](auto a, auto b) HWY_ATTR {
    return hn::BitCast(w2, hn::InterleaveLower(w4, hn::BitCast(w4, a), hn::BitCast(w4, b)));
  };
  const auto up4 = [&](auto a, auto b) HWY_ATTR {
    return hn::BitCast(w2, hn::InterleaveUpper(w4, hn::BitCast(w4, a), hn::BitCast(w4, b)));
  };
  const auto store = [&](auto a, auto b, int64_t lane) HWY_ATTR {
    hn::StoreU(hn::BitCast(d8, hn::InterleaveLower(w2, a, b)), d8, to + lane * pitch);
    hn::StoreU(hn::BitCast(d8, hn::InterleaveUpper(w2, a, b)), d8, to + (lane + 1) * pitch);
  };
  const auto r0 = load(0), r1 = load(1), r2 = load(2), r3 = load(3);
  const auto r4 = load(4), r5 = load(5), r6 = load(6), r7 = load(7);
  const auto a0 = low(r0, r1), a1 = low(r2, r3), a2 = low(r4, r5), a3 = low(r6, r7);
  const auto b0 = up(r0, r1), b1 = up(r2, r3), b2 = up(r4, r5), b3 = up(r6, r7);
  store(low4(a0, a1), low4(a2, a3), 0);
  store(up4(a0, a1), up4(a2, a3), 2);
  store(low4(b0, b1), low4(b2, b3), 4);
  store(up4(b0, b1), up4(b2, b3), 6);
}

// [P][padded], or as many rows `pitch` apart.
template <int P>
void pack_rows(const Lanes& l, void* panel) {
  Low* HWY_RESTRICT to = static_cast<Low*>(panel);
  const Low* HWY_RESTRICT from = static_cast<const Low*>(l.from);
  const int64_t row = l.pitch > 0 ? l.pitch : l.padded;
  int64_t lanes = 0, numbers = 0;  // done: the first numbers of the first lanes
  if (l.lane_step == 1) {
    lanes = std::min<int64_t>(l.used, P) / 8 * 8;
    numbers = l.k / 8 * 8;
    for (int64_t p = 0; p < numbers; p += 8)
      for (int64_t lane = 0; lane < lanes; lane += 8)
        transpose_8(from + p * l.k_step + lane, l.k_step, to + lane * row + p, row);
  } else if (l.k_step == 1) {
    lanes = std::min<int64_t>(l.used, P);
    numbers = l.k;
    for (int64_t lane = 0; lane < lanes; ++lane)
      std::memcpy(to + lane * row, from + lane * l.lane_step,
                  sizeof(Low) * static_cast<std::size_t>(l.k));
  }
  for (int64_t lane = 0; lane < P; ++lane)
    for (int64_t p = lane < lanes ? numbers : 0; p < l.padded; ++p)
      to[lane * row + p] =
          lane < l.used && p < l.k ? from[lane * l.lane_step + p * l.k_step] : Low{0};
}

}  // namespace low
}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
