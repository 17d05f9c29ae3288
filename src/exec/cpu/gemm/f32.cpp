// The micro-kernel of f32 products where the machine has none of its own (machine_arm.cpp): a tile
// of R x 2 vectors along k, from a panel of A and one of B, and a wider one of fewer rows, which
// reads rows of A where they lie or in a panel.
#include "exec/cpu/simd/vector.h"  // before Highway: the instruction sets we build for; none is
                                   // scalable, so accumulators may live in arrays

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/gemm/f32.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

#include "exec/cpu/gemm/micro.h"
#include "exec/cpu/gemm/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {

template <int W, int... I>
HWY_INLINE void tile(std::integer_sequence<int, I...> all, int64_t k, const float* HWY_RESTRICT a,
                     const float* HWY_RESTRICT b, const TileOut& out) {
  V sum0[R] = {((void)I, hn::Zero(d))...}, sum1[R] = {((void)I, hn::Zero(d))...};
#pragma GCC unroll 4
  for (int64_t p = 0; p < k; ++p, a += R, b += NR) {
    V column[3] = {hn::Zero(d), hn::Zero(d),
                   hn::Zero(d)};  // unused and gone where element() loads for itself
    if constexpr (HWY_ARCH_ARM) {
      column[0] = hn::Load(d, a);
      column[1] = hn::Load(d, a + 4);
      column[2] = hn::Load(d, a + 8);
    }
    const V b0 = hn::Load(d, b);
    if constexpr (W == 2) {
      const V b1 = hn::Load(d, b + lanes);
      (add_to_both(element<I>(column, a), b0, b1, sum0[I], sum1[I]), ...);
    } else {
      ((sum0[I] = hn::MulAdd(element<I>(column, a), b0, sum0[I])), ...);
    }
  }
  store<W>(all, sum0, sum1, out);
}
template <int W>
HWY_NOINLINE void tile_of(int64_t k, const float* a, const float* b, const TileOut& out) {
  tile<W>(std::make_integer_sequence<int, R>(), k, a, b, out);
}
void tile_f32(int64_t k, const void* a, const void* b, const TileOut& out) {
  (out.cols > lanes ? tile_of<2> : tile_of<1>)(k, static_cast<const float*>(a),
                                               static_cast<const float*>(b), out);
}

template <int P>
void pack_f32(const Lanes& l, void* panel) {
  pack<P>(l.used, l.k, static_cast<const float*>(l.from), l.lane_step, l.k_step,
          static_cast<float*>(panel));
}

// dst[p][i] = row i's number `from` + p, for R rows at `rows`.
void pack_pieces(const void* const* rows, int64_t from, int64_t size, void* panel) {
  const hn::FixedTag<float, 4> d4;
  const hn::FixedTag<double, 2> pairs;
  const auto row = [&](int i) { return static_cast<const float*>(rows[i]) + from; };
  for (int lane = 0; lane + 4 <= R; lane += 4) {
    const float *HWY_RESTRICT a0 = row(lane), *HWY_RESTRICT a1 = row(lane + 1);
    const float *HWY_RESTRICT a2 = row(lane + 2), *HWY_RESTRICT a3 = row(lane + 3);
    float* HWY_RESTRICT to = static_cast<float*>(panel) + lane;
    int64_t p = 0;
    for (; p + 4 <= size; p += 4, to += 4 * R) {
      const auto r0 = hn::LoadU(d4, a0 + p), r1 = hn::LoadU(d4, a1 + p), r2 = hn::LoadU(d4, a2 + p),
                 r3 = hn::LoadU(d4, a3 + p);
      const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d4, r0, r1)),
                 low23 = hn::BitCast(pairs, hn::InterleaveLower(d4, r2, r3));
      const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d4, r0, r1)),
                 high23 = hn::BitCast(pairs, hn::InterleaveUpper(d4, r2, r3));
      hn::StoreU(hn::BitCast(d4, hn::InterleaveLower(pairs, low01, low23)), d4, to);
      hn::StoreU(hn::BitCast(d4, hn::InterleaveUpper(pairs, low01, low23)), d4, to + R);
      hn::StoreU(hn::BitCast(d4, hn::InterleaveLower(pairs, high01, high23)), d4, to + 2 * R);
      hn::StoreU(hn::BitCast(d4, hn::InterleaveUpper(pairs, high01, high23)), d4, to + 3 * R);
    }
    for (; p < size; ++p, to += R) {
      to[0] = a0[p];
      to[1] = a1[p];
      to[2] = a2[p];
      to[3] = a3[p];
    }
  }
}

// A tile whose rows of A are read where they lie: where a broadcasting load is free, packing them
// would cost more than it saves. It is as wide as registers allow: rows, of which each has a line
// of its own, are few, and a number of A is loaded for more columns.
constexpr int rows_in_place = 6, panels_in_place = lanes < 16 ? 1 : 2;

// W vectors of columns, two of a panel.
template <int W, int... I>
HWY_INLINE void tile_in_place(std::integer_sequence<int, I...> all, const ScatteredRows& a,
                              int64_t k0, int64_t k, const float* HWY_RESTRICT b,
                              int64_t other_panel, const TileOut& out) {
  constexpr int64_t ahead = 4;  // numbers of k whose B is fetched before it is read
  constexpr int line = 16;
  V sum[W][rows_in_place];
  for (auto& column : sum) ((column[I] = hn::Zero(d)), ...);
  // Lines of C are there when sums are stored.
  if (out.cs == 1)
    for (int64_t i = 0; i < out.rows; ++i)
      for (int64_t j = 0; j < out.cols; j += line) hwy::Prefetch(out.c + i * out.rs + j);
  int64_t from = k0 % a.length, size = 0;
  const void* const* first = a.rows + k0 / a.length * a.pitch;
  // Sums that a lambda captures would live in memory.
  for (; k > 0; k -= size, first += a.pitch, from = 0) {
    size = std::min(a.length - from, k);
    const float* HWY_RESTRICT row[] = {(static_cast<const float*>(first[I]) + from * a.step)...};
    for (int64_t p = 0, at = 0; p < size; ++p, at += a.step, b += NR) {
      V columns[W];
#pragma GCC unroll 4
      for (int w = 0; w < W; ++w) columns[w] = hn::Load(d, b + w / 2 * other_panel + w % 2 * lanes);
#pragma GCC unroll 4
      for (int w = 0; w < W; ++w)
        if (w % 2 * lanes % line == 0)
          hwy::Prefetch(b + ahead * NR + w / 2 * other_panel + w % 2 * lanes);
#pragma GCC unroll 6
      for (int i = 0; i < rows_in_place; ++i) {
        const V x = spread(row[i] + at);
#pragma GCC unroll 4
        for (int w = 0; w < W; ++w) sum[w][i] = hn::MulAdd(x, columns[w], sum[w][i]);
      }
    }
  }
  TileOut part = out;
  part.cols = std::min<int64_t>(NR, out.cols);
  store<std::min(W, 2)>(all, sum[0], sum[W > 1], part);
  if constexpr (W > 2) {
    part.c += NR * out.cs;
    part.cols = out.cols - NR;
    if (out.offset) part.offset += NR;
    store<W - 2>(all, sum[2], sum[W - 1], part);
  }
}
template <int W>
HWY_NOINLINE void tile_in_place_of(const ScatteredRows& a, int64_t k0, int64_t k, const float* b,
                                   int64_t other_panel, const TileOut& out) {
  tile_in_place<W>(std::make_integer_sequence<int, rows_in_place>(), a, k0, k, b, other_panel, out);
}
void tile_in_place_f32(const ScatteredRows& a, int64_t k0, int64_t k, const void* b,
                       int64_t b_pitch, const TileOut& out) {
  constexpr int most = 2 * panels_in_place;  // vectors
  constexpr decltype(&tile_in_place_of<1>) tiles[] = {tile_in_place_of<1>, tile_in_place_of<2>,
                                                      tile_in_place_of<std::min(3, most)>,
                                                      tile_in_place_of<most>};
  tiles[(out.cols - 1) / lanes](a, k0, k, static_cast<const float*>(b),
                                b_pitch / int64_t{sizeof(float)}, out);
}

const Micro* f32_micro_here() {
  static constexpr Micro micro{
      .name = "f32",
      .rows = R,
      .columns = NR,
      .a_bytes = R * 4,
      .b_bytes = NR * 4,
      .k_block = HWY_ARCH_ARM ? 384 : most_f32_k_block,
      .offsets = true,
      .pack_a = pack_f32<R>,
      .pack_b = pack_f32<NR>,
      .in_place = HWY_ARCH_ARM ? InPlace{}
                               : InPlace{rows_in_place, panels_in_place * NR, tile_in_place_f32},
      .tile = tile_f32,
      .pack_pieces = HWY_ARCH_ARM ? pack_pieces : nullptr};
  return &micro;
}

const F32Packs* f32_packs_here() {
  static constexpr F32Packs packs{.lanes_6 = pack_f32<6>, .lanes_16 = pack_f32<16>};
  return &packs;
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::exec::cpu {

HWY_EXPORT(f32_micro_here);
HWY_EXPORT(f32_packs_here);
const F32Packs& f32_packs() { return *HWY_DYNAMIC_DISPATCH(f32_packs_here)(); }
const Micro& vector_f32() { return *HWY_DYNAMIC_DISPATCH(f32_micro_here)(); }

namespace {
std::atomic<bool>& only_vectors() {
  static std::atomic<bool> only = machine_f32() == nullptr;
  return only;
}
}  // namespace

const Micro& micro_f32() {
  return only_vectors().load(std::memory_order_relaxed) ? vector_f32() : *machine_f32();
}
void use_vector_f32(bool only) { only_vectors().store(only || !machine_f32()); }

}  // namespace tessera::exec::cpu
#endif
