// Parts that the kernels of contract share: the tiles of a call, and the finish of a tile whose
// sums are complete.
#pragma once

#include <span>
#include <vector>

#include "base/index.h"
#include "exec/cpu/contract.h"
#include "exec/cpu/gemm/gemm.h"
#include "exec/cpu/low.h"

namespace tessera::exec::cpu {

// One call: tensors beside what signature and shapes say.
struct ContractJob {
  const Lowering& lowering;
  Tensor a, b;
  Tensor z;  // the value before act
  Tensor y;  // act(z); may be z's storage; absent: nobody reads it, or there is no act
  bool tanh;
  std::span<const Tensor> addends;
  const std::byte* packed = nullptr;   // B as pack_contract() wrote it; null: as it is
  const float* packed_rows = nullptr;  // A as gemm_pack_a() wrote it; null: as it is
  std::int64_t k_tasks = 1;            // tasks that the chunks of k are cut into
  bool bias_added = false;             // by tiles: addend 0 is done when a tile is finished

  // Whether tiles whose sums are complete lack nothing.
  bool finished() const { return direct() && addends.size() == (bias_added ? 1u : 0u) && !y; }
  bool direct() const { return !is_bf16(z ? z : y); }  // sums are made where they stay
};
inline constexpr std::int64_t most_columns = 768;  // of a tile

// Offsets of step `index` of nested runs, the last the fastest.
struct Offsets {
  std::int64_t a = 0, b = 0, c = 0;
};
Offsets offsets(const std::vector<Run>& runs, std::int64_t index);
// The same in a further operand, whose letters need not be contiguous along the run.
std::int64_t addend_offset(const Run& run, std::int64_t index, const Strides& strides,
                           const Strides& extents);
// The distance between the columns of operand i after the factors, and where a step of the outer
// loops begins in it.
std::int64_t addend_stride(const Lowering& l, std::size_t i);
bool depends_on_row(const Lowering& l, std::size_t i);
std::int64_t outer_addend_offset(const Lowering& l, std::size_t i, std::int64_t outer);

// The packed matrices of B: as many k x n as the loops around the product meet.
struct PackedMatrices {
  std::int64_t k = 0, n = 0, count = 1;  // count: without those of outer_k

  explicit PackedMatrices(const Lowering& l) : k(l.k.extent), n(l.n.extent) {
    for (const Run& run : l.outer)
      if (run.b != 0) count *= run.extent;
  }
  template <class T>
  std::int64_t elements() const {  // of one
    return packed_b_elements<T>(k, n);
  }
  template <class T>
  std::int64_t bytes(const Lowering& l) const {
    return static_cast<std::int64_t>(sizeof(T)) * elements<T>() * count * l.outer_k_steps();
  }
  // The first matrix of a step of the outer loops; one of each step of outer_k follow each other.
  static std::int64_t index(const Lowering& l, std::int64_t outer) {
    std::int64_t at = 0, stride = 1;
    for (std::size_t i = l.outer.size(); i-- > 0; outer /= l.outer[i].extent)
      if (l.outer[i].b != 0) {
        at += outer % l.outer[i].extent * stride;
        stride *= l.outer[i].extent;
      }
    return at * l.outer_k_steps();
  }
};
// B can be packed where the columns of C are contiguous: else the product is the transposed one.
inline bool can_pack(const Lowering& l) { return !l.products && l.n.c == 1 && l.c_elements() > 0; }

// contract_pack.cpp: factors that a call packs once for all of its tasks. B, unless that takes too
// much memory:
bool packs_first(const Lowering& l);
std::int64_t packed_bytes(const Lowering& l);
void pack_either(const Call& call, const Lowering& l, const Tensor& b, std::byte* to);
// And A with it, in f32, where tiles would read its rows in place but these do not lie so
// (gradients of weights): else each task of a row of tasks would pack it again. Such
// room is reserved where tiles read so, on x86-64.
bool packs_rows_first(const Lowering& l);
const float* pack_rows_first(const Call& call, const Lowering& l, const Tensor& a, std::byte* to);

struct Tile {
  std::int64_t outer, m, n, rows, cols;  // step of the outer loops, first row and column, size
};
Tile tile_of(const Lowering& lowering, std::int64_t index, TileSize size);
// Some rows of a tile: a task's. Those of the same rows of C follow each other.
struct Strip {
  std::int64_t index, first;  // of its tile, and the row in it
  Tile tile;                  // without rows: behind the last one
};
Strip strip_of(const Lowering& lowering, std::int64_t task, std::int64_t rows, TileSize size);
inline Strip strip_of(const Lowering& l, std::int64_t task, std::int64_t rows) {
  return strip_of(l, task, rows, {l.m_tile, l.n_tile});
}
// All rows of a tile; by rows, few enough for every thread to have some.
std::int64_t rows_of_task(const Lowering& lowering, const Call& call);
// Where a tile begins in C.
inline std::int64_t c_offset(const Lowering& l, const Tile& tile) {
  return offsets(l.outer, tile.outer).c + tile.m * l.m.c + tile.n * l.n.c;
}

// z += addend along a row.
void add_to_row(const float* addend, std::int64_t stride, float* z, std::int64_t z_stride,
                std::int64_t n);
// Addends and act over a tile of C whose sums, complete, lie at `sums`; results at c_at.
void finish_tile(const ContractJob& job, const Tile& tile, std::int64_t c_at, float* sums,
                 std::int64_t rs, std::int64_t cs);

// Columns of the tile in which a thread makes sums that do not stay as they are.
inline std::int64_t sums_pitch(const Lowering& l) {
  return ceil_div(l.n_tile, panel_columns) * panel_columns;
}

// Tiles of a product with all of k, cut for this many threads: as even as they can be, and so wide
// that its rows are packed once or twice. Bits do not depend on them. Where k is multiplied in
// several steps and sums do not lie in C, they have no more sums than the tiles of the lowering.
TileSize even_tiles(const Lowering& lowering, const Micro& micro, int threads, bool in_c);

// The same where rows are not packed (gemm/tasks.h).
TileSize small_tiles(const Lowering& lowering, const Micro& micro, int threads, bool in_c);
// The tile that is taken `task`-th where those of the same columns follow each other, which then
// stay in a thread's cache.
std::int64_t rows_first(const Lowering& lowering, std::int64_t task, TileSize size);

// How the call is cut; kept by its step.
Lowering lowering_for(const ir::Attrs& attrs, std::span<const ir::Type> in);
const Lowering& lowering_of(const Call& call);

// contract_i8.cpp: factors of i8. Those that no matrix product serves go to the reference.
plan::PackedForm packed_contract_i8(const ir::Attrs& attrs, std::span<const ir::Type> in,
                                    int operand);
void pack_contract_i8(const Call& call);
void contract_i8(const Call& call);
Scratch scratch_contract_i8(const ir::Attrs& attrs, std::span<const ir::Type> in);

}  // namespace tessera::exec::cpu
