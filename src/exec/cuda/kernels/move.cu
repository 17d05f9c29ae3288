// Three ways to move bytes: many runs in one launch, a block with strides in units as wide as its
// alignment allows, and a transposition through shared memory. The floor is two bytes of traffic
// for each byte moved.
#include "exec/cuda/kernels/move.h"

#include "exec/cuda/kernels/index.cuh"

namespace tessera::exec::cuda {
namespace {

constexpr int segments_at_once = 64;           // their descriptions travel as a parameter
constexpr std::int64_t segment_chunk = 32768;  // bytes of one block

struct Segments64 {
  int count = 0;
  int first[segments_at_once + 1] = {};  // block of each segment's first chunk
  Segment segment[segments_at_once];
};

template <class U>
__device__ void move_run(std::byte* to, const std::byte* from, std::int64_t bytes) {
  const int n = static_cast<int>(bytes / static_cast<std::int64_t>(sizeof(U)));
  U* y = reinterpret_cast<U*>(to);
  const U* x = reinterpret_cast<const U*>(from);
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x))
    y[i] = x ? x[i] : U{};
}

__global__ void move_chunks(const __grid_constant__ Segments64 list) {
  int low = 0, high = list.count - 1;  // the last segment whose first chunk is not behind this one
  const int block = static_cast<int>(blockIdx.x);
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (list.first[middle] <= block)
      low = middle;
    else
      high = middle - 1;
  }
  const Segment& segment = list.segment[low];
  const std::int64_t begin = (block - list.first[low]) * segment_chunk;
  const std::int64_t bytes = min(segment_chunk, segment.bytes - begin);
  std::byte* to = segment.to + begin;
  const std::byte* from = segment.from ? segment.from + begin : nullptr;
  const auto bits = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) |
                    static_cast<std::uintptr_t>(bytes);
  if (bits % 16 == 0)
    move_run<Unit16>(to, from, bytes);
  else if (bits % 4 == 0)
    move_run<std::uint32_t>(to, from, bytes);
  else if (bits % 2 == 0)
    move_run<std::uint16_t>(to, from, bytes);
  else
    move_run<std::uint8_t>(to, from, bytes);
}

// Loops of a block, the last one fastest.
struct Loops {
  int rank = 0;
  std::int64_t to[most_dims] = {}, from[most_dims] = {};
  Divider extent[most_dims];

  explicit Loops(const std::vector<MoveDim>& dims) : rank(static_cast<int>(dims.size())) {
    CHECK(rank <= most_dims, "a CUDA kernel moves " + std::to_string(most_dims) +
                                 " dims that cannot be merged, not " + std::to_string(rank));
    for (int i = 0; i < rank; ++i) {
      const MoveDim& dim = dims[static_cast<std::size_t>(i)];
      extent[i] = Divider(dim.extent);
      to[i] = dim.to;
      from[i] = dim.from;
    }
  }
  __device__ __forceinline__ void offsets(std::int64_t n, std::int64_t& at_to,
                                          std::int64_t& at_from) const {
    at_to = at_from = 0;
    for (int i = rank - 1; i >= 0; --i) {
      const std::int64_t rest = i > 0 ? extent[i](n) : 0, index = n - rest * extent[i].by;
      at_to += index * to[i];
      at_from += index * from[i];
      n = rest;
    }
  }
};

template <class U>
__global__ void move_strided(U* to, const U* from, std::int64_t n,
                             const __grid_constant__ Loops loops) {
  for (std::int64_t i = grid_thread(); i < n; i += grid_threads()) {
    std::int64_t at_to, at_from;
    loops.offsets(i, at_to, at_from);
    to[at_to] = from[at_from];
  }
}

// Dim a is contiguous in `to`, dim b in `from`; tiles of 32 x 32 pass through shared memory.
struct Tiles {
  std::int64_t a, b;          // extents
  std::int64_t a_from, b_to;  // strides
  Divider tiles_a, tiles_b;
};
template <class U>
__global__ void __launch_bounds__(256)
    move_tiles(U* to, const U* from, const __grid_constant__ Tiles tiles,
               const __grid_constant__ Loops around) {
  __shared__ U tile[32][33];
  const int x = static_cast<int>(threadIdx.x) % 32, y = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t block = blockIdx.x, by_a = tiles.tiles_a(block), by_b = tiles.tiles_b(by_a);
  const std::int64_t a = (block - by_a * tiles.tiles_a.by) * 32,
                     b = (by_a - by_b * tiles.tiles_b.by) * 32;
  std::int64_t at_to, at_from;
  around.offsets(by_b, at_to, at_from);
#pragma unroll
  for (int k = y; k < 32; k += 8)
    if (a + k < tiles.a && b + x < tiles.b)
      tile[k][x] = from[at_from + (a + k) * tiles.a_from + b + x];
  __syncthreads();
#pragma unroll
  for (int k = y; k < 32; k += 8)
    if (b + k < tiles.b && a + x < tiles.a) to[at_to + (b + k) * tiles.b_to + a + x] = tile[x][k];
}

// Without dims of extent 1; neighbours that move as one are one.
std::vector<MoveDim> merged(const std::vector<MoveDim>& dims) {
  std::vector<MoveDim> out;
  for (const MoveDim& dim : dims) {
    if (dim.extent == 1) continue;
    if (!out.empty() && out.back().to == dim.to * dim.extent &&
        out.back().from == dim.from * dim.extent)
      out.back() = {out.back().extent * dim.extent, dim.to, dim.from};
    else
      out.push_back(dim);
  }
  return out;
}

bool try_tiles(cudaStream_t stream, std::byte* to, const std::byte* from, std::int64_t size,
               const std::vector<MoveDim>& dims) {
  const MoveDim inner = dims.back();
  std::vector<MoveDim> rest(dims.begin(), dims.end() - 1);
  for (std::size_t i = 0; i < rest.size(); ++i) {
    if (inner.to != 1 || rest[i].from != 1 || rest[i].extent < 8 || inner.extent < 8) continue;
    const MoveDim other = rest[i];
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(i));
    std::int64_t blocks = (inner.extent + 31) / 32 * ((other.extent + 31) / 32);
    for (const MoveDim& dim : rest) blocks *= dim.extent;
    if (blocks >= std::int64_t{1} << 31) return false;
    const Tiles tiles{inner.extent,
                      other.extent,
                      inner.from,
                      other.to,
                      Divider((inner.extent + 31) / 32),
                      Divider((other.extent + 31) / 32)};
    with_unit(static_cast<int>(size), [&]<class U>(U) {
      move_tiles<<<static_cast<unsigned>(blocks), 256, 0, stream>>>(
          reinterpret_cast<U*>(to), reinterpret_cast<const U*>(from), tiles, Loops(rest));
    });
    launched("move_tiles");
    return true;
  }
  return false;
}

}  // namespace

int common_unit(std::initializer_list<const void*> addresses,
                std::initializer_list<std::int64_t> distances) {
  std::uintptr_t bits = 16;
  for (const void* address : addresses) bits |= reinterpret_cast<std::uintptr_t>(address);
  for (const std::int64_t distance : distances) bits |= static_cast<std::uintptr_t>(distance);
  return static_cast<int>(bits & (~bits + 1));  // the lowest bit that is set
}

void move_segments(cudaStream_t stream, const std::vector<Segment>& segments) {
  Segments64 list;
  const auto flush = [&] {
    if (list.count == 0) return;
    const auto blocks = static_cast<unsigned>(list.first[list.count]);
    move_chunks<<<blocks, 256, 0, stream>>>(list);
    launched("move_chunks");
    list = Segments64{};
  };
  for (const Segment& segment : segments) {
    if (segment.bytes <= 0 || segment.to == segment.from) continue;
    const std::int64_t chunks = (segment.bytes + segment_chunk - 1) / segment_chunk;
    if (list.count == segments_at_once || list.first[list.count] + chunks >= 1 << 30) flush();
    list.segment[list.count] = segment;
    list.first[list.count + 1] = list.first[list.count] + static_cast<int>(chunks);
    ++list.count;
  }
  flush();
}

void copy_bytes(cudaStream_t stream, std::byte* to, const std::byte* from, std::int64_t bytes) {
  move_segments(stream, {{to, from, bytes}});
}

void move_block(cudaStream_t stream, std::byte* to, const std::byte* from, std::int64_t size,
                const std::vector<MoveDim>& dims) {
  for (const MoveDim& dim : dims)
    if (dim.extent == 0) return;
  std::vector<MoveDim> loops = merged(dims);
  if (loops.empty()) return copy_bytes(stream, to, from, size);
  MoveDim& inner = loops.back();
  const bool together = inner.to == 1 && inner.from == 1;
  if (together && loops.size() == 1) return copy_bytes(stream, to, from, inner.extent * size);
  if (!together && try_tiles(stream, to, from, size, loops)) return;
  if (together) {  // in units of several elements where everything is a multiple of them
    int unit = common_unit({to, from}, {inner.extent * size});
    for (std::size_t i = 0; i + 1 < loops.size(); ++i)
      unit = std::min(unit, common_unit({}, {loops[i].to * size, loops[i].from * size}));
    const std::int64_t times = unit / size;
    inner.extent /= times;
    for (std::size_t i = 0; i + 1 < loops.size(); ++i) {
      loops[i].to /= times;
      loops[i].from /= times;
    }
    size = unit;
  }
  std::int64_t n = 1;
  for (const MoveDim& dim : loops) n *= dim.extent;
  with_unit(static_cast<int>(size), [&]<class U>(U) {
    move_strided<<<grid_for(n, 256), 256, 0, stream>>>(
        reinterpret_cast<U*>(to), reinterpret_cast<const U*>(from), n, Loops(loops));
  });
  launched("move_strided");
}

}  // namespace tessera::exec::cuda
