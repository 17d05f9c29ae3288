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

// Whether the result may be written over the addend: where the convolution is a product, which adds
// what it has read of an element before it writes that.
bool conv_adds_in_place(const ir::Attrs& attrs, std::span<const ir::Type> in);

// Parts into which the sum over pixels of a filter gradient is cut: each is made by other blocks,
// and they are added in order.
std::int64_t conv_parts(const ConvSizes& sizes, const Limits& limits);
// y = relu(y scale + offset + addend); scale and offset (f32, or f64 beside f64) go together.
struct ConvFinish {
  void* y = nullptr;
  const void *scale = nullptr, *offset = nullptr, *addend = nullptr;  // null: none
  bool relu = false;
};

// images, filters -> results, finished; the addend may lie where the result goes.
void conv_plain(const ConvSizes& sizes, ir::DType dtype, const void* images, const void* filters,
                const ConvFinish& finish, cudaStream_t stream);
// input_grad: results, filters -> images; filter_grad: results, images -> filters, with `parts` (of
// conv_parts; null where there is one) as scratch for that many filters in f32, or f64 beside f64.
void conv_plain_grad(ConvPass pass, const ConvSizes& sizes, ir::DType dtype, const void* first,
                     const void* second, void* out, void* parts, const Limits& limits,
                     cudaStream_t stream);

// The first convolution of a ResNet has a kernel of its own, finished; y, images and filters begin
// at multiples of 16 bytes, and there is no addend.
bool is_stem(const ConvSizes& sizes, ir::DType dtype, const Limits& limits);
void conv_stem(const ConvSizes& sizes, ir::DType dtype, const void* images, const void* filters,
               const ConvFinish& finish, const Limits& limits, cudaStream_t stream);

void finish_conv(const ConvFinish& finish, const ConvSizes& sizes, ir::DType dtype,
                 cudaStream_t stream);

// Filters [c,o] of one tap times scale, and the offset in the type of the result.
void scale_filters(const void* filters, const ConvFinish& finish, const ConvSizes& sizes,
                   ir::DType dtype, void* scaled, void* offset, cudaStream_t stream);

// Filters [k,l,c,o] as the [o,k,l,sizes.c] that cuDNN wants, channels behind the first c being
// zeros, and back without these.
void turn_filters(const void* filters, const ConvSizes& sizes, std::int64_t c, void* turned,
                  ir::DType dtype, cudaStream_t stream);
void return_filters(const void* turned, const ConvSizes& sizes, std::int64_t c, void* filters,
                    ir::DType dtype, cudaStream_t stream);

// Pixels of c channels as pixels of `to_c` (8 at most), zeros behind; elements of 2 bytes.
void widen_channels(const void* from, std::int64_t pixels, std::int64_t c, std::int64_t to_c,
                    void* to, cudaStream_t stream);

}  // namespace tessera::exec::cuda
