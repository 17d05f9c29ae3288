// How a contraction is cut into tiles that threads take.
#include <algorithm>
#include <array>

#include "base/index.h"
#include "exec/cpu/contract_parts.h"
#include "exec/cpu/gemm/gemm.h"
#include "exec/cpu/gemm/tasks.h"

namespace tessera::exec::cpu {

namespace {

using std::int64_t;

// Even parts of at most `most`, rounded up to whole register tiles.
int64_t even_tile(int64_t extent, int64_t most, int64_t multiple) {
  return std::min(extent, ceil_div(ceil_div(extent, ceil_div(extent, most)), multiple) * multiple);
}

// Whether a product of bf16 has tasks enough for 16 threads with k whole: where rows are read as
// they lie, tasks may be small (small_tiles). Chunks of k would be one large task for each thread,
// which then wait for the slowest core.
bool small_tasks_suffice(const Lowering& l) {
  constexpr int threads = 16, of_a_thread = 3;
  if (!l.low || micro_low().packs_rows() || l.k.a != 1) return false;
  const ProductTask task =
      product_task(task_sizes(micro_low()), l.m.extent, l.n.extent, l.k.extent * l.outer_k_steps(),
                   l.outer_steps(), threads, [](ProductTask) { return true; });
  return l.outer_steps() * ceil_div(l.m.extent, task.rows) * ceil_div(l.n.extent, task.columns) >=
         of_a_thread * threads;
}

// Large tiles amortise packing (each side costs roughly as much as 4 rows of arithmetic, of bf16 as
// much as 16); many tiles keep threads busy. The score weighs the loss to packing against the idle
// share of 2 and of 16 threads.
void choose_tiles(Lowering& lowering, bool whole_k) {
  constexpr int64_t fewest_tasks = 16, shortest_chunk = 256;
  const int64_t rows = lowering.low ? low_rows : scattered_rows;
  const double side = lowering.low ? 16 : 4;
  const int64_t m = lowering.m.extent, n = lowering.n.extent, k = lowering.k.extent,
                outer = lowering.outer_steps();
  const auto busy = [](int64_t tasks, int64_t threads) {
    return static_cast<double>(tasks) / static_cast<double>(ceil_div(tasks, threads) * threads);
  };
  double best = 0;
  for (int64_t most_m : lowering.low ? std::array<int64_t, 6>{8, 6, 4, 3, 2, 1}
                                     : std::array<int64_t, 6>{22, 16, 11, 8, 6, 4}) {
    most_m *= rows;
    for (int64_t most_n : {384, 192, 96}) {
      const int64_t m_tile = even_tile(m, most_m, rows), n_tile = even_tile(n, most_n, 32);
      const int64_t tiles = outer * ceil_div(m, m_tile) * ceil_div(n, n_tile);
      int64_t chunks = lowering.n.c == 1 && !whole_k
                           ? std::clamp<int64_t>(std::min(fewest_tasks / tiles, k / shortest_chunk),
                                                 1, fewest_tasks)
                           : 1;
      const double packing = 1 + side / static_cast<double>(m_tile) +
                             side / static_cast<double>(n_tile) +
                             (chunks > 1 ? 10.0 / static_cast<double>(k / chunks) : 0);
      const double score = (busy(tiles * chunks, 2) + busy(tiles * chunks, fewest_tasks)) / packing;
      if (score <= best) continue;
      best = score;
      lowering.m_tile = m_tile;
      lowering.n_tile = n_tile;
      lowering.k_chunks = chunks;
    }
  }
}

}  // namespace

TileSize larger_tiles(const Lowering& l, int threads) {
  constexpr int64_t fewest_of_a_thread = 8, most_rows = 264, most_n = 384;
  TileSize size{l.m_tile, l.n_tile};
  if (l.products || l.k_chunks > 1) return size;
  const auto enough = [&](TileSize s) {
    return l.outer_steps() * ceil_div(l.m.extent, s.m) * ceil_div(l.n.extent, s.n) >=
           fewest_of_a_thread * threads;
  };
  while (size.n < l.n.extent && 2 * size.n <= most_n && enough({size.m, 2 * size.n})) size.n *= 2;
  while (size.m < l.m.extent && 2 * size.m <= most_rows && enough({2 * size.m, size.n}))
    size.m *= 2;
  return size;
}

TileSize even_tiles(const Lowering& l, const Micro& micro, int threads, bool in_c) {
  constexpr int64_t tries = 6;
  const int64_t m = l.m.extent, n = l.n.extent, k = l.k.extent, rows = micro.rows,
                room = l.m_tile * sums_pitch(l), block = micro.k_step(std::min(k, l.chunk())),
                most_rows = rows * std::min(264 / rows, micro.a_panels(block));
  // Sums of steps lie in `room`, if not in C.
  const bool in_steps = !in_c && (k > block || l.outer_k_steps() > 1);
  // In numbers of k that a register tile multiplies (Neoverse V1): its end takes as long as 32 of
  // bf16 or 8 of f32, a row's number is packed as fast as 0.1 are multiplied, and a task begins in
  // the time of 2,000 or 500.
  const double end = l.low ? 32 : 8, begin = l.low ? 2000 : 500;
  const auto cost = [&](TileSize s) {
    const auto panels = static_cast<double>(ceil_div(s.m, rows)),
               columns = static_cast<double>(ceil_div(s.n, micro.columns));
    const auto long_k = static_cast<double>(k);
    return panels * (columns * (long_k + end) + 0.1 * static_cast<double>(rows) * long_k) + begin;
  };
  TileSize best{l.m_tile, l.n_tile};
  double least = 0;
  const int64_t m_parts = ceil_div(m, most_rows), n_parts = ceil_div(n, most_columns);
  for (int64_t i = m_parts; i < m_parts + tries; ++i)
    for (int64_t j = n_parts; j < n_parts + tries; ++j) {
      const TileSize s{std::min(m, ceil_div(ceil_div(m, i), rows) * rows),
                       std::min(n, ceil_div(ceil_div(n, j), panel_columns) * panel_columns)};
      if (in_steps && s.m * ceil_div(s.n, panel_columns) * panel_columns > room) continue;
      const int64_t tasks = l.outer_steps() * ceil_div(m, s.m) * ceil_div(n, s.n);
      const double time = static_cast<double>(ceil_div(tasks, threads)) * cost(s);
      if (least > 0 && time >= least) continue;
      least = time;
      best = s;
    }
  return best;
}

TileSize small_tiles(const Lowering& l, const Micro& micro, int threads, bool in_c) {
  const int64_t block = micro.k_step(std::min(l.k.extent, l.chunk())),
                room = l.m_tile * sums_pitch(l);
  const bool in_steps = !in_c && (l.k.extent > block || l.outer_k_steps() > 1);
  const auto fits = [&](ProductTask t) {
    const int64_t columns = ceil_div(t.columns, panel_columns) * panel_columns;
    return columns_stay(micro, columns, l.k.extent) && (!in_steps || t.rows * columns <= room);
  };
  const ProductTask task =
      product_task(task_sizes(micro), l.m.extent, l.n.extent, l.k.extent * l.outer_k_steps(),
                   l.outer_steps(), threads, fits);
  return {task.rows, task.columns};
}
int64_t rows_first(const Lowering& l, int64_t task, TileSize size) {
  const int64_t down = ceil_div(l.m.extent, size.m), across = ceil_div(l.n.extent, size.n),
                outer = task / (down * across), index = task % (down * across);
  return (outer * down + index % down) * across + index / down;
}

Lowering lower_contract(std::string_view sig, std::span<const ir::Shape> in, bool low,
                        bool whole_k) {
  Lowering out{analyse_contraction(sig, in)};
  out.low = low;
  if (out.products)
    out.n_tile = 16;
  else if (out.c_elements() > 0)
    choose_tiles(out, whole_k || small_tasks_suffice(out));
  return out;
}

}  // namespace tessera::exec::cpu
