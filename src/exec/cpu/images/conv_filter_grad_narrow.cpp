// The gradient of filters in bf16 where images have few channels: what a row of the filter reads
// lies side by side, and what it reads for the next pixel begins a little further on. With each
// number beside the one that is under the next pixel an image is B of a product as it lies, whose
// rows overlap; the gradient, a row for each of its channels, is A. Columns behind a row of the
// filter are others' numbers, and nobody reads their sums. A line of the gradient has zeros behind
// it where a bordered line has pixels for more results: there a NaN of an image reaches more
// numbers of the filters' gradient than it would one by one (conv_filter_grad_turned.cpp is like
// that too). Convention: strips of lines and chunks of them, whose sums are added in order, are
// functions of the shapes alone.
#include <algorithm>
#include <cstring>
#include <vector>

#include "base/index.h"
#include "exec/cpu/gemm/gemm.h"
#include "exec/cpu/images/conv.h"
#include "exec/cpu/low.h"
#include "exec/cpu/simd/vector.h"

namespace tessera::exec::cpu {
namespace {

using std::int64_t;

int64_t rounded_up(int64_t n, int64_t unit) { return ceil_div(n, unit) * unit; }

struct NarrowFilters {
  static constexpr int64_t strip_bytes = int64_t{384} << 10, most_strip_bytes = int64_t{2} << 20,
                           most_chunks = 32;
  int64_t stride, pad, c, o;
  int64_t rows, columns;     // of the filters; numbers that one of their rows reads
  int64_t height, width;     // of results
  int64_t image_h, image_w;  // of images
  int64_t pitch;             // result pixels from line to line: those of a bordered line
  int64_t more;              // lines of images that a strip has beside those of its results
  int64_t lanes;             // channels of results, whole panels
  int64_t lines, strips;     // lines of results in a strip; strips of all images
  int64_t chunks;            // of strips
  int64_t k, row;            // pixels of a strip, whole steps; numbers between rows of A

  NarrowFilters(const ir::Conv& attr, const ir::Shape& g, const ir::Shape& x, const ir::Shape& f)
      : stride(attr.stride),
        pad(attr.pad),
        c(f[2]),
        o(f[3]),
        rows(f[0]),
        columns(f[1] * f[2]),
        height(g[1]),
        width(g[2]),
        image_h(x[1]),
        image_w(x[2]),
        pitch(ceil_div(x[2] + 2 * pad, stride)),
        more((rows - 1) / stride),
        lanes(rounded_up(o, low_rows)) {
    lines = std::clamp<int64_t>(strip_bytes / std::max<int64_t>(1, line_bytes()), 1,
                                std::max<int64_t>(1, height));
    lines = ceil_div(height, std::max<int64_t>(1, ceil_div(height, lines)));
    strips = lines > 0 ? g[0] * ceil_div(height, lines) : 0;
    chunks = std::clamp<int64_t>(strips, 1, most_chunks);
    k = rounded_up(lines * pitch, low_group);
    // An odd number of cache lines, so that rows below each other are in different sets.
    row = (k / low_group | 1) * low_group;
  }

  int64_t next() const { return stride * c; }  // numbers from pixel to pixel of results
  // Every stride-th bordered line of a strip takes so many, with what the last pixels read behind
  // them.
  int64_t numbers() const {
    return rounded_up(
        (lines + more) * pitch * next() + (low_group + 1) * next() + columns + panel_columns,
        panel_columns);
  }
  int64_t line_bytes() const { return pitch * (2 * lanes + 6 * next() * stride); }
  int64_t sums() const { return rows * lanes * columns; }  // of a chunk
  // The gradient's rows, bordered lines, and pairs of their numbers.
  int64_t own_bytes() const { return 2 * (lanes * row + numbers()) + 4 * numbers() * stride; }
  bool serves() const {
    return c > 0 && c < 16 && columns > c && o > 0 && strips > 0 && width > 0 &&
           own_bytes() <= most_strip_bytes;
  }
};

// Where a strip lies: lines [begin, end) of the results of an image.
struct LineStrip {
  int64_t image, begin, end;
  LineStrip(const NarrowFilters& t, int64_t index) {
    const int64_t parts = ceil_div(t.height, t.lines);
    image = index / parts;
    begin = index % parts * t.lines;
    end = std::min(t.height, begin + t.lines);
  }
};

// A row for each channel of the gradient, zeros behind its lines.
void turn_gradient(const NarrowFilters& t, const LineStrip& strip, const Low* dy, Low* to) {
  for (int64_t first = 0; first < t.lanes; first += low_rows) {
    Low* const rows = to + first * t.row;
    for (int64_t y = strip.begin; y < strip.end; ++y)
      low_packs().rows_32({.used = std::min(low_rows, t.o - first),
                           .k = t.width,
                           .padded = t.pitch,
                           .from = dy + (strip.image * t.height + y) * t.width * t.o + first,
                           .lane_step = 1,
                           .k_step = t.o,
                           .pitch = t.row},
                          rows + (y - strip.begin) * t.pitch);
    for (int64_t lane = 0; lane < low_rows; ++lane)
      std::fill(rows + lane * t.row + (strip.end - strip.begin) * t.pitch,
                rows + lane * t.row + t.k, Low{0});
  }
}

// Lines begin * stride + phase, every stride-th, of a bordered image, each number with the one
// under the next pixel.
void pair_lines(const NarrowFilters& t, const LineStrip& strip, int64_t phase, const Low* x,
                Low* lines, std::uint32_t* to) {
  const int64_t line = t.pitch * t.next(), border = t.pad * t.c, size = t.image_w * t.c;
  Low* at = lines;
  for (int64_t i = 0; i < strip.end - strip.begin + t.more; ++i, at += line) {
    const int64_t y = (strip.begin + i) * t.stride + phase - t.pad;
    if (y < 0 || y >= t.image_h) {
      std::fill_n(at, line, Low{0});
      continue;
    }
    std::fill_n(at, border, Low{0});
    std::copy_n(x + (strip.image * t.image_h + y) * size, size, at + border);
    std::fill(at + border + size, at + line, Low{0});
  }
  std::fill(at, lines + t.numbers(), Low{0});
  const int64_t next = t.next(), paired = t.numbers() - next;
  for (int64_t i = 0; i < paired; ++i)
    to[i] = lines[i] | static_cast<std::uint32_t>(lines[i + next]) << 16;
  std::fill_n(to + paired, next, 0u);
}

}  // namespace

bool narrow_filters_serve(const ir::Conv& attr, const ir::Shape& g, const ir::Shape& x,
                          const ir::Shape& f) {
  return NarrowFilters(attr, g, x, f).serves();
}
Scratch scratch_filter_grad_narrow(const ir::Conv& attr, const ir::Shape& g, const ir::Shape& x,
                                   const ir::Shape& f) {
  const NarrowFilters t(attr, g, x, f);
  return {.shared = sizeof(float) * static_cast<std::size_t>(t.chunks * t.sums()),
          .per_thread = panel_bytes + static_cast<std::size_t>(t.own_bytes())};
}

void filter_grad_narrow(const Call& call) {
  const ir::Shape &g = call.in[0].shape, &x = call.in[1].shape, &f = call.out[0].shape;
  const NarrowFilters t(call.attr<ir::Conv>(), g, x, f);
  const Low *const dy = call.in[0].as<Low>(), *const images = call.in[1].as<Low>();
  float* const sums = call.shared_scratch<float>();
  const Micro& kernel = micro_low();
  call.pool.parallel_for(t.chunks, [&](int64_t chunk, int thread) {
    std::byte* const room = call.scratch_of<std::byte>(thread);
    Low* const turned = reinterpret_cast<Low*>(room + panel_bytes);
    Low* const lines = turned + t.lanes * t.row;
    auto* const pairs = reinterpret_cast<std::uint32_t*>(lines + t.numbers());
    const int64_t first = chunk * t.strips / t.chunks, last = (chunk + 1) * t.strips / t.chunks;
    for (int64_t index = first; index < last; ++index) {
      const LineStrip strip(t, index);
      turn_gradient(t, strip, dy, turned);
      for (int64_t phase = 0; phase < std::min(t.stride, t.rows); ++phase)
        pair_lines(t, strip, phase, images, lines, pairs + phase * t.numbers());
      kernel.begin();
      for (int64_t r = 0; r < t.rows; ++r)
        kernel.product({.m = t.lanes,
                        .n = t.columns,
                        .k = t.k,
                        .a = turned,
                        .row = t.row,
                        .b = reinterpret_cast<const std::byte*>(pairs + r % t.stride * t.numbers() +
                                                                r / t.stride * t.pitch * t.next()),
                        .b_pitch = 4 * panel_columns,
                        .b_row = 8 * t.next(),
                        .more = index > first,
                        .c = sums + chunk * t.sums() + r * t.lanes * t.columns,
                        .rs = t.columns,
                        .room = room});
      kernel.end();
    }
  });
  call.pool.parallel_for(t.rows, [&](int64_t r, int thread) {
    const int64_t size = t.lanes * t.columns;
    float *const sum = sums + r * size, *const row = call.scratch_of<float>(thread);
    for (int64_t chunk = 1; chunk < t.chunks; ++chunk)
      vector_add(sum, sum + chunk * t.sums(), sum, size);
    for (int64_t j = 0; j < t.columns; ++j) {
      const int64_t at = (r * t.columns + j) * t.o;
      float* const to = room_for(call.out[0], at, row);
      for (int64_t i = 0; i < t.o; ++i) to[i] = sum[i * t.columns + j];
      give(call.out[0], at, t.o, to);
    }
  });
}

}  // namespace tessera::exec::cpu
