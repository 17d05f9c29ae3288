// A conv by Winograd's algorithm: tiles of the images are turned into their values at 36 points,
// each point is one product of tiles with filters, and the products become pixels again, with all
// that follows the convolution. Convention: values are [point][tile][channel] for a chunk of tiles
// that caches hold; an element of a product is one chain of multiply-adds, so that neither chunks
// nor tasks change bits.
#include "exec/cpu/images/winograd.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/index.h"
#include "exec/cpu/gemm/gemm.h"

namespace tessera::exec::cpu {

namespace {

using std::int64_t;

// Even steps through n, at most `most` long, of whole `unit`s.
int64_t even_step(int64_t n, int64_t most, int64_t unit) {
  return ceil_div(ceil_div(n, ceil_div(n, most)), unit) * unit;
}

// How the tiles of a call lie, and how many are under way at a time.
struct Tiling {
  int64_t images, h, w, c;  // of the source
  int64_t pad, out_h, out_w, n;
  int64_t down, across;  // tiles of an image
  int64_t chunk;         // tiles
  int64_t c_pitch, n_pitch;

  Tiling(const ir::Shape& x, int64_t border, int64_t results)
      : images(x[0]), h(x[1]), w(x[2]), c(x[3]), pad(border), n(results) {
    out_h = h + 2 * pad - 2;
    out_w = w + 2 * pad - 2;
    down = ceil_div(out_h, winograd_side);
    across = ceil_div(out_w, winograd_side);
    constexpr int64_t values = int64_t{1} << 20, fewest = 132;  // in flight, and tiles at least
    const int64_t most = std::max(fewest, values / (winograd_values * (c + n)));
    chunk = tiles() == 0 ? 0 : even_step(tiles(), most, scattered_rows);
    c_pitch = pitch_of(c);
    n_pitch = pitch_of(n);
  }
  int64_t tiles() const { return images * down * across; }
  // From the values of one point to those of the next: an odd number of cache lines, so that all
  // points of a tile find a place in the first-level cache.
  int64_t pitch_of(int64_t channels) const { return (ceil_div(chunk * channels, 16) | 1) * 16; }
  int64_t zeros() const { return ceil_div(c, 16) * 16; }
  int64_t floats() const { return zeros() + winograd_values * (c_pitch + n_pitch); }
};

// The pixels that a tile reads.
void point_at(const Tiling& g, const float* images, int64_t tile, const float* zeros,
              std::array<const float*, winograd_values>& pixels) {
  const int64_t image = tile / (g.down * g.across), rest = tile % (g.down * g.across);
  const int64_t y = rest / g.across * winograd_side - g.pad,
                x = rest % g.across * winograd_side - g.pad;
  auto to = pixels.begin();
  for (int64_t row = y; row < y + winograd_reads; ++row)
    for (int64_t col = x; col < x + winograd_reads; ++col) {
      const bool inside = row >= 0 && row < g.h && col >= 0 && col < g.w;
      *to++ = inside ? images + ((image * g.h + row) * g.w + col) * g.c : zeros;
    }
}

WinogradTile tile_of(const Tiling& g, int64_t tile, float* result, Finish finish) {
  const int64_t image = tile / (g.down * g.across), rest = tile % (g.down * g.across);
  const int64_t y = rest / g.across * winograd_side, x = rest % g.across * winograd_side;
  const int64_t at = ((image * g.out_h + y) * g.out_w + x) * g.n;
  if (finish.addend) finish.addend += at;
  return {.to = result + at,
          .row = g.out_w * g.n,
          .col = g.n,
          .rows = std::min(winograd_side, g.out_h - y),
          .cols = std::min(winograd_side, g.out_w - x),
          .finish = finish};
}

// Products of one point: `rows` tiles with columns [n0, n0 + columns) of its filters. The
// differences that make pixels of products enlarge their error, so sums are made of short chains.
void multiply(const Tiling& g, const float* values, int64_t rows, const float* filters, int64_t n0,
              int64_t columns, float* products, void* panel) {
  constexpr int64_t longest_chain = 128, strip = 2 * scattered_rows;
  const int64_t chain = ceil_div(g.c, ceil_div(g.c, longest_chain));
  for (int64_t first = 0; first < rows; first += strip)
    for (int64_t k0 = 0; k0 < g.c; k0 += chain)
      gemm_packed<float>(std::min(strip, rows - first), columns, std::min(chain, g.c - k0),
                         values + first * g.c + k0, g.c, 1, {filters, g.c, k0, n0}, k0 == 0 ? 0 : 1,
                         products + first * g.n, g.n, panel);
}

// Filters as a product reads them: number k of result j under tap t is data[t * tap + k * rs + j *
// cs]; either rs or cs is 1.
struct Filters {
  const float* data;
  int64_t tap, c, n, rs, cs;

  int64_t at_points() const { return winograd_values * packed_b_elements<float>(c, n); }
};
Filters of_conv(const float* f, const ir::Shape& shape) {
  return {f, shape[2] * shape[3], shape[2], shape[3], shape[3], 1};
}
// The gradient of images is a conv of the result's gradient, filters turned round and transposed.
Filters of_gradient(const float* f, const ir::Shape& shape) {
  const int64_t tap = shape[2] * shape[3];
  return {f + 8 * tap, -tap, shape[3], shape[2], 1, shape[3]};
}
Tiling tiling_of_gradient(const ir::Conv& attr, const ir::Shape& x, const ir::Shape& f) {
  const int64_t shrinks = 2 - 2 * attr.pad;
  return {{x[0], x[1] - shrinks, x[2] - shrinks, f[3]}, 2 - attr.pad, f[2]};
}

// A task has some results and some channels of all points, which lie an odd number of lines apart.
constexpr int64_t filters_block = panel_columns;
constexpr int64_t block_pitch = filters_block * filters_block + 16;
void pack(const Call& call, const Filters& f, float* packed) {
  const int64_t across = ceil_div(f.n, filters_block), down = ceil_div(f.c, filters_block);
  call.pool.parallel_for(across * down, [&](int64_t task, int thread) {
    const int64_t n0 = task / down * filters_block, size = std::min(filters_block, f.n - n0),
                  c0 = task % down * filters_block, channels = std::min(filters_block, f.c - c0);
    float* const values = call.scratch_of<float>(thread);
    const bool by_channel = f.cs == 1;  // a line is the results of a channel
    const int64_t lines = by_channel ? channels : size, length = by_channel ? size : channels;
    for (int64_t i = 0; i < lines; ++i)
      winograd_filters(f.data + c0 * f.rs + n0 * f.cs + i * (by_channel ? f.rs : f.cs), f.tap,
                       length, values + i * length, block_pitch);
    const int64_t rs = by_channel ? length : 1, cs = by_channel ? 1 : length;
    for (int64_t point = 0; point < winograd_values; ++point)  // channel 0 would lie c0 rows before
      gemm_pack_b<float>(
          f.c, 0, size, values + point * block_pitch - c0 * rs, rs, cs,
          packed + point * packed_b_elements<float>(f.c, f.n) + packed_b_elements<float>(f.c, n0),
          {c0, channels});
  });
}

// All of a conv whose filters are packed: `room` has Tiling::floats().
struct Work {
  const float* images;
  const float* filters;
  float* results;
  float* room;
  Finish finish = {};
};
void convolve(const Call& call, const Tiling& g, const Work& work) {
  float* const zeros = work.room;
  float* const values = zeros + g.zeros();  // of the images
  float* const products = values + winograd_values * g.c_pitch;
  std::fill_n(zeros, g.c, 0.0f);

  constexpr int64_t together = 4;               // tiles of a task of the transforms
  constexpr int64_t m_most = 96, n_most = 256;  // of a task of the products
  for (int64_t first = 0; first < g.tiles(); first += g.chunk) {
    const int64_t count = std::min(g.chunk, g.tiles() - first);
    call.pool.parallel_for(ceil_div(count, together), [&](int64_t task, int) {
      std::array<const float*, winograd_values> pixels;
      for (int64_t i = task * together; i < std::min(count, (task + 1) * together); ++i) {
        point_at(g, work.images, first + i, zeros, pixels);
        winograd_input(pixels.data(), g.c, values + i * g.c, g.c_pitch);
      }
    });
    const int64_t m_step = even_step(count, m_most, scattered_rows),
                  n_step = even_step(g.n, n_most, panel_columns);
    const int64_t m_tasks = ceil_div(count, m_step), n_tasks = ceil_div(g.n, n_step);
    call.pool.parallel_for(winograd_values * n_tasks * m_tasks, [&](int64_t task, int thread) {
      const int64_t point = task / (n_tasks * m_tasks), m0 = task % m_tasks * m_step,
                    n0 = task / m_tasks % n_tasks * n_step;
      multiply(g, values + point * g.c_pitch + m0 * g.c, std::min(m_step, count - m0),
               work.filters + point * packed_b_elements<float>(g.c, g.n), n0,
               std::min(n_step, g.n - n0), products + point * g.n_pitch + m0 * g.n + n0,
               call.scratch_of<std::byte>(thread));
    });
    call.pool.parallel_for(ceil_div(count, together), [&](int64_t task, int) {
      for (int64_t i = task * together; i < std::min(count, (task + 1) * together); ++i)
        winograd_output(products + i * g.n, g.n_pitch, g.n,
                        tile_of(g, first + i, work.results, work.finish));
    });
  }
}

// Whether shapes are those that the algorithm is for.
bool fits(const ir::Conv& attr, const ir::Shape& x, const ir::Shape& f) {
  constexpr int64_t fewest_channels = 32;
  return f[0] == 3 && f[1] == 3 && attr.stride == 1 && std::min(f[2], f[3]) >= fewest_channels &&
         std::min(x[1], x[2]) + 2 * attr.pad >= 3;
}
// Whether so many products for tiles are half of those of the conv or fewer.
bool saves(const Tiling& g, int64_t tiles, int64_t images) {
  return 9 * images * g.out_h * g.out_w >= 2 * winograd_values * tiles;
}

std::size_t bytes(int64_t floats) { return sizeof(float) * static_cast<std::size_t>(floats); }
Scratch scratch(const Tiling& g, int64_t filters) {
  return {.shared = bytes(filters + g.floats()),
          .per_thread = std::max(static_cast<std::size_t>(panel_bytes),
                                 bytes(winograd_values * block_pitch))};  // the second when packing
}

// Packs the filters in front of the room that the rest needs.
void train(const Call& call, const Tiling& g, const Filters& f, bool relu) {
  if (call.out[0].elements() == 0) return;
  float* const packed = call.shared_scratch<float>();
  CHECK(call.scratch.shared >= bytes(f.at_points() + g.floats()), "winograd: scratch too small");
  pack(call, f, packed);
  convolve(call, g,
           {call.in[0].as<float>(),
            packed,
            call.out[0].as<float>(),
            packed + f.at_points(),
            {.relu = relu}});
}

}  // namespace

bool winograd_pays(const ir::Conv& attr, std::span<const ir::Type> in) {
  const ir::Shape &x = in[0].shape, &f = in[1].shape;
  for (const ir::Type& type : in)
    if (type.dtype != ir::DType::f32) return false;
  if (!fits(attr, x, f)) return false;
  const Tiling g(x, attr.pad, f[3]);
  const int64_t rows = ceil_div(g.tiles(), scattered_rows) * scattered_rows;
  return saves(g, rows, g.images) && rows > 0;
}

int64_t winograd_bytes(const ir::Shape& f) {
  return int64_t{sizeof(float)} * of_conv(nullptr, f).at_points();
}

Scratch winograd_scratch(const ir::Conv& attr, const ir::Shape& x, const ir::Shape& f) {
  return scratch(Tiling(x, attr.pad, f[3]), 0);
}

void winograd_pack(const Call& call) {
  pack(call, of_conv(call.in[1].as<float>(), call.in[1].shape),
       reinterpret_cast<float*>(call.packed));
}

void winograd_conv(const Call& call) {
  const auto& attr = call.attr<ir::Conv>();
  const Tiling g(call.in[0].shape, attr.pad, call.in[1].shape[3]);
  if (call.out[0].elements() == 0) return;
  CHECK(call.scratch.shared >= bytes(g.floats()), "winograd: scratch too small");
  Finish finish{.relu = attr.relu};
  if (call.in.size() > 2) {
    finish.scale = call.in[2].as<float>();
    finish.offset = call.in[3].as<float>();
  }
  if (call.in.size() > 4) finish.addend = call.in[4].as<float>();
  convolve(call, g,
           {call.in[0].as<float>(), reinterpret_cast<const float*>(call.packed),
            call.out[0].as<float>(), call.shared_scratch<float>(), finish});
}

bool winograd_trains(const ir::Conv& attr, const ir::Shape& x, const ir::Type& f) {
  const bool wide = f.dtype == ir::DType::f32 || f.dtype == ir::DType::f16;
  if (!wide || !fits(attr, x, f.shape) || attr.pad > 2) return false;
  const auto one = [](const Tiling& g) { return saves(g, g.down * g.across, 1); };
  return one(Tiling(x, attr.pad, f.shape[3])) && one(tiling_of_gradient(attr, x, f.shape));
}

Scratch winograd_training_scratch(const ir::Conv& attr, const ir::Shape& x, const ir::Shape& f) {
  const Scratch one = scratch(Tiling(x, attr.pad, f[3]), of_conv(nullptr, f).at_points()),
                other =
                    scratch(tiling_of_gradient(attr, x, f), of_gradient(nullptr, f).at_points());
  return {.shared = std::max(one.shared, other.shared),
          .per_thread = std::max(one.per_thread, other.per_thread)};
}

void winograd_train_conv(const Call& call) {
  const ir::Shape& f = call.in[1].shape;
  const auto& attr = call.attr<ir::Conv>();
  train(call, Tiling(call.in[0].shape, attr.pad, f[3]), of_conv(call.in[1].as<float>(), f),
        attr.relu);
}

void winograd_input_grad(const Call& call) {
  const ir::Shape& f = call.in[1].shape;
  train(call, tiling_of_gradient(call.attr<ir::Conv>(), call.out[0].shape, f),
        of_gradient(call.in[1].as<float>(), f), false);
}

}  // namespace tessera::exec::cpu
