// The register tile of a matrix product and the packing of its operands; included once per
// instruction set by the products that use it. Convention: an element of C is one chain of
// multiply-adds in the order of k, so its bits do not depend on the tile it falls into.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "exec/cpu/gemm/micro.h"

#if defined(TESSERA_GEMM_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_GEMM_TILE_INL_H
#undef TESSERA_GEMM_TILE_INL_H
#else
#define TESSERA_GEMM_TILE_INL_H
#endif

#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using std::int64_t;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

constexpr D d;
constexpr int lanes = static_cast<int>(hn::MaxLanes(d));
static_assert(lanes >= 4,
              "the kernels need vectors of four floats or more, and Highway's fallback "
              "here has fewer (HWY_SCALAR?); exec/cpu/simd/vector.h chooses the fallback");
constexpr int NR = 2 * lanes;
// 2 R accumulators beside the operands: 12 rows where there are 32 vector registers, 6 where there
// are 16.
constexpr int R = HWY_ARCH_X86 && lanes < 16 ? 6 : 12;
static_assert(panel_columns % NR == 0);

// dst[p][lane] = src[lane * lane_step + p * k_step] for `used` of P lanes, zeros in the others.
template <int P>
void pack(int64_t used, int64_t k, const float* HWY_RESTRICT src, int64_t lane_step, int64_t k_step,
          float* HWY_RESTRICT dst) {
  const hn::FixedTag<float, 4> d4;
  if (used == P && lane_step == 1) {
    // Lines that lie apart come from memory in no order that a processor would foresee. Whoever
    // packs panels side by side asks for the next numbers of k after those of the other panels.
    constexpr int64_t ahead = 32, line = 16;
    const hn::CappedTag<float, (P & -P)> part;
    for (int64_t p = 0; p < k; ++p, src += k_step, dst += P) {
      for (int64_t i = 0; i < P; i += line) hwy::Prefetch(src + ahead * k_step + i);
      for (std::size_t i = 0; i < P; i += hn::Lanes(part))
        hn::StoreU(hn::LoadU(part, src + i), part, dst + i);
    }
    return;
  }
  int64_t lane = 0;
  if (k_step == 1) {
    for (; lane + 4 <= used && lane + 4 <= P; lane += 4) {
      const float* HWY_RESTRICT row = src + lane * lane_step;
      float* HWY_RESTRICT to = dst + lane;
      int64_t p = 0;
      for (; p + 4 <= k; p += 4, row += 4, to += 4 * P) {
        const auto r0 = hn::LoadU(d4, row), r1 = hn::LoadU(d4, row + lane_step);
        const auto r2 = hn::LoadU(d4, row + 2 * lane_step), r3 = hn::LoadU(d4, row + 3 * lane_step);
        const auto low01 = hn::InterleaveLower(d4, r0, r1), low23 = hn::InterleaveLower(d4, r2, r3);
        const auto high01 = hn::InterleaveUpper(d4, r0, r1),
                   high23 = hn::InterleaveUpper(d4, r2, r3);
        hn::StoreU(hn::ConcatLowerLower(d4, low23, low01), d4, to);
        hn::StoreU(hn::ConcatUpperUpper(d4, low23, low01), d4, to + P);
        hn::StoreU(hn::ConcatLowerLower(d4, high23, high01), d4, to + 2 * P);
        hn::StoreU(hn::ConcatUpperUpper(d4, high23, high01), d4, to + 3 * P);
      }
      for (; p < k; ++p, ++row, to += P)
        for (int i = 0; i < 4; ++i) to[i] = row[i * lane_step];
    }
  }
  for (int64_t p = 0; p < k; ++p)
    for (int64_t i = lane; i < P; ++i)
      dst[p * P + i] = i < used ? src[i * lane_step + p * k_step] : 0.0f;
}

// A number in all lanes, loaded once for both vectors of columns. A compiler would rather load it
// in each multiply-add of AVX-512: then the loads, not the sums, take the time.
HWY_INLINE V spread(const float* HWY_RESTRICT a) {
  V v = hn::Set(d, *a);
#if HWY_TARGET == HWY_AVX3
  __asm__("" : "+v"(v.raw));
#endif
  return v;
}
// Element I of A's column, in all lanes. ARM multiplies by a lane of a register.
template <int I>
HWY_INLINE V element(const V* HWY_RESTRICT column, const float* HWY_RESTRICT a) {
  if constexpr (HWY_ARCH_ARM)
    return hn::Broadcast<I % 4>(column[I / 4]);
  else
    return spread(a + I);
}
// sum0 += x b0, sum1 += x b1
HWY_INLINE void add_to_both(V x, V b0, V b1, V& sum0, V& sum1) {
  sum0 = hn::MulAdd(x, b0, sum0);
  sum1 = hn::MulAdd(x, b1, sum1);
}

// A tile of C from its sums, as many rows as I counts; W vectors of each hold columns that count.
template <int W, int... I>
HWY_INLINE void store(std::integer_sequence<int, I...>, const V* HWY_RESTRICT sum0,
                      const V* HWY_RESTRICT sum1, const TileOut& out) {
  const V scale = hn::Set(d, out.alpha), keep = hn::Set(d, out.beta);
  const bool fresh = out.beta == 0;
  if (out.cs == 1 && out.cols == W * lanes) {
    const auto put = [&](V v, float* HWY_RESTRICT to, int64_t column) HWY_ATTR {
      v = hn::Mul(v, scale);
      if (!fresh) v = hn::MulAdd(keep, hn::LoadU(d, to + column), v);
      if (out.offset) v = hn::Add(v, hn::LoadU(d, out.offset + column));
      hn::StoreU(v, d, to + column);
    };
    const auto store_row = [&](int i, V first, V second) HWY_ATTR {
      if (i >= out.rows) return;
      put(first, out.c + i * out.rs, 0);
      if (W == 2) put(second, out.c + i * out.rs, lanes);
    };
    (store_row(I, sum0[I], sum1[I]), ...);
    return;
  }
  HWY_ALIGN float part[sizeof...(I) * NR];
  ((hn::Store(hn::Mul(sum0[I], scale), d, part + I * NR),
    hn::Store(hn::Mul(sum1[I], scale), d, part + I * NR + lanes)),
   ...);
  for (int64_t i = 0; i < out.rows; ++i) {
    for (int64_t j = 0; j < out.cols; ++j) {
      float& to = out.c[i * out.rs + j * out.cs];
      to = fresh ? part[i * NR + j] : std::fma(out.beta, to, part[i * NR + j]);
      if (out.offset) to += out.offset[j];
    }
  }
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
