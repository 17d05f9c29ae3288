// The machines' kernels for a head of attention share the units of scores, and addends of any kind
// as types, so that a loop over scores asks for none of them.
#pragma once

#include <cstdint>

#include "exec/cpu/gemm/micro.h"

namespace tessera::exec::cpu {

inline constexpr float log2_of_e = 1.44269504f, ln_of_2 = 0.693147181f;

struct NoAddend {};
inline NoAddend moved(NoAddend, std::int64_t) { return {}; }
template <class T>
inline const T* moved(const T* x, std::int64_t by) {
  return x + by;
}

// Calls body(bias, mask) with what the addends point to.
template <class Body>
void with_addends(Addend bias, Addend mask, const Body& body) {
  const auto with_bias = [&](auto b) {
    if (mask.wide)
      body(b, mask.wide);
    else if (mask.low)
      body(b, mask.low);
    else
      body(b, NoAddend{});
  };
  if (bias.wide)
    with_bias(bias.wide);
  else if (bias.low)
    with_bias(bias.low);
  else
    with_bias(NoAddend{});
}

}  // namespace tessera::exec::cpu
