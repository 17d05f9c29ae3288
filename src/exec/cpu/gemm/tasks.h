// How a product by a micro-kernel that orders its tiles itself (Micro::product) is cut into tasks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/index.h"
#include "exec/cpu/gemm/micro.h"

namespace tessera::exec::cpu {

struct ProductTask {
  std::int64_t rows, columns;
};
// Cuts `products` products m x n x k. Each thread takes several tasks, since threads of a machine
// that others use too are not equally fast; and a task is so large that its beginning does not
// count, but no larger than its factors may be in the second-level cache (measured with AMX).
template <class Fits>
ProductTask product_task(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t products,
                         int threads, const Fits& fits) {
  constexpr std::int64_t tasks_of_a_thread = 6, least = 1'500'000, far = 24 * 768, always_near = 12;
  constexpr ProductTask panels[] = {{8, 12}, {8, 8}, {4, 12}, {4, 8}, {2, 12}, {2, 8}, {2, 6},
                                    {2, 4},  {1, 8}, {1, 6},  {1, 4}, {1, 3},  {1, 2}, {1, 1}};
  // Equal parts of at most so many panels.
  const auto part = [](std::int64_t all, std::int64_t most, std::int64_t panel) {
    return std::min(all, ceil_div(ceil_div(all, ceil_div(all, most * panel)), panel) * panel);
  };
  ProductTask out{std::min(m, low_rows), std::min(n, panel_columns)};
  for (bool first = true; const auto& [down, across] : panels) {
    const ProductTask task{part(m, down, low_rows), part(n, across, panel_columns)};
    const std::int64_t tiles =
                           ceil_div(task.rows, low_rows) * ceil_div(task.columns, panel_columns),
                       work = tiles * low_rows * panel_columns * k;
    if ((tiles * k > far && tiles > always_near) || !fits(task)) continue;
    if (!first && work < least) break;
    first = false;
    out = task;
    if (products * ceil_div(m, task.rows) * ceil_div(n, task.columns) >=
        tasks_of_a_thread * threads)
      break;
  }
  return out;
}

}  // namespace tessera::exec::cpu
