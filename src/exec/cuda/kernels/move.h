// Moving bytes on the card: runs of bytes side by side in one launch, and blocks with strides.
#pragma once

#include <initializer_list>
#include <vector>

#include "base/check.h"
#include "exec/cuda/kernel.h"

namespace tessera::exec::cuda {

struct Segment {
  std::byte* to;
  const std::byte* from;  // null: zeros
  std::int64_t bytes;
};
// All of them by as few launches as their descriptions need. Those that lie where they belong, or
// are empty, cost nothing; the others do not overlap.
void move_segments(cudaStream_t stream, const std::vector<Segment>& segments);
void copy_bytes(cudaStream_t stream, std::byte* to, const std::byte* from, std::int64_t bytes);

// One loop of a block of elements; strides count elements.
struct MoveDim {
  std::int64_t extent, to, from;
};
// to[sum of i_d to_d] = from[sum of i_d from_d] for all indices; elements of `size` bytes.
void move_block(cudaStream_t stream, std::byte* to, const std::byte* from, std::int64_t size,
                const std::vector<MoveDim>& dims);

// The largest of 16, 8, 4, 2 and 1 bytes that divides every address and every distance.
int common_unit(std::initializer_list<const void*> addresses,
                std::initializer_list<std::int64_t> distances);

struct alignas(16) Unit16 {
  std::uint64_t low, high;
};
// Calls visit(U{}) with an element of so many bytes.
template <class Visit>
void with_unit(int bytes, Visit&& visit) {
  switch (bytes) {
    case 16:
      return visit(Unit16{});
    case 8:
      return visit(std::uint64_t{});
    case 4:
      return visit(std::uint32_t{});
    case 2:
      return visit(std::uint16_t{});
    default:
      return visit(std::uint8_t{});
  }
}

}  // namespace tessera::exec::cuda
