// Position embeddings for another grid of patches: bicubic, corners aligned, as torchvision's interpolate_embeddings does.
// Convention: positions are [class position,] then the grid row by row, `dim` numbers each; the class position is kept as it is.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::models {

struct Grid {
  std::int64_t h = 0, w = 0;
  bool operator==(const Grid&) const = default;
};

std::vector<double> interpolate_positions(std::span<const double> positions, bool class_position, Grid from, Grid to, std::int64_t dim);

}  // namespace tessera::models
