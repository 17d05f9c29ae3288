// Parts that the kernels of batch norm share: how they cut a batch into blocks of rows, how the
// sums of blocks are added up, and what stands beside a norm in one pass.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "base/index.h"
#include "exec/cpu/kernel.h"
#include "exec/cpu/low.h"
#include "exec/cpu/simd/vector.h"

namespace tessera::exec::cpu {

// The rows of every group in blocks of about 64 KiB.
struct Blocks {
  std::int64_t channels, rows, per_sample, groups, samples;
  std::int64_t block;  // rows of one
  static constexpr std::int64_t run = 32;

  Blocks(const ir::Shape& x, std::int64_t groups_)
      : channels(x.back()),
        rows(channels == 0 ? 0 : ir::elements(x) / channels),
        per_sample(x[0] == 0 ? 0 : rows / x[0]),
        groups(groups_),
        samples(x[0]),
        block(std::max<std::int64_t>(1, chunk / std::max<std::int64_t>(1, channels) / run) * run) {}
  std::int64_t begin_of(std::int64_t group) const {
    return ir::split(samples, static_cast<int>(groups), static_cast<int>(group)).begin * per_sample;
  }
  std::int64_t rows_of(std::int64_t group) const {
    return ir::split(samples, static_cast<int>(groups), static_cast<int>(group)).size * per_sample;
  }
  // How many blocks a group has at most: the first group is the largest.
  std::int64_t most() const { return (rows_of(0) + block - 1) / block; }
  std::int64_t runs() const { return block / run; }  // of a block: rows whose sums are f32
  std::int64_t sums() const { return groups * channels; }

  // body(group, number in the group, first row, rows, thread)
  template <class Body>
  void for_each(ThreadPool& pool, const Body& body) const {
    pool.parallel_for(groups * most(), [&](std::int64_t task, int thread) {
      const std::int64_t group = task / most(), at = task % most() * block;
      if (const std::int64_t size = std::min(block, rows_of(group) - at); size > 0)
        body(group, task % most(), begin_of(group) + at, size, thread);
    });
  }
  // The same for every run of rows: body(group, number of the run in the group, first row, rows,
  // thread).
  template <class Body>
  void for_each_run(ThreadPool& pool, const Body& body) const {
    for_each(pool, [&](std::int64_t group, std::int64_t number, std::int64_t row, std::int64_t rows,
                       int thread) {
      for (std::int64_t r = 0; r < rows; r += run)
        body(group, number * runs() + r / run, row + r, std::min(run, rows - r), thread);
    });
  }
  // Where the sums of a run go.
  float* sums_of(float* partials, std::int64_t group, std::int64_t run_number) const {
    return partials + (group * most() * runs() + run_number) * 2 * channels;
  }
};

// Room of a thread for a run of rows of several tensors, where some of them are bf16.
inline Scratch with_room(Scratch scratch, std::span<const ir::Type> in,
                         std::span<const ir::Type> out, std::int64_t tensors) {
  if (any_bf16(in, out))
    scratch.per_thread =
        sizeof(float) * static_cast<std::size_t>(tensors * Blocks::run * in[0].shape.back());
  return scratch;
}
// A run of rows of several tensors for one kernel: where they lie if all of them are bf16, or all
// f32; in a mixture those of bf16 are widened into the room of the thread, and rounded from there.
class RunOf {
 public:
  RunOf(const Call& call, const Blocks& blocks, bool all_low, std::int64_t row, std::int64_t rows,
        int thread)
      : all_low_(all_low),
        room_(call.scratch_of<float>(thread)),
        at_(row * blocks.channels),
        size_(rows * blocks.channels),
        step_(Blocks::run * blocks.channels) {}
  Numbers read(const Tensor& x) {
    Numbers out(x, at_);
    if (!passes(x)) return out;
    out = Numbers(take());
    widen_bf16(x.as<Low>() + at_, out.at<float>(0), size_);
    return out;
  }
  Numbers write(const Tensor& y) { return passes(y) ? Numbers(take()) : Numbers(y, at_); }
  void done(const Tensor& y, const Numbers& values) const {
    if (passes(y)) round_to_bf16(values.at<float>(0), y.as<Low>() + at_, size_);
  }

 private:
  bool passes(const Tensor& t) const { return t && is_bf16(t) && !all_low_; }
  float* take() { return std::exchange(room_, room_ + step_); }
  bool all_low_;
  float* room_;
  std::int64_t at_, size_, step_;
};

// The addend of a norm: nothing, values, or with a mean the norm of these values.
struct Added {
  Numbers values{};
  const float *mean = nullptr, *scale = nullptr, *bias = nullptr;
};
// y = (x - mean) scale + bias (+ what is added), then relu where it is asked for. Numbers of a pass
// over rows are all of one type.
struct NormPass {
  Numbers x, y;
  const float *mean, *scale, *bias;
  Added added;
  bool relu;
  std::int64_t rows, c;
};

// The ReLU behind a norm is open where (x - mean) scale + bias > 0. Null: there is none.
struct Behind {
  const float *scale = nullptr, *bias = nullptr;
};
// Sums of dy, and of dy (x - mean).
struct GradSums {
  Numbers dy, x;
  const float* mean;
  Behind relu;
  float *sum, *product;
  std::int64_t rows, c;
};
// dx = scale (dy - k1 - (x - mean) k2)
struct GradPass {
  Numbers dy, x, dx;
  const float *mean, *scale, *k1, *k2;
  Behind relu;
  std::int64_t rows, c;
};
// dz = g (+ h) where y > 0; sums of dz, and of dz (x - mean). dz may lie over g or h, or be absent.
struct ReluSums {
  Numbers y, g, h, x, dz;
  const float* mean;
  float *sum, *product;
  std::int64_t rows, c;
};

inline double count_of(const ir::BatchNorm& attr, std::int64_t group) {
  return static_cast<double>(
      ir::split(attr.samples, static_cast<int>(attr.groups), static_cast<int>(group)).size *
      attr.pixels);
}

// Two sums of every group and channel from those of its runs, in order; the second one times
// factor(i). A task adds up one of them for the channels of a cache line.
template <class Factor>
void add_runs(ThreadPool& pool, const Blocks& blocks, float* partials, const Tensor& first,
              const Tensor& second, const Factor& factor) {
  constexpr std::int64_t strip = 16, ahead = 16;
  const std::int64_t strips = ceil_div(blocks.channels, strip);
  pool.parallel_for(2 * blocks.groups * strips, [&](std::int64_t task, int) {
    const bool of_first = task % 2 == 0;
    const Tensor& to = of_first ? first : second;
    if (!to) return;
    const std::int64_t group = task / 2 / strips, c = task / 2 % strips * strip,
                       n = std::min(strip, blocks.channels - c),
                       runs = ceil_div(blocks.rows_of(group), Blocks::run);
    const float* at = blocks.sums_of(partials, group, 0) + c + (of_first ? 0 : blocks.channels);
    std::array<double, strip> sum{};
    for (std::int64_t k = 0; k < runs; ++k, at += 2 * blocks.channels) {
      // No processor sees by itself that lines so far apart come next.
      __builtin_prefetch(at + ahead * 2 * blocks.channels);
      if (n == strip)  // a loop of known length is vectors
        for (std::size_t i = 0; i < strip; ++i) sum[i] += static_cast<double>(at[i]);
      else
        for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i)
          sum[i] += static_cast<double>(at[i]);
    }
    const std::int64_t into = group * blocks.channels + c;
    for (std::int64_t i = 0; i < n; ++i) {
      const double whole = sum[static_cast<std::size_t>(i)];
      to.as<float>()[into + i] = static_cast<float>(of_first ? whole : whole * factor(into + i));
    }
  });
}
inline Scratch partials_of(const ir::Shape& x, std::int64_t groups) {
  const Blocks blocks(x, groups);
  return {.shared = sizeof(float) * static_cast<std::size_t>(2 * blocks.groups * blocks.most() *
                                                             blocks.runs() * blocks.channels),
          .per_thread = 0};
}
inline Scratch coefficients_of(const ir::Shape& x, std::int64_t groups, std::int64_t arrays) {
  return {.shared = sizeof(float) * static_cast<std::size_t>(arrays * groups * x.back()),
          .per_thread = 0};
}

}  // namespace tessera::exec::cpu
