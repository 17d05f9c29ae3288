// Where the tokens of windows lie: cut beforehand, behind each other; where attention cuts them
// itself, in an image that was rolled by the shift. Positions fit 32 bits: no card has room for
// 2^31 tokens.
#pragma once

#include <algorithm>

#include "exec/cuda/attention/attention.h"

namespace tessera::exec::cuda {

struct Tokens {
  int columns;  // windows side by side; 0: cut beforehand
  int wh, ww, sh, sw, h, w;

  Tokens(const AttentionSizes& n)
      : columns(n.image_w / std::max(1, n.window_w)),
        wh(n.window_h),
        ww(n.window_w),
        sh(n.shift_h),
        sw(n.shift_w),
        h(n.image_h),
        w(n.image_w) {}

  // The place of a token of a window among the tokens of its image, or among those of windows that
  // have `count` each.
  __device__ int in_image(int window, int token, int count) const {
    if (columns == 0) return window * count + token;
    int y = window / columns * wh + token / ww + sh, x = window % columns * ww + token % ww + sw;
    if (y >= h) y -= h;
    if (x >= w) x -= w;
    return y * w + x;
  }
};

}  // namespace tessera::exec::cuda
