// Whole products of bf16 and of i8 by AMX (Micro::product). They differ in one instruction and in
// what sums are: a step of k is 64 bytes of a row of A, and here two i8 count as one number. Rows
// of A are read where they lie: 16 of them are a tile if they are equally far apart, and only
// others are copied. A tile has all of k, and while its sums are made those of the tile before it
// are finished, a few rows with each step of k: tiles are multiplied beside the vector units.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "exec/cpu/gemm/amx_x86.h"
#include "exec/cpu/gemm/micro.h"
#include "exec/cpu/simd/gelu_fit.h"
#include "exec/cpu/simd/vector.h"

namespace tessera::exec::cpu {
inline namespace TESSERA_X86 {

// Numbers of k in `steps` steps: two groups of 16 rows, those of a group `row` bytes apart.
struct AmxRows {
  const char* at[2];
  std::int64_t row[2];
  std::int64_t steps;
};
inline constexpr std::int64_t most_amx_parts = most_short_pieces;  // of k; more are copied
// Numbers of B that stay in the nearest cache while more rows than these are multiplied.
inline constexpr std::int64_t near_numbers = 16 << 10, near_rows = 64;
// Numbers of k of a step: 32, or those of pieces that are shorter and read in place, one step each.
// Tiles then have no more columns: numbers beside a piece, which others own, are never multiplied.
inline std::int64_t amx_step(const LowProduct& p) {
  const std::int64_t length = p.pieces.length;
  const bool short_pieces = !p.a && length >= shortest_piece && length < 32 && length % 4 == 0 &&
                            p.k0 % length == 0 && p.k % length == 0 && p.parts() <= most_amx_parts;
  return short_pieces ? length : 32;
}

// Sums that wait for their end: rows of 32, of which `done` have it.
template <class Sum>
struct AmxEnd {
  const Sum* sums = nullptr;
  Finish finish{};  // at the tile's first element
  std::int64_t rows = 0, cols = 0, done = 0;
};

// gelu_low of vector_math-inl.h with its bits.
TESSERA_AVX512 inline __m512 gelu_low_16(__m512 x) {
  const __m512 most = _mm512_set1_ps(gelu_low_fit.most),
               u = _mm512_max_ps(_mm512_min_ps(x, most), _mm512_set1_ps(-gelu_low_fit.most)),
               t = _mm512_mul_ps(u, u), t2 = _mm512_mul_ps(t, t);
  const auto of = [t, t2](const float* c) TESSERA_AVX512 {
    const __m512 high = _mm512_fmadd_ps(t, _mm512_set1_ps(c[3]), _mm512_set1_ps(c[2])),
                 low = _mm512_fmadd_ps(t, _mm512_set1_ps(c[1]), _mm512_set1_ps(c[0]));
    return _mm512_fmadd_ps(high, t2, low);
  };
  const __m512 q = of(gelu_low_fit.below), about = _mm512_rcp14_ps(q),
               r = _mm512_mul_ps(
                   of(gelu_low_fit.above),
                   _mm512_mul_ps(about, _mm512_fnmadd_ps(q, about, _mm512_set1_ps(2))));
  return _mm512_mul_ps(x, _mm512_fmadd_ps(u, r, _mm512_set1_ps(gelu_low_fit.half)));
}
TESSERA_AVX512 inline __m512 widened_16(__m256i low) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(low), 16));
}
TESSERA_AVX512 inline __m512 acted_16(Act act, __m512 x) {
  if (act == Act::gelu) return gelu_low_16(x);
  alignas(64) float wide[16];
  _mm512_store_ps(wide, x);
  vector_gelu_low(wide, wide, 16, true);
  return _mm512_load_ps(wide);
}
// Scales and offsets of 16 columns, loaded once for several rows; zeros where there are none.
struct AmxColumns {
  __m512 scale, offset;
};
TESSERA_AVX512 inline AmxColumns columns_16(const Finish& f, std::int64_t first, __mmask16 there) {
  AmxColumns out{_mm512_setzero_ps(), _mm512_setzero_ps()};
  if (f.scale) out.scale = _mm512_maskz_loadu_ps(there, f.scale + first);
  if (f.offset) out.offset = _mm512_maskz_loadu_ps(there, f.offset + first);
  return out;
}
// Ends 16 columns of a row up to their rounding, in the order of Finish; `at` is their place in
// rows of results.
TESSERA_AVX512 inline __m512 before_rounding(const Finish& f, __m512 v, const AmxColumns& columns,
                                             std::int64_t at, __mmask16 there) {
  if (f.scale)
    v = _mm512_fmadd_ps(v, columns.scale, columns.offset);
  else if (f.offset)
    v = _mm512_add_ps(v, columns.offset);
  if (f.low_addend)
    v = _mm512_add_ps(v, widened_16(_mm256_maskz_loadu_epi16(there, f.low_addend + at)));
  if (f.relu) v = _mm512_max_ps(_mm512_setzero_ps(), v);  // the second one where either is a NaN
  return v;
}
TESSERA_AVX512 inline __m512 sums_16(const float* at) { return _mm512_loadu_ps(at); }
TESSERA_AVX512 inline __m512 sums_16(const std::int32_t* at) {
  return _mm512_cvtepi32_ps(_mm512_loadu_si512(at));
}
// Stores those of 16 numbers that are there as bytes, as to_bytes (quantize.h) gives them.
TESSERA_AVX512 inline void put_bytes_16(__m512 v, float inverse, std::int8_t* to, __mmask16 there) {
  v = _mm512_mul_ps(v, _mm512_set1_ps(inverse));
  const __mmask16 numbers = _mm512_cmp_ps_mask(v, v, _CMP_ORD_Q);
  v = _mm512_max_ps(_mm512_min_ps(v, _mm512_set1_ps(127)), _mm512_set1_ps(-127));
  _mm_mask_storeu_epi8(to, there, _mm512_cvtepi32_epi8(_mm512_maskz_cvtps_epi32(numbers, v)));
}
// A function of its own, whose loop has its constants in registers; within the steps of a tile they
// would not be there.
template <Act act, bool bytes, class Sum>
TESSERA_AVX512_BF16 __attribute__((noinline)) void end_rows_by(AmxEnd<Sum>& end,
                                                               std::int64_t until) {
  const Finish f = end.finish;  // a copy, which no store can change
  const __mmask32 there = first_of_32(end.cols);
  const auto first = static_cast<__mmask16>(there & 0xffff),
             second = static_cast<__mmask16>(there >> 16);
  const AmxColumns left = columns_16(f, 0, first), right = columns_16(f, 16, second);
  for (std::int64_t row = end.done; row < until; ++row) {
    const Sum* const sums = end.sums + row * 32;
    const std::int64_t at = row * f.pitch;
    __m512i low = rounded_32(before_rounding(f, sums_16(sums), left, at, first),
                             before_rounding(f, sums_16(sums + 16), right, at + 16, second));
    if constexpr (act != Act::none) {
      if (f.before) _mm512_mask_storeu_epi16(f.before + at, there, low);
      low = rounded_32(acted_16(act, widened_16(_mm512_castsi512_si256(low))),
                       acted_16(act, widened_16(_mm512_extracti64x4_epi64(low, 1))));
    }
    if constexpr (bytes) {
      put_bytes_16(widened_16(_mm512_castsi512_si256(low)), f.inverse, f.bytes + at, first);
      put_bytes_16(widened_16(_mm512_extracti64x4_epi64(low, 1)), f.inverse, f.bytes + at + 16,
                   second);
    } else {
      _mm512_mask_storeu_epi16(f.low + at, there, low);
    }
  }
  end.done = until;
}
template <class Sum>
TESSERA_AVX512_BF16 inline void end_rows(AmxEnd<Sum>& end, std::int64_t count) {
  const std::int64_t until = std::min(end.rows, end.done + count);
  if (end.done >= until) return;
  const bool erf = end.finish.act == Act::gelu;
  if constexpr (std::is_same_v<Sum, std::int32_t>)
    if (end.finish.bytes)
      return erf ? end_rows_by<Act::gelu, true>(end, until)
                 : end_rows_by<Act::gelu_tanh, true>(end, until);
  if (end.finish.act == Act::none)
    end_rows_by<Act::none, false>(end, until);
  else if (erf)
    end_rows_by<Act::gelu, false>(end, until);
  else
    end_rows_by<Act::gelu_tanh, false>(end, until);
}

// A tile of C: sums begin with those at `from`, or with zeros.
template <class Sum>
struct AmxTile {
  const AmxRows* rows;
  std::int64_t parts, steps;
  const char* b;
  const Sum* from;
  Sum* to;
  std::int64_t from_pitch, pitch;
  std::int64_t b_row, b_step;  // bytes of B in two numbers of k, and in a step
};
// `far`: B has whole steps, and comes from a cache that is not the nearest.
template <int M, int N, bool far, class Sum>
TESSERA_AMX inline void amx_tile(const AmxTile<Sum>& tile, AmxEnd<Sum>& end) {
  begin_sums<M, N>(tile.from, tile.from_pitch);
  std::int64_t each = (end.rows - end.done + tile.steps - 1) / tile.steps;
  if (tile.steps < 8) each = (each + 7) / 8 * 8;  // fewer beginnings than steps
  const std::int64_t b_row = far ? 128 : tile.b_row, b_step = far ? amx_step_bytes : tile.b_step;
  const char* b = tile.b;
  for (std::int64_t part = 0; part < tile.parts; ++part) {
    const AmxRows& rows = tile.rows[part];
    const char* a0 = rows.at[0];
    [[maybe_unused]] const char* a1 = rows.at[1];  // null where there are 16 rows at most
    for (std::int64_t s = 0; s < rows.steps; ++s, a0 += 64, b += b_step) {
      _tile_loadd(4, a0, rows.row[0]);
      _tile_loadd(6, b, b_row);
      add_products<Sum, 0, 0>();
      if constexpr (far) fetch_step_after_next(b);
      if constexpr (N == 2) {
        _tile_loadd(7, b + 64, b_row);
        add_products<Sum, 0, 1>();
      }
      if constexpr (M == 2) {
        _tile_loadd(5, a1, rows.row[1]);
        a1 += 64;
        add_products<Sum, 1, 0>();
        if constexpr (N == 2) add_products<Sum, 1, 1>();
      }
      if (each > 0) end_rows(end, each);
    }
  }
  store_sums<M, N>(tile.to, tile.pitch);
}

template <bool far, class Sum>
TESSERA_AMX inline void amx_tile(bool tall, bool wide, const AmxTile<Sum>& tile, AmxEnd<Sum>& end) {
  if (tall && wide)
    amx_tile<2, 2, far>(tile, end);
  else if (tall)
    amx_tile<2, 1, far>(tile, end);
  else if (wide)
    amx_tile<1, 2, far>(tile, end);
  else
    amx_tile<1, 1, far>(tile, end);
}

// `size` numbers, and zeros up to `padded`.
TESSERA_AVX512 inline void copy_row(const Low* from, std::int64_t size, std::int64_t padded,
                                    Low* to) {
  for (std::int64_t i = 0; i < padded; i += 32)
    _mm512_mask_storeu_epi16(to + i, first_of_32(padded - i),
                             _mm512_maskz_loadu_epi16(first_of_32(size - i), from + i));
}

// The rows of a panel, from `first` on, for tiles to read; copies lie in the product's room.
class AmxPanel {
 public:
  AmxPanel(const LowProduct& p, std::int64_t first)
      : rows_(std::min<std::int64_t>(32, p.m - first)), room_(static_cast<Low*>(p.room)) {
    if (p.a)
      matrix(p, first);
    else if (amx_step(p) < 32 ||
             (p.pieces.length % 32 == 0 && p.k0 % 32 == 0 && p.parts() <= most_amx_parts))
      pieces(p, first);
    else
      copied(p, first);
  }
  const AmxRows* parts() const { return parts_; }
  std::int64_t count() const { return count_; }
  std::int64_t steps() const {
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < count_; ++i) sum += parts_[i].steps;
    return sum;
  }

 private:
  AmxRows& next(std::int64_t steps) {
    AmxRows& out = parts_[count_++];
    out = {.at = {}, .row = {}, .steps = steps};
    return out;
  }
  // A group of 16 rows, of which some may be missing, row(i) with `size` numbers.
  template <class Row>
  void copy(AmxRows& to, int group, std::int64_t size, const Row& row) {
    const std::int64_t padded = 32 * to.steps;
    to.at[group] = reinterpret_cast<const char*>(room_);
    to.row[group] = 2 * padded;
    for (std::int64_t r = 0; r < 16; ++r, room_ += padded) {
      const std::int64_t i = group * 16 + r;
      copy_row(i < rows_ ? row(i) : room_, i < rows_ ? size : 0, padded, room_);
    }
  }
  bool whole(int group) const { return rows_ >= group * 16 + 16; }
  bool empty(int group) const { return rows_ <= group * 16; }

  void matrix(const LowProduct& p, std::int64_t first) {
    AmxRows& part = next((p.k + 31) / 32);
    const Low* const a = p.a + first * p.row;
    for (int group = 0; group < 2 && !empty(group); ++group)
      if (whole(group) && p.k % 32 == 0) {
        part.at[group] = reinterpret_cast<const char*>(a + group * 16 * p.row);
        part.row[group] = 2 * p.row;
      } else {
        copy(part, group, p.k, [&](std::int64_t i) { return a + i * p.row; });
      }
  }
  void pieces(const LowProduct& p, std::int64_t first) {
    const std::int64_t length = p.pieces.length;
    for (std::int64_t k = p.k0; k < p.k0 + p.k;) {
      const std::int64_t from = k % length, size = std::min(length - from, p.k0 + p.k - k);
      const void* const* const rows = p.pieces.rows + k / length * p.pieces.pitch + first;
      const auto row = [&](std::int64_t i) { return static_cast<const Low*>(rows[i]) + from; };
      AmxRows& part = next((size + 31) / 32);
      for (int group = 0; group < 2 && !empty(group); ++group) {
        const Low* const at = row(group * 16);
        const std::int64_t apart = whole(group) ? row(group * 16 + 1) - at : 0;
        if (whole(group) && evenly_apart(rows + group * 16)) {
          part.at[group] = reinterpret_cast<const char*>(at);
          part.row[group] = 2 * apart;
        } else {
          copy(part, group, size, row);
        }
      }
      k += size;
    }
  }
  // Pieces that are no whole steps lie side by side in a copy, each padded to fours.
  void copied(const LowProduct& p, std::int64_t first) {
    AmxRows& part = next((p.k + 31) / 32);
    const std::int64_t padded = 32 * part.steps, length = (p.pieces.length + 3) / 4 * 4;
    Low* const all = room_;
    for (int group = 0; group < 2; ++group) {
      part.at[group] = reinterpret_cast<const char*>(all + group * 16 * padded);
      part.row[group] = 2 * padded;
    }
    for (std::int64_t k = p.k0; k < p.k0 + p.k;) {
      const std::int64_t from = k % length, now = std::min(length - from, p.k0 + p.k - k),
                         there = std::clamp<std::int64_t>(p.pieces.length - from, 0, now);
      const void* const* const rows = p.pieces.rows + k / length * p.pieces.pitch + first;
      for (std::int64_t r = 0; r < rows_; ++r)
        copy_row(static_cast<const Low*>(rows[r]) + from, there, now, all + r * padded + k - p.k0);
      k += now;
    }
    for (std::int64_t r = 0; r < 32; ++r) {
      const std::int64_t done = r < rows_ ? p.k : 0;
      copy_row(all, 0, padded - done, all + r * padded + done);
    }
    room_ += 32 * padded;
  }

  std::int64_t rows_;
  Low* room_;
  AmxRows parts_[most_amx_parts];
  std::int64_t count_ = 0;
};

// Sums of a part of C from a dense tile, or the other way round.
TESSERA_AVX512 inline void copy_sums(const float* from, std::int64_t from_pitch, std::int64_t rows,
                                     std::int64_t cols, float* to, std::int64_t pitch) {
  for (std::int64_t r = 0; r < rows; ++r, from += from_pitch, to += pitch)
    for (std::int64_t j = 0; j < cols; j += 16) {
      const __mmask16 there = first_of_16(cols - j);
      _mm512_mask_storeu_ps(to + j, there, _mm512_maskz_loadu_ps(there, from + j));
    }
}

// Sums in i32 neither begin with C's nor become C: there `finish` ends all of them.
template <class Sum>
TESSERA_AMX inline void product_amx(const LowProduct& p) {
  constexpr bool floats = std::is_same_v<Sum, float>;
  alignas(64) Sum sums[2][32 * 32];
  AmxEnd<Sum> end;
  int turn = 0;
  const std::int64_t step = amx_step(p);
  if (step < 32) configure_tiles(step);
  const bool far = step == 32 && p.b_row == 128 && (p.k * p.n > near_numbers || p.m <= near_rows);
  for (std::int64_t i = 0; i < p.m; i += 32) {
    const AmxPanel panel(p, i);
    const std::int64_t rows = std::min<std::int64_t>(32, p.m - i), steps = panel.steps();
    const auto* b = reinterpret_cast<const char*>(p.b);
    for (std::int64_t j = 0; j < p.n; j += 32, b += p.b_pitch) {
      const std::int64_t cols = std::min<std::int64_t>(32, p.n - j);
      const bool whole = rows == 32 && cols == 32, tall = rows > 16, wide = cols > 16;
      Sum* const dense = sums[turn];
      AmxTile<Sum> tile{.rows = panel.parts(),
                        .parts = panel.count(),
                        .steps = steps,
                        .b = b,
                        .from = nullptr,
                        .to = dense,
                        .from_pitch = 32,
                        .pitch = 32,
                        .b_row = p.b_row,
                        .b_step = step / 2 * p.b_row};
      if constexpr (floats) {
        float* const c = p.c + i * p.rs + j;
        if (p.more) {
          tile.from = whole ? c : dense;
          if (whole)
            tile.from_pitch = p.rs;
          else
            copy_sums(c, p.rs, rows, cols, dense, 32);
        }
        if (!p.finish.ends() && whole) {
          tile.to = c;
          tile.pitch = p.rs;
        }
      }
      if (far)
        amx_tile<true>(tall, wide, tile, end);
      else
        amx_tile<false>(tall, wide, tile, end);
      if (p.finish.ends()) {
        end = {.sums = dense, .finish = p.finish.at(i, j), .rows = rows, .cols = cols};
        turn = 1 - turn;
      } else if constexpr (floats) {
        if (!whole) copy_sums(dense, 32, rows, cols, p.c + i * p.rs + j, p.rs);
      }
    }
  }
  end_rows(end, end.rows);
  if (step < 32) configure_tiles(32);
}

}  // namespace TESSERA_X86
}  // namespace tessera::exec::cpu
