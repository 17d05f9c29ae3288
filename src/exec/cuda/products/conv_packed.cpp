// The filters of an inference as the libraries read them, made once: turned for cuDNN, scaled for a
// product that has what follows the convolution in its epilogue.
#include "exec/cuda/products/conv_rooms.h"
#include "plan/target.h"

namespace tessera::exec::cuda {
namespace {

ConvSizes forward_sizes(const ir::Attrs& attrs, const ir::Shape& images, const ir::Shape& filters) {
  const auto& attr = std::get<ir::Conv>(attrs);
  const auto windows = [&](std::int64_t pixels, std::int64_t taps) {
    return (pixels + 2 * attr.pad - taps) / attr.stride + 1;
  };
  const ir::Shape results = {images[0], windows(images[1], filters[0]),
                             windows(images[2], filters[1]), filters[3]};
  return sizes_of(images, filters, results, attr);
}

}  // namespace

plan::PackedForm packed_conv(const ir::Attrs& attrs, std::span<const ir::Type> in, int operand,
                             const Limits& limits) {
  const ir::DType dtype = in[0].dtype;
  if (operand != 1 || dtype == ir::DType::f64) return {};
  const ConvSizes sizes = forward_sizes(attrs, in[0].shape, in[1].shape);
  if (sizes.filters() == 0) return {};
  if (is_product(sizes)) {
    if (in.size() < 4) return {};
    return {.bytes = scaled_bytes(sizes, dtype), .layout = "scaled", .with = {2, 3}};
  }
  if (!limits.dnn || is_stem(sizes, dtype, limits)) return {};
  return {.bytes = dnn_rooms(ConvPass::forward, sizes, dtype).filters, .layout = "turned"};
}

void pack_conv(const Call& call) {
  const Tensor &x = call.in[0], &f = call.in[1];
  const ConvSizes sizes = forward_sizes(call.attrs, x.shape, f.shape);
  if (is_product(sizes))
    scale_filters(f.data, {.scale = call.in[2].data, .offset = call.in[3].data}, sizes, x.dtype,
                  call.packed, call.packed + aligned_bytes(sizes.filters() * ir::size_of(x.dtype)),
                  call.stream);
  else
    turn_filters(f.data, widened(ConvPass::forward, sizes, x.dtype), sizes.c, call.packed, x.dtype,
                 call.stream);
}

}  // namespace tessera::exec::cuda
