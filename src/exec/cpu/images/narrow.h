// How a convolution is made a product of taps, and the copies of images with few channels that it
// reads. Convention: filters are packed in the same order of k as the product reads images, whose
// channels may be filled up with zeros.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/index.h"
#include "exec/cpu/gemm/gemm.h"
#include "exec/cpu/kernel.h"

namespace tessera::exec::cpu {

// How a convolution with filters f is made a product. Images of few channels are copied with their
// borders: then one tap is a whole row of the filter. Where the micro-kernel reads rows in place,
// `fours` gives each pixel zeros up to a multiple of four channels: then a row of the filter is a
// step of k of its own (amx_product_x86.h), and filters are packed pixel by pixel, since each part
// of them is filled up to fours anyway.
struct Form {
  bool borders, fours;
  std::int64_t channels;        // of a pixel as it is read
  std::int64_t taps, length;    // numbers read under each
  std::int64_t parts, numbers;  // of filters as they are packed
  Form(const ir::Shape& f, bool in_place) : borders(f[2] < 16 && f[1] > 1) {
    channels = ceil_div(f[2], 4) * 4;
    fours = borders && in_place && f[0] <= most_short_pieces && f[1] * channels <= low_group;
    if (!fours) channels = f[2];
    taps = borders ? f[0] : f[0] * f[1];
    length = borders ? f[1] * channels : channels;
    parts = fours ? f[0] * f[1] : taps;
    numbers = fours ? f[2] : length;
  }
  // Bordered images have so many, whole cache lines.
  std::int64_t elements(const ir::Shape& x, std::int64_t pad) const {
    const std::int64_t pixels = x[0] * (x[1] + 2 * pad) * (x[2] + 2 * pad);
    return borders ? ceil_div(pixels * channels, 32) * 32 : 0;
  }
};
template <class T>
Form form_here(const ir::Shape& f) {
  return {f, std::is_same_v<T, Low> && !micro<T>().packs_rows()};
}

// `pixels` pixels of `channels` numbers, each with zeros up to a multiple of four.
inline void spread_to_fours(const Low* from, std::int64_t pixels, std::int64_t channels, Low* to) {
  const std::int64_t words = ceil_div(channels, 4), last = channels - 4 * (words - 1);
  const std::uint64_t kept = ~std::uint64_t{0} >> (16 * (4 - last));
  // Words are read whole, but those of the last pixel might end behind the image.
  for (std::int64_t i = 0; i + 4 < pixels; ++i, from += channels)
    for (std::int64_t word = 0; word < words; ++word, to += 4) {
      std::uint64_t four = 0;
      std::memcpy(&four, from + 4 * word, sizeof four);
      if (word + 1 == words) four &= kept;
      std::memcpy(to, &four, sizeof four);
    }
  for (std::int64_t i = std::max<std::int64_t>(0, pixels - 4); i < pixels; ++i, from += channels) {
    to = std::copy_n(from, channels, to);
    to = std::fill_n(to, 4 * words - channels, Low{0});
  }
}
// A copy of images with borders of zeros; a pixel has `channels` numbers there, those that bf16 is
// filled up to.
template <class T>
void add_borders(ThreadPool& pool, const Tensor& images, std::int64_t channels, std::int64_t pad,
                 T* to) {
  const ir::Shape& x = images.shape;
  const T* const from = images.as<T>();
  const std::int64_t h = x[1] + 2 * pad, border = pad * channels, row = x[2] * channels;
  const auto add = [&](std::int64_t line) {
    T* const at = to + line * (row + 2 * border);
    const std::int64_t y = line % h - pad;
    if (y < 0 || y >= x[1]) {
      std::fill_n(at, row + 2 * border, T{0});
      return;
    }
    const T* const pixels = from + (line / h * x[1] + y) * x[2] * x[3];
    std::fill_n(at, border, T{0});
    std::fill_n(at + border + row, border, T{0});
    if constexpr (std::is_same_v<T, Low>)
      if (channels != x[3]) return spread_to_fours(pixels, x[2], x[3], at + border);
    std::copy_n(pixels, row, at + border);
  };
  constexpr std::int64_t lines = 16;  // of a task: one by one, threads would wait for their numbers
  pool.parallel_for(ceil_div(x[0] * h, lines), [&](std::int64_t task, int) {
    for (std::int64_t line = task * lines; line < std::min(x[0] * h, (task + 1) * lines); ++line)
      add(line);
  });
}

}  // namespace tessera::exec::cpu
