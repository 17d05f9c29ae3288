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

// Room of a thread for a run of rows of several tensors, where any of them is bf16.
inline Scratch with_room(Scratch scratch, std::span<const ir::Type> in,
                         std::span<const ir::Type> out, std::int64_t tensors) {
  if (any_bf16(in, out))
    scratch.per_thread =
        sizeof(float) * static_cast<std::size_t>(tensors * Blocks::run * in[0].shape.back());
  return scratch;
}
// A run of rows of tensor after tensor: f32 where it lies, or in the room of the thread.
class RunOf {
 public:
  RunOf(const Call& call, const Blocks& blocks, std::int64_t row, std::int64_t rows, int thread)
      : room_(call.scratch_of<float>(thread)),
        at_(row * blocks.channels),
        size_(rows * blocks.channels),
        step_(Blocks::run * blocks.channels) {}
  const float* read(const Tensor& x) {
    if (!x) return nullptr;
    return wide(x, at_, size_, is_bf16(x) ? take() : nullptr);
  }
  float* write(const Tensor& y) {
    if (!y) return nullptr;
    return room_for(y, at_, is_bf16(y) ? take() : nullptr);
  }
  void done(const Tensor& y, const float* values) const { give(y, at_, size_, values); }

 private:
  float* take() { return std::exchange(room_, room_ + step_); }
  float* room_;
  std::int64_t at_, size_, step_;
};

// The addend of a norm: nothing, values, or with a mean the norm of these values.
struct Added {
  const float *values = nullptr, *mean = nullptr, *scale = nullptr, *bias = nullptr;
};

// The ReLU behind a norm is open where (x - mean) scale + bias > 0. Null: there is none.
struct Behind {
  const float *scale = nullptr, *bias = nullptr;
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
  constexpr std::int64_t strip = 16;
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
    for (std::int64_t k = 0; k < runs; ++k, at += 2 * blocks.channels)
      if (n == strip)  // a loop of known length is vectors
        for (std::size_t i = 0; i < strip; ++i) sum[i] += static_cast<double>(at[i]);
      else
        for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i)
          sum[i] += static_cast<double>(at[i]);
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
