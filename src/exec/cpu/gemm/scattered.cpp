// A matrix product whose rows of A lie scattered (a convolution): x86 reads them in place and ARM
// packs them from there, and B is packed once for all callers. Convention: as in gemm.cpp, an
// element of C is one chain of multiply-adds in the order of k, restarted at each block of k.
#include "exec/cpu/simd/vector.h"  // before Highway: the instruction sets we build for; none is
                                   // scalable, so accumulators may live in arrays

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/gemm/scattered.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "exec/cpu/gemm/gemm.h"
#include "exec/cpu/gemm/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {

// body(part, first number of it, how many) for [k0, k0 + size) of the numbers of all parts side by
// side.
template <class Body>
HWY_INLINE void for_parts(int64_t length, int64_t k0, int64_t size, const Body& body) {
  for (int64_t part = k0 / length, from = k0 % length; size > 0; ++part, from = 0) {
    const int64_t now = std::min(length - from, size);
    body(part, from, now);
    size -= now;
  }
}

// dst[p][i] = row i's number `from` + p, for R rows at `rows`.
void pack_rows(const float* const* rows, int64_t from, int64_t size, float* HWY_RESTRICT dst) {
  const hn::FixedTag<float, 4> d4;
  const hn::FixedTag<double, 2> pairs;
  for (int lane = 0; lane + 4 <= R; lane += 4) {
    const float *HWY_RESTRICT a0 = rows[lane] + from, *HWY_RESTRICT a1 = rows[lane + 1] + from;
    const float *HWY_RESTRICT a2 = rows[lane + 2] + from, *HWY_RESTRICT a3 = rows[lane + 3] + from;
    float* HWY_RESTRICT to = dst + lane;
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
    for (; p < size; ++p, to += R) to[0] = a0[p], to[1] = a1[p], to[2] = a2[p], to[3] = a3[p];
  }
}

// A tile whose rows of A are read where they lie: where a broadcasting load is free, packing them
// would cost more than it saves.
template <int W, int... I>
HWY_INLINE void tile_in_place(std::integer_sequence<int, I...> all, const Scattered& a,
                              const float* const* first, int64_t k0, int64_t k,
                              const float* HWY_RESTRICT b, const Problem& problem, float beta,
                              float* HWY_RESTRICT c, int64_t rows, int64_t cols) {
  V sum0[R] = {((void)I, hn::Zero(d))...}, sum1[R] = {((void)I, hn::Zero(d))...};
  int64_t from = k0 % a.length, size = 0;
  // for_parts by hand: sums that a lambda captures would live in memory.
  for (first += k0 / a.length * a.pitch; k > 0; k -= size, first += a.pitch, from = 0) {
    size = std::min(a.length - from, k);
    const float* HWY_RESTRICT row[R] = {(first[I] + from)...};
    for (int64_t p = 0; p < size; ++p, b += NR) {
      const V b0 = hn::Load(d, b);
      if constexpr (W == 2) {
        const V b1 = hn::Load(d, b + lanes);
        ((sum0[I] = hn::MulAdd(hn::Set(d, row[I][p]), b0, sum0[I]),
          sum1[I] = hn::MulAdd(hn::Set(d, row[I][p]), b1, sum1[I])),
         ...);
      } else {
        ((sum0[I] = hn::MulAdd(hn::Set(d, row[I][p]), b0, sum0[I])), ...);
      }
    }
  }
  store<W>(all, sum0, sum1, problem, beta, c, rows, cols);
}
template <int W>
HWY_NOINLINE void tile_in_place_of(const Scattered& a, const float* const* first, int64_t k0,
                                   int64_t k, const float* b, const Problem& problem, float* c,
                                   int64_t rows, int64_t cols) {
  tile_in_place<W>(std::make_integer_sequence<int, R>(), a, first, k0, k, b, problem,
                   k0 == 0 ? 0.0f : 1.0f, c, rows, cols);
}

// Columns [n0, n0 + size) of block `block` of k; panels of a block lie side by side.
void pack_scattered(const Scattered& a, int64_t n, const float* const* parts, int64_t rs,
                    int64_t cs, int64_t block, int64_t n0, int64_t size,
                    float* HWY_RESTRICT packed) {
  const int64_t k0 = block * a.k_step(), k_size = std::min(a.k_step(), a.k() - k0);
  packed += k0 * packed_columns(n);
  for (int64_t j = n0; j < n0 + size; j += NR) {
    float* HWY_RESTRICT to = packed + j * k_size;
    for_parts(a.length, k0, k_size, [&](int64_t part, int64_t from, int64_t now) HWY_ATTR {
      pack<NR>(std::min<int64_t>(NR, n - j), now, parts[part] + from * rs + j * cs, cs, rs, to);
      to += now * NR;
    });
  }
}

// One row of C, in the order of Finish.
void finish_row(const Finish& f, const float* HWY_RESTRICT addend, int64_t n,
                float* HWY_RESTRICT c) {
  int64_t j = 0;
  for (; j + lanes <= n; j += lanes) {
    V v = hn::LoadU(d, c + j);
    if (f.scale) v = hn::MulAdd(v, hn::LoadU(d, f.scale + j), hn::LoadU(d, f.offset + j));
    if (addend) v = hn::Add(v, hn::LoadU(d, addend + j));
    if (f.relu) v = hn::IfThenZeroElse(hn::Lt(v, hn::Zero(d)), v);
    hn::StoreU(v, d, c + j);
  }
  for (; j < n; ++j) {
    float v = f.scale ? std::fma(c[j], f.scale[j], f.offset[j]) : c[j];
    if (addend) v += addend[j];
    c[j] = f.relu && v < 0 ? 0.0f : v;
  }
}

void run_scattered(const Scattered& a, int64_t m, int64_t n, const float* HWY_RESTRICT packed,
                   int64_t n0, int64_t n_size, float* c, int64_t rs_c, const Finish& finish,
                   float* HWY_RESTRICT panel) {
  constexpr bool in_place = !HWY_ARCH_ARM;
  const Problem problem{.m = m,
                        .n = n,
                        .k = a.k(),
                        .alpha = 1,
                        .a = nullptr,
                        .rs_a = 0,
                        .cs_a = 0,
                        .b = nullptr,
                        .rs_b = 0,
                        .cs_b = 0,
                        .beta = 0,
                        .c = c,
                        .rs_c = rs_c,
                        .cs_c = 1};
  const auto finish_rows = [&](int64_t first, int64_t count) HWY_ATTR {
    if (finish.nothing()) return;
    for (int64_t r = first; r < first + count; ++r)
      finish_row(finish, finish.addend ? finish.addend + r * rs_c : nullptr, n_size, c + r * rs_c);
  };
  if (a.k() == 0) {
    for (int64_t r = 0; r < m; ++r) std::fill_n(c + r * rs_c, n_size, 0.0f);
    return finish_rows(0, m);
  }
  for (int64_t k0 = 0; k0 < a.k(); k0 += a.k_step()) {
    const int64_t k_size = std::min(a.k_step(), a.k() - k0);
    const float* block = packed + k0 * packed_columns(n);
    for (int64_t i = 0; i < m; i += R) {
      const int64_t rows = std::min<int64_t>(R, m - i);
      if constexpr (!in_place) {
        float* to = panel;
        for_parts(a.length, k0, k_size, [&](int64_t part, int64_t from, int64_t now) HWY_ATTR {
          pack_rows(a.rows + part * a.pitch + i, from, now, to);
          to += now * R;
        });
      }
      if (finish.addend && k0 + k_size == a.k())  // there when the panel is done
        for (int64_t r = i; r < i + rows; ++r)
          for (int64_t j = 0; j < n_size; j += 16) hwy::Prefetch(finish.addend + r * rs_c + j);
      for (int64_t j = 0; j < n_size; j += NR) {
        const int64_t cols = std::min<int64_t>(NR, n_size - j);
        const float* b = block + (n0 + j) * k_size;
        if constexpr (in_place)
          (cols > lanes ? tile_in_place_of<2> : tile_in_place_of<1>)(a, a.rows + i, k0, k_size, b,
                                                                     problem, c + i * rs_c + j,
                                                                     rows, cols);
        else
          (cols > lanes ? tile_of<2> : tile_of<1>)(k_size, panel, b, problem, k0 == 0 ? 0.0f : 1.0f,
                                                   c + i * rs_c + j, rows, cols);
      }
      if (k0 + k_size == a.k()) finish_rows(i, rows);
    }
  }
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::exec::cpu {

HWY_EXPORT(pack_scattered);
HWY_EXPORT(run_scattered);

void gemm_pack(const Scattered& a, std::int64_t n, const float* const* parts, std::int64_t rs,
               std::int64_t cs, std::int64_t task, float* packed) {
  const std::int64_t strips = packed_columns(n) / scattered_columns,
                     n0 = task % strips * scattered_columns;
  HWY_DYNAMIC_DISPATCH(pack_scattered)
  (a, n, parts, rs, cs, task / strips, n0, std::min(scattered_columns, n - n0), packed);
}
void gemm_scattered(const Scattered& a, std::int64_t m, std::int64_t n, const float* packed,
                    std::int64_t n0, std::int64_t n_size, float* c, std::int64_t rs_c,
                    const Finish& finish, float* panel) {
  HWY_DYNAMIC_DISPATCH(run_scattered)(a, m, n, packed, n0, n_size, c, rs_c, finish, panel);
}

}  // namespace tessera::exec::cpu
#endif
