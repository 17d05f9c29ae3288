// Fast sums in f32: columns of many rows (gradients of biases), rows, everything; and the sum of squares in double.
// Convention: partial sums are cut by shape alone and added in a fixed order; they lie in the first thread's scratch.
#pragma once

#include "exec/cpu/kernel.h"

namespace tessera::exec::cpu {

void fast_sum(const Call& call);
void fast_sumsq(const Call& call);
std::size_t scratch_sum(const ir::Attrs& attrs, std::span<const ir::Type> in, std::span<const ir::Type> out);
std::size_t scratch_sumsq(const ir::Attrs& attrs, std::span<const ir::Type> in, std::span<const ir::Type> out);

}  // namespace tessera::exec::cpu
