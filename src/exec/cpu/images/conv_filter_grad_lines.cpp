// The gradient of a convolution's filters in f32 where images have few channels and the
// micro-kernel reads rows where they lie (Micro::in_place): nothing is gathered. What a row of the
// filter reads under one pixel lies side by side; each of these numbers is a row of the first
// factor, whose next number is under the next pixel, and lines are its pieces. Borders are zeros in
// a copy of the images. The gradient of some lines is packed for all of these rows. Convention:
// chunks of lines, whose sums are added in order, are functions of the shapes alone.
#include <algorithm>
#include <vector>

#include "base/index.h"
#include "exec/cpu/gemm/gemm.h"
#include "exec/cpu/images/conv.h"
#include "exec/cpu/images/narrow.h"
#include "exec/cpu/simd/vector.h"

namespace tessera::exec::cpu {
namespace {

using std::int64_t;

struct FilterLines {
  // Numbers of more channels are so far apart that those of a block share a few sets of a cache.
  static constexpr int64_t most_channels = 64;
  static constexpr int64_t block_pixels = 128, block_columns = 64;  // of a packed gradient
  int64_t stride, pad, c, o;
  int64_t rows, reads;       // of the filters; numbers that one of their rows reads
  int64_t height, width;     // of results
  int64_t image_h, image_w;  // of images with their borders
  int64_t images, lines;     // of results
  int64_t together;          // lines that are multiplied together
  int64_t chunks;            // of lines

  FilterLines(const ir::Conv& attr, const ir::Shape& g, const ir::Shape& x, const ir::Shape& f)
      : stride(attr.stride),
        pad(attr.pad),
        c(f[2]),
        o(f[3]),
        rows(f[0]),
        reads(f[1] * f[2]),
        height(g[1]),
        width(g[2]),
        image_h(x[1] + 2 * pad),
        image_w(x[2] + 2 * pad),
        images(x[0]),
        lines(g[0] * g[1]),
        together(std::max<int64_t>(1, block_pixels / std::max<int64_t>(1, width))),
        chunks(std::min(std::clamp<int64_t>(lines * width / 512, 1, 16),
                        std::max<int64_t>(1, lines))) {}

  // Filters of one pixel gather nothing anyway (conv_filter_grad.cpp).
  bool serves() const {
    const bool one_pixel = rows == 1 && reads == c && stride == 1 && pad == 0;
    return c > 0 && c <= most_channels && o > 0 && lines > 0 && width > 0 && !one_pixel;
  }
  int64_t sums() const { return rows * reads * o; }  // of a chunk
  int64_t bordered() const {
    return pad > 0 ? ceil_div(images * image_h * image_w * c, 16) * 16 : 0;
  }
  int64_t packed() const { return std::max(block_pixels, width) * block_columns; }
  int64_t line_of_images(int64_t line) const {
    return line / height * image_h + line % height * stride;
  }
};

// Adds the products of some lines to the sums of one row of the filters.
class LineBlock {
 public:
  LineBlock(const FilterLines& t, const float* images, const float* dy, int64_t row, float* packed)
      : t_(t),
        images_(images + row * t.image_w * t.c),
        dy_(dy),
        packed_(packed),
        at_(static_cast<std::size_t>(t.together * kernel_.in_place.rows)) {}

  void add(int64_t first, int64_t lines, bool more, float* to) {
    const InPlace& tiles = kernel_.in_place;
    const int64_t pixels = lines * t_.width, pitch = pixels * kernel_.b_bytes;
    const auto* const panels = reinterpret_cast<const std::byte*>(packed_);
    for (int64_t n0 = 0; n0 < t_.o; n0 += FilterLines::block_columns) {
      const int64_t columns = std::min(FilterLines::block_columns, t_.o - n0);
      gemm_pack_b<float>(pixels, 0, columns, dy_ + first * t_.width * t_.o + n0, t_.o, 1, packed_);
      for (int64_t i = 0; i < t_.reads; i += tiles.rows) {
        point_at(first, lines, i);
        for (int64_t j = 0; j < columns; j += tiles.columns)
          tiles.tile({.length = t_.width,
                      .rows = at_.data(),
                      .pitch = tiles.rows,
                      .step = t_.stride * t_.c},
                     0, pixels, panels + j / kernel_.columns * pitch, pitch,
                     {.c = to + i * t_.o + n0 + j,
                      .rs = t_.o,
                      .cs = 1,
                      .rows = std::min(tiles.rows, t_.reads - i),
                      .cols = std::min(tiles.columns, columns - j),
                      .alpha = 1,
                      .beta = more ? 1.0f : 0.0f});
      }
    }
  }

 private:
  // The rows of a tile in each line; behind the last of all it is repeated.
  void point_at(int64_t first, int64_t lines, int64_t row) {
    auto next = at_.begin();
    for (int64_t line = first; line < first + lines; ++line) {
      const float* const from = images_ + t_.line_of_images(line) * t_.image_w * t_.c;
      for (int64_t r = row; r < row + kernel_.in_place.rows; ++r)
        *next++ = from + std::min(r, t_.reads - 1);
    }
  }

  const FilterLines& t_;
  const Micro& kernel_ = micro_f32();
  const float *images_, *dy_;
  float* packed_;
  std::vector<const void*> at_;
};

}  // namespace

bool filter_lines_serve(const ir::Conv& attr, const ir::Shape& g, const ir::Shape& x,
                        const ir::Shape& f) {
  return FilterLines(attr, g, x, f).serves();
}
Scratch scratch_filter_grad_lines(const ir::Conv& attr, const ir::Shape& g, const ir::Shape& x,
                                  const ir::Shape& f) {
  const FilterLines t(attr, g, x, f);
  return {
      .shared = sizeof(float) * static_cast<std::size_t>(t.bordered() + (t.chunks - 1) * t.sums()),
      .per_thread = sizeof(float) * static_cast<std::size_t>(t.packed())};
}

void filter_grad_lines(const Call& call) {
  const Tensor& images = call.in[1];
  const FilterLines t(call.attr<ir::Conv>(), call.in[0].shape, images.shape, call.out[0].shape);
  float *const bordered = call.shared_scratch<float>(), *const partials = bordered + t.bordered(),
               *const dw = call.out[0].as<float>();
  if (t.pad > 0) add_borders(call.pool, images, t.c, t.pad, bordered);
  const float* const source = t.pad > 0 ? bordered : images.as<float>();
  const auto sums_of = [&](int64_t chunk) {
    return chunk == 0 ? dw : partials + (chunk - 1) * t.sums();
  };
  call.pool.parallel_for(t.rows * t.chunks, [&](int64_t task, int thread) {
    const int64_t row = task % t.rows, chunk = task / t.rows, begin = chunk * t.lines / t.chunks,
                  end = (chunk + 1) * t.lines / t.chunks;
    LineBlock block(t, source, call.in[0].as<float>(), row, call.scratch_of<float>(thread));
    for (int64_t line = begin; line < end; line += t.together)
      block.add(line, std::min(t.together, end - line), line > begin,
                sums_of(chunk) + row * t.reads * t.o);
  });
  if (t.chunks == 1) return;
  for_chunks(call.pool, t.sums(), chunk, [&](int64_t begin, int64_t n) {
    for (int64_t part = 1; part < t.chunks; ++part)
      vector_add(dw + begin, sums_of(part) + begin, dw + begin, n);
  });
}

}  // namespace tessera::exec::cpu
