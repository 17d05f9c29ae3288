// A dim that is cut between ranks, in memory of the card: the ranks' parts side by side, as NCCL
// takes and gives them, and in their places. Convention: a dim that is the outermost one needs no
// putting in order, and no workspace.
#pragma once

#include <numeric>
#include <vector>

#include "exec/common/index.h"
#include "exec/cuda/kernel.h"

namespace tessera::exec::cuda {

inline std::int64_t whole_lines(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

// Bytes of every rank's part.
inline std::vector<std::int64_t> counts_of(const ir::Shape& parts, const Around& around) {
  std::vector<std::int64_t> out;
  for (const std::int64_t part : parts) out.push_back(part * around.outer * around.inner);
  return out;
}

// [outer, sum of parts, inner] <-> the parts one after another, each [outer, part, inner].
inline void by_parts(std::byte* whole, std::byte* split, const Around& around,
                     const ir::Shape& parts, bool gather, cudaStream_t stream) {
  const std::int64_t row =
      std::accumulate(parts.begin(), parts.end(), std::int64_t{0}) * around.inner;
  std::int64_t begin = 0;
  for (const std::int64_t part : parts) {
    const std::int64_t bytes = part * around.inner;
    if (bytes > 0 && around.outer > 0) {
      const auto width = static_cast<std::size_t>(bytes), pitch = static_cast<std::size_t>(row),
                 rows = static_cast<std::size_t>(around.outer);
      std::byte* const at = whole + begin;
      must(gather ? ::cudaMemcpy2DAsync(at, pitch, split, width, width, rows,
                                        cudaMemcpyDeviceToDevice, stream)
                  : ::cudaMemcpy2DAsync(split, width, at, pitch, width, rows,
                                        cudaMemcpyDeviceToDevice, stream),
           "put the parts of ranks in order");
    }
    split += bytes * around.outer;
    begin += bytes;
  }
}

}  // namespace tessera::exec::cuda
