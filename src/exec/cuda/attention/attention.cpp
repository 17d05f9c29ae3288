// attention and attention_grad: which kernel runs.
// The choice follows from types and limits, so that a plan knows the workspace; operands that lie
// at odd addresses take the plain kernels, whose workspace is asked for as well.
#include "exec/cuda/attention/attention.h"

#include <algorithm>

#include "base/check.h"

namespace tessera::exec::cuda {

namespace {

bool aligned(std::span<const Tensor> tensors) {
  for (const Tensor& tensor : tensors)
    if (!aligned_16(tensor.data)) return false;
  return true;
}

}  // namespace

AttentionSizes attention_sizes(const ir::Attention& attr, const ir::Shape& q, const ir::Shape& k) {
  const std::size_t lead = q.size() - 3;
  if (!attr.window.empty()) {
    const auto as_int = [](std::int64_t x) { return static_cast<int>(x); };
    AttentionSizes n{.b = 1, .h = as_int(q[lead + 1]), .d = as_int(q[lead + 2])};
    n.image_h = as_int(q[lead - 1]);
    n.image_w = as_int(q[lead]);
    n.window_h = as_int(attr.window[0]);
    n.window_w = as_int(attr.window[1]);
    n.shift_h = as_int(attr.shift[0]);
    n.shift_w = as_int(attr.shift[1]);
    n.t = n.s = n.window_h * n.window_w;
    n.windows = std::int64_t{n.image_h / n.window_h} * (n.image_w / n.window_w);
    n.b = n.windows;
    for (std::size_t i = 0; i + 1 < lead; ++i) n.b *= q[i];
    return n;
  }
  AttentionSizes n{.b = 1,
                   .t = static_cast<int>(q[lead]),
                   .s = static_cast<int>(k[lead]),
                   .h = static_cast<int>(q[lead + 1]),
                   .d = static_cast<int>(q[lead + 2])};
  for (std::size_t i = 0; i < lead; ++i) n.b *= q[i];
  return n;
}

AttentionExtras attention_extras(const Call& call, std::size_t first) {
  const auto& attr = call.attr<ir::Attention>();
  AttentionExtras extras;
  if (attr.bias) extras.bias = call.in[first++];
  if (attr.mask) {
    extras.mask = call.in[first];
    extras.windows = extras.mask.shape[0];
  }
  const ir::DType wide = call.in[0].dtype == ir::DType::f64 ? ir::DType::f64 : ir::DType::f32;
  CHECK((!attr.bias || extras.bias.dtype == wide) && (!attr.mask || extras.mask.dtype == wide),
        "attention: bias and mask are " + std::string(ir::name(wide)) + " beside " +
            std::string(ir::name(call.in[0].dtype)) + " queries");
  return extras;
}

AttentionResults attention_results(const Call& call, const AttentionSizes& n) {
  const bool packed = call.attr<ir::Attention>().packed;
  const std::size_t last = packed ? 1 : 3;
  AttentionResults to;
  to.dq = call.out[0].data;
  to.row = std::int64_t{n.h} * n.d * (packed ? 3 : 1);
  const std::int64_t next = std::int64_t{n.h} * n.d * ir::size_of(call.in[0].dtype);
  if (!packed) {
    to.dk = call.out[1].data;
    to.dv = call.out[2].data;
  } else if (to.dq) {
    to.dk = to.dq + next;
    to.dv = to.dk + next;
  }
  if (call.attr<ir::Attention>().bias && call.out.size() > last) to.dbias = call.out[last];
  return to;
}

BatchSlices batch_slices(std::int64_t batch, std::int64_t tiles_per_sample, int blocks,
                         const Limits& limits) {
  if (batch == 0) return {};
  const std::int64_t tiles = std::max<std::int64_t>(1, tiles_per_sample);
  const std::int64_t wanted = std::clamp<std::int64_t>(
      (std::int64_t{limits.multiprocessors} * blocks + tiles - 1) / tiles, 1, batch);
  const std::int64_t samples = (batch + wanted - 1) / wanted;
  return {.slices = (batch + samples - 1) / samples, .samples = samples};
}

void run_attention(const Call& call) {
  const AttentionSizes n = attention_sizes(call);
  const ir::DType dtype = call.in[0].dtype;
  const Limits& limits = call.context.limits;
  const bool fast = aligned(call.in.first(3)) && aligned(call.out.first(1));
  if (fast && short_attention_fits(n, dtype, limits)) return short_attention(call);
  if (fast && long_attention_fits(n, dtype, limits)) return long_attention(call);
  n.cuts() ? attend_copies(call, false) : plain_attention(call);
}

void run_attention_grad(const Call& call) {
  const AttentionSizes n = attention_sizes(call);
  const ir::DType dtype = call.in[0].dtype;
  const Limits& limits = call.context.limits;
  const bool fast = aligned(call.in.first(4)) && aligned(call.in.subspan(5, 1)) &&
                    aligned(call.out.first(call.attr<ir::Attention>().packed ? 1 : 3));
  if (fast && short_attention_grad_fits(n, dtype, limits)) return short_attention_grad(call);
  if (fast && long_attention_grad_fits(n, dtype, limits)) return long_attention_grad(call);
  n.cuts() ? attend_copies(call, true) : plain_attention_grad(call);
}

bool cuts_windows(const ir::Attention& attrs, const ir::Type& q, const Limits& limits) {
  AttentionSizes n{.b = 1,
                   .t = static_cast<int>(attrs.window[0] * attrs.window[1]),
                   .h = 1,
                   .d = static_cast<int>(q.shape.back())};
  n.s = n.t;
  n.window_h = static_cast<int>(attrs.window[0]);
  n.window_w = static_cast<int>(attrs.window[1]);
  return short_attention_fits(n, q.dtype, limits) && short_attention_grad_fits(n, q.dtype, limits);
}

std::int64_t workspace_attention(const ir::Attrs& attrs, std::span<const ir::Type> in,
                                 std::span<const ir::Type>, const Limits& limits) {
  const auto& attr = std::get<ir::Attention>(attrs);
  const AttentionSizes n = attention_sizes(attr, in[0].shape, in[1].shape);
  if (!n.cuts() || short_attention_fits(n, in[0].dtype, limits)) return 0;
  return window_copies_bytes(attr, in, false);
}

std::int64_t workspace_attention_grad(const ir::Attrs& attrs, std::span<const ir::Type> in,
                                      std::span<const ir::Type>, const Limits& limits) {
  const auto& attr = std::get<ir::Attention>(attrs);
  AttentionSizes n = attention_sizes(attr, in[0].shape, in[1].shape);
  if (attr.mask) n.windows = in.back().shape[0];
  const bool bias = attr.bias, fits = short_attention_grad_fits(n, in[0].dtype, limits);
  const std::int64_t plain = plain_attention_grad_bytes(n, bias, in[0].dtype, limits);
  if (n.cuts() && fits) return short_attention_grad_bytes(n, bias, limits);
  if (n.cuts()) return window_copies_bytes(attr, in, true) + plain;
  if (fits) return std::max(plain, short_attention_grad_bytes(n, bias, limits));
  const bool walks = long_attention_grad_fits(n, in[0].dtype, limits);
  return walks ? std::max(plain, long_attention_grad_bytes(n)) : plain;
}

}  // namespace tessera::exec::cuda
