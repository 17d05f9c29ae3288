// The kernels of our own behind convolution, and its sizes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "exec/cuda/kernel.h"
#include "exec/cuda/products/dnn.h"

namespace tessera::exec::cuda {

// Images [b,h,w,c], filters [k,l,c,o], results [b,p,q,o].
struct ConvSizes {
  std::int64_t b, h, w, c, p, q, o, k, l, stride, pad;

  std::int64_t images() const { return b * h * w * c; }
  std::int64_t filters() const { return k * l * c * o; }
  std::int64_t results() const { return b * p * q * o; }
};

// Parts into which the sum over pixels of a filter gradient is cut: each is made by other blocks,
// and they are added in order.
std::int64_t conv_parts(const ConvSizes& sizes, const Limits& limits);
// forward: images, filters -> results; input_grad: results, filters -> images; filter_grad:
// results, images -> filters, with `parts` (of conv_parts; null where there is one) as scratch for
// that many filters in f32, or f64 beside f64.
void conv_plain(ConvPass pass, const ConvSizes& sizes, ir::DType dtype, const void* first,
                const void* second, void* out, void* parts, const Limits& limits,
                cudaStream_t stream);

// y = relu(y scale + offset + addend); scale and offset (f32, or f64 beside f64) go together.
struct ConvFinish {
  void* y = nullptr;
  const void *scale = nullptr, *offset = nullptr, *addend = nullptr;  // null: none
  bool relu = false;
};
void finish_conv(const ConvFinish& finish, const ConvSizes& sizes, ir::DType dtype,
                 cudaStream_t stream);

// to[col, row] = from[row, col]; elements of 2 or 4 bytes.
void transpose(const void* from, std::int64_t rows, std::int64_t cols, void* to,
               std::int64_t element_bytes, cudaStream_t stream);

}  // namespace tessera::exec::cuda
