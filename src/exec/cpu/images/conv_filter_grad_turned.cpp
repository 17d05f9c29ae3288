// The gradient of a convolution's filters in bf16 as products of matrices: images are turned once,
// a row for each channel with all of its pixels, and what a tap reads of a channel is that row from
// the tap's offset on, since rows of pixels have zeros between them. The gradient's pixels are
// packed at the same places. Convention: chunks of pixels, whose sums are added in order, are a
// function of the shapes alone; tiles, which no bit depends on, may follow the threads.
#include <algorithm>
#include <cstring>
#include <vector>

#include "base/index.h"
#include "exec/cpu/gemm/gemm.h"
#include "exec/cpu/gemm/tasks.h"
#include "exec/cpu/images/conv.h"
#include "exec/cpu/low.h"
#include "exec/cpu/simd/vector.h"

namespace tessera::exec::cpu {
namespace {

using std::int64_t;

int64_t whole_groups(int64_t k) { return ceil_div(k, low_group) * low_group; }

// One side of an image in its turned rows: pixels that taps read, and zeros for its borders.
struct Side {
  int64_t result, image, filter, stride, pad;

  // Places to the next line. The zeros behind one line are those in front of the next.
  int64_t pitch() const { return result + std::max(pad, filter - 1 - pad); }
  // Pixels [0, pixels()), a stride apart, are at the places from `pad` on; taps read no other.
  int64_t pixels() const { return std::min(result + filter - 1 - pad, ceil_div(image, stride)); }
};

// How a gradient is computed this way, by its shapes.
struct TurnedFilters {
  static constexpr int64_t most_bytes = int64_t{48} << 20;  // of a group of images
  int64_t images, c, o;
  Side down, across;
  int64_t line, image;  // numbers of a turned row that these take
  int64_t group;        // images that are turned together
  int64_t k, row;       // numbers of a group, and those of a row with what the last taps read
  int64_t chunk, chunks;

  TurnedFilters(const ir::Conv& attr, const ir::Shape& g, const ir::Shape& x, const ir::Shape& f)
      : images(g[0]),
        c(f[2]),
        o(f[3]),
        down{g[1], x[1], f[0], attr.stride, attr.pad},
        across{g[2], x[2], f[1], attr.stride, attr.pad} {
    if (single() && attr.stride == 1 && attr.pad == 0) {  // all pixels follow each other
      across = {g[1] * g[2], x[1] * x[2], 1, 1, 0};
      down = {1, 1, 1, 1, 0};
    }
    line = (across.pitch() + 1) / 2 * 2;  // pairs of a packed gradient begin with a line
    image = down.pitch() * line;
    group = std::clamp<int64_t>(most_bytes / std::max<int64_t>(1, bytes_of_image()), 1,
                                std::max<int64_t>(1, images));
    k = whole_groups(group * image);
    // An odd number of cache lines, so that rows below each other are in different sets.
    row = (ceil_div(k + offset(taps() - 1), low_group) | 1) * low_group;
    constexpr int64_t enough = 192, most_chunks = 16, shortest = 512;
    const int64_t tiles = std::max<int64_t>(1, taps() * lanes() / low_rows * panels());
    chunks = std::clamp<int64_t>(std::min(ceil_div(enough, tiles), k / shortest), 1, most_chunks);
    chunk = whole_groups(ceil_div(k, chunks));
    chunks = ceil_div(k, chunk);
  }

  bool single() const { return taps() == 1; }
  int64_t taps() const { return down.filter * across.filter; }
  int64_t lanes() const { return ceil_div(c, low_rows) * low_rows; }
  int64_t panels() const { return ceil_div(o, panel_columns); }
  // Where a tap's numbers begin in a row.
  int64_t offset(int64_t tap) const { return tap / across.filter * line + tap % across.filter; }
  int64_t place(int64_t image_index, int64_t y, int64_t x) const {
    return image_index * image + y * line + x;
  }
  int64_t bytes_of_image() const { return 2 * image * (lanes() + packed_columns(o)); }
  int64_t turned_elements() const { return lanes() * row; }
  int64_t packed_elements() const { return k * packed_columns(o); }
  int64_t sums() const { return taps() * c * o; }

  bool serves() const {
    return (down.stride == 1 || single()) && c > 0 && o > 0 && images > 0 && down.result > 0 &&
           across.result > 0 && bytes_of_image() <= most_bytes;
  }
  // Turned images go to memory and come back, the packed gradient does by half: many operations
  // must be done with a number of either.
  bool pays() const {
    constexpr int64_t operations = 110;
    return c >= 16 && taps() * c * o * down.result * across.result >=
                          operations * (2 * lanes() + packed_columns(o)) * image;
  }
};

// A part of the images of a group, `there` of them from x on: lines [begin, end) of one image, a
// panel of channels from `first` on.
struct TurnPart {
  const Low* x;
  int64_t there, image, begin, end, first;
};
// Each line is followed by zeros up to the next one, the last by zeros up to the end of the row.
void turn_lines(const TurnedFilters& t, const TurnPart& part, Low* to) {
  const int64_t pixels = t.across.pixels(), lines = t.down.pixels(),
                lanes = std::min<int64_t>(low_rows, t.c - part.first);
  Low* const rows = to + part.first * t.row;
  const auto zeros = [&](int64_t from, int64_t until) {
    for (int64_t lane = 0; lane < low_rows; ++lane)
      std::fill(rows + lane * t.row + from, rows + lane * t.row + until, Low{0});
  };
  const auto place_of = [&](int64_t image, int64_t y) {
    return t.place(image, y + t.down.pad, t.across.pad);
  };
  if (part.image == 0 && part.begin == 0) zeros(0, place_of(0, 0));
  for (int64_t y = part.begin; y < std::min(part.end, lines); ++y) {
    const int64_t at = place_of(part.image, y),
                  next = y + 1 < lines                 ? place_of(part.image, y + 1)
                         : part.image + 1 < part.there ? place_of(part.image + 1, 0)
                                                       : t.row,
                  pixel = (part.image * t.down.image + y * t.down.stride) * t.across.image;
    low_packs().rows_32({.used = lanes,
                         .k = pixels,
                         .padded = pixels,
                         .from = part.x + pixel * t.c + part.first,
                         .lane_step = 1,
                         .k_step = t.across.stride * t.c,
                         .pitch = t.row},
                        rows + at);
    zeros(at + pixels, next);
  }
}

// The gradient's pixels of one of `there` images of a group, a panel of columns from n0 on.
void pack_gradient(const TurnedFilters& t, const Low* dy, int64_t there, int64_t image, int64_t n0,
                   Low* to) {
  const Micro& kernel = micro_low();
  for (int64_t j = n0; j < std::min(t.o, n0 + panel_columns); j += kernel.columns) {
    auto* const panel = reinterpret_cast<std::byte*>(to + j * t.k);
    for (int64_t y = 0; y < t.down.result; ++y)
      kernel.pack_b({.used = std::min(kernel.columns, t.o - j),
                     .k = t.across.result,
                     .padded = t.line,
                     .from = dy + (image * t.down.result + y) * t.across.result * t.o + j,
                     .lane_step = 1,
                     .k_step = t.o},
                    panel + t.place(image, y, 0) * kernel.b_bytes);
    const int64_t end = t.place(image, t.down.result, 0),
                  next = image + 1 < there ? t.place(image + 1, 0, 0) : t.k;
    std::memset(panel + end * kernel.b_bytes, 0,
                static_cast<std::size_t>((next - end) * kernel.b_bytes));
  }
}

struct SharedParts {
  std::size_t partials = 0, turned = 0, packed = 0;  // bytes
  SharedParts(const TurnedFilters& t, bool direct)
      : partials(sizeof(float) *
                 static_cast<std::size_t>((t.chunks - (direct ? 1 : 0)) * t.sums())),
        turned(sizeof(Low) * static_cast<std::size_t>(t.turned_elements())),
        packed(sizeof(Low) * static_cast<std::size_t>(t.packed_elements())) {
    partials = (partials + 63) / 64 * 64;
  }
  std::size_t all() const { return partials + turned + packed; }
};

}  // namespace

bool turned_filters_serve(const ir::Conv& attr, const ir::Shape& g, const ir::Shape& x,
                          const ir::Shape& f) {
  return TurnedFilters(attr, g, x, f).serves();
}
bool turned_filters_pay(const ir::Conv& attr, const ir::Shape& g, const ir::Shape& x,
                        const ir::Shape& f) {
  const TurnedFilters t(attr, g, x, f);
  return t.serves() && t.pays();
}
Scratch scratch_filter_grad_turned(const ir::Conv& attr, const ir::Shape& g, const ir::Shape& x,
                                   const ir::Shape& f, bool direct) {
  return {.shared = SharedParts(TurnedFilters(attr, g, x, f), direct).all(),
          .per_thread = panel_bytes};
}

void filter_grad_turned(const Call& call) {
  const ir::Shape &g = call.in[0].shape, &x = call.in[1].shape, &f = call.out[0].shape;
  const TurnedFilters t(call.attr<ir::Conv>(), g, x, f);
  const bool direct = !is_bf16(call.out[0]);
  const SharedParts parts(t, direct);
  float* const partials = call.shared_scratch<float>();
  Low* const turned = reinterpret_cast<Low*>(call.shared + parts.partials);
  Low* const packed = reinterpret_cast<Low*>(call.shared + parts.partials + parts.turned);
  const auto sums_of = [&](int64_t chunk) {
    if (direct && chunk == 0) return call.out[0].as<float>();
    return partials + (chunk - (direct ? 1 : 0)) * t.sums();
  };
  const ProductTask tile =
      product_task(task_sizes(micro_low()), t.c, t.o, t.chunk, t.taps() * t.chunks,
                   call.pool.size(), [](ProductTask) { return true; });
  const int64_t down = ceil_div(t.c, tile.rows), across = ceil_div(t.o, tile.columns);
  for (int64_t begin = 0; begin < t.images; begin += t.group) {
    const int64_t there = std::min(t.group, t.images - begin);
    constexpr int64_t lines = 8;  // that a task turns
    const int64_t strips = ceil_div(t.down.pixels(), lines), blocks = t.lanes() / low_rows,
                  turns = there * strips * blocks, panels = t.panels();
    const Low *const images = call.in[1].as<Low>() + begin * x[1] * x[2] * x[3],
                     *const gradient = call.in[0].as<Low>() + begin * g[1] * g[2] * g[3];
    call.pool.parallel_for(turns + panels * there, [&](int64_t task, int) {
      if (task >= turns) {
        task -= turns;
        return pack_gradient(t, gradient, there, task / panels, task % panels * panel_columns,
                             packed);
      }
      const int64_t block = task % blocks, strip = task / blocks % strips;
      turn_lines(t,
                 {.x = images,
                  .there = there,
                  .image = task / blocks / strips,
                  .begin = strip * lines,
                  .end = (strip + 1) * lines,
                  .first = block * low_rows},
                 turned);
    });
    call.pool.parallel_for(t.taps() * t.chunks * down * across, [&](int64_t task, int thread) {
      // Tasks of the same columns and pixels follow each other.
      const int64_t m0 = task % down * tile.rows, tap = task / down % t.taps(),
                    n0 = task / down / t.taps() % across * tile.columns,
                    part = task / down / t.taps() / across, k0 = part * t.chunk;
      gemm_packed<Low>(std::min(tile.rows, t.c - m0), std::min(tile.columns, t.o - n0),
                       std::min(t.chunk, t.k - k0), turned + t.offset(tap) + m0 * t.row + k0, t.row,
                       1, {packed, t.k, k0, n0}, begin == 0 ? 0.0f : 1.0f,
                       sums_of(part) + (tap * t.c + m0) * t.o + n0, t.o,
                       call.scratch_of<std::byte>(thread));
    });
  }
  if (direct && t.chunks == 1) return;
  for_chunks(call.pool, t.sums(), chunk, [&](int64_t begin, int64_t n) {
    float* const sum = sums_of(0) + begin;
    for (int64_t part = 1; part < t.chunks; ++part) vector_add(sum, sums_of(part) + begin, sum, n);
    give(call.out[0], begin, n, sum);
  });
}

}  // namespace tessera::exec::cpu
