// Dropout and drop-path with the CPU's bits: an element is kept when 24 random bits, drawn for
// (seed, stream, step, position of the sample, element in the sample), are at least rate 2^24. One
// draw is about 30 integer instructions, which is what bf16 traffic leaves time for; so the key of
// a sample is made once per block.
#include <cmath>

#include "base/rng.h"
#include "exec/common/index.h"
#include "exec/cuda/kernels/index.cuh"

namespace tessera::exec::cuda {
namespace {

constexpr int drop_threads = 256, drop_packs = 4;

struct Drops {
  std::uint64_t stream;     // the hash of its name
  std::int64_t base;        // position of the first sample
  std::int64_t each;        // elements of a sample
  std::uint32_t threshold;  // of the 24 bits
  bool per_sample;
  double keep;             // 1 - rate
  Divider blocks;          // of a sample
  std::int64_t start = 0;  // of this part in the whole sample
  Index whole;             // the part's dims with the strides of the whole sample
};

template <class T, int width>
__global__ void __launch_bounds__(drop_threads)
    drop(const T* x, const std::int64_t* rng, T* y, const __grid_constant__ Drops d) {
  using P = Pack<T, width>;
  __shared__ Key shared_key;
  const std::int64_t sample = d.blocks(blockIdx.x), part = blockIdx.x - sample * d.blocks.by;
  if (threadIdx.x == 0)
    shared_key = Key{static_cast<std::uint64_t>(rng[0])}
                     .with(d.stream)
                     .with(static_cast<std::uint64_t>(rng[1]))
                     .with(static_cast<std::uint64_t>(rng[2] + d.base + sample));
  __syncthreads();
  const Key key = shared_key;
  const bool whole_sample_kept = (random_bits(key, 0) >> 40) >= d.threshold;
  const Wide<T> factor = static_cast<Wide<T>>(1.0 / d.keep);
  x += sample * d.each;
  y += sample * d.each;
#pragma unroll
  for (int k = 0; k < drop_packs; ++k) {
    const std::int64_t i = ((part * drop_packs + k) * drop_threads + threadIdx.x) * width;
    if (i >= d.each) return;
    P pack = *reinterpret_cast<const P*>(x + i);
    const auto first = static_cast<std::uint64_t>(d.start + d.whole.offset(i));
#pragma unroll
    for (int j = 0; j < width; ++j) {
      const bool kept =
          d.per_sample
              ? whole_sample_kept
              : (random_bits(key, first + static_cast<std::uint64_t>(j)) >> 40) >= d.threshold;
      if constexpr (std::is_same_v<T, double>)
        pack.at[j] = kept ? pack.at[j] / d.keep : 0.0;
      else
        pack.at[j] = narrow<T>(kept ? widen(pack.at[j]) * factor : 0.0f);
    }
    *reinterpret_cast<P*>(y + i) = pack;
  }
}

// The dims of a sample, as they lie in the whole one.
Walk in_whole(const ir::Dropout& attr, const ir::Shape& x) {
  const ir::Shape part(x.begin() + 1, x.end());
  return Walk(part, strides(attr.whole.empty() ? part : attr.whole));
}

}  // namespace

void run_dropout(const Call& call) {
  const auto& attr = call.attr<ir::Dropout>();
  const Tensor &x = call.in[0], &y = call.out[0];
  if (x.elements() == 0) return;
  const Walk walk = in_whole(attr, x.shape);
  Drops d{.stream = hash_name(attr.stream),
          .base = attr.base,
          .each = x.elements() / x.shape[0],
          .threshold = static_cast<std::uint32_t>(std::ceil(std::ldexp(attr.rate, 24))),
          .per_sample = attr.per_sample,
          .keep = 1.0 - attr.rate,
          .blocks = Divider(1),
          .whole = Index(walk)};
  const std::vector<std::int64_t> steps = strides(attr.whole);
  for (std::size_t i = 0; i < attr.start.size(); ++i) d.start += attr.start[i] * steps[i];
  with_float(x.dtype, [&]<class T>(T) {
    constexpr int full = per_16_bytes<T>;
    const bool packs =
        in_packs(walk, full) && d.each % full == 0 && aligned_16(x.data) && aligned_16(y.data);
    const std::int64_t tile = drop_threads * drop_packs * (packs ? full : 1);
    d.blocks = Divider((d.each + tile - 1) / tile);
    const std::int64_t blocks = d.blocks.by * x.shape[0];
    CHECK(blocks < std::int64_t{1} << 31,
          "dropout of " + ir::to_string(x.shape) + " needs more blocks than a launch has");
    const auto kernel = packs ? drop<T, full> : drop<T, 1>;
    kernel<<<static_cast<unsigned>(blocks), drop_threads, 0, call.stream>>>(
        x.as<T>(), call.in[1].as<std::int64_t>(), y.as<T>(), d);
  });
  launched("drop");
}

}  // namespace tessera::exec::cuda
