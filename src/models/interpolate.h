// Parameters that lie on a grid, for another grid: bicubic, as PyTorch's interpolate does.
// Convention: a grid is stored row by row, `dim` numbers each.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::models {

struct Grid {
  std::int64_t h = 0, w = 0;
  bool operator==(const Grid&) const = default;
};

// [class position,] then the grid of patches; corners aligned, as torchvision's
// interpolate_embeddings does. The class position is kept.
std::vector<double> interpolate_positions(std::span<const double> positions, bool class_position,
                                          Grid from, Grid to, std::int64_t dim);
// Biases by relative position for another window: from and to are windows, their grids have 2 h - 1
// rows and 2 w - 1 columns of offsets; corners not aligned, as the authors of Swin and timm do.
std::vector<double> interpolate_table(std::span<const double> table, Grid from, Grid to,
                                      std::int64_t heads);

}  // namespace tessera::models
