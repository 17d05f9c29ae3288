// Matrix products over arbitrary strides, for signatures that cuBLASLt cannot describe; also sums
// of elementwise products, which have no matrix inside. Both are for completeness, not for speed.
#include "exec/common/quantised.h"
#include "exec/cuda/elements.cuh"
#include "exec/cuda/products/contract.h"

namespace tessera::exec::cuda {
namespace {

constexpr int tile = 64, depth = 16, threads = 256, per_thread = 4;

// A quantised element, whose type is known when the kernel runs.
struct Byte {
  std::uint8_t bits;
};
template <class T>
__device__ __forceinline__ Wide<T> factor(T x, ir::DType dtype) {
  if constexpr (std::is_same_v<T, Byte>)
    return from_quantised(x.bits, dtype);
  else
    return widen(x);
}

struct Offset {
  std::int64_t a = 0, b = 0, c = 0;
};
// Step `index` of nested loops, the last the fastest.
__device__ Offset offset_of(const std::array<PlainLoop, most_loops>& loops, int count,
                            std::int64_t index) {
  Offset at;
#pragma unroll 1
  for (int i = count - 1; i >= 0; --i) {
    const std::int64_t step = index % loops[i].extent;
    index /= loops[i].extent;
    at.a += step * loops[i].a;
    at.b += step * loops[i].b;
    at.c += step * loops[i].c;
  }
  return at;
}

// One block makes a tile of 64 x 64 of C, each thread 4 x 4 of it at distances of 16. A and B pass
// through shared memory; neighbouring threads read along whichever stride is one.
template <class T, class R>
__global__ void __launch_bounds__(threads) product_kernel(const __grid_constant__ PlainProduct p) {
  using W = Wide<T>;
  __shared__ W left[depth][tile + 1], right[depth][tile + 1];
  const T *a = static_cast<const T*>(p.a), *b = static_cast<const T*>(p.b);
  R* c = static_cast<R*>(p.c);
  const auto across = static_cast<unsigned>((p.n.extent + tile - 1) / tile);
  const std::int64_t n0 = static_cast<std::int64_t>(blockIdx.x % across) * tile;
  const std::int64_t m0 = static_cast<std::int64_t>(blockIdx.x / across) * tile;
  const int t = threadIdx.x, row = t / 16, col = t % 16;
  const bool a_along_m = p.m.a == 1, b_along_n = p.n.b == 1;
  for (std::int64_t step = blockIdx.y; step < p.outer_steps; step += gridDim.y) {
    const Offset at = offset_of(p.outer, p.outer_count, step);
    W sum[per_thread][per_thread] = {};
    for (std::int64_t inner = 0; inner < p.inner_steps; ++inner) {
      const Offset in = offset_of(p.inner, p.inner_count, inner);
      for (std::int64_t k0 = 0; k0 < p.k.extent; k0 += depth) {
        for (int i = t; i < tile * depth; i += threads) {
          const int am = a_along_m ? i % tile : i / depth, ak = a_along_m ? i / tile : i % depth;
          const int bn = b_along_n ? i % tile : i / depth, bk = b_along_n ? i / tile : i % depth;
          left[ak][am] =
              m0 + am < p.m.extent && k0 + ak < p.k.extent
                  ? factor(a[at.a + in.a + (m0 + am) * p.m.a + (k0 + ak) * p.k.a], p.a_type)
                  : W(0);
          right[bk][bn] =
              n0 + bn < p.n.extent && k0 + bk < p.k.extent
                  ? factor(b[at.b + in.b + (n0 + bn) * p.n.b + (k0 + bk) * p.k.b], p.b_type)
                  : W(0);
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < depth; ++k) {
          W x[per_thread], y[per_thread];
#pragma unroll
          for (int i = 0; i < per_thread; ++i) x[i] = left[k][row + 16 * i];
#pragma unroll
          for (int j = 0; j < per_thread; ++j) y[j] = right[k][col + 16 * j];
#pragma unroll
          for (int i = 0; i < per_thread; ++i)
#pragma unroll
            for (int j = 0; j < per_thread; ++j) sum[i][j] += x[i] * y[j];
        }
        __syncthreads();
      }
    }
#pragma unroll
    for (int i = 0; i < per_thread; ++i)
#pragma unroll
      for (int j = 0; j < per_thread; ++j) {
        const std::int64_t m = m0 + row + 16 * i, n = n0 + col + 16 * j;
        if (m < p.m.extent && n < p.n.extent)
          c[at.c + m * p.m.c + n * p.n.c] = narrow<R>(sum[i][j]);
      }
  }
}

// No rows: element n is a sum of products. Threads x stand beside each other along n, threads y
// share the sum; their parts are added in their order. Doubles, since nothing else blocks the sum.
template <class T, class R>
__global__ void __launch_bounds__(threads) products_kernel(const __grid_constant__ PlainProduct p) {
  __shared__ double parts[threads];
  const T *a = static_cast<const T*>(p.a), *b = static_cast<const T*>(p.b);
  R* c = static_cast<R*>(p.c);
  const int wide = blockDim.x, high = blockDim.y;
  const std::int64_t blocks_n = (p.n.extent + wide - 1) / wide;
  for (std::int64_t block = blockIdx.x; block < blocks_n * p.outer_steps; block += gridDim.x) {
    const Offset at = offset_of(p.outer, p.outer_count, block / blocks_n);
    const std::int64_t n = block % blocks_n * wide + threadIdx.x;
    double sum = 0;
    if (n < p.n.extent)
      for (std::int64_t inner = 0; inner < p.inner_steps; ++inner) {
        const Offset in = offset_of(p.inner, p.inner_count, inner);
        const T *x = a + at.a + in.a + n * p.n.a, *y = b + at.b + in.b + n * p.n.b;
        for (std::int64_t k = threadIdx.y; k < p.k.extent; k += high)
          sum += static_cast<double>(factor(x[k * p.k.a], p.a_type)) *
                 static_cast<double>(factor(y[k * p.k.b], p.b_type));
      }
    __syncthreads();
    parts[threadIdx.y * wide + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && n < p.n.extent) {
      for (int i = 1; i < high; ++i) sum += parts[i * wide + threadIdx.x];
      c[at.c + n * p.n.c] = narrow<R>(sum);
    }
  }
}

template <class T, class R>
void launch_plain(const PlainProduct& p, bool products, cudaStream_t stream) {
  if (products) {
    const int wide = p.n.extent >= 32 ? 32 : 1;
    const std::int64_t blocks = (p.n.extent + wide - 1) / wide * p.outer_steps;
    const dim3 shape(static_cast<unsigned>(wide), static_cast<unsigned>(threads / wide));
    products_kernel<T, R><<<grid_for(blocks, 1), shape, 0, stream>>>(p);
    launched("contract (sums of products)");
    return;
  }
  const std::int64_t across = (p.n.extent + tile - 1) / tile, down = (p.m.extent + tile - 1) / tile;
  CHECK(across * down < (std::int64_t{1} << 31),
        "contract: " + std::to_string(p.m.extent) + " x " + std::to_string(p.n.extent) +
            " elements are more than a plain product takes");
  const dim3 grid(static_cast<unsigned>(across * down),
                  static_cast<unsigned>(std::min<std::int64_t>(p.outer_steps, 65535)));
  product_kernel<T, R><<<grid, threads, 0, stream>>>(p);
  launched("contract (plain product)");
}

}  // namespace

void multiply_plain(const PlainProduct& product, bool products, ir::DType factors, ir::DType result,
                    cudaStream_t stream) {
  if (product.m.extent * product.n.extent * product.outer_steps == 0) return;
  using enum ir::DType;
  if (factors == f64 && result == f64)
    launch_plain<double, double>(product, products, stream);
  else if (factors == f32 && result == f32)
    launch_plain<float, float>(product, products, stream);
  else if (factors == bf16 && result == bf16)
    launch_plain<Bf16, Bf16>(product, products, stream);
  else if (factors == bf16 && result == f32)
    launch_plain<Bf16, float>(product, products, stream);
  else if (factors == f32 && result == bf16)
    launch_plain<float, Bf16>(product, products, stream);
  else if (factors == f16 && result == f16)
    launch_plain<F16, F16>(product, products, stream);
  else if (factors == f16 && result == f32)
    launch_plain<F16, float>(product, products, stream);
  else if (factors == f32 && result == f16)
    launch_plain<float, F16>(product, products, stream);
  else if (ir::is_quantised(factors) && result == f32)
    launch_plain<Byte, float>(product, products, stream);
  else if (ir::is_quantised(factors) && result == bf16)
    launch_plain<Byte, Bf16>(product, products, stream);
  else if (ir::is_quantised(factors) && result == f16)
    launch_plain<Byte, F16>(product, products, stream);
  else
    CHECK(false, "contract makes no " + std::string(ir::name(result)) + " of " +
                     std::string(ir::name(factors)));
}

}  // namespace tessera::exec::cuda
