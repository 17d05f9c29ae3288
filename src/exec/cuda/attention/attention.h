// Parts that the kernels of attention share: the sizes of a call, and the three ways to run it.
// `plain` takes any type, any number of tokens and any head width; `short` is for bf16 and f16
// heads that fit into one block's shared memory, `long` for those that do not. Legend: b batch (all
// leading dims), t query, s key, h head, d head dim. q, o: [b,t,h,d]; k, v: [b,s,h,d]; lse:
// [b,h,t]; bias: [h,t,s]; mask: [w,t,s], b % w picks one. Where attention cuts windows itself, q,
// k, v and o are [..,i,j,h,d], and b counts the windows of all images.
#pragma once

#include "exec/cuda/kernel.h"

namespace tessera::exec::cuda {

struct AttentionSizes {
  std::int64_t b = 0;
  int t = 0, s = 0, h = 0, d = 0;
  std::int64_t windows = 1;                                  // of a mask, or of an image
  int image_h = 0, image_w = 0, window_h = 0, window_w = 0;  // 0: windows are cut beforehand
  int shift_h = 0, shift_w = 0;

  std::int64_t heads() const { return b * h; }
  bool cuts() const { return window_w > 0; }
};
AttentionSizes attention_sizes(const ir::Attention& attr, const ir::Shape& q, const ir::Shape& k);
inline AttentionSizes attention_sizes(const Call& call) {
  return attention_sizes(call.attr<ir::Attention>(), call.in[0].shape, call.in[1].shape);
}

// The optional operands of a call; `first` is the index of the first of them.
struct AttentionExtras {
  Tensor bias, mask;
  std::int64_t windows = 1;
};
AttentionExtras attention_extras(const Call& call, std::size_t first);

// Where the gradients of q, k and v go: three tensors, or one in which those of a token lie side by
// side. Null where one is not wanted.
struct AttentionResults {
  std::byte *dq = nullptr, *dk = nullptr, *dv = nullptr;
  Tensor dbias = {};
  std::int64_t row = 0;  // elements between tokens
};
AttentionResults attention_results(const Call& call, const AttentionSizes& n);

void plain_attention(const Call& call);
void plain_attention_grad(const Call& call);
std::int64_t plain_attention_grad_bytes(const AttentionSizes& n, bool bias, ir::DType dtype,
                                        const Limits& limits);

// Whether a card can run these sizes by the short kernels, and whether these addresses can be read
// by 16 bytes.
bool short_attention_fits(const AttentionSizes& n, ir::DType dtype, const Limits& limits);
bool short_attention_grad_fits(const AttentionSizes& n, ir::DType dtype, const Limits& limits);
void short_attention(const Call& call);
void short_attention_grad(const Call& call);
std::int64_t short_attention_grad_bytes(const AttentionSizes& n, bool bias, const Limits& limits);

// The same for the long kernels, which take what the short ones do not: heads of 32 and 64 with any
// number of tokens, but no windows of an image.
bool long_attention_fits(const AttentionSizes& n, ir::DType dtype, const Limits& limits);
bool long_attention_grad_fits(const AttentionSizes& n, ir::DType dtype, const Limits& limits);
void long_attention(const Call& call);
void long_attention_grad(const Call& call);
std::int64_t long_attention_grad_bytes(const AttentionSizes& n);

// Attention in windows by way of copies and the plain kernels, which take any type and size.
void attend_copies(const Call& call, bool gradient);
std::int64_t window_copies_bytes(const ir::Attention& attr, std::span<const ir::Type> in,
                                 bool gradient);

// A gradient of the bias is a sum over the batch: it is cut into slices of `samples`, each summed
// by one block; the partial sums [slices,h,t,s] are added in order.
struct BatchSlices {
  std::int64_t slices = 0, samples = 1;
};
// About `blocks` blocks per multiprocessor, each of which sums one slice of `tiles_per_sample`.
BatchSlices batch_slices(std::int64_t batch, std::int64_t tiles_per_sample, int blocks,
                         const Limits& limits);

}  // namespace tessera::exec::cuda
