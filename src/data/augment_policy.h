// The policies that pick operations by chance: RandAugment (Cubuk et al. 2019) and AutoAugment's
// policy for CIFAR (Cubuk et al. 2018). Convention: the operations, their ranges and their bins are
// torchvision's; a magnitude is a bin of the operation's range.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "data/augment_draw.h"
#include "data/image.h"

namespace tessera::data {

enum class PolicyOp {
  identity,
  shear_x,
  shear_y,
  translate_x,
  translate_y,
  rotate,
  brightness,
  color,
  contrast,
  sharpness,
  posterize,
  solarize,
  autocontrast,
  equalize,
  invert,  // AutoAugment only
};
inline constexpr int randaugment_ops = 14, randaugment_bins = 31, autoaugment_bins = 10;

// As torchvision writes it: "ShearX".
std::string_view name(PolicyOp op);
// Whether the magnitude's sign is drawn.
bool is_signed(PolicyOp op);
// The value of a bin for an image of this size: a slope, pixels, degrees, a change of factor, bits
// or a threshold.
double magnitude(PolicyOp op, int bin, int bins, int height, int width);
void apply(PolicyOp op, double magnitude, Image& image);

// `count` operations, each drawn from all, at one magnitude.
void randaugment(Draw draw, int count, int bin, Image& image);

struct PolicyStep {
  PolicyOp op;
  double probability;
  int bin;  // 0 where the operation has no magnitude
};
using SubPolicy = std::array<PolicyStep, 2>;
std::span<const SubPolicy> autoaugment_cifar();
void autoaugment(Draw draw, Image& image);

}  // namespace tessera::data
