// How large the tensors of a convolution are, and what else a library wants to lie beside them.
// Convention: filters are [k,l,c,o] in memory; cuDNN gets and gives them as [o,k,l,c].
#pragma once

#include <algorithm>

#include "exec/cuda/products/conv.h"
#include "ir/op.h"

namespace tessera::exec::cuda {

inline ConvSizes sizes_of(const ir::Shape& images, const ir::Shape& filters,
                          const ir::Shape& results, const ir::Conv& attr) {
  return {.b = images[0],
          .h = images[1],
          .w = images[2],
          .c = images[3],
          .p = results[1],
          .q = results[2],
          .o = filters[3],
          .k = filters[0],
          .l = filters[1],
          .stride = attr.stride,
          .pad = attr.pad};
}

inline std::int64_t aligned_bytes(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

inline bool is_product(const ConvSizes& s) {
  return s.k == 1 && s.l == 1 && s.stride == 1 && s.pad == 0;
}

// Bytes for cuDNN behind the filters: enough for what it usually asks for, never without bound. The
// engines of 16-bit elements that are fastest forwards ask for next to nothing.
inline std::int64_t dnn_bytes(ConvPass pass, const ConvSizes& s, ir::DType dtype) {
  const std::int64_t tensors = (s.images() + s.results()) * ir::size_of(dtype);
  constexpr std::int64_t least = std::int64_t{32} << 20, most = std::int64_t{256} << 20;
  if (pass == ConvPass::forward && ir::is_low(dtype)) return least;
  return std::min(most, least + 2 * tensors + 64 * s.filters());
}

// The engines for 16-bit elements that use tensor cores read 16 bytes of channels at once: the
// three of a picture become eight, of which five are zeros. The gradient of a picture is never
// asked for.
inline ConvSizes widened(ConvPass pass, const ConvSizes& s, ir::DType dtype) {
  ConvSizes out = s;
  if (pass != ConvPass::input_grad && ir::is_low(dtype)) out.c = std::max<std::int64_t>(s.c, 8);
  return out;
}

// How the workspace of cuDNN is cut.
struct DnnRooms {
  std::int64_t filters = 0, images = 0, rest = 0;  // bytes; images: none unless they are widened
};
inline DnnRooms dnn_rooms(ConvPass pass, const ConvSizes& s, ir::DType dtype) {
  const ConvSizes wide = widened(pass, s, dtype);
  const std::int64_t element = ir::size_of(dtype);
  return {.filters = aligned_bytes(wide.filters() * element),
          .images = wide.c == s.c ? 0 : aligned_bytes(wide.images() * element),
          .rest = dnn_bytes(pass, wide, dtype)};
}

// Bytes of a product's filters that are scaled, and of its offsets in the type of the result.
inline std::int64_t scaled_bytes(const ConvSizes& s, ir::DType dtype) {
  return aligned_bytes(s.filters() * ir::size_of(dtype)) + aligned_bytes(s.o * ir::size_of(dtype));
}

}  // namespace tessera::exec::cuda
