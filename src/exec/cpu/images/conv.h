// Parts that the kernels of a convolution share.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/index.h"
#include "exec/cpu/gemm/gemm.h"
#include "exec/cpu/gemm/tasks.h"
#include "exec/cpu/kernel.h"

namespace tessera::exec::cpu {

// The share of threads at work while so many equal tasks are done.
inline double busy_share(std::int64_t tasks, std::int64_t threads) {
  return static_cast<double>(tasks) / static_cast<double>(ceil_div(tasks, threads) * threads);
}

// Tiles of pixels and channels. A small side pays for reading the other operand more often, few
// tiles leave threads idle: the score weighs both, for 2 and for 16 threads.
struct Tiles {
  static constexpr std::int64_t most_rows = 264, most_columns = 256;
  std::int64_t m = scattered_rows, n = scattered_columns;

  Tiles(std::int64_t pixels, std::int64_t channels, bool low) {
    const std::int64_t step = low ? low_rows : scattered_rows;
    double best = 0;
    for (std::int64_t columns = std::min(most_columns, packed_columns(channels)); columns > 0;
         columns -= scattered_columns)
      for (std::int64_t rows = most_rows / step * step; rows > 0; rows -= step) {
        const std::int64_t tasks = ceil_div(pixels, rows) * ceil_div(channels, columns);
        const double overhead =
                         1 + 8.0 / static_cast<double>(columns) + 8.0 / static_cast<double>(rows),
                     used = static_cast<double>(pixels * channels) /
                            static_cast<double>(tasks * rows * columns);
        const double score = used * (busy_share(tasks, 2) + busy_share(tasks, 16)) / overhead;
        if (score > best) {
          best = score;
          m = rows;
          n = columns;
        }
      }
  }
  // Tiles whose rows are not packed.
  static Tiles small(std::int64_t pixels, std::int64_t channels, std::int64_t k, int threads,
                     const Micro& micro) {
    const TaskSizes& sizes = task_sizes(micro);
    const auto fits = [&](ProductTask t) {
      return t.rows <= most_rows && t.columns <= most_columns && columns_stay(micro, t.columns, k);
    };
    const ProductTask task = product_task(sizes, pixels, channels, k, 1, threads, fits);
    Tiles out;
    out.m = ceil_div(task.rows, sizes.rows) * sizes.rows;
    out.n = packed_columns(task.columns);
    return out;
  }

 private:
  Tiles() = default;
};

// Images whose pixels are read under taps.
template <class T>
struct Gather {
  const T* data;
  std::int64_t h, w, c;
};
struct Tap {
  std::int64_t row, col;  // relative to a pixel of the source
};

// A call that may go either of two ways needs room for both.
inline Scratch larger(const Scratch& one, const Scratch& other) {
  return {.shared = std::max(one.shared, other.shared),
          .per_thread = std::max(one.per_thread, other.per_thread)};
}

// The gradient of filters in bf16 from turned images (conv_filter_grad_turned.cpp), by the shapes
// of the result's gradient, the images and the filters: whether it can be had so, and whether that
// is faster. `direct`: sums stay where they are.
bool turned_filters_serve(const ir::Conv& attr, const ir::Shape& g, const ir::Shape& x,
                          const ir::Shape& f);
bool turned_filters_pay(const ir::Conv& attr, const ir::Shape& g, const ir::Shape& x,
                        const ir::Shape& f);
Scratch scratch_filter_grad_turned(const ir::Conv& attr, const ir::Shape& g, const ir::Shape& x,
                                   const ir::Shape& f, bool direct);
void filter_grad_turned(const Call& call);

// The same from images of few channels (conv_filter_grad_narrow.cpp), where the micro-kernel has a
// product of its own.
bool narrow_filters_serve(const ir::Conv& attr, const ir::Shape& g, const ir::Shape& x,
                          const ir::Shape& f);
Scratch scratch_filter_grad_narrow(const ir::Conv& attr, const ir::Shape& g, const ir::Shape& x,
                                   const ir::Shape& f);
void filter_grad_narrow(const Call& call);

// The same in f32 from images of few channels (conv_filter_grad_lines.cpp), where the micro-kernel
// reads rows where they lie.
bool filter_lines_serve(const ir::Conv& attr, const ir::Shape& g, const ir::Shape& x,
                        const ir::Shape& f);
Scratch scratch_filter_grad_lines(const ir::Conv& attr, const ir::Shape& g, const ir::Shape& x,
                                  const ir::Shape& f);
void filter_grad_lines(const Call& call);

// conv where images and filters are i8 (conv_i8.cpp), by the shape of the filters.
plan::PackedForm packed_conv_i8(const ir::Shape& filters);
void pack_conv_i8(const Call& call);
void conv_i8(const Call& call);
Scratch scratch_conv_i8(const ir::Shape& filters);

}  // namespace tessera::exec::cpu
