// Micro-kernels of aarch64: BFMMLA for bf16 (mmla_arm.h), called only where the processor has it,
// and f32 (f32_arm.h).
#include <arm_neon.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "exec/cpu/attention/attend_arm.h"
#include "exec/cpu/attention/attend_grad_arm.h"
#include "exec/cpu/gemm/f32_arm.h"
#include "exec/cpu/gemm/finish_arm.h"
#include "exec/cpu/gemm/gelu_arm.h"
#include "exec/cpu/gemm/micro.h"
#include "exec/cpu/gemm/mmla_arm.h"

namespace tessera::exec::cpu {
namespace {

using std::int64_t;

// Four columns of C; `adds`: alpha and beta are 1.
template <bool adds>
TESSERA_ARM_INLINE void put(float32x4_t sums, float alpha, float beta, float* c) {
  if (adds) return vst1q_f32(c, vaddq_f32(vld1q_f32(c), sums));
  const float32x4_t v = vmulq_n_f32(sums, alpha);
  vst1q_f32(c, beta == 0 ? v : vfmaq_n_f32(v, vld1q_f32(c), beta));
}
template <bool adds, int R, int... Q>
TESSERA_ARM_INLINE void put_row(std::integer_sequence<int, Q...>, const float32x4_t* sums,
                                const TileOut& out) {
  float* const c = out.c + R * out.rs;
  (put<adds>(mmla_row(sums, R, Q), out.alpha, out.beta, c + 4 * Q), ...);
}
template <bool adds, int... R>
TESSERA_ARM_INLINE void put_rows(std::integer_sequence<int, R...>, const float32x4_t* sums,
                                 const TileOut& out) {
  (put_row<adds, R>(std::make_integer_sequence<int, mmla_columns / 4>(), sums, out), ...);
}

// A tile of fewer columns, or one whose columns lie apart.
void put_part(const float* part, const TileOut& out) {
  for (int64_t i = 0; i < std::min<int64_t>(out.rows, mmla_rows); ++i, part += mmla_columns) {
    float* const c = out.c + i * out.rs;
    int64_t j = 0;
    for (; out.cs == 1 && j + 4 <= out.cols; j += 4)
      put<false>(vld1q_f32(part + j), out.alpha, out.beta, c + j);
    for (; j < out.cols; ++j) {
      float& at = c[j * out.cs];
      const float v = part[j] * out.alpha;
      at = out.beta == 0 ? v : std::fma(at, out.beta, v);
    }
  }
}

TESSERA_BFMMLA void tile_bfmmla(int64_t k, const void* a, const void* b, const TileOut& tiles) {
  constexpr auto rows = std::make_integer_sequence<int, mmla_rows>();
  TileOut out = tiles;
  const bool whole = out.cols == mmla_columns && out.cs == 1,
             plain = out.alpha == 1 && out.beta == 0, adds = out.alpha == 1 && out.beta == 1;
  for (; out.rows > 0; out.rows -= mmla_rows, out.c += mmla_rows * out.rs) {
    out.next.fetch_share();
    if (out.beta != 0) fetch_rows(rows, out);
    float32x4_t sums[mmla_sums];
    TESSERA_MMLA_SUMS("bfmmla", "8h", sums, k / 4, a, b);
    a = static_cast<const Low*>(a) + k * mmla_rows;
    if (whole && out.rows >= mmla_rows) {
      plain  ? put_tile(sums, out.c, out.rs)
      : adds ? put_rows<true>(rows, sums, out)
             : put_rows<false>(rows, sums, out);
      continue;
    }
    float part[mmla_rows * mmla_columns];
    put_tile(sums, part, mmla_columns);
    put_part(part, out);
  }
}

// One to three numbers, and zeros behind them.
TESSERA_ARM_INLINE uint16x4_t load_few(const Low* from, int64_t n) {
  return vcreate_u16(from[0] | (n > 1 ? std::uint64_t{from[1]} << 16 : 0) |
                     (n > 2 ? std::uint64_t{from[2]} << 32 : 0));
}

// Two rows and eight numbers at once.
void pack_pieces(const void* const* rows, int64_t from, int64_t size, void* panel) {
  const auto load = [](const std::uint16_t* at) { return vreinterpretq_u64_u16(vld1q_u16(at)); };
  for (int row = 0; row < mmla_rows; row += 2) {
    const Low *x = static_cast<const Low*>(rows[row]) + from,
              *y = static_cast<const Low*>(rows[row + 1]) + from;
    Low* to = static_cast<Low*>(panel) + row * 4;
    int64_t p = 0;
    for (; p + 8 <= size; p += 8, to += mmla_rows * 8) {
      const uint64x2_t r0 = load(x + p), r1 = load(y + p);
      vst1q_u16(to, vreinterpretq_u16_u64(vzip1q_u64(r0, r1)));
      vst1q_u16(to + mmla_rows * 4, vreinterpretq_u16_u64(vzip2q_u64(r0, r1)));
    }
    if (p + 4 <= size) {
      vst1q_u16(to, vcombine_u16(vld1_u16(x + p), vld1_u16(y + p)));
      p += 4;
      to += mmla_rows * 4;
    }
    if (p < size) vst1q_u16(to, vcombine_u16(load_few(x + p, size - p), load_few(y + p, size - p)));
  }
}

TESSERA_BFMMLA int64_t round_bfcvtn(const float* x, Low* y, int64_t n) {
  const auto store = [](Low* to, bfloat16x8_t v)
                         TESSERA_BFMMLA { vst1q_bf16(reinterpret_cast<bfloat16_t*>(to), v); };
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    store(y + i, vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(vld1q_f32(x + i)), vld1q_f32(x + i + 4)));
  return i;
}

constexpr Micro bfmmla_micro{.name = "bfmmla",
                             .rows = mmla_rows,
                             .columns = mmla_columns,
                             .group = 8,
                             .a_bytes = mmla_rows * 2,
                             .b_bytes = mmla_columns * 2,
                             .k_block = 1024,
                             .a_block = most_a_block,
                             .walks = true,
                             .pack_a = pack_mmla_rows,
                             .pack_b = pack_mmla_columns,
                             .pack_beside_a = pack_beside<mmla_rows>,
                             .pack_beside_b = pack_beside<mmla_columns>,
                             .tile = tile_bfmmla,
                             .tile_low = tile_low_bfmmla,
                             .pack_pieces = pack_pieces,
                             .attend = attend_bfmmla,
                             .attend_grad = attend_grad_bfmmla};

void pack_f32_a(const Lanes& l, void* panel) {
  if (l.k_step == 1)
    pack_f32_rows(l, static_cast<float*>(panel));
  else
    f32_packs().lanes_6(l, panel);
}
void pack_f32_b(const Lanes& l, void* panel) {
  if (l.k_step == 1)
    pack_f32_columns(l, static_cast<float*>(panel));
  else
    f32_packs().lanes_16(l, panel);
}

constexpr Micro f32_micro{.name = "f32 neon",
                          .rows = f32_rows,
                          .columns = f32_columns,
                          .a_bytes = f32_rows * 4,
                          .b_bytes = f32_columns * 4,
                          .a_block = most_a_block,
                          .walks = true,
                          .offsets = true,
                          .pack_a = pack_f32_a,
                          .pack_b = pack_f32_b,
                          .pack_beside_a = pack_f32_beside<f32_rows>,
                          .pack_beside_b = pack_f32_beside<f32_columns>,
                          .tile = tile_f32_arm,
                          .pack_pieces = pack_f32_pieces};

}  // namespace

const Micro* machine_f32() { return &f32_micro; }

std::vector<const Micro*> machine_micros() {
  if (has_bfmmla()) return {&bfmmla_micro};
  return {};
}

RoundLow machine_round() { return has_bfmmla() ? round_bfcvtn : nullptr; }

}  // namespace tessera::exec::cpu
