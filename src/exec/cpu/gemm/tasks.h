// How a product whose rows are not packed (Micro::product, Micro::in_place) is cut into tasks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>

#include "base/index.h"
#include "exec/cpu/gemm/gemm.h"
#include "exec/cpu/gemm/micro.h"

namespace tessera::exec::cpu {

struct ProductTask {
  std::int64_t rows, columns;
};
// Sizes that tasks may have, measured on 16 cores that were not equally fast.
struct TaskSizes {
  std::span<const ProductTask> sides;  // in units, the best first
  std::int64_t rows, columns;          // of a unit; sides are whole ones, but for the last
  std::int64_t of_a_thread;            // tasks that are enough
  std::int64_t least;                  // multiply-adds of a task that is worth its beginning
  std::int64_t far;                    // units times k whose factors are in the second-level cache
};
inline const TaskSizes& task_sizes(const Micro& micro) {
  static constexpr ProductTask of_amx[] = {{8, 12}, {8, 8}, {4, 12}, {4, 8}, {2, 12},
                                           {2, 8},  {2, 6}, {2, 4},  {1, 8}, {1, 6},
                                           {1, 4},  {1, 3}, {1, 2},  {1, 1}},
                               of_vectors[] = {{8, 6}, {8, 4}, {22, 3}, {22, 2}, {8, 3},
                                               {8, 2}, {4, 3}, {4, 2},  {4, 1}};
  static constexpr TaskSizes amx{.sides = of_amx,
                                 .rows = low_rows,
                                 .columns = panel_columns,
                                 .of_a_thread = 6,
                                 .least = 1'500'000,
                                 .far = 24 * 768},
      vectors{.sides = of_vectors,
              .rows = scattered_rows,
              .columns = 2 * panel_columns,
              .of_a_thread = 12,
              .least = 2'000'000,
              .far = std::numeric_limits<std::int64_t>::max()};
  return micro.row_major ? amx : vectors;
}
// Whether a block of k of so many columns stays in the second-level cache, also where that has 1
// MB, while the rows of one task after the other pass by.
inline bool columns_stay(const Micro& micro, std::int64_t columns, std::int64_t k) {
  constexpr std::int64_t near = 150'000;
  return !micro.in_place.tile || columns <= micro.in_place.columns ||
         columns * micro.k_step(k) <= near;
}
// Cuts `products` products m x n x k. Each thread takes several tasks, since threads of a machine
// that others use too are not equally fast; and a task is so large that its beginning does not
// count, but no larger than its factors may be in the second-level cache.
template <class Fits>
ProductTask product_task(const TaskSizes& sizes, std::int64_t m, std::int64_t n, std::int64_t k,
                         std::int64_t products, int threads, const Fits& fits) {
  constexpr std::int64_t always_near = 12;
  // Equal parts of at most so many units.
  const auto part = [](std::int64_t all, std::int64_t most, std::int64_t unit) {
    return std::min(all, ceil_div(ceil_div(all, ceil_div(all, most * unit)), unit) * unit);
  };
  ProductTask out{std::min(m, sizes.rows), std::min(n, sizes.columns)};
  for (bool first = true; const auto& [down, across] : sizes.sides) {
    const ProductTask task{part(m, down, sizes.rows), part(n, across, sizes.columns)};
    const std::int64_t units =
                           ceil_div(task.rows, sizes.rows) * ceil_div(task.columns, sizes.columns),
                       work = units * sizes.rows * sizes.columns * k;
    if ((units > always_near && k > sizes.far / units) || !fits(task)) continue;
    if (!first && work < sizes.least) break;
    first = false;
    out = task;
    if (products * ceil_div(m, task.rows) * ceil_div(n, task.columns) >=
        sizes.of_a_thread * threads)
      break;
  }
  return out;
}

}  // namespace tessera::exec::cpu
