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

  Tiling(const ir::Conv& attr, const ir::Shape& x, const ir::Shape& f)
      : images(x[0]), h(x[1]), w(x[2]), c(x[3]), pad(attr.pad), n(f[3]) {
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

// G of the points 0, 5/8, -5/8, 3/2, -3/2 and infinity: their powers over the products of their
// distances.
struct FilterTransform {
  double g[winograd_reads][3] = {};

  FilterTransform() {
    constexpr std::array points{0.0, 0.625, -0.625, 1.5, -1.5};
    for (std::size_t i = 0; i < points.size(); ++i) {
      double distances = 1;
      for (std::size_t j = 0; j < points.size(); ++j)
        if (j != i) distances *= points[i] - points[j];
      g[i][0] = 1 / distances;
      g[i][1] = points[i] / distances;
      g[i][2] = points[i] * points[i] / distances;
    }
    g[5][2] = 1;
  }
};

// The filters of one channel at a point, for `size` results, summed in double.
void filters_at(const FilterTransform& t, int64_t point, const float* f, int64_t tap, int64_t size,
                float* to) {
  std::array<double, panel_columns> sums{};
  for (int64_t k = 0; k < 3; ++k)
    for (int64_t l = 0; l < 3; ++l, f += tap) {
      const double factor = t.g[point / winograd_reads][k] * t.g[point % winograd_reads][l];
      for (int64_t j = 0; j < size; ++j)
        sums[static_cast<std::size_t>(j)] += factor * static_cast<double>(f[j]);
    }
  for (int64_t j = 0; j < size; ++j) to[j] = static_cast<float>(sums[static_cast<std::size_t>(j)]);
}

}  // namespace

bool winograd_pays(const ir::Conv& attr, std::span<const ir::Type> in) {
  constexpr int64_t fewest_channels = 32;
  const ir::Shape &x = in[0].shape, &f = in[1].shape;
  for (const ir::Type& type : in)
    if (type.dtype != ir::DType::f32) return false;
  if (f[0] != 3 || f[1] != 3 || attr.stride != 1) return false;
  if (std::min(f[2], f[3]) < fewest_channels) return false;
  if (std::min(x[1], x[2]) + 2 * attr.pad < 3) return false;
  const Tiling g(attr, x, f);
  const int64_t rows = ceil_div(g.tiles(), scattered_rows) * scattered_rows;
  return 9 * g.images * g.out_h * g.out_w >= 2 * winograd_values * rows && rows > 0;
}

int64_t winograd_bytes(const ir::Shape& f) {
  return int64_t{sizeof(float)} * winograd_values * packed_b_elements<float>(f[2], f[3]);
}

Scratch winograd_scratch(const ir::Conv& attr, const ir::Shape& x, const ir::Shape& f) {
  const auto bytes = [](int64_t floats) {
    return sizeof(float) * static_cast<std::size_t>(floats);
  };
  return {.shared = bytes(Tiling(attr, x, f).floats()),
          .per_thread = std::max(static_cast<std::size_t>(panel_bytes),
                                 bytes(f[2] * panel_columns))};  // the second when packing
}

void winograd_pack(const Call& call) {
  const ir::Shape& f = call.in[1].shape;
  const int64_t c = f[2], n = f[3], panels = ceil_div(n, panel_columns);
  const FilterTransform transform;
  call.pool.parallel_for(winograd_values * panels, [&](int64_t task, int thread) {
    const int64_t point = task / panels, n0 = task % panels * panel_columns,
                  size = std::min(panel_columns, n - n0);
    float* const values = call.scratch_of<float>(thread);
    for (int64_t channel = 0; channel < c; ++channel)
      filters_at(transform, point, call.in[1].as<float>() + channel * n + n0, c * n, size,
                 values + channel * size);
    gemm_pack_b<float>(c, 0, size, values, size, 1,
                       reinterpret_cast<float*>(call.packed) +
                           point * packed_b_elements<float>(c, n) +
                           packed_b_elements<float>(c, n0));
  });
}

void winograd_conv(const Call& call) {
  const auto& attr = call.attr<ir::Conv>();
  const Tiling g(attr, call.in[0].shape, call.in[1].shape);
  if (call.out[0].elements() == 0) return;
  CHECK(call.scratch.shared >= sizeof(float) * static_cast<std::size_t>(g.floats()),
        "winograd: scratch too small");
  Finish finish{.relu = attr.relu};
  if (call.in.size() > 2) {
    finish.scale = call.in[2].as<float>();
    finish.offset = call.in[3].as<float>();
  }
  if (call.in.size() > 4) finish.addend = call.in[4].as<float>();
  float* const zeros = call.shared_scratch<float>();
  float* const values = zeros + g.zeros();  // of the images
  float* const products = values + winograd_values * g.c_pitch;
  const float* const filters = reinterpret_cast<const float*>(call.packed);
  std::fill_n(zeros, g.c, 0.0f);

  constexpr int64_t together = 4;               // tiles of a task of the transforms
  constexpr int64_t m_most = 96, n_most = 256;  // of a task of the products
  for (int64_t first = 0; first < g.tiles(); first += g.chunk) {
    const int64_t count = std::min(g.chunk, g.tiles() - first);
    call.pool.parallel_for(ceil_div(count, together), [&](int64_t task, int) {
      std::array<const float*, winograd_values> pixels;
      for (int64_t i = task * together; i < std::min(count, (task + 1) * together); ++i) {
        point_at(g, call.in[0].as<float>(), first + i, zeros, pixels);
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
               filters + point * packed_b_elements<float>(g.c, g.n), n0, std::min(n_step, g.n - n0),
               products + point * g.n_pitch + m0 * g.n + n0, call.scratch_of<std::byte>(thread));
    });
    call.pool.parallel_for(ceil_div(count, together), [&](int64_t task, int) {
      for (int64_t i = task * together; i < std::min(count, (task + 1) * together); ++i)
        winograd_output(products + i * g.n, g.n_pitch, g.n,
                        tile_of(g, first + i, call.out[0].as<float>(), finish));
    });
  }
}

}  // namespace tessera::exec::cpu
