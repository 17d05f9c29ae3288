// Convolution in f32 as matrix products: the taps that a tile of pixels reads are gathered side by side, then multiplied by the filters.
// Convention: a task is a tile of pixels (or of filter rows); tiles and the order of sums are functions of the shapes alone.
#include "exec/cpu/conv.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "exec/cpu/gemm.h"
#include "exec/cpu/vector.h"

namespace tessera::exec::cpu {

namespace {

using std::int64_t;

int64_t ceil_div(int64_t n, int64_t d) { return (n + d - 1) / d; }

// The largest tile of pixels that leaves a dozen tasks or more; smaller ones spend too much on packing filters.
int64_t pixel_tile(int64_t pixels) {
  for (int64_t tile : {192, 132, 96, 48})
    if (pixels >= 16 * tile) return tile;
  return 48;
}
// Taps gathered at once: about a thousand numbers per pixel.
int64_t taps_at_once(int64_t taps, int64_t channels) { return std::clamp<int64_t>(1152 / std::max<int64_t>(1, channels), 1, taps); }

}  // namespace

// row r of `to` = the channels under each of the taps of pixel r, zeros outside the image.
void gather_taps(const Gather& from, const int64_t* pixels, int64_t count, const Tap* taps, int64_t tap_count, float* to) {
  const auto bytes = static_cast<std::size_t>(from.c) * sizeof(float);
  for (int64_t r = 0; r < count; ++r) {
    const int64_t image = pixels[3 * r], y = pixels[3 * r + 1], x = pixels[3 * r + 2];
    const float* source = from.data + image * from.h * from.w * from.c;
    for (int64_t t = 0; t < tap_count; ++t, to += from.c) {
      const int64_t row = y + taps[t].row, col = x + taps[t].col;
      if (row >= 0 && row < from.h && col >= 0 && col < from.w)
        std::memcpy(to, source + (row * from.w + col) * from.c, bytes);
      else
        std::memset(to, 0, bytes);
    }
  }
}

namespace {

// Result pixels in an order of their own: pixel i of an h x w lattice inside each image, written at `first` + `step` times its place.
struct Lattice {
  int64_t images, h, w;
  int64_t first_row = 0, first_col = 0, step = 1;  // where its pixels lie in the result
};

// result[pixel, n] = sum over taps and channels of source[pixel * scale + tap, channel] * filters[tap, channel, n]
struct Product {
  Gather source;
  Lattice lattice;
  int64_t scale;          // source pixels per lattice pixel
  std::vector<Tap> taps;  // in source pixels
  const float* filters;   // [taps, channels, n] in the order of `taps`
  int64_t n;
  float* result;
  int64_t result_h, result_w;
};

struct Buffers {
  float *packed, *gathered, *tile;
};
Buffers buffers_of(const Call& call, int thread, int64_t gathered) {
  float* own = call.scratch_of<float>(thread);
  return {own, own + gemm_scratch_bytes / sizeof(float), own + gemm_scratch_bytes / sizeof(float) + gathered};
}

int64_t gathered_elements(int64_t tile, int64_t taps, int64_t channels) { return tile * taps_at_once(taps, channels) * channels; }

void multiply(const Call& call, const Product& p) {
  const int64_t pixels = p.lattice.images * p.lattice.h * p.lattice.w, tile = pixel_tile(pixels),
                taps = static_cast<int64_t>(p.taps.size());
  const bool dense = p.lattice.step == 1;
  const int64_t step = taps_at_once(std::max<int64_t>(1, taps), p.source.c);
  call.pool.parallel_for(ceil_div(pixels, tile), [&](int64_t task, int thread) {
    const Buffers own = buffers_of(call, thread, gathered_elements(tile, std::max<int64_t>(1, taps), p.source.c));
    const int64_t first = task * tile, rows = std::min(tile, pixels - first);
    std::vector<int64_t> at(static_cast<std::size_t>(3 * rows));
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t pixel = first + r, image = pixel / (p.lattice.h * p.lattice.w), rest = pixel % (p.lattice.h * p.lattice.w);
      at[3 * r] = image, at[3 * r + 1] = rest / p.lattice.w * p.scale, at[3 * r + 2] = rest % p.lattice.w * p.scale;
    }
    float* const c = dense ? p.result + first * p.n : own.tile;
    if (taps == 0) std::fill_n(c, rows * p.n, 0.0f);
    for (int64_t t = 0; t < taps; t += step) {
      const int64_t now = std::min(step, taps - t), k = now * p.source.c;
      gather_taps(p.source, at.data(), rows, p.taps.data() + t, now, own.gathered);
      gemm(rows, p.n, k, 1, own.gathered, k, 1, p.filters + t * p.source.c * p.n, p.n, 1, t == 0 ? 0 : 1, c, p.n, 1, own.packed);
    }
    if (dense) return;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t row = p.lattice.first_row + at[3 * r + 1] / p.scale * p.lattice.step,
                    col = p.lattice.first_col + at[3 * r + 2] / p.scale * p.lattice.step;
      vector_copy(c + r * p.n, p.result + ((at[3 * r] * p.result_h + row) * p.result_w + col) * p.n, p.n);
    }
  });
}

Scratch scratch_of(int64_t pixels, int64_t taps, int64_t channels, int64_t n, bool dense) {
  const int64_t tile = pixel_tile(pixels);
  const int64_t floats = gathered_elements(tile, taps, channels) + (dense ? 0 : tile * n);
  return {.shared = 0, .per_thread = gemm_scratch_bytes + sizeof(float) * static_cast<std::size_t>(floats)};
}

}  // namespace

void fast_conv(const Call& call) {
  const auto& attr = call.attr<ir::Conv>();
  const ir::Shape &x = call.in[0].shape, &f = call.in[1].shape, &y = call.out[0].shape;
  if (call.out[0].elements() == 0) return;
  Product p{.source = {call.in[0].as<float>(), x[1], x[2], x[3]},
            .lattice = {y[0], y[1], y[2]},
            .scale = attr.stride,
            .taps = {},
            .filters = call.in[1].as<float>(),
            .n = y[3],
            .result = call.out[0].as<float>(),
            .result_h = y[1],
            .result_w = y[2]};
  for (int64_t k = 0; k < f[0]; ++k)
    for (int64_t l = 0; l < f[1]; ++l) p.taps.push_back({k - attr.pad, l - attr.pad});
  multiply(call, p);
}
Scratch scratch_conv(const ir::Attrs&, std::span<const ir::Type> in, std::span<const ir::Type> out) {
  const ir::Shape &f = in[1].shape, &y = out[0].shape;
  return scratch_of(y[0] * y[1] * y[2], f[0] * f[1], f[2], f[3], true);
}

// dx[row] collects dy[p] f[k] where row = p stride + k - pad. Rows of one remainder modulo the stride meet the same taps: each of the
// stride^2 classes of pixels is a product of its own, with filters transposed once.
void fast_conv_input_grad(const Call& call) {
  const auto& attr = call.attr<ir::Conv>();
  const ir::Shape &g = call.in[0].shape, &f = call.in[1].shape, &x = call.out[0].shape;
  if (call.out[0].elements() == 0) return;
  const int64_t s = attr.stride, c = f[2], o = f[3];
  float* filters = call.shared_scratch<float>();
  for (int64_t a = 0; a < std::min(s, x[1]); ++a)
    for (int64_t b = 0; b < std::min(s, x[2]); ++b) {
      Product p{.source = {call.in[0].as<float>(), g[1], g[2], o},
                .lattice = {x[0], ceil_div(x[1] - a, s), ceil_div(x[2] - b, s), a, b, s},
                .scale = 1,
                .taps = {},
                .filters = filters,
                .n = c,
                .result = call.out[0].as<float>(),
                .result_h = x[1],
                .result_w = x[2]};
      std::vector<const float*> sources;
      for (int64_t k = 0; k < f[0]; ++k)
        for (int64_t l = 0; l < f[1]; ++l)
          if ((a + attr.pad - k) % s == 0 && (b + attr.pad - l) % s == 0) {
            p.taps.push_back({(a + attr.pad - k) / s, (b + attr.pad - l) / s});
            sources.push_back(call.in[1].as<float>() + (k * f[1] + l) * c * o);
          }
      call.pool.parallel_for(static_cast<int64_t>(sources.size()) * ceil_div(o, 16), [&](int64_t task, int) {
        const int64_t tap = task / ceil_div(o, 16), begin = task % ceil_div(o, 16) * 16, end = std::min(o, begin + 16);
        const float* from = sources[static_cast<std::size_t>(tap)];
        float* to = filters + tap * o * c;
        for (int64_t j = 0; j < c; ++j)
          for (int64_t i = begin; i < end; ++i) to[i * c + j] = from[j * o + i];
      });
      multiply(call, p);
      filters += static_cast<int64_t>(sources.size()) * o * c;
    }
}
Scratch scratch_conv_input_grad(const ir::Attrs& attrs, std::span<const ir::Type> in, std::span<const ir::Type> out) {
  const ir::Shape &f = in[1].shape, &x = out[0].shape;
  const int64_t s = std::get<ir::Conv>(attrs).stride;
  // The first class of pixels is the largest and bounds the others' tiles.
  Scratch need = scratch_of(x[0] * ceil_div(x[1], s) * ceil_div(x[2], s), f[0] * f[1], f[3], f[2], s == 1);
  need.shared = sizeof(float) * static_cast<std::size_t>(ir::elements(f));
  return need;
}

namespace {

// dw[taps c, o] = gathered^T dy: tiles of filter rows, and chunks of pixels where those are too few, added in order.
struct FilterTiles {
  int64_t taps, c, o, pixels;
  int64_t taps_in_tile, tiles, chunk_pixels, chunks;

  FilterTiles(const ir::Shape& g, const ir::Shape& f) : taps(f[0] * f[1]), c(f[2]), o(f[3]), pixels(g[0] * g[1] * g[2]) {
    taps_in_tile = std::clamp<int64_t>(384 / std::max<int64_t>(1, c), 1, taps);
    tiles = ceil_div(taps, taps_in_tile);
    const int64_t wanted = std::max<int64_t>(1, std::min(ceil_div(16, tiles), pixels / 1024));
    chunk_pixels = std::max<int64_t>(1, ceil_div(pixels, wanted));
    chunks = std::max<int64_t>(1, ceil_div(pixels, chunk_pixels));
  }
  static constexpr int64_t rows_at_once = 192;
  std::size_t gathered() const { return static_cast<std::size_t>(rows_at_once * taps_in_tile * c); }
};

}  // namespace

void fast_conv_filter_grad(const Call& call) {
  const auto& attr = call.attr<ir::Conv>();
  const ir::Shape &g = call.in[0].shape, &x = call.in[1].shape, &f = call.out[0].shape;
  if (call.out[0].elements() == 0) return;
  const FilterTiles t(g, f);
  const Gather source{call.in[1].as<float>(), x[1], x[2], x[3]};
  const float* dy = call.in[0].as<float>();
  float *const dw = call.out[0].as<float>(), *const partials = call.shared_scratch<float>();
  const int64_t size = t.taps * t.c * t.o;
  call.pool.parallel_for(t.tiles * t.chunks, [&](int64_t task, int thread) {
    const int64_t chunk_index = task / t.tiles, tap = task % t.tiles * t.taps_in_tile, taps = std::min(t.taps_in_tile, t.taps - tap);
    float* const to = (chunk_index == 0 ? dw : partials + (chunk_index - 1) * size) + tap * t.c * t.o;
    const Buffers own = buffers_of(call, thread, static_cast<int64_t>(t.gathered()));
    std::vector<Tap> list;
    for (int64_t k = tap; k < tap + taps; ++k) list.push_back({k / f[1] - attr.pad, k % f[1] - attr.pad});
    const int64_t begin = chunk_index * t.chunk_pixels, end = std::min(t.pixels, begin + t.chunk_pixels), k = taps * t.c;
    std::vector<int64_t> at(3 * FilterTiles::rows_at_once);
    if (begin >= end) std::fill_n(to, k * t.o, 0.0f);
    for (int64_t pixel = begin; pixel < end; pixel += FilterTiles::rows_at_once) {
      const int64_t rows = std::min(FilterTiles::rows_at_once, end - pixel);
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t rest = (pixel + r) % (g[1] * g[2]);
        at[3 * r] = (pixel + r) / (g[1] * g[2]), at[3 * r + 1] = rest / g[2] * attr.stride, at[3 * r + 2] = rest % g[2] * attr.stride;
      }
      gather_taps(source, at.data(), rows, list.data(), taps, own.gathered);
      gemm(k, t.o, rows, 1, own.gathered, 1, k, dy + pixel * t.o, t.o, 1, pixel == begin ? 0 : 1, to, t.o, 1, own.packed);
    }
  });
  if (t.chunks == 1) return;
  for_chunks(call.pool, size, chunk, [&](int64_t begin, int64_t n) {
    for (int64_t part = 0; part + 1 < t.chunks; ++part) vector_add(dw + begin, partials + part * size + begin, dw + begin, n);
  });
}
Scratch scratch_conv_filter_grad(const ir::Attrs&, std::span<const ir::Type> in, std::span<const ir::Type> out) {
  const FilterTiles t(in[0].shape, out[0].shape);
  return {.shared = sizeof(float) * static_cast<std::size_t>((t.chunks - 1) * ir::elements(out[0].shape)),
          .per_thread = gemm_scratch_bytes + sizeof(float) * t.gathered()};
}

}  // namespace tessera::exec::cpu
