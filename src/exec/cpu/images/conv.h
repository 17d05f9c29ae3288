// Parts that the kernels of a convolution share.
#pragma once

#include <cstdint>

#include "base/index.h"

namespace tessera::exec::cpu {

// The share of threads at work while so many equal tasks are done.
inline double busy_share(std::int64_t tasks, std::int64_t threads) {
  return static_cast<double>(tasks) / static_cast<double>(ceil_div(tasks, threads) * threads);
}

// Images whose pixels are read under taps.
template <class T>
struct Gather {
  const T* data;
  std::int64_t h, w, c;
};
struct Tap {
  std::int64_t row, col;  // relative to a pixel of the source
};

}  // namespace tessera::exec::cpu
