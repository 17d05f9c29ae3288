// Windows by their definitions, token by token, and the bias by relative position. The last three
// are also what f32 programs run: they are small beside any attention. Legend: b batch, h w image
// of tokens, c channel, n window, t token of a window (i, j: two of them).
#include <cstring>

#include "exec/cpu/reference/instantiate.h"

namespace tessera::exec::cpu {
namespace {

using std::int64_t;

// Where token `t` of window `n` lies in the padded image, before the roll.
struct Grid {
  int64_t wh, ww, rows, columns;  // of a window; windows along each dim
  int64_t sh, sw;

  Grid(const ir::Shape& size, const ir::Shape& shift, int64_t h, int64_t w)
      : wh(size[0]),
        ww(size[1]),
        rows((h + wh - 1) / wh),
        columns((w + ww - 1) / ww),
        sh(shift[0]),
        sw(shift[1]) {}
  int64_t windows() const { return rows * columns; }
  int64_t tokens() const { return wh * ww; }
  int64_t rolled_y(int64_t n, int64_t t) const { return n / columns * wh + t / ww; }
  int64_t rolled_x(int64_t n, int64_t t) const { return n % columns * ww + t % ww; }
  int64_t y(int64_t n, int64_t t) const { return (rolled_y(n, t) + sh) % (rows * wh); }
  int64_t x(int64_t n, int64_t t) const { return (rolled_x(n, t) + sw) % (columns * ww); }
};

// Which of the parts of a rolled dim a position belongs to: the last window holds what came from
// the other end after its first part.
int64_t part(int64_t position, int64_t extent, int64_t size, int64_t shift) {
  return shift == 0 || position < extent - size ? 0 : position < extent - shift ? 1 : 2;
}

// The row of the table that tokens i and j read.
int64_t table_row(int64_t i, int64_t j, const ir::Shape& size) {
  const int64_t dy = i / size[1] - j / size[1] + size[0] - 1,
                dx = i % size[1] - j % size[1] + size[1] - 1;
  return dy * (2 * size[1] - 1) + dx;
}

}  // namespace

template <class T>
void reference_window(const Call& call) {
  const auto& attr = call.attr<ir::Window>();
  const ir::Shape& s = call.in[0].shape;
  const Grid grid(attr.size, attr.shift, s[1], s[2]);
  const T* x = call.in[0].as<T>();
  T* y = call.out[0].as<T>();
  for (int64_t b = 0; b < s[0]; ++b)
    for (int64_t n = 0; n < grid.windows(); ++n)
      for (int64_t t = 0; t < grid.tokens(); ++t, y += s[3]) {
        const int64_t row = grid.y(n, t), column = grid.x(n, t);
        const bool inside = row < s[1] && column < s[2];
        for (int64_t c = 0; c < s[3]; ++c)
          y[c] = inside ? x[((b * s[1] + row) * s[2] + column) * s[3] + c] : T{0};
      }
}

template <class T>
void reference_unwindow(const Call& call) {
  const auto& attr = call.attr<ir::Window>();
  const ir::Shape& s = call.out[0].shape;
  const Grid grid(attr.size, attr.shift, s[1], s[2]);
  const T* x = call.in[0].as<T>();
  T* y = call.out[0].as<T>();
  for (int64_t b = 0; b < s[0]; ++b)
    for (int64_t n = 0; n < grid.windows(); ++n)
      for (int64_t t = 0; t < grid.tokens(); ++t, x += s[3]) {
        const int64_t row = grid.y(n, t), column = grid.x(n, t);
        if (row >= s[1] || column >= s[2]) continue;
        for (int64_t c = 0; c < s[3]; ++c) y[((b * s[1] + row) * s[2] + column) * s[3] + c] = x[c];
      }
}

template <class T>
void reference_window_mask(const Call& call) {
  const auto& attr = call.attr<ir::WindowMask>();
  const Grid grid(attr.size, attr.shift, attr.image[0], attr.image[1]);
  const int64_t tokens = grid.tokens();
  T* mask = call.out[0].as<T>();
  call.pool.parallel_for(grid.windows(), [&](int64_t n, int) {
    const auto region = [&](int64_t t) {
      return 3 * part(grid.rolled_y(n, t), grid.rows * grid.wh, grid.wh, grid.sh) +
             part(grid.rolled_x(n, t), grid.columns * grid.ww, grid.ww, grid.sw);
    };
    for (int64_t i = 0; i < tokens; ++i)
      for (int64_t j = 0; j < tokens; ++j)
        mask[(n * tokens + i) * tokens + j] = region(i) == region(j) ? T{0} : T{-100};
  });
}

template <class T>
void reference_bias_table(const Call& call) {
  const ir::Shape& size = call.attr<ir::BiasTable>().size;
  const int64_t heads = call.in[0].shape[1], tokens = size[0] * size[1];
  const T* table = call.in[0].as<T>();
  T* bias = call.out[0].as<T>();
  call.pool.parallel_for(heads, [&](int64_t h, int) {
    for (int64_t i = 0; i < tokens; ++i)
      for (int64_t j = 0; j < tokens; ++j)
        bias[(h * tokens + i) * tokens + j] = table[table_row(i, j, size) * heads + h];
  });
}

// One task owns a head: pairs are added in the order i, j, whoever runs it.
template <class T>
void reference_bias_table_grad(const Call& call) {
  const ir::Shape& size = call.attr<ir::BiasTable>().size;
  const int64_t heads = call.in[0].shape[0], tokens = size[0] * size[1],
                rows = call.out[0].shape[0];
  const T* g = call.in[0].as<T>();
  T* table = call.out[0].as<T>();
  call.pool.parallel_for(heads, [&](int64_t h, int) {
    std::vector<double> sum(static_cast<std::size_t>(rows));
    for (int64_t i = 0; i < tokens; ++i)
      for (int64_t j = 0; j < tokens; ++j)
        sum[static_cast<std::size_t>(table_row(i, j, size))] += g[(h * tokens + i) * tokens + j];
    for (int64_t row = 0; row < rows; ++row)
      table[row * heads + h] = static_cast<T>(sum[static_cast<std::size_t>(row)]);
  });
}

REFERENCE(window)
REFERENCE(unwindow)
REFERENCE(window_mask)
REFERENCE(bias_table)
REFERENCE(bias_table_grad)

}  // namespace tessera::exec::cpu
