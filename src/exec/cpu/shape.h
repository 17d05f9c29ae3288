// Fast kernels that only move elements, for every dtype: copies of long runs and a tiled transpose
// (exec/common/walk.h: how dims are walked).
#pragma once

#include "exec/common/walk.h"
#include "exec/cpu/kernel.h"

namespace tessera::exec::cpu {

// A copy over the threads of the pool; nothing when both are the same storage.
void copy_bytes(ThreadPool& pool, const std::byte* src, std::byte* dst, std::int64_t bytes);

}  // namespace tessera::exec::cpu
