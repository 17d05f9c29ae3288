#include "models/interpolate.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"

namespace tessera::models {
namespace {

// The four source positions of one target position, and their weights.
struct Taps {
  std::array<std::int64_t, 4> at;
  std::array<double, 4> weight;
};

// Keys' cubic convolution (1981) with a = -0.75, PyTorch's choice; positions beyond the border
// repeat the border.
Taps taps(std::int64_t target, std::int64_t from, std::int64_t to, bool align_corners) {
  const double a = -0.75, at = static_cast<double>(target);
  const double x = !align_corners
                       ? (at + 0.5) * (static_cast<double>(from) / static_cast<double>(to)) - 0.5
                   : to > 1 ? at * (static_cast<double>(from - 1) / static_cast<double>(to - 1))
                            : 0.0;
  const std::int64_t base = std::min(static_cast<std::int64_t>(std::floor(x)), from - 1);
  const double t = x - static_cast<double>(base);
  const auto near = [&](double d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };  // d <= 1
  const auto far = [&](double d) {
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
  };  // 1 < d <= 2
  Taps out;
  for (std::int64_t k = 0; k < 4; ++k)
    out.at[static_cast<std::size_t>(k)] = std::clamp<std::int64_t>(base - 1 + k, 0, from - 1);
  out.weight = {far(t + 1), near(t), near(1 - t), far(2 - t)};
  return out;
}

// Adds the grid, resized, to zeros at `out`.
void interpolate(const double* in, Grid from, double* out, Grid to, std::int64_t dim,
                 bool align_corners) {
  for (std::int64_t y = 0; y < to.h; ++y) {
    const Taps rows = taps(y, from.h, to.h, align_corners);
    for (std::int64_t x = 0; x < to.w; ++x) {
      const Taps columns = taps(x, from.w, to.w, align_corners);
      double* target = out + (y * to.w + x) * dim;
      for (std::size_t i = 0; i < 4; ++i)
        for (std::size_t j = 0; j < 4; ++j) {
          const double weight = rows.weight[i] * columns.weight[j];
          const double* source = in + (rows.at[i] * from.w + columns.at[j]) * dim;
          for (std::int64_t d = 0; d < dim; ++d) target[d] += weight * source[d];
        }
    }
  }
}

}  // namespace

std::vector<double> interpolate_positions(std::span<const double> positions, bool class_position,
                                          Grid from, Grid to, std::int64_t dim) {
  const std::int64_t first = class_position ? dim : 0;
  CHECK(from.h > 0 && from.w > 0 && to.h > 0 && to.w > 0 && dim > 0,
        "a grid of positions is not empty");
  CHECK(static_cast<std::int64_t>(positions.size()) == first + from.h * from.w * dim,
        "the positions fill their grid");
  std::vector<double> out(static_cast<std::size_t>(first + to.h * to.w * dim), 0.0);
  std::copy_n(positions.begin(), first, out.begin());
  interpolate(positions.data() + first, from, out.data() + first, to, dim, true);
  return out;
}

std::vector<double> interpolate_table(std::span<const double> table, Grid from, Grid to,
                                      std::int64_t heads) {
  CHECK(from.h > 0 && from.w > 0 && to.h > 0 && to.w > 0 && heads > 0, "a window is not empty");
  const Grid in{2 * from.h - 1, 2 * from.w - 1}, out{2 * to.h - 1, 2 * to.w - 1};
  CHECK(static_cast<std::int64_t>(table.size()) == in.h * in.w * heads,
        "the table has a row for every offset");
  std::vector<double> resized(static_cast<std::size_t>(out.h * out.w * heads), 0.0);
  interpolate(table.data(), in, resized.data(), out, heads, false);
  return resized;
}

}  // namespace tessera::models
