// Reductions for every back end: elements of several buffers are combined in the order of the
// buffers. Convention: bf16 and f16 are accumulated in f32 and rounded once; integers wrap; a NaN
// anywhere makes max and min NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/comm.h"
#include "ir/type.h"

namespace tessera::comm {

// Each of `to` gets from[0] + from[1] + ... (or the largest, the smallest). A buffer of `to` may
// also be one of `from`; no alignment needed.
void reduce(ir::DType dtype, Reduction how, std::span<const std::byte* const> from,
            std::span<std::byte* const> to, std::int64_t elements);

}  // namespace tessera::comm
