// window and unwindow as copies of runs: neighbours along a row of a window are neighbours in the
// image until the window, the image or the roll ends. Works on bytes: moving does not care what the
// elements mean. Legend: h w image, wh ww window, c channel.
#include <algorithm>
#include <cstring>

#include "exec/cpu/kernel.h"

namespace tessera::exec::cpu {
namespace {

using std::int64_t;

// One row of one window and the row of the image that it covers.
struct Rows {
  int64_t h, w, wh, ww, sh, sw, token;  // token: bytes of one
  int64_t rows, columns;                // windows along each dim

  Rows(const ir::Window& a, const ir::Shape& image, ir::DType dtype)
      : h(image[1]),
        w(image[2]),
        wh(a.size[0]),
        ww(a.size[1]),
        sh(a.shift[0]),
        sw(a.shift[1]),
        token(image[3] * ir::size_of(dtype)),
        rows((h + wh - 1) / wh),
        columns((w + ww - 1) / ww) {}

  // Calls body(windowed, image, bytes) for each run of row `task` of all rows of all windows (b, n,
  // y); image < 0: padding.
  template <class Body>
  void each_run(int64_t task, const Body& body) const {
    const int64_t y = task % wh, n = task / wh % (rows * columns), b = task / wh / (rows * columns);
    const int64_t from_y = (n / columns * wh + y + sh) % (rows * wh), start = n % columns * ww + sw,
                  padded = columns * ww;
    for (int64_t x = 0, run = 0; x < ww; x += run) {
      const int64_t from_x = (start + x) % padded;
      const bool inside = from_y < h && from_x < w;
      run = std::min(ww - x, (inside ? w : padded) - from_x);
      body((task * ww + x) * token, inside ? ((b * h + from_y) * w + from_x) * token : -1,
           run * token);
    }
  }
  // Rows of windows in one task of the pool: enough bytes to be worth handing out.
  int64_t grain() const { return std::max<int64_t>(1, 65536 / std::max<int64_t>(1, ww * token)); }
};

template <class Body>
void for_rows(const Call& call, const Rows& rows, int64_t batch, const Body& body) {
  if (rows.token == 0) return;  // a rank may have no channel
  const int64_t all = batch * rows.rows * rows.columns * rows.wh, grain = rows.grain();
  call.pool.parallel_for((all + grain - 1) / grain, [&](int64_t task, int) {
    for (int64_t row = task * grain, end = std::min(all, row + grain); row < end; ++row)
      rows.each_run(row, body);
  });
}

}  // namespace

void fast_window(const Call& call) {
  const std::byte* x = call.in[0].data;
  std::byte* y = call.out[0].data;
  for_rows(call, Rows(call.attr<ir::Window>(), call.in[0].shape, call.in[0].dtype),
           call.in[0].shape[0], [&](int64_t windowed, int64_t image, int64_t bytes) {
             if (image < 0)
               std::memset(y + windowed, 0, static_cast<std::size_t>(bytes));
             else
               std::memcpy(y + windowed, x + image, static_cast<std::size_t>(bytes));
           });
}

void fast_unwindow(const Call& call) {
  const std::byte* x = call.in[0].data;
  std::byte* y = call.out[0].data;
  for_rows(call, Rows(call.attr<ir::Window>(), call.out[0].shape, call.out[0].dtype),
           call.out[0].shape[0], [&](int64_t windowed, int64_t image, int64_t bytes) {
             if (image >= 0) std::memcpy(y + image, x + windowed, static_cast<std::size_t>(bytes));
           });
}

}  // namespace tessera::exec::cpu
