// The gradient of a convolution's filters: what the taps of some pixels read is gathered and
// multiplied with the gradient of those pixels. (There are other ways: conv_filter_grad_turned.cpp,
// conv_filter_grad_narrow.cpp and conv_filter_grad_lines.cpp.) Convention: tiles and the order of
// sums are functions of the shapes alone.
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "base/index.h"
#include "exec/cpu/gemm/gemm.h"
#include "exec/cpu/images/conv.h"
#include "exec/cpu/kernel.h"
#include "exec/cpu/low.h"
#include "exec/cpu/simd/vector.h"

namespace tessera::exec::cpu {
namespace {

using std::int64_t;

// `pixels`: (image, row, col) of each. Row r of `to` = the channels under each of the taps of pixel
// r, zeros outside the image.
template <class T>
void gather_taps(const Gather<T>& from, const int64_t* pixels, int64_t count, const Tap* taps,
                 int64_t tap_count, int64_t channels, T* to) {
  const auto bytes = static_cast<std::size_t>(channels) * sizeof(T);
  if (bytes == 0) return;  // a rank may have no channel
  for (int64_t r = 0; r < count; ++r) {
    const int64_t image = pixels[3 * r], y = pixels[3 * r + 1], x = pixels[3 * r + 2];
    const T* source = from.data + image * from.h * from.w * from.c;
    for (int64_t t = 0; t < tap_count; ++t, to += channels) {
      const int64_t row = y + taps[t].row, col = x + taps[t].col;
      if (row >= 0 && row < from.h && col >= 0 && col < from.w)
        std::memcpy(to, source + (row * from.w + col) * from.c, bytes);
      else
        std::memset(to, 0, bytes);
    }
  }
}

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
        const double score = used * (busy_share(tasks, 2) + busy_share(tasks, 16)) / overhead;
        if (score > best) {
          best = score;
          columns = n;
          chunks = parts;
        }
      }
    across = ceil_div(o, columns);
    chunk_pixels = std::max<int64_t>(1, ceil_div(pixels, chunks));
  }
  static constexpr int64_t rows_at_once = 192;
  // Sums are f32 and lie in dw itself, those of the first chunk, where it is f32.
  int64_t partials(bool direct) const { return chunks - (direct ? 1 : 0); }
  std::size_t gathered() const {
    return static_cast<std::size_t>(rows_at_once * taps_in_tile * channels_in_tile);
  }
};

// Sums of one task: a tile of filters and channels, of one chunk of pixels.
struct FilterTask {
  int64_t n0, n, chunk, tap, taps, c0, c;
  FilterTask(const FilterTiles& t, int64_t task) {
    n0 = task % t.across * t.columns;
    n = std::min(t.columns, t.o - n0);
    task /= t.across;
    chunk = task / t.tiles;
    const int64_t tile = task % t.tiles;
    tap = tile / t.channel_tiles * t.taps_in_tile;
    taps = std::min(t.taps_in_tile, t.taps - tap);
    c0 = tile % t.channel_tiles * t.channels_in_tile;
    c = std::min(t.channels_in_tile, t.c - c0);
  }
};

template <class T>
void filter_grad(const Call& call) {
  const auto& attr = call.attr<ir::Conv>();
  const ir::Shape &g = call.in[0].shape, &x = call.in[1].shape, &f = call.out[0].shape;
  if (call.out[0].elements() == 0) return;
  const FilterTiles t(g, f);
  const T *const dy = call.in[0].as<T>(), *const from = call.in[1].as<T>();
  const bool direct = !is_bf16(call.out[0]);
  // Filters of one pixel read images as they lie.
  const bool as_they_lie = t.taps == 1 && attr.stride == 1 && attr.pad == 0;
  float* const partials = call.shared_scratch<float>();
  const int64_t size = t.taps * t.c * t.o;
  const auto sums_of = [&](int64_t chunk) {
    if (direct && chunk == 0) return call.out[0].as<float>();
    return partials + (chunk - (direct ? 1 : 0)) * size;
  };
  call.pool.parallel_for(t.tiles * t.across * t.chunks, [&](int64_t task, int thread) {
    const FilterTask now(t, task);
    if (now.c <= 0) return;
    float* const to = sums_of(now.chunk) + (now.tap * t.c + now.c0) * t.o + now.n0;
    std::byte* const packed = call.scratch_of<std::byte>(thread);
    T* const gathered = reinterpret_cast<T*>(packed + gemm_scratch_bytes);
    std::vector<Tap> list;
    for (int64_t k = now.tap; k < now.tap + now.taps; ++k)
      list.push_back({k / f[1] - attr.pad, k % f[1] - attr.pad});
    const int64_t begin = now.chunk * t.chunk_pixels,
                  end = std::min(t.pixels, begin + t.chunk_pixels), k = now.taps * now.c;
    std::vector<int64_t> at(3 * FilterTiles::rows_at_once);
    if (begin >= end)
      for (int64_t row = 0; row < k; ++row) std::fill_n(to + row * t.o, now.n, 0.0f);
    for (int64_t pixel = begin; pixel < end; pixel += FilterTiles::rows_at_once) {
      const int64_t rows = std::min(FilterTiles::rows_at_once, end - pixel);
      const T* const gradient = dy + pixel * t.o + now.n0;
      const float beta = pixel == begin ? 0 : 1;
      if (as_they_lie) {
        gemm<T>(k, now.n, rows, 1, from + pixel * t.c + now.c0, 1, t.c, gradient, t.o, 1, beta, to,
                t.o, 1, packed);
        continue;
      }
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t rest = (pixel + r) % (g[1] * g[2]);
        at[3 * r] = (pixel + r) / (g[1] * g[2]);
        at[3 * r + 1] = rest / g[2] * attr.stride;
        at[3 * r + 2] = rest % g[2] * attr.stride;
      }
      gather_taps<T>({from + now.c0, x[1], x[2], x[3]}, at.data(), rows, list.data(), now.taps,
                     now.c, gathered);
      gemm<T>(k, now.n, rows, 1, gathered, 1, k, gradient, t.o, 1, beta, to, t.o, 1, packed);
    }
  });
  if (direct && t.chunks == 1) return;
  for_chunks(call.pool, size, chunk, [&](int64_t begin, int64_t n) {
    float* const sum = sums_of(0) + begin;
    for (int64_t part = 1; part < t.chunks; ++part) vector_add(sum, sums_of(part) + begin, sum, n);
    give(call.out[0], begin, n, sum);
  });
}

}  // namespace

void fast_conv_filter_grad(const Call& call) {
  const auto& attr = call.attr<ir::Conv>();
  const ir::Shape &g = call.in[0].shape, &x = call.in[1].shape, &f = call.out[0].shape;
  if (!is_bf16(call.in[0])) {
    const bool lines = micro_f32().in_place.tile && filter_lines_serve(attr, g, x, f);
    return lines ? filter_grad_lines(call) : filter_grad<float>(call);
  }
  if (micro_low().product && narrow_filters_serve(attr, g, x, f)) return filter_grad_narrow(call);
  const bool turns = micro_low().turns && turned_filters_pay(attr, g, x, f);
  turns ? filter_grad_turned(call) : filter_grad<Low>(call);
}
Scratch scratch_conv_filter_grad(const ir::Attrs& attrs, std::span<const ir::Type> in,
                                 std::span<const ir::Type> out) {
  const FilterTiles t(in[0].shape, out[0].shape);
  const Scratch gathered = {
      .shared =
          sizeof(float) * static_cast<std::size_t>(t.partials(out[0].dtype != ir::DType::bf16) *
                                                   ir::elements(out[0].shape)),
      .per_thread = gemm_scratch_bytes + sizeof(float) * t.gathered()};
  const auto& attr = std::get<ir::Conv>(attrs);
  const ir::Shape &g = in[0].shape, &x = in[1].shape, &f = out[0].shape;
  if (in[0].dtype != ir::DType::bf16)
    return filter_lines_serve(attr, g, x, f)
               ? larger(gathered, scratch_filter_grad_lines(attr, g, x, f))
               : gathered;
  if (narrow_filters_serve(attr, g, x, f))
    return larger(gathered, scratch_filter_grad_narrow(attr, g, x, f));
  if (!turned_filters_pay(attr, g, x, f)) return gathered;
  return larger(gathered,
                scratch_filter_grad_turned(attr, g, x, f, out[0].dtype != ir::DType::bf16));
}

}  // namespace tessera::exec::cpu
