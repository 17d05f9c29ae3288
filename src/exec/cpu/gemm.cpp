// A blocked matrix product on Highway: B is packed once per block into panels of NR columns, A one
// panel of R rows at a time, and a register tile of R x NR accumulators runs along k. Small
// operands (one head of an attention) matter as much as large ones, hence the cheap packing. Where
// A's rows lie scattered (a convolution), x86 reads them in place and ARM packs them from there,
// and B is packed once for all callers. Convention: every element of C is one chain of
// multiply-adds in the order of k, restarted at each block of k; so its bits do not depend on the
// tile it falls into. (Before AVX2 a multiply-add rounds twice, so bits may differ between such
// machines and others.)
#include "exec/cpu/vector.h"  // before Highway: the instruction sets we build for; none is scalable, so accumulators may live in arrays

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/gemm.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "exec/cpu/gemm.h"

#ifndef TESSERA_GEMM_PROBLEM
#define TESSERA_GEMM_PROBLEM
namespace tessera::exec::cpu {

struct Problem {
  std::int64_t m, n, k;
  float alpha;
  const float* a;
  std::int64_t rs_a, cs_a;
  const float* b;
  std::int64_t rs_b, cs_b;
  float beta;
  float* c;
  std::int64_t rs_c, cs_c;
};

// A block of B fits the second-level cache of one core, a panel of A and one of B the first.
inline constexpr std::int64_t k_block = 384, n_block = 384, most_rows = 12;
static_assert(sizeof(float) * k_block * (n_block + most_rows) == gemm_scratch_bytes &&
              gemm_scratch_bytes % 64 == 0);
static_assert(most_rows == scattered_rows && k_block * most_rows == scattered_scratch &&
              scattered_block == k_block);

}  // namespace tessera::exec::cpu
#endif

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
              "here has fewer (HWY_SCALAR?); exec/cpu/vector.h chooses the fallback");
constexpr int NR = 2 * lanes;
// 2 R accumulators beside the operands: 12 rows where there are 32 vector registers, 6 where there
// are 16.
constexpr int R = HWY_ARCH_X86 && lanes < 16 ? 6 : 12;
static_assert(R <= most_rows && n_block % NR == 0);

// dst[p][lane] = src[lane * lane_step + p * k_step] for `used` of P lanes, zeros in the others.
template <int P>
void pack(int64_t used, int64_t k, const float* HWY_RESTRICT src, int64_t lane_step, int64_t k_step,
          float* HWY_RESTRICT dst) {
  const hn::FixedTag<float, 4> d4;
  if (used == P && lane_step == 1) {
    for (int64_t p = 0; p < k; ++p)
      for (int i = 0; i < P; ++i) dst[p * P + i] = src[p * k_step + i];
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

// Element I of A's column, in all lanes. ARM multiplies by a lane of a register; elsewhere a
// broadcasting load is as cheap.
template <int I>
HWY_INLINE V element(const V* HWY_RESTRICT column, const float* HWY_RESTRICT a) {
  if constexpr (HWY_ARCH_ARM)
    return hn::Broadcast<I % 4>(column[I / 4]);
  else
    return hn::Set(d, a[I]);
}

// `rows` x `cols` of C from their sums; W vectors of each row hold columns that count.
template <int W, int... I>
HWY_INLINE void store(std::integer_sequence<int, I...>, const V* HWY_RESTRICT sum0,
                      const V* HWY_RESTRICT sum1, const Problem& problem, float beta,
                      float* HWY_RESTRICT c, int64_t rows, int64_t cols) {
  const V scale = hn::Set(d, problem.alpha), keep = hn::Set(d, beta);
  if (problem.cs_c == 1 && cols == W * lanes) {
    const auto store_row = [&](int i, V first, V second) HWY_ATTR {
      if (i >= rows) return;
      float* HWY_RESTRICT to = c + i * problem.rs_c;
      first = hn::Mul(first, scale), second = hn::Mul(second, scale);
      hn::StoreU(beta == 0 ? first : hn::MulAdd(keep, hn::LoadU(d, to), first), d, to);
      if (W == 2)
        hn::StoreU(beta == 0 ? second : hn::MulAdd(keep, hn::LoadU(d, to + lanes), second), d,
                   to + lanes);
    };
    (store_row(I, sum0[I], sum1[I]), ...);
    return;
  }
  HWY_ALIGN float part[R * NR];
  ((hn::Store(hn::Mul(sum0[I], scale), d, part + I * NR),
    hn::Store(hn::Mul(sum1[I], scale), d, part + I * NR + lanes)),
   ...);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      float& to = c[i * problem.rs_c + j * problem.cs_c];
      to = beta == 0 ? part[i * NR + j] : std::fma(beta, to, part[i * NR + j]);
    }
  }
}

// The same from a panel of A and one of B.
template <int W, int... I>
HWY_INLINE void tile(std::integer_sequence<int, I...> all, int64_t k, const float* HWY_RESTRICT a,
                     const float* HWY_RESTRICT b, const Problem& problem, float beta,
                     float* HWY_RESTRICT c, int64_t rows, int64_t cols) {
  V sum0[R] = {((void)I, hn::Zero(d))...}, sum1[R] = {((void)I, hn::Zero(d))...};
#pragma GCC unroll 4
  for (int64_t p = 0; p < k; ++p, a += R, b += NR) {
    V column[3] = {hn::Zero(d), hn::Zero(d),
                   hn::Zero(d)};  // unused and gone where element() loads for itself
    if constexpr (HWY_ARCH_ARM)
      column[0] = hn::Load(d, a), column[1] = hn::Load(d, a + 4), column[2] = hn::Load(d, a + 8);
    const V b0 = hn::Load(d, b);
    if constexpr (W == 2) {
      const V b1 = hn::Load(d, b + lanes);
      ((sum0[I] = hn::MulAdd(element<I>(column, a), b0, sum0[I]),
        sum1[I] = hn::MulAdd(element<I>(column, a), b1, sum1[I])),
       ...);
    } else {
      ((sum0[I] = hn::MulAdd(element<I>(column, a), b0, sum0[I])), ...);
    }
  }
  store<W>(all, sum0, sum1, problem, beta, c, rows, cols);
}

template <int W>
HWY_NOINLINE void tile_of(int64_t k, const float* a, const float* b, const Problem& problem,
                          float beta, float* c, int64_t rows, int64_t cols) {
  tile<W>(std::make_integer_sequence<int, R>(), k, a, b, problem, beta, c, rows, cols);
}

// `packed` holds a block of B and, behind it, a panel of A.
void run(const Problem& p, float* HWY_RESTRICT packed) {
  float* HWY_RESTRICT a_panel = packed + k_block * n_block;
  const int64_t k_parts = (p.k + k_block - 1) / k_block, k_step = (p.k + k_parts - 1) / k_parts;
  for (int64_t n0 = 0; n0 < p.n; n0 += n_block) {
    const int64_t n_size = std::min(n_block, p.n - n0);
    for (int64_t k0 = 0; k0 < p.k; k0 += k_step) {
      const int64_t k_size = std::min(k_step, p.k - k0);
      // Contiguous rows of B are read along, a few at a time.
      const int64_t q_step = p.cs_b == 1 ? 16 : k_size;
      for (int64_t q = 0; q < k_size; q += q_step) {
        for (int64_t j = 0; j < n_size; j += NR) {
          pack<NR>(std::min<int64_t>(NR, n_size - j), std::min<int64_t>(q_step, k_size - q),
                   p.b + (k0 + q) * p.rs_b + (n0 + j) * p.cs_b, p.cs_b, p.rs_b,
                   packed + j * k_size + q * NR);
        }
      }
      for (int64_t i = 0; i < p.m; i += R) {
        const int64_t rows = std::min<int64_t>(R, p.m - i);
        pack<R>(rows, k_size, p.a + i * p.rs_a + k0 * p.cs_a, p.rs_a, p.cs_a, a_panel);
        for (int64_t j = 0; j < n_size; j += NR) {
          const int64_t cols = std::min<int64_t>(NR, n_size - j);
          const auto kernel = cols > lanes ? tile_of<2> : tile_of<1>;
          kernel(k_size, a_panel, packed + j * k_size, p, k0 == 0 ? p.beta : 1,
                 p.c + i * p.rs_c + (n0 + j) * p.cs_c, rows, cols);
        }
      }
    }
  }
}

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

HWY_EXPORT(run);
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

void gemm(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
          std::int64_t rs_a, std::int64_t cs_a, const float* b, std::int64_t rs_b,
          std::int64_t cs_b, float beta, float* c, std::int64_t rs_c, std::int64_t cs_c,
          float* packed) {
  if (m <= 0 || n <= 0) return;
  if (k <= 0) {
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        c[i * rs_c + j * cs_c] = beta == 0 ? 0 : beta * c[i * rs_c + j * cs_c];
    return;
  }
  // Vectors run along the columns of C: where its rows are the contiguous ones, compute the
  // transpose.
  if (cs_c != 1 && rs_c == 1) {
    HWY_DYNAMIC_DISPATCH(run)
    ({n, m, k, alpha, b, cs_b, rs_b, a, cs_a, rs_a, beta, c, cs_c, rs_c}, packed);
  } else {
    HWY_DYNAMIC_DISPATCH(run)
    ({m, n, k, alpha, a, rs_a, cs_a, b, rs_b, cs_b, beta, c, rs_c, cs_c}, packed);
  }
}

}  // namespace tessera::exec::cpu
#endif
