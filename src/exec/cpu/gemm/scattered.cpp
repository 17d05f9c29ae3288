// A matrix product whose rows of A lie scattered (a convolution): a micro-kernel that can reads
// them in place, for the others they are packed from there, and B is packed once for all callers.
// Convention: as in gemm.cpp, an element of C is one chain of multiply-adds in the order of k,
// restarted at each block of k, but for AMX.
#include "exec/cpu/simd/vector.h"  // before Highway: the instruction sets we build for

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/gemm/scattered.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "exec/cpu/gemm/gemm.h"
#include "exec/cpu/simd/convert.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One row of C, in the order of Finish, but for what is bf16.
void finish_row(const Finish& f, const float* HWY_RESTRICT addend, std::int64_t n,
                float* HWY_RESTRICT c) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t j = 0;
  for (; j + lanes <= n; j += lanes) {
    auto v = hn::LoadU(d, c + j);
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

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::exec::cpu {

HWY_EXPORT(finish_row);

namespace {

using std::int64_t;

// body(part, first number of it, how many) for [k0, k0 + size) of the numbers of all parts side by
// side.
template <class Body>
void for_parts(int64_t length, int64_t k0, int64_t size, const Body& body) {
  for (int64_t part = k0 / length, from = k0 % length; size > 0; ++part, from = 0) {
    const int64_t now = std::min(length - from, size);
    body(part, from, now);
    size -= now;
  }
}

void finish_rows(const Finish& f, int64_t first, int64_t count, int64_t n, float* c, int64_t rs_c) {
  constexpr int64_t at_once = 512;
  if (f.nothing()) return;
  float wide[at_once];
  for (int64_t r = first; r < first + count; ++r)
    for (int64_t j = 0; j < n; j += at_once) {
      const int64_t size = std::min(at_once, n - j);
      Finish part = f;
      if (f.scale) {
        part.scale += j;
        part.offset += j;
      }
      const float* addend = f.addend ? f.addend + r * f.pitch + j : nullptr;
      if (f.low_addend) {
        widen_bf16(f.low_addend + r * f.pitch + j, wide, size);
        addend = wide;
      }
      float* const row = c + r * rs_c + j;
      HWY_DYNAMIC_DISPATCH(finish_row)(part, addend, size, row);
      if (f.low) round_to_bf16(row, f.low + r * f.pitch + j, size);
    }
}

// The panel of `rows` rows from `first` on, k_size numbers from k0 on; `spare` is behind the panel.
template <class T>
void pack_panel(const Micro& micro, const Scattered<T>& a, int64_t first, int64_t rows, int64_t k0,
                int64_t k_size, std::byte* panel, std::byte* spare) {
  const int64_t length = a.padded_length(), padded = micro.padded(k_size);
  if (micro.pack_pieces && first + micro.rows <= a.pitch) {
    for_parts(length, k0, k_size, [&](int64_t part, int64_t from, int64_t now) {
      micro.pack_pieces(a.rows + part * a.pitch + first, from, std::min(a.length - from, now),
                        panel);
      panel += now * micro.a_bytes;
    });
    std::memset(panel, 0, static_cast<std::size_t>((padded - k_size) * micro.a_bytes));
    return;
  }
  T* const gathered = reinterpret_cast<T*>(micro.row_major ? panel : spare);
  int64_t at = 0;
  for_parts(length, k0, k_size, [&](int64_t part, int64_t from, int64_t now) {
    const int64_t there = std::clamp<int64_t>(a.length - from, 0, now);
    for (int64_t r = 0; r < rows; ++r) {
      T* const to = gathered + r * padded + at;
      const T* const row = static_cast<const T*>(a.rows[part * a.pitch + first + r]) + from;
      std::memcpy(to, row, sizeof(T) * static_cast<std::size_t>(there));
      std::fill(to + there, to + now, T{0});
    }
    at += now;
  });
  if (micro.row_major) {
    for (int64_t r = 0; r < rows; ++r)
      std::fill(gathered + r * padded + k_size, gathered + (r + 1) * padded, T{0});
    std::fill(gathered + rows * padded, gathered + micro.rows * padded, T{0});
    return;
  }
  micro.pack_a({.used = rows,
                .k = k_size,
                .padded = padded,
                .from = gathered,
                .lane_step = padded,
                .k_step = 1},
               panel);
}

// Addends of rows are there when their panels are done.
void fetch_addends(const Finish& f, int64_t first, int64_t end, int64_t n) {
  if (!f.addend) return;
  for (int64_t r = first; r < end; ++r)
    for (int64_t j = 0; j < n; j += 16) hwy::Prefetch(f.addend + r * f.pitch + j);
}

// A block of k of all rows where they lie, a few rows after the other.
void multiply_in_place(const Micro& micro, const Scattered<float>& a, int64_t m, int64_t k0,
                       int64_t k, const float* b, int64_t n, float* c, int64_t rs_c,
                       const Finish& finish) {
  const InPlace& tiles = micro.in_place;
  const int64_t b_pitch = k * micro.b_bytes;
  const bool last = k0 + k == a.k();
  for (int64_t i = 0; i < m; i += tiles.rows) {
    const int64_t rows = std::min(tiles.rows, m - i);
    if (last) fetch_addends(finish, i, i + rows, n);
    for (int64_t j = 0; j < n; j += tiles.columns)
      tiles.tile({a.length, a.rows + i, a.pitch}, k0, k, b + j * k, b_pitch,
                 {.c = c + i * rs_c + j,
                  .rs = rs_c,
                  .cs = 1,
                  .rows = rows,
                  .cols = std::min(tiles.columns, n - j),
                  .alpha = 1,
                  .beta = k0 == 0 ? 0.0f : 1.0f});
    if (last) finish_rows(finish, i, rows, n, c, rs_c);
  }
}

// A micro-kernel that orders tiles itself does all rows, a block of k after the other.
void multiply_whole(const Micro& micro, const Scattered<Low>& a, int64_t m, int64_t n,
                    const Low* packed, int64_t n0, int64_t n_size, float* c, int64_t rs_c,
                    const Finish& finish, void* room) {
  bool fused = false;
  for (int64_t k0 = 0; k0 < a.k(); k0 += a.k_step()) {
    const int64_t k = std::min(a.k_step(), a.k() - k0), k_there = a.packed_block(k);
    fused = k0 + k == a.k() && finish.low && !finish.addend;
    const Low* const b = packed + k0 * packed_columns(n) + n0 * k_there;
    micro.product({.m = m,
                   .n = n_size,
                   .k = k,
                   .pieces = {a.length, a.rows, a.pitch},
                   .k0 = k0,
                   .b = reinterpret_cast<const std::byte*>(b),
                   .b_pitch = k_there * micro.b_bytes,
                   .more = k0 > 0,
                   .c = c,
                   .rs = rs_c,
                   .finish = fused ? finish : Finish{},
                   .room = room});
  }
  if (!fused) finish_rows(finish, 0, m, n_size, c, rs_c);
}

}  // namespace

template <class T>
void gemm_pack(const Scattered<T>& a, int64_t n, const T* const* parts, int64_t rs, int64_t cs,
               int64_t task, T* packed) {
  const Micro& kernel = micro<T>();
  const int64_t strips = packed_columns(n) / scattered_columns,
                n0 = task % strips * scattered_columns, size = std::min(scattered_columns, n - n0);
  const int64_t k0 = task / strips * a.k_step(), k_size = std::min(a.k_step(), a.k() - k0),
                k_there = a.packed_block(k_size);
  packed += k0 * packed_columns(n);
  for (int64_t j = n0; j < n0 + size; j += kernel.columns) {
    std::byte* to = reinterpret_cast<std::byte*>(packed + j * k_there);
    for_parts(a.padded_length(), k0, k_size, [&](int64_t part, int64_t from, int64_t now) {
      const int64_t there = std::clamp<int64_t>(a.length - from, 0, now);
      kernel.pack_b({.used = std::min(kernel.columns, n - j),
                     .k = there,
                     .padded = now,
                     .from = parts[part] + from * rs + j * cs,
                     .lane_step = cs,
                     .k_step = rs},
                    to);
      to += now * kernel.b_bytes;
    });
    std::memset(to, 0, static_cast<std::size_t>((k_there - k_size) * kernel.b_bytes));
  }
}

template <class T>
void gemm_scattered(const Scattered<T>& a, int64_t m, int64_t n, const T* packed, int64_t n0,
                    int64_t n_size, float* c, int64_t rs_c, const Finish& finish, void* panel) {
  constexpr int64_t most_rows = 96;  // finished together, while they are in cache
  const Micro& kernel = micro<T>();
  if (a.k() == 0) {
    for (int64_t r = 0; r < m; ++r) std::fill_n(c + r * rs_c, n_size, 0.0f);
    return finish_rows(finish, 0, m, n_size, c, rs_c);
  }
  if (kernel.begin) kernel.begin();
  if constexpr (std::is_same_v<T, Low>)
    if (kernel.product) {
      multiply_whole(kernel, a, m, n, packed, n0, n_size, c, rs_c, finish, panel);
      if (kernel.end) kernel.end();
      return;
    }
  std::byte* const a_panel = static_cast<std::byte*>(panel);
  for (int64_t k0 = 0; k0 < a.k(); k0 += a.k_step()) {
    const int64_t k_size = std::min(a.k_step(), a.k() - k0), padded = kernel.padded(k_size),
                  k_there = a.packed_block(k_size);
    const T* const block = packed + k0 * packed_columns(n);
    if constexpr (std::is_same_v<T, float>)
      if (kernel.in_place.tile) {
        multiply_in_place(kernel, a, m, k0, k_size, block + n0 * k_there, n_size, c, rs_c, finish);
        continue;
      }
    const bool last = k0 + k_size == a.k(),
               fused = last && kernel.tile_low && finish.low && !finish.addend;
    const int64_t a_bytes = padded * kernel.a_bytes,
                  panels = std::min(kernel.a_panels(padded), most_rows / kernel.rows),
                  step = kernel.rows * panels;
    for (int64_t start = 0; start < m; start += step) {
      const int64_t end = std::min(m, start + step);
      std::byte* at = a_panel;
      for (int64_t i = start; i < end; i += kernel.rows, at += a_bytes)
        pack_panel(kernel, a, i, std::min(kernel.rows, m - i), k0, k_size, at, at + a_bytes);
      if (last) fetch_addends(finish, start, end, n_size);
      for (int64_t j = 0; j < n_size; j += kernel.columns) {
        const T* const b = block + (n0 + j) * k_there;
        at = a_panel;
        const bool last_panel = j + kernel.columns >= n_size;
        NextPanel next(kernel, last_panel ? nullptr : b + kernel.columns * k_there, padded, panels);
        if (fused) {
          kernel.tile_low(padded, at, b,
                          {.c = c + start * rs_c + j,
                           .rs = rs_c,
                           .rows = end - start,
                           .cols = std::min(kernel.columns, n_size - j),
                           .beta = k0 == 0 ? 0.0f : 1.0f,
                           .next = next},
                          finish.at(start, j));
          continue;
        }
        for (int64_t i = start; i < end; i += kernel.rows, at += a_bytes) {
          const TileOut out{.c = c + i * rs_c + j,
                            .rs = rs_c,
                            .cs = 1,
                            .rows = std::min(kernel.rows, m - i),
                            .cols = std::min(kernel.columns, n_size - j),
                            .alpha = 1,
                            .beta = k0 == 0 ? 0.0f : 1.0f};
          next.fetch_share();
          kernel.tile(padded, at, b, out);
        }
      }
      if (last && !fused) finish_rows(finish, start, end - start, n_size, c, rs_c);
    }
  }
  if (kernel.end) kernel.end();
}

#define TESSERA_SCATTERED_OF(T)                                                               \
  template void gemm_pack<T>(const Scattered<T>&, int64_t, const T* const*, int64_t, int64_t, \
                             int64_t, T*);                                                    \
  template void gemm_scattered<T>(const Scattered<T>&, int64_t, int64_t, const T*, int64_t,   \
                                  int64_t, float*, int64_t, const Finish&, void*);
TESSERA_SCATTERED_OF(float)
TESSERA_SCATTERED_OF(Low)
#undef TESSERA_SCATTERED_OF

}  // namespace tessera::exec::cpu
#endif
