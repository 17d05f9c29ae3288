#include "data/augment_policy.h"

#include <cmath>

#include "data/augment_color.h"
#include "data/augment_geometry.h"

namespace tessera::data {
namespace {

// Point `bin` of `bins` between two numbers in f32, counted from the nearer end, as torch.linspace
// does.
double between(double from, double to, int bin, int bins) {
  const float first = static_cast<float>(from), last = static_cast<float>(to),
              step = (last - first) / static_cast<float>(bins - 1);
  // In double a product of two f32 is exact: one rounding, whether or not the machine fuses.
  return static_cast<float>(bin < bins / 2 ? first + static_cast<double>(step) * bin
                                           : last - static_cast<double>(step) * (bins - 1 - bin));
}

// The 25 sub-policies found for CIFAR-10, table 7 of the paper.
constexpr std::array<SubPolicy, 25> cifar = [] {
  using enum PolicyOp;
  return std::array<SubPolicy, 25>{{
      {{{invert, 0.1, 0}, {contrast, 0.2, 6}}},
      {{{rotate, 0.7, 2}, {translate_x, 0.3, 9}}},
      {{{sharpness, 0.8, 1}, {sharpness, 0.9, 3}}},
      {{{shear_y, 0.5, 8}, {translate_y, 0.7, 9}}},
      {{{autocontrast, 0.5, 0}, {equalize, 0.9, 0}}},
      {{{shear_y, 0.2, 7}, {posterize, 0.3, 7}}},
      {{{color, 0.4, 3}, {brightness, 0.6, 7}}},
      {{{sharpness, 0.3, 9}, {brightness, 0.7, 9}}},
      {{{equalize, 0.6, 0}, {equalize, 0.5, 0}}},
      {{{contrast, 0.6, 7}, {sharpness, 0.6, 5}}},
      {{{color, 0.7, 7}, {translate_x, 0.5, 8}}},
      {{{equalize, 0.3, 0}, {autocontrast, 0.4, 0}}},
      {{{translate_y, 0.4, 3}, {sharpness, 0.2, 6}}},
      {{{brightness, 0.9, 6}, {color, 0.2, 8}}},
      {{{solarize, 0.5, 2}, {invert, 0.0, 0}}},
      {{{equalize, 0.2, 0}, {autocontrast, 0.6, 0}}},
      {{{equalize, 0.2, 0}, {equalize, 0.6, 0}}},
      {{{color, 0.9, 9}, {equalize, 0.6, 0}}},
      {{{autocontrast, 0.8, 0}, {solarize, 0.2, 8}}},
      {{{brightness, 0.1, 3}, {color, 0.7, 0}}},
      {{{solarize, 0.4, 5}, {autocontrast, 0.9, 0}}},
      {{{translate_y, 0.9, 9}, {translate_y, 0.7, 9}}},
      {{{autocontrast, 0.9, 0}, {solarize, 0.8, 3}}},
      {{{equalize, 0.8, 0}, {invert, 0.1, 0}}},
      {{{translate_y, 0.7, 9}, {autocontrast, 0.9, 0}}},
  }};
}();

}  // namespace

std::string_view name(PolicyOp op) {
  static constexpr std::array<std::string_view, 15> names = {
      "Identity",  "ShearX",     "ShearY",       "TranslateX", "TranslateY",
      "Rotate",    "Brightness", "Color",        "Contrast",   "Sharpness",
      "Posterize", "Solarize",   "AutoContrast", "Equalize",   "Invert"};
  return names[static_cast<std::size_t>(op)];
}

bool is_signed(PolicyOp op) { return op >= PolicyOp::shear_x && op <= PolicyOp::sharpness; }

double magnitude(PolicyOp op, int bin, int bins, int height, int width) {
  switch (op) {
    case PolicyOp::shear_x:
    case PolicyOp::shear_y:
      return between(0.0, 0.3, bin, bins);
    case PolicyOp::translate_x:
      return between(0.0, 150.0 / 331.0 * width, bin, bins);
    case PolicyOp::translate_y:
      return between(0.0, 150.0 / 331.0 * height, bin, bins);
    case PolicyOp::rotate:
      return between(0.0, 30.0, bin, bins);
    case PolicyOp::brightness:
    case PolicyOp::color:
    case PolicyOp::contrast:
    case PolicyOp::sharpness:
      return between(0.0, 0.9, bin, bins);
    case PolicyOp::posterize:
      return 8.0 - std::round(bin * 4.0 / (bins - 1));
    case PolicyOp::solarize:
      return between(255.0, 0.0, bin, bins);
    default:
      return 0.0;
  }
}

void apply(PolicyOp op, double magnitude, Image& image) {
  switch (op) {
    case PolicyOp::identity:
      return;
    case PolicyOp::shear_x:
      return transform(image, shear_x(magnitude));
    case PolicyOp::shear_y:
      return transform(image, shear_y(magnitude));
    case PolicyOp::translate_x:
      return transform(image, translate(static_cast<int>(magnitude), 0));
    case PolicyOp::translate_y:
      return transform(image, translate(0, static_cast<int>(magnitude)));
    case PolicyOp::rotate:
      return transform(image, rotate(magnitude, image.h, image.w));
    case PolicyOp::brightness:
      return brightness(image, 1.0 + magnitude);
    case PolicyOp::color:
      return saturation(image, 1.0 + magnitude);
    case PolicyOp::contrast:
      return contrast(image, 1.0 + magnitude);
    case PolicyOp::sharpness:
      return sharpness(image, 1.0 + magnitude);
    case PolicyOp::posterize:
      return posterize(image, static_cast<int>(magnitude));
    case PolicyOp::solarize:
      return solarize(image, magnitude);
    case PolicyOp::autocontrast:
      return autocontrast(image);
    case PolicyOp::equalize:
      return equalize(image);
    case PolicyOp::invert:
      return invert(image);
  }
}

void randaugment(Draw draw, int count, int bin, Image& image) {
  for (int i = 0; i < count; ++i) {
    const auto op = static_cast<PolicyOp>(draw.below(randaugment_ops));
    const double strength = magnitude(op, bin, randaugment_bins, image.h, image.w);
    apply(op, draw.coin() && is_signed(op) ? -strength : strength, image);
  }
}

std::span<const SubPolicy> autoaugment_cifar() { return cifar; }

void autoaugment(Draw draw, Image& image) {
  for (const PolicyStep& step :
       cifar[static_cast<std::size_t>(draw.below(static_cast<int>(cifar.size())))]) {
    const bool applied = draw.uniform() < step.probability, negative = draw.coin();
    const double strength = magnitude(step.op, step.bin, autoaugment_bins, image.h, image.w);
    if (applied) apply(step.op, negative && is_signed(step.op) ? -strength : strength, image);
  }
}

}  // namespace tessera::data
