// contract on the CPU: the loops of a contraction, cut into tiles that threads take.
// Convention: everything in Lowering is a function of signature and shapes; neither threads nor
// addresses have a say.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "exec/common/contraction.h"
#include "exec/cpu/kernel.h"

namespace tessera::exec::cpu {

struct Lowering : Contraction {
  std::int64_t m_tile = 1, n_tile = 1;  // tile of C in one task
  // Chunks of k, each a task: the first writes C, the others partial sums that are added in order.
  // One task takes all of them in turn where that has the same bits (takes_in_turn).
  std::int64_t k_chunks = 1;

  bool low = false;  // factors are bf16 or i8

  std::int64_t m_tiles() const { return (m.extent + m_tile - 1) / m_tile; }
  std::int64_t n_tiles() const { return (n.extent + n_tile - 1) / n_tile; }
  std::int64_t strips(std::int64_t rows) const { return (m_tile + rows - 1) / rows; }  // of a tile
  std::int64_t tiles() const { return outer_steps() * m_tiles() * n_tiles(); }
  // Numbers of k in a chunk; bf16 is packed in whole groups.
  std::int64_t chunk() const {
    const std::int64_t even = (k.extent + k_chunks - 1) / k_chunks;
    return low ? (even + 31) / 32 * 32 : even;
  }
};
// Rows and columns of a task.
struct TileSize {
  std::int64_t m = 1, n = 1;
};
// Larger tiles of a contraction whose tasks have all of k and sum where C lies, as far as they keep
// this many threads busy. Bits do not depend on it: an element of C is summed alike in any tile.
TileSize larger_tiles(const Lowering& lowering, int threads);

// Shapes of x, w and the addends in the order of the signature. `whole_k`: one task sums all of k.
Lowering lower_contract(std::string_view sig, std::span<const ir::Shape> in, bool low = false,
                        bool whole_k = false);

}  // namespace tessera::exec::cpu
