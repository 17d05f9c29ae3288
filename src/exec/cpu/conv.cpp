// Convolution in f32 as matrix products: a row of the first factor is what the taps of one pixel
// read, named by one pointer per tap and never gathered; filters are packed once. Convention: a
// task is a tile of pixels and channels (or of filter rows); tiles and the order of sums are
// functions of the shapes alone.
#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/index.h"
#include "exec/cpu/gemm/gemm.h"
#include "exec/cpu/kernel.h"
#include "exec/cpu/simd/vector.h"

namespace tessera::exec::cpu {

namespace {

using std::int64_t;

struct Gather {
  const float* data;
  int64_t h, w, c;
};
struct Tap {
  int64_t row, col;  // relative to a pixel of the source
};

// `pixels`: (image, row, col) of each. Row r of `to` = the channels under each of the taps of pixel
// r, zeros outside the image.
void gather_taps(const Gather& from, const int64_t* pixels, int64_t count, const Tap* taps,
                 int64_t tap_count, int64_t channels, float* to) {
  const auto bytes = static_cast<std::size_t>(channels) * sizeof(float);
  if (bytes == 0) return;  // a rank may have no channel
  for (int64_t r = 0; r < count; ++r) {
    const int64_t image = pixels[3 * r], y = pixels[3 * r + 1], x = pixels[3 * r + 2];
    const float* source = from.data + image * from.h * from.w * from.c;
    for (int64_t t = 0; t < tap_count; ++t, to += channels) {
      const int64_t row = y + taps[t].row, col = x + taps[t].col;
      if (row >= 0 && row < from.h && col >= 0 && col < from.w)
        std::memcpy(to, source + (row * from.w + col) * from.c, bytes);
      else
        std::memset(to, 0, bytes);
    }
  }
}

// Result pixels in an order of their own: pixel i of an h x w lattice inside each image, written at
// `first` + `step` times its place.
struct Lattice {
  int64_t images, h, w;
  int64_t first_row = 0, first_col = 0, step = 1;  // where its pixels lie in the result
};

// result[pixel, n] = sum over taps and channels of source[pixel * scale + tap, channel] *
// filters[tap][channel, n]
struct Product {
  Gather source;
  Lattice lattice;
  int64_t scale;                      // source pixels per lattice pixel
  std::vector<Tap> taps;              // in source pixels
  std::vector<const float*> filters;  // of each tap: channels x n
  int64_t rs, cs;                     // distance of their rows and columns
  int64_t n;
  float* result;
  int64_t result_h, result_w;
  Finish finish = {};  // of the whole result
};

// The share of threads at work while so many equal tasks are done.
double busy(int64_t tasks, int64_t threads) {
  return static_cast<double>(tasks) / static_cast<double>(ceil_div(tasks, threads) * threads);
}

// Tiles of pixels and channels. A small side pays for reading the other operand more often, few
// tiles leave threads idle: the score weighs both, for 2 and for 16 threads.
struct Tiles {
  static constexpr int64_t most_rows = 264, most_columns = 256;
  int64_t m = scattered_rows, n = scattered_columns;

  Tiles(int64_t pixels, int64_t channels) {
    double best = 0;
    for (int64_t columns = std::min(most_columns, packed_columns(channels)); columns > 0;
         columns -= scattered_columns)
      for (int64_t rows = most_rows; rows > 0; rows -= scattered_rows) {
        const int64_t tasks = ceil_div(pixels, rows) * ceil_div(channels, columns);
        const double overhead =
                         1 + 8.0 / static_cast<double>(columns) + 8.0 / static_cast<double>(rows),
                     used = static_cast<double>(pixels * channels) /
                            static_cast<double>(tasks * rows * columns);
        const double score = used * (busy(tasks, 2) + busy(tasks, 16)) / overhead;
        if (score > best) best = score, m = rows, n = columns;
      }
  }
};

// Shared: the packed filters, then a row of zeros for what lies outside the images.
std::size_t shared_bytes(int64_t taps, int64_t channels, int64_t n) {
  return sizeof(float) * static_cast<std::size_t>(packed_elements({taps, channels}, n) + channels);
}
struct Own {
  float *panel, *tile;
  const float** rows;
};
Own own_of(const Call& call, int thread) {
  float* at = call.scratch_of<float>(thread);
  return {at, at + scattered_scratch,
          reinterpret_cast<const float**>(at + scattered_scratch +
                                          Tiles::most_rows * Tiles::most_columns)};
}
std::size_t own_bytes(int64_t taps) {
  return sizeof(float) * (scattered_scratch + Tiles::most_rows * Tiles::most_columns) +
         sizeof(float*) * static_cast<std::size_t>(taps * Tiles::most_rows);
}

// Where the taps of lattice pixel i read: one pointer per tap, `pitch` apart.
void point_at(const Product& p, int64_t i, const float* zeros, const float** to, int64_t pitch) {
  const int64_t rest = i % (p.lattice.h * p.lattice.w), y = rest / p.lattice.w * p.scale,
                x = rest % p.lattice.w * p.scale;
  const float* image =
      p.source.data + i / (p.lattice.h * p.lattice.w) * p.source.h * p.source.w * p.source.c;
  for (const Tap& tap : p.taps) {
    const int64_t row = y + tap.row, col = x + tap.col;
    const bool inside = row >= 0 && row < p.source.h && col >= 0 && col < p.source.w;
    *to = inside ? image + (row * p.source.w + col) * p.source.c : zeros;
    to += pitch;
  }
}

// `length` numbers are read under each tap: the channels of a pixel, or of several side by side.
void multiply(const Call& call, const Product& p, int64_t length, float* shared) {
  const int64_t pixels = p.lattice.images * p.lattice.h * p.lattice.w,
                taps = static_cast<int64_t>(p.taps.size());
  const Tiles tiles(pixels, p.n);
  const bool dense = p.lattice.step == 1;
  const Scattered shape{taps, length};
  float* const zeros = shared + packed_elements(shape, p.n);
  const float* const packed = call.packed ? reinterpret_cast<const float*>(call.packed) : shared;
  std::fill_n(zeros, length, 0.0f);
  if (!call.packed)
    call.pool.parallel_for(pack_tasks(shape, p.n), [&](int64_t task, int) {
      gemm_pack(shape, p.n, p.filters.data(), p.rs, p.cs, task, shared);
    });
  const int64_t across = ceil_div(p.n, tiles.n);
  call.pool.parallel_for(ceil_div(pixels, tiles.m) * across, [&](int64_t task, int thread) {
    const Own own = own_of(call, thread);
    const int64_t first = task / across * tiles.m, rows = std::min(tiles.m, pixels - first);
    const int64_t n0 = task % across * tiles.n, columns = std::min(tiles.n, p.n - n0);
    for (int64_t r = 0; r < tiles.m; ++r)
      point_at(p, std::min(first + r, pixels - 1), zeros, own.rows + r, tiles.m);
    float* const c = dense ? p.result + first * p.n + n0 : own.tile;
    const int64_t pitch = dense ? p.n : columns;
    Finish finish = p.finish;
    if (finish.scale) finish.scale += n0, finish.offset += n0;
    if (finish.addend) finish.addend += first * p.n + n0;
    gemm_scattered({taps, length, own.rows, tiles.m}, rows, p.n, packed, n0, columns, c, pitch,
                   finish, own.panel);
    if (dense) return;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t image = (first + r) / (p.lattice.h * p.lattice.w),
                    rest = (first + r) % (p.lattice.h * p.lattice.w);
      const int64_t row = p.lattice.first_row + rest / p.lattice.w * p.lattice.step,
                    col = p.lattice.first_col + rest % p.lattice.w * p.lattice.step;
      vector_copy(c + r * columns,
                  p.result + ((image * p.result_h + row) * p.result_w + col) * p.n + n0, columns);
    }
  });
}

// Images of few channels are copied with their borders: then one tap is a whole row of the filter.
bool narrow(const ir::Shape& f) { return f[2] < 16 && f[1] > 1; }
int64_t bordered_elements(const ir::Shape& x, int64_t pad) {
  return x[0] * (x[1] + 2 * pad) * (x[2] + 2 * pad) * x[3];
}
void add_borders(const Call& call, const ir::Shape& x, int64_t pad, float* to) {
  const float* from = call.in[0].as<float>();
  const int64_t h = x[1] + 2 * pad, border = pad * x[3], row = x[2] * x[3];
  call.pool.parallel_for(x[0] * h, [&](int64_t task, int) {
    float* const at = to + task * (row + 2 * border);
    const int64_t y = task % h - pad;
    if (y < 0 || y >= x[1]) {
      std::fill_n(at, row + 2 * border, 0.0f);
      return;
    }
    std::fill_n(at, border, 0.0f), std::fill_n(at + border + row, border, 0.0f);
    vector_copy(from + (task / h * x[1] + y) * row, at + border, row);
  });
}

}  // namespace

// The filters of a convolution as its product reads them: taps, and numbers under each.
static Scattered filter_shape(const ir::Shape& f) {
  return narrow(f) ? Scattered{f[0], f[1] * f[2]} : Scattered{f[0] * f[1], f[2]};
}
plan::PackedForm packed_conv(const ir::Attrs&, std::span<const ir::Type> in, int operand) {
  const ir::Type& f = in[1];
  if (operand != 1 || f.dtype != ir::DType::f32 || in[0].dtype != f.dtype) return {};
  return {static_cast<int64_t>(sizeof(float)) * packed_elements(filter_shape(f.shape), f.shape[3]),
          "conv" + ir::to_string(f.shape)};
}
void pack_conv(const Call& call) {
  const ir::Shape& f = call.in[1].shape;
  const Scattered shape = filter_shape(f);
  std::vector<const float*> parts;
  for (int64_t tap = 0; tap < shape.parts; ++tap)
    parts.push_back(call.in[1].as<float>() + tap * shape.length * f[3]);
  call.pool.parallel_for(pack_tasks(shape, f[3]), [&](int64_t task, int) {
    gemm_pack(shape, f[3], parts.data(), f[3], 1, task, reinterpret_cast<float*>(call.packed));
  });
}

void fast_conv(const Call& call) {
  const auto& attr = call.attr<ir::Conv>();
  const ir::Shape &x = call.in[0].shape, &f = call.in[1].shape, &y = call.out[0].shape;
  if (call.out[0].elements() == 0) return;
  Product p{.source = {call.in[0].as<float>(), x[1], x[2], x[3]},
            .lattice = {y[0], y[1], y[2]},
            .scale = attr.stride,
            .taps = {},
            .filters = {},
            .rs = f[3],
            .cs = 1,
            .n = y[3],
            .result = call.out[0].as<float>(),
            .result_h = y[1],
            .result_w = y[2]};
  p.finish.relu = attr.relu;
  if (call.in.size() > 2)
    p.finish.scale = call.in[2].as<float>(), p.finish.offset = call.in[3].as<float>();
  if (call.in.size() > 4) p.finish.addend = call.in[4].as<float>();
  const auto add_tap = [&](Tap tap, int64_t offset) {
    p.taps.push_back(tap);
    p.filters.push_back(call.in[1].as<float>() + offset);
  };
  float* shared = call.shared_scratch<float>();
  if (narrow(f)) {
    add_borders(call, x, attr.pad, shared);
    p.source = {shared, x[1] + 2 * attr.pad, x[2] + 2 * attr.pad, x[3]};
    for (int64_t k = 0; k < f[0]; ++k) add_tap({k, 0}, k * f[1] * f[2] * f[3]);
    return multiply(call, p, f[1] * f[2], shared + (bordered_elements(x, attr.pad) + 15) / 16 * 16);
  }
  for (int64_t k = 0; k < f[0]; ++k)
    for (int64_t l = 0; l < f[1]; ++l)
      add_tap({k - attr.pad, l - attr.pad}, (k * f[1] + l) * f[2] * f[3]);
  multiply(call, p, x[3], shared);
}
Scratch scratch_conv(const ir::Attrs& attrs, std::span<const ir::Type> in,
                     std::span<const ir::Type>) {
  const ir::Shape& f = in[1].shape;
  const std::size_t images =
      narrow(f) ? bordered_elements(in[0].shape, std::get<ir::Conv>(attrs).pad) + 16 : 0;
  return {.shared = sizeof(float) * images + shared_bytes(1, f[0] * f[1] * f[2], f[3]),
          .per_thread = own_bytes(f[0] * f[1])};
}

// dx[row] collects dy[p] f[k] where row = p stride + k - pad. Rows of one remainder modulo the
// stride meet the same taps: each of the stride^2 classes of pixels is a product of its own, with
// filters transposed as they are packed.
void fast_conv_input_grad(const Call& call) {
  const auto& attr = call.attr<ir::Conv>();
  const ir::Shape &g = call.in[0].shape, &f = call.in[1].shape, &x = call.out[0].shape;
  if (call.out[0].elements() == 0) return;
  const int64_t s = attr.stride, c = f[2], o = f[3];
  for (int64_t a = 0; a < std::min(s, x[1]); ++a)
    for (int64_t b = 0; b < std::min(s, x[2]); ++b) {
      Product p{.source = {call.in[0].as<float>(), g[1], g[2], o},
                .lattice = {x[0], ceil_div(x[1] - a, s), ceil_div(x[2] - b, s), a, b, s},
                .scale = 1,
                .taps = {},
                .filters = {},
                .rs = 1,
                .cs = o,
                .n = c,
                .result = call.out[0].as<float>(),
                .result_h = x[1],
                .result_w = x[2]};
      for (int64_t k = 0; k < f[0]; ++k)
        for (int64_t l = 0; l < f[1]; ++l)
          if ((a + attr.pad - k) % s == 0 && (b + attr.pad - l) % s == 0) {
            p.taps.push_back({(a + attr.pad - k) / s, (b + attr.pad - l) / s});
            p.filters.push_back(call.in[1].as<float>() + (k * f[1] + l) * c * o);
          }
      multiply(call, p, o, call.shared_scratch<float>());
    }
}
Scratch scratch_conv_input_grad(const ir::Attrs&, std::span<const ir::Type> in,
                                std::span<const ir::Type>) {
  const ir::Shape& f = in[1].shape;
  return {.shared = shared_bytes(f[0] * f[1], f[3], f[2]), .per_thread = own_bytes(f[0] * f[1])};
}

namespace {

// dw[taps c, o] = gathered^T dy: tiles of taps (or of a tap's channels) and of filters, and chunks
// of pixels where those are too few, added in order.
struct FilterTiles {
  int64_t taps, c, o, pixels;
  int64_t taps_in_tile, channels_in_tile, channel_tiles, tiles, columns = scattered_columns, across,
                                                                chunk_pixels, chunks = 1;

  FilterTiles(const ir::Shape& g, const ir::Shape& f)
      : taps(f[0] * f[1]), c(f[2]), o(f[3]), pixels(g[0] * g[1] * g[2]) {
    taps_in_tile = std::clamp<int64_t>(384 / std::max<int64_t>(1, c), 1, taps);
    channel_tiles = std::max<int64_t>(1, ceil_div(c, 384));
    channels_in_tile = ceil_div(c, channel_tiles);
    tiles = ceil_div(taps, taps_in_tile) * channel_tiles;
    // As with Tiles: narrow tiles gather more often, short chunks add more often, few tasks leave
    // threads idle.
    double best = 0;
    for (int64_t n = packed_columns(std::max<int64_t>(1, o));
         n >= std::min<int64_t>(64, packed_columns(std::max<int64_t>(1, o)));
         n -= scattered_columns)
      for (int64_t parts = 1; parts <= std::clamp<int64_t>(pixels / 512, 1, 16); ++parts) {
        const int64_t tasks = tiles * ceil_div(o, n) * parts;
        const double overhead = 1 + 16.0 / static_cast<double>(n) +
                                (parts > 1 ? 10.0 * static_cast<double>(parts) /
                                                 static_cast<double>(pixels)
                                           : 0.0),
                     used = static_cast<double>(o) / static_cast<double>(ceil_div(o, n) * n);
        const double score = used * (busy(tasks, 2) + busy(tasks, 16)) / overhead;
        if (score > best) best = score, columns = n, chunks = parts;
      }
    across = ceil_div(o, columns);
    chunk_pixels = std::max<int64_t>(1, ceil_div(pixels, chunks));
  }
  static constexpr int64_t rows_at_once = 192;
  std::size_t gathered() const {
    return static_cast<std::size_t>(rows_at_once * taps_in_tile * channels_in_tile);
  }
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
  call.pool.parallel_for(t.tiles * t.across * t.chunks, [&](int64_t task, int thread) {
    const int64_t n0 = task % t.across * t.columns, n = std::min(t.columns, t.o - n0);
    task /= t.across;
    const int64_t chunk_index = task / t.tiles, tile = task % t.tiles;
    const int64_t tap = tile / t.channel_tiles * t.taps_in_tile,
                  taps = std::min(t.taps_in_tile, t.taps - tap);
    const int64_t c0 = tile % t.channel_tiles * t.channels_in_tile,
                  c = std::min(t.channels_in_tile, t.c - c0);
    if (c <= 0) return;
    float* const to =
        (chunk_index == 0 ? dw : partials + (chunk_index - 1) * size) + (tap * t.c + c0) * t.o + n0;
    float *const packed = call.scratch_of<float>(thread), *const gathered =
                                                              packed +
                                                              gemm_scratch_bytes / sizeof(float);
    std::vector<Tap> list;
    for (int64_t k = tap; k < tap + taps; ++k)
      list.push_back({k / f[1] - attr.pad, k % f[1] - attr.pad});
    const int64_t begin = chunk_index * t.chunk_pixels,
                  end = std::min(t.pixels, begin + t.chunk_pixels), k = taps * c;
    std::vector<int64_t> at(3 * FilterTiles::rows_at_once);
    if (begin >= end)
      for (int64_t row = 0; row < k; ++row) std::fill_n(to + row * t.o, n, 0.0f);
    for (int64_t pixel = begin; pixel < end; pixel += FilterTiles::rows_at_once) {
      const int64_t rows = std::min(FilterTiles::rows_at_once, end - pixel);
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t rest = (pixel + r) % (g[1] * g[2]);
        at[3 * r] = (pixel + r) / (g[1] * g[2]), at[3 * r + 1] = rest / g[2] * attr.stride,
               at[3 * r + 2] = rest % g[2] * attr.stride;
      }
      gather_taps({source.data + c0, source.h, source.w, source.c}, at.data(), rows, list.data(),
                  taps, c, gathered);
      gemm(k, n, rows, 1, gathered, 1, k, dy + pixel * t.o + n0, t.o, 1, pixel == begin ? 0 : 1, to,
           t.o, 1, packed);
    }
  });
  if (t.chunks == 1) return;
  for_chunks(call.pool, size, chunk, [&](int64_t begin, int64_t n) {
    for (int64_t part = 0; part + 1 < t.chunks; ++part)
      vector_add(dw + begin, partials + part * size + begin, dw + begin, n);
  });
}
Scratch scratch_conv_filter_grad(const ir::Attrs&, std::span<const ir::Type> in,
                                 std::span<const ir::Type> out) {
  const FilterTiles t(in[0].shape, out[0].shape);
  return {.shared =
              sizeof(float) * static_cast<std::size_t>((t.chunks - 1) * ir::elements(out[0].shape)),
          .per_thread = gemm_scratch_bytes + sizeof(float) * t.gathered()};
}

}  // namespace tessera::exec::cpu
