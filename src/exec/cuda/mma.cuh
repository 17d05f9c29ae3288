// Products of bf16 or f16 tiles by the tensor cores of a warp (mma.sync m16n8k16, from sm_80 on),
// and how their fragments come out of memory. Legend: lane = 4 g + t. A fragment of 16 x 8 results
// holds rows g and g + 8, columns 2t and 2t + 1; one of 16 x 16 factors four words: (row g, columns
// 2t, 2t + 1), (row g + 8, the same), and both again 8 columns on.
#pragma once

#include <cstdint>

#include "exec/cuda/elements.cuh"

namespace tessera::exec::cuda::mma {

using Word = std::uint32_t;  // two elements, the first in the low half

__device__ __forceinline__ int lane_id() { return static_cast<int>(threadIdx.x) % 32; }

// c += a b of elements T; b0 and b1: rows 2t, 2t + 1 and 2t + 8, 2t + 9 of column g.
template <class T>
__device__ __forceinline__ void multiply(float (&c)[4], const Word (&a)[4], Word b0, Word b1) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define TESSERA_MMA(type)                                          \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type       \
      ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])             \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
  if constexpr (std::is_same_v<T, Bf16>)
    TESSERA_MMA("bf16");
  else
    TESSERA_MMA("f16");
#undef TESSERA_MMA
#else
  (void)c;
  (void)a;
  (void)b0;
  (void)b1;
#endif
}

// Four 8 x 8 matrices: lane 8 m + i gives the address of row i of matrix m, 16 bytes of shared
// memory; every lane gets of each matrix the two elements (g, 2t), (g, 2t + 1), or transposed (2t,
// g), (2t + 1, g).
__device__ __forceinline__ void load_matrices(Word (&r)[4], Word address) {
#if defined(__CUDA_ARCH__)
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
#else
  (void)r;
  (void)address;
#endif
}
__device__ __forceinline__ void load_transposed(Word (&r)[4], Word address) {
#if defined(__CUDA_ARCH__)
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
#else
  (void)r;
  (void)address;
#endif
}

// 16 bytes from device memory into shared memory, or zeros; arrives by wait_for_copies.
__device__ __forceinline__ void copy_16(Word to, const void* from, bool there) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(there ? 16 : 0)
               : "memory");
#else
  (void)to;
  (void)from;
  (void)there;
#endif
}
__device__ __forceinline__ void wait_for_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
#endif
}
__device__ __forceinline__ Word shared_address(const void* x) {
  return static_cast<Word>(__cvta_generic_to_shared(x));
}

template <class T>
__device__ __forceinline__ Word pack(float low, float high) {
  if constexpr (std::is_same_v<T, Bf16>) {
    const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const Word*>(&two);
  } else {
    const __half2 two = __floats2half2_rn(low, high);
    return *reinterpret_cast<const Word*>(&two);
  }
}
// 2^x by the approximation of the card; denormal results are 0.
__device__ __forceinline__ float power_of_2(float x) {
  float y = 0;
#if defined(__CUDA_ARCH__)
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
#else
  (void)x;
#endif
  return y;
}

// Four lanes that hold a row of 4 words each get its columns: r[c] of lane t becomes r[t] of lane
// c. So 16 bytes of a row per lane become fragments, and fragments 16 bytes of a row.
__device__ __forceinline__ void transpose_quad(Word (&r)[4]) {
  const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const Word got = __shfl_xor_sync(0xffffffffu, odd ? r[i] : r[i + 1], 1);
    r[i] = odd ? got : r[i];
    r[i + 1] = odd ? r[i + 1] : got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const Word got = __shfl_xor_sync(0xffffffffu, high ? r[i] : r[i + 2], 2);
    r[i] = high ? got : r[i];
    r[i + 2] = high ? r[i + 2] : got;
  }
}

// Rows of `width` elements of two bytes in shared memory, 16-byte chunks permuted within 128 bytes
// so that 8 rows of one chunk lie in 8 different places.
template <int width>
struct Tile {
  static_assert(width == 32 || width == 64);
  static constexpr int chunks = width / 8, row_bytes = width * 2;
  Word base;

  __device__ __forceinline__ Word at(unsigned row, unsigned chunk) const {
    const unsigned turn = width == 64 ? row & 7 : row >> 1 & 3;
    return base + row * row_bytes + ((chunk ^ turn) << 4);
  }
  // Starts copying `count` rows that lie `stride` elements apart; rows up to `padded` become 0.
  template <class T>
  __device__ __forceinline__ void copy(const T* x, std::int64_t stride, int count,
                                       int padded) const {
    static_assert(sizeof(T) == 2);
    for (int i = static_cast<int>(threadIdx.x); i < padded * chunks;
         i += static_cast<int>(blockDim.x)) {
      const int row = i / chunks, chunk = i % chunks;
      const bool there = row < count;
      copy_16(at(static_cast<unsigned>(row), static_cast<unsigned>(chunk)),
              x + (there ? row * stride + chunk * 8 : 0), there);
    }
  }
  // Where this lane reads of the first 16 x 16 elements: as a left factor, or, transposed, as two
  // right factors whose rows are the tile's (r[0], r[1]: the first 8 columns).
  __device__ __forceinline__ Word across() const {
    const unsigned lane = threadIdx.x & 31;
    return at(lane & 15, lane >> 4);
  }
  // The same, as two right factors whose columns are the tile's rows (r[0], r[1]: the first 8
  // rows).
  __device__ __forceinline__ Word down() const {
    const unsigned lane = threadIdx.x & 31;
    return at((lane & 7) + (lane >> 4 << 3), lane >> 3 & 1);
  }
  // The same place in the 16 x 16 elements from (row, 16 step); row is a multiple of 16, and a tile
  // begins at a multiple of 128 bytes.
  static __device__ __forceinline__ Word moved(Word place, int row, int step) {
    return (place ^ static_cast<Word>(step) << 5) + static_cast<Word>(row * row_bytes);
  }
};

// A left factor of 16 rows straight from device memory by 16 bytes; rows from `rows` on are 0.
template <int width, class T>
__device__ __forceinline__ void load_left(Word (&a)[width / 16][4], const T* x, std::int64_t stride,
                                          int rows) {
  static_assert(sizeof(T) == 2);
  const int g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int part = 0; part < width / 32; ++part) {
      const int row = g + 8 * half;
      uint4 four = {0, 0, 0, 0};
      if (row < rows) four = *reinterpret_cast<const uint4*>(x + row * stride + (4 * part + t) * 8);
      Word r[4] = {four.x, four.y, four.z, four.w};
      transpose_quad(r);
#pragma unroll
      for (int c = 0; c < 4; ++c) a[2 * part + c / 2][half + c % 2 * 2] = r[c];
    }
}
// Results of 16 rows, each times a factor (of rows g and g + 8), to device memory by 16 bytes:
// row g + 8 half begins at x + place(half); rows from `rows` on are not there.
template <int width, class T, class Place>
__device__ __forceinline__ void put_rows(const float (&c)[width / 8][4], float factor_low,
                                         float factor_high, T* x, int rows, const Place& place) {
  const int g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int part = 0; part < width / 32; ++part) {
      const float factor = half ? factor_high : factor_low;
      Word r[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        r[i] = pack<T>(c[4 * part + i][2 * half] * factor, c[4 * part + i][2 * half + 1] * factor);
      transpose_quad(r);
      const int row = g + 8 * half;
      if (row < rows)
        *reinterpret_cast<uint4*>(x + place(half) + (4 * part + t) * 8) =
            make_uint4(r[0], r[1], r[2], r[3]);
    }
}
template <int width, class T>
__device__ __forceinline__ void store_rows(const float (&c)[width / 8][4], float factor_low,
                                           float factor_high, T* x, std::int64_t stride, int rows) {
  put_rows<width>(c, factor_low, factor_high, x, rows,
                  [&](int half) { return (lane_id() / 4 + 8 * half) * stride; });
}

}  // namespace tessera::exec::cuda::mma
