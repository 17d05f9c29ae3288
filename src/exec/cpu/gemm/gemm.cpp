// A blocked matrix product: one operand is packed by blocks that stay in the second-level cache (B,
// or A where the micro-kernel asks for it), a few panels of the other at a time, and a micro-kernel
// runs along k. Small operands (one head of an attention) matter
// as much as large ones, hence the cheap packing. Convention: every element of C is one chain of
// multiply-adds in the order of k, restarted at each block of k (but for AMX, where it goes on from
// C). (Before AVX2 a multiply-add rounds
// twice, so bits may differ between such machines and others.)
#include "exec/cpu/gemm/gemm.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "base/check.h"
#include "exec/cpu/gemm/pack.h"

namespace tessera::exec::cpu {
namespace {

using std::int64_t;

// A block of B fits the second-level cache of one core, a panel of A and one of B the first.
constexpr int64_t most_n_block = 384;
static_assert(sizeof(float) * most_f32_k_block * (panel_columns + 12) <= gemm_scratch_bytes &&
              sizeof(Low) * low_k_block * (most_n_block + low_rows) <= gemm_scratch_bytes &&
              most_a_block + 64 + panel_columns * most_low_k_block * 2 <= gemm_scratch_bytes &&
              sizeof(float) * most_f32_k_block * 12 <= panel_bytes &&
              panel_bytes <= gemm_scratch_bytes &&
              2 * low_rows * most_low_k_block * 2 <= panel_bytes && gemm_scratch_bytes % 64 == 0);

template <class T>
struct Problem {
  int64_t m, n, k;
  float alpha;
  const T* a;
  int64_t rs_a, cs_a;
  const T* b;
  int64_t rs_b, cs_b;
  float beta;
  float* c;
  int64_t rs_c, cs_c;
  Finish finish{};
  Roomy roomy{};
  PackedA packed_a{};
};

// The micro-kernel's state of this thread, for as long as this lives.
class MicroState {
 public:
  explicit MicroState(const Micro& micro) : micro_(micro) {
    if (micro.begin) micro.begin();
  }
  ~MicroState() {
    if (micro_.end) micro_.end();
  }
  MicroState(const MicroState&) = delete;
  MicroState& operator=(const MicroState&) = delete;

 private:
  const Micro& micro_;
};

std::byte* bytes(void* p) { return static_cast<std::byte*>(p); }
const std::byte* bytes(const void* p) { return static_cast<const std::byte*>(p); }

// A range of rows or columns of a product.
struct Part {
  int64_t first, size;
};

template <class T>
Lanes lanes_of(const Micro& micro, Part lanes, Part k, const T* from, int64_t lane_step,
               int64_t k_step) {
  return {.used = lanes.size,
          .k = k.size,
          .padded = micro.padded(k.size),
          .from = from + lanes.first * lane_step + k.first * k_step,
          .lane_step = lane_step,
          .k_step = k_step,
          .pitch = micro.padded(k.size)};
}
template <class T>
void pack_rows(const Micro& micro, const Problem<T>& p, Part rows, Part k, std::byte* to) {
  Lanes lanes = lanes_of(micro, rows, k, p.a, p.rs_a, p.cs_a);
  if (p.roomy.a) lanes.k = lanes.padded;
  pack_panels(micro, true, lanes, sizeof(T), to);
}
template <class T>
void pack_columns(const Micro& micro, const Problem<T>& p, Part columns, Part k, std::byte* to) {
  pack_panels(micro, false, lanes_of(micro, columns, k, p.b, p.cs_b, p.rs_b), sizeof(T), to);
}

// Packed rows with columns whose packed panels are `b_pitch` bytes apart: each panel of B meets all
// of A.
template <class T>
void multiply(const Micro& micro, const Problem<T>& p, Part rows, Part columns, Part k,
              const std::byte* a, const std::byte* b, int64_t b_pitch) {
  const int64_t padded = micro.padded(k.size), a_bytes = padded * micro.a_bytes,
                tiles = (rows.size + micro.rows - 1) / micro.rows,
                step = micro.walks ? rows.size : micro.rows;
  const bool complete = k.first + k.size == p.k, finished = p.finish.low && complete;
  const float* const offset = micro.offsets && complete ? p.finish.offset : nullptr;
  for (int64_t j = 0; j < columns.size; j += micro.columns, b += b_pitch) {
    const bool last = j + micro.columns >= columns.size;
    NextPanel next(micro, last ? nullptr : b + b_pitch, padded, tiles);
    float* const c = p.c + rows.first * p.rs_c + (columns.first + j) * p.cs_c;
    const int64_t cols = std::min(micro.columns, columns.size - j);
    const std::byte* panel = a;
    for (int64_t i = 0; i < rows.size; i += step, panel += a_bytes) {
      if (!micro.walks) next.fetch_share();
      const TileOut out{
          .c = c + i * p.rs_c,
          .rs = p.rs_c,
          .cs = p.cs_c,
          .rows = std::min(step, rows.size - i),
          .cols = p.roomy.c && cols > 1 ? micro.columns : cols,  // one may be less work
          .alpha = p.alpha,
          .beta = k.first == 0 ? p.beta : 1,
          .next = next,
          .offset = offset ? offset + columns.first + j : nullptr};
      if (finished)
        micro.tile_low(padded, panel, b, out, p.finish.at(rows.first + i, columns.first + j));
      else
        micro.tile(padded, panel, b, out);
    }
  }
}

// Rows as a tile that reads them in place meets them: [k0, ...) of their numbers.
struct InPlaceRows {
  std::array<const void*, 16> at{};
  ScatteredRows rows{};
  int64_t k0 = 0;
};
// Where numbers of a row do not lie side by side, they were packed into panels: of a task, or of
// all of A.
void point_to_rows(const Micro& micro, const Problem<float>& p, Part rows, Part k, int64_t i,
                   const float* panel, InPlaceRows& out) {
  const PackedA& a = p.packed_a;
  const int64_t length = a.data ? a.k_all : k.size, first = a.data ? a.m0 + rows.first + i : i;
  const float* const panels = a.data ? a.data : panel;
  // Behind the last row it is repeated, but in a panel, which has zeros there.
  for (int64_t r = 0; r < micro.in_place.rows; ++r)
    out.at[static_cast<std::size_t>(r)] =
        panels ? panels + first / micro.rows * micro.rows * length + first % micro.rows + r
               : p.a + (rows.first + std::min(i + r, rows.size - 1)) * p.rs_a;
  out.k0 = a.data ? a.k0 + k.first : panel ? 0 : k.first;
  out.rows = {.length = out.k0 + k.size,
              .rows = out.at.data(),
              .pitch = 0,
              .step = panels ? micro.rows : 1};
}
// Rows with columns of a packed B by such tiles, a few rows after the other.
void multiply_in_place(const Micro& micro, const Problem<float>& p, Part rows, Part columns, Part k,
                       const std::byte* b, int64_t b_pitch, std::byte* panel) {
  const InPlace& tiles = micro.in_place;
  const bool packs = p.cs_a != 1 && !p.packed_a.data, complete = k.first + k.size == p.k;
  if (packs) pack_rows(micro, p, rows, k, panel);
  InPlaceRows a;
  CHECK(tiles.rows <= std::ssize(a.at) && micro.rows % tiles.rows == 0,
        "tiles do not divide a panel");
  const float* const offset = micro.offsets && complete ? p.finish.offset : nullptr;
  for (int64_t i = 0; i < rows.size; i += tiles.rows) {
    point_to_rows(micro, p, rows, k, i, packs ? reinterpret_cast<const float*>(panel) : nullptr, a);
    for (int64_t j = 0; j < columns.size; j += tiles.columns)
      tiles.tile(a.rows, a.k0, k.size, b + j / micro.columns * b_pitch, b_pitch,
                 {.c = p.c + (rows.first + i) * p.rs_c + (columns.first + j) * p.cs_c,
                  .rs = p.rs_c,
                  .cs = p.cs_c,
                  .rows = std::min(tiles.rows, rows.size - i),
                  .cols = std::min(tiles.columns, columns.size - j),
                  .alpha = p.alpha,
                  .beta = k.first == 0 ? p.beta : 1,
                  .offset = offset ? offset + columns.first + j : nullptr});
  }
}

// body(range) for [0, all) in steps.
template <class Body>
void in_steps(int64_t all, int64_t step, const Body& body) {
  for (int64_t at = 0; at < all; at += step) body(Part{at, std::min(step, all - at)});
}

// All rows with a block of k of a packed B, by a micro-kernel that orders tiles itself. Where
// columns of A lie side by side, its rows are packed first.
void multiply_whole(const Micro& micro, const Problem<Low>& p, Part k, const std::byte* b,
                    int64_t b_pitch, std::byte* panel) {
  const bool complete = k.first + k.size == p.k;
  LowProduct all{.m = p.m,
                 .n = p.n,
                 .k = k.size,
                 .a = p.a + k.first,
                 .row = p.rs_a,
                 .b = b,
                 .b_pitch = b_pitch,
                 .more = k.first > 0 || p.beta != 0,
                 .c = p.c,
                 .rs = p.rs_c,
                 .finish = complete ? p.finish : Finish{},
                 .room = panel};
  if (p.cs_a == 1) return micro.product(all);
  const int64_t padded = micro.padded(k.size);
  all.k = all.row = padded;
  all.a = reinterpret_cast<const Low*>(panel);
  all.room = panel + padded * micro.a_bytes;
  in_steps(p.m, micro.rows, [&](Part rows) {
    pack_rows(micro, p, rows, k, panel);
    all.m = rows.size;
    all.c = p.c + rows.first * p.rs_c;
    if (complete) all.finish = p.finish.at(rows.first, 0);
    micro.product(all);
  });
}

// `packed` holds a block of the operand that stays in the second-level cache and, behind it, panels
// of the other.
template <class T>
void run(const Micro& micro, const Problem<T>& p, std::byte* packed) {
  const MicroState state(micro);
  const int64_t k_step = micro.k_step(p.k), padded = micro.padded(k_step);
  const auto pitch = [&](Part k) { return micro.padded(k.size) * micro.b_bytes; };
  if (micro.a_block > 0) {
    const int64_t m_step = micro.rows * micro.a_panels(padded),
                  panels = std::min(m_step, p.m + micro.rows - 1) / micro.rows,
                  a_bytes = (panels * padded * micro.a_bytes + 63) / 64 * 64,
                  fit = (int64_t{gemm_scratch_bytes} - a_bytes) / (padded * int64_t{sizeof(T)});
    // Panels that are packed together read their lines whole.
    const int64_t n_step =
        p.cs_b == 1 && micro.pack_beside_b ? fit / panel_columns * panel_columns : panel_columns;
    std::byte* const b = packed + a_bytes;
    in_steps(p.k, k_step, [&](Part k) {
      in_steps(p.m, m_step, [&](Part rows) {
        pack_rows(micro, p, rows, k, packed);
        in_steps(p.n, n_step, [&](Part columns) {
          pack_columns(micro, p, columns, k, b);
          multiply(micro, p, rows, columns, k, packed, b, pitch(k));
        });
      });
    });
    return;
  }
  const int64_t fit = (int64_t{gemm_scratch_bytes} - padded * micro.a_bytes) /
                      (padded * int64_t{sizeof(T)}),
                n_step = std::min(most_n_block, fit / panel_columns * panel_columns);
  std::byte* const a = packed + padded * n_step * int64_t{sizeof(T)};
  in_steps(p.n, n_step, [&](Part columns) {
    in_steps(p.k, k_step, [&](Part k) {
      pack_columns(micro, p, columns, k, packed);
      in_steps(p.m, micro.rows, [&](Part rows) {
        if constexpr (std::is_same_v<T, float>)
          if (micro.in_place.tile)
            return multiply_in_place(micro, p, rows, columns, k, packed, pitch(k), a);
        pack_rows(micro, p, rows, k, a);
        multiply(micro, p, rows, columns, k, a, packed, pitch(k));
      });
    });
  });
}

// C = beta C, where there is nothing to multiply.
void only_scale(int64_t m, int64_t n, float beta, float* c, int64_t rs_c, int64_t cs_c) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      c[i * rs_c + j * cs_c] = beta == 0 ? 0 : beta * c[i * rs_c + j * cs_c];
}

}  // namespace

template <class T>
void gemm(int64_t m, int64_t n, int64_t k, float alpha, const T* a, int64_t rs_a, int64_t cs_a,
          const T* b, int64_t rs_b, int64_t cs_b, float beta, float* c, int64_t rs_c, int64_t cs_c,
          void* packed, Roomy roomy) {
  if (m <= 0 || n <= 0) return;
  if (k <= 0) return only_scale(m, n, beta, c, rs_c, cs_c);
  // Vectors run along the columns of C: where its rows are the contiguous ones, compute the
  // transpose.
  if (cs_c != 1 && rs_c == 1)
    run<T>(micro<T>(), {n, m, k, alpha, b, cs_b, rs_b, a, cs_a, rs_a, beta, c, cs_c, rs_c},
           bytes(packed));
  else
    run<T>(micro<T>(),
           {m, n, k, alpha, a, rs_a, cs_a, b, rs_b, cs_b, beta, c, rs_c, cs_c, {}, roomy},
           bytes(packed));
}

template <class T>
void gemm_packed(int64_t m, int64_t n, int64_t k, const T* a, int64_t rs_a, int64_t cs_a,
                 const PackedB<T>& b, float beta, float* c, int64_t rs_c, void* panel,
                 const Finish& finish, const PackedA& packed_a) {
  if (m <= 0 || n <= 0) return;
  if (k <= 0) return only_scale(m, n, beta, c, rs_c, 1);
  const Micro& kernel = micro<T>();
  const MicroState state(kernel);
  const Problem<T> p{m, n,    k, 1,    a, rs_a,   cs_a, nullptr, 0,
                     0, beta, c, rs_c, 1, finish, {},   packed_a};
  const int64_t k_step = kernel.k_step(k), k_all = padded_k<T>(b.k_all);
  // Rows that go together: those of a block, or as many as a panel has room for.
  const int64_t block = kernel.in_place.tile ? most_a_block : kernel.a_block,
                panels = block / (kernel.padded(k_step) * kernel.a_bytes),
                m_step = kernel.rows * std::max<int64_t>(1, panels),
                b_pitch = k_all * kernel.b_bytes;
  in_steps(k, k_step, [&](Part part) {
    const std::byte* const columns =
        bytes(b.data + b.n0 * k_all) + (b.k0 + part.first) * kernel.b_bytes;
    if constexpr (std::is_same_v<T, Low>)
      if (kernel.product) {
        CHECK(beta == 0 || beta == 1, "a packed product begins with zeros or with C");
        return multiply_whole(kernel, p, part, columns, b_pitch, bytes(panel));
      }
    in_steps(m, m_step, [&](Part rows) {
      if constexpr (std::is_same_v<T, float>)
        if (kernel.in_place.tile)
          return multiply_in_place(kernel, p, rows, {0, n}, part, columns, b_pitch, bytes(panel));
      pack_rows(kernel, p, rows, part, bytes(panel));
      multiply(kernel, p, rows, {0, n}, part, bytes(panel), columns, b_pitch);
    });
  });
}

#define TESSERA_GEMM_OF(T)                                                                      \
  template void gemm<T>(int64_t, int64_t, int64_t, float, const T*, int64_t, int64_t, const T*, \
                        int64_t, int64_t, float, float*, int64_t, int64_t, void*, Roomy);       \
  template void gemm_packed<T>(int64_t, int64_t, int64_t, const T*, int64_t, int64_t,           \
                               const PackedB<T>&, float, float*, int64_t, void*, const Finish&, \
                               const PackedA&);
TESSERA_GEMM_OF(float)
TESSERA_GEMM_OF(Low)
#undef TESSERA_GEMM_OF

}  // namespace tessera::exec::cpu
