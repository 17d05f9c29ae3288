// Max pooling is compiled for several instruction sets, which share this.
#pragma once

#include <cstdint>

namespace tessera::exec::cpu {

// A window that holds a pixel: where its result lies, and the pixel's number in it.
struct Window {
  std::int64_t at;
  std::uint8_t number;
};

}  // namespace tessera::exec::cpu
