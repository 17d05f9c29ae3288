// Panels of an operand: the form in which register tiles read it.
#pragma once

#include "exec/cpu/gemm/gemm.h"

namespace tessera::exec::cpu {

// All lanes of `all`, `width` to a panel, which has `bytes` for each number of k. Lanes that lie
// side by side are read along, a few numbers of k at a time, but where a panel of A is its rows,
// each with all of k.
void pack_panels(const Micro& micro, bool of_a, const Lanes& all, std::int64_t element,
                 std::byte* to);

// k of a packed B.
template <class T>
std::int64_t padded_k(std::int64_t k) {
  return sizeof(T) == sizeof(float) ? k : (k + low_group - 1) / low_group * low_group;
}

}  // namespace tessera::exec::cpu
