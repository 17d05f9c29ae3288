// Mixup (Zhang et al. 2017) and CutMix (Yun et al. 2019): pairs of samples blended, or patched with
// a box of one another. Convention: a sample's partner is its place in the global batch XOR 1; one
// draw per global batch, keyed by (seed, epoch, first position), so every rank computes the same
// mix of the samples it holds. A last sample without a partner stays as it is.
#pragma once

#include <cstdint>
#include <span>

#include "data/augment_draw.h"
#include "data/resample.h"

namespace tessera::data {

struct MixOptions {
  double mixup = 0.0, cutmix = 0.0;  // alpha of Beta(alpha, alpha); 0: off
  double probability = 1.0;          // that a batch is mixed at all
  double cutmix_share = 0.5;         // with both on: the part of mixed batches that CutMix takes
  double smoothing = 0.0;            // label smoothing: mass spread evenly over all classes
  bool enabled() const { return (mixup > 0 || cutmix > 0) && probability > 0; }
  bool blends() const { return mixup > 0 && probability > 0; }  // else pixels only change places
};

// A part of a global batch: samples begin .. begin + n of the `count` whose first has position
// first_position in the epoch.
struct BatchPart {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0, first_position = 0, count = 0;
  std::int64_t begin = 0;
};

// The mixing of a global batch. lambda is the share that a sample keeps: 1 means nothing. With a
// box, its pixels come from the partner.
struct Mix {
  double lambda = 1.0;
  Region box;
  bool is_cutmix() const { return box.h > 0; }
};
Mix draw_mix(const MixOptions& options, const BatchPart& part, int height, int width);

// Partners must be at hand: a rank that wants samples begin .. end of a global batch prepares these
// instead and takes its slice afterwards.
struct PairRange {
  std::int64_t begin = 0, end = 0;
};
PairRange whole_pairs(std::int64_t begin, std::int64_t end, std::int64_t count);

struct MixShape {
  int h = 0, w = 0, c = 0, classes = 0;
};
// Mixes images [n, h, w, c] in place and writes their targets [n, classes], n = labels.size(); each
// row sums to 1. The part must hold whole pairs (see whole_pairs). Without mixing the targets are
// the smoothed labels.
void mix(const MixOptions& options, const BatchPart& part, const MixShape& shape,
         std::span<float> images, std::span<const std::int32_t> labels, std::span<float> targets);
// The same for pixels; the options must not blend.
void mix(const MixOptions& options, const BatchPart& part, const MixShape& shape,
         std::span<std::uint8_t> images, std::span<const std::int32_t> labels,
         std::span<float> targets);

// The targets alone, and what is to be done to the images.
Mix mix_targets(const MixOptions& options, const BatchPart& part, const MixShape& shape,
                std::span<const std::int32_t> labels, std::span<float> targets);

// Beta(alpha, alpha), by Joehnk's method up to 1 and from two gamma variates (Marsaglia and Tsang
// 2000) above; rounded to 2^-20, so that the last bits of a C library's pow and log do not show.
double draw_beta(Draw& draw, double alpha);

}  // namespace tessera::data
