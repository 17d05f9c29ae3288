// i8 products on any machine: a panel of A is widened to f32 as it is packed, B in registers, and
// multiply-adds run in f32. Convention: that is exact, because a block of k has at most 1,024
// products of at most 2^14 each, and whole numbers up to 2^24 are exact in f32.
#include "exec/cpu/simd/vector.h"  // before Highway: the instruction sets we build for

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/gemm/i8_portable.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "exec/cpu/gemm/i8.h"
#include "exec/cpu/gemm/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {

constexpr int64_t portable_k_block = 512;
static_assert(portable_k_block <= 1024 && portable_k_block * R * 4 <= i8_panel_bytes);

// [padded][R] in f32, a few dozen numbers of k at a time.
void pack_i8_widened(const Lanes& l, void* panel) {
  constexpr int64_t at_once = 64;
  float* HWY_RESTRICT to = static_cast<float*>(panel);
  const auto* HWY_RESTRICT from = static_cast<const std::int8_t*>(l.from);
  HWY_ALIGN float part[R * at_once];
  for (int64_t p = 0; p < l.k; p += at_once, to += at_once * R) {
    const int64_t size = std::min(at_once, l.k - p);
    for (int64_t lane = 0; lane < l.used; ++lane)
      for (int64_t q = 0; q < size; ++q)
        part[lane * at_once + q] =
            static_cast<float>(from[lane * l.lane_step + (p + q) * l.k_step]);
    pack<R>(l.used, size, part, at_once, 1, to);
  }
  to = static_cast<float*>(panel);
  std::fill(to + l.k * R, to + l.padded * R, 0.0f);
}

HWY_INLINE V widened_i8(const std::int8_t* HWY_RESTRICT from) {
  const hn::Rebind<std::int8_t, D> d8;
  const hn::RebindToSigned<D> d32;
  return hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, from)));
}
HWY_INLINE void put_i8_sums(int i, V first, V second, const TileOut& out) {
  if (i >= out.rows) return;
  HWY_ALIGN float row[NR];
  hn::Store(first, d, row);
  hn::Store(second, d, row + lanes);
  std::int32_t* const to = out.sums + i * out.rs;
  for (int64_t j = 0; j < out.cols; ++j) {
    const auto sum = static_cast<std::int32_t>(row[j]);
    to[j] = out.beta == 0 ? sum : to[j] + sum;
  }
}
template <int... I>
HWY_INLINE void tile_i8(std::integer_sequence<int, I...>, int64_t k, const float* HWY_RESTRICT a,
                        const std::int8_t* HWY_RESTRICT b, const TileOut& out) {
  V sum0[R] = {((void)I, hn::Zero(d))...}, sum1[R] = {((void)I, hn::Zero(d))...};
  for (int64_t p = 0; p < k; ++p, a += R, b += NR) {
    V column[3] = {hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    if constexpr (HWY_ARCH_ARM) {
      column[0] = hn::Load(d, a);
      column[1] = hn::Load(d, a + 4);
      column[2] = hn::Load(d, a + 8);
    }
    const V b0 = widened_i8(b), b1 = widened_i8(b + lanes);
    (add_to_both(element<I>(column, a), b0, b1, sum0[I], sum1[I]), ...);
  }
  (put_i8_sums(I, sum0[I], sum1[I], out), ...);
}
void tile_of_i8(int64_t k, const void* a, const void* b, const TileOut& out) {
  tile_i8(std::make_integer_sequence<int, R>(), k, static_cast<const float*>(a),
          static_cast<const std::int8_t*>(b), out);
}
void pack_i8_columns(const Lanes& l, void* panel) {
  pack_i8_groups(l, NR, 1, static_cast<std::int8_t*>(panel));
}

const Micro* i8_micro_here() {
  static constexpr Micro micro{.name = "f32",
                               .rows = R,
                               .columns = NR,
                               .group = 1,
                               .a_bytes = R * 4,
                               .b_bytes = NR,
                               .k_block = portable_k_block,
                               .pack_a = pack_i8_widened,
                               .pack_b = pack_i8_columns,
                               .tile = tile_of_i8};
  return &micro;
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::exec::cpu {

HWY_EXPORT(i8_micro_here);
const Micro* portable_i8_micro() { return HWY_DYNAMIC_DISPATCH(i8_micro_here)(); }

}  // namespace tessera::exec::cpu
#endif
