#include "data/mix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/check.h"

namespace tessera::data {
namespace {

// Gamma(alpha), alpha >= 1: a cube of a shifted normal, rarely refused.
double draw_gamma(Draw& draw, double alpha) {
  const double d = alpha - 1.0 / 3, c = 1.0 / std::sqrt(9.0 * d);
  for (;;) {
    const double u = draw.uniform(), v = draw.uniform();
    const double x = std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v);
    const double cube = (1 + c * x) * (1 + c * x) * (1 + c * x);
    if (cube > 0 && std::log(draw.uniform()) < 0.5 * x * x + d - d * cube + d * std::log(cube))
      return d * cube;
  }
}

// x / (x + y) of x = u^(1/alpha), y = v^(1/alpha) where x + y <= 1. By logarithms, since small
// alphas make both vanish.
double draw_joehnk(Draw& draw, double alpha) {
  for (;;) {
    const double x = std::log(draw.uniform()) / alpha, y = std::log(draw.uniform()) / alpha,
                 most = std::max(x, y);
    const double log_sum = most + std::log(std::exp(x - most) + std::exp(y - most));
    if (log_sum <= 0) return std::exp(x - log_sum);
  }
}

double on_grid(double value) { return std::nearbyint(value * 0x1.0p20) * 0x1.0p-20; }

void blend(std::span<float> a, std::span<float> b, float keep) {
  const double kept = keep, given = 1.0 - kept;  // in double products of f32 are exact, so that
                                                 // fused or not gives the same bits
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double first = a[i], second = b[i];
    a[i] = static_cast<float>(kept * first + given * second);
    b[i] = static_cast<float>(kept * second + given * first);
  }
}

}  // namespace

double draw_beta(Draw& draw, double alpha) {
  CHECK(alpha > 0, fmt::format("Beta({0}, {0})", alpha));
  if (alpha == 1) return on_grid(draw.uniform());
  if (alpha < 1) return on_grid(draw_joehnk(draw, alpha));
  const double x = draw_gamma(draw, alpha), y = draw_gamma(draw, alpha);
  return on_grid(x / (x + y));
}

Mix draw_mix(const MixOptions& options, const BatchPart& part, int height, int width) {
  Mix out;
  if (!options.enabled()) return out;
  const Key key = Key{part.seed}
                      .with("mix")
                      .with(static_cast<std::uint64_t>(part.epoch))
                      .with(static_cast<std::uint64_t>(part.first_position));
  Draw draw(key), beta(key.with("beta")), place(key.with("box"));
  const bool mixed = draw.uniform() < options.probability,
             prefers_cutmix = draw.uniform() < options.cutmix_share;
  if (!mixed) return out;
  const bool cutmix = options.cutmix > 0 && (options.mixup == 0 || prefers_cutmix);
  out.lambda = draw_beta(beta, cutmix ? options.cutmix : options.mixup);
  if (!cutmix) return out;
  // A box of the image's proportions around a pixel drawn from all, cut off at the borders; lambda
  // is then what is really kept.
  const double side = std::sqrt(1.0 - out.lambda);
  const int half_h = static_cast<int>(height * side) / 2,
            half_w = static_cast<int>(width * side) / 2;
  const int y = place.below(height), x = place.below(width);
  const int top = std::max(y - half_h, 0), left = std::max(x - half_w, 0);
  const int h = std::min(y + half_h, height) - top, w = std::min(x + half_w, width) - left;
  out.lambda = 1.0;
  if (h <= 0 || w <= 0) return out;
  out.box = {top, left, h, w};
  out.lambda = 1.0 - static_cast<double>(h) * w / (static_cast<double>(height) * width);
  return out;
}

PairRange whole_pairs(std::int64_t begin, std::int64_t end, std::int64_t count) {
  if (begin >= end) return {begin, begin};
  return {begin & ~std::int64_t{1}, std::min(count, (end + 1) & ~std::int64_t{1})};
}

Mix mix_targets(const MixOptions& options, const BatchPart& part, const MixShape& shape,
                std::span<const std::int32_t> labels, std::span<float> targets) {
  const std::size_t n = labels.size(), classes = static_cast<std::size_t>(shape.classes);
  CHECK(targets.size() == n * classes, "one row of targets per label");
  const std::int64_t end = part.begin + static_cast<std::int64_t>(n);
  CHECK(part.begin >= 0 && end <= part.count,
        fmt::format("samples {} to {} of a batch of {}", part.begin, end, part.count));
  const Mix how = draw_mix(options, part, shape.h, shape.w);
  const auto low = static_cast<float>(options.smoothing / shape.classes);
  std::fill(targets.begin(), targets.end(), low);
  for (std::size_t i = 0; i < n; ++i) {
    CHECK(labels[i] >= 0 && labels[i] < shape.classes,
          fmt::format("label {} of {} classes", labels[i], shape.classes));
    targets[i * classes + static_cast<std::size_t>(labels[i])] +=
        static_cast<float>(1.0 - options.smoothing);
  }
  if (how.lambda == 1) return how;
  CHECK(n == 0 || (part.begin % 2 == 0 && (end % 2 == 0 || end == part.count)),
        fmt::format("samples {} to {} of a batch of {} split a pair; use whole_pairs()", part.begin,
                    end, part.count));
  for (std::size_t i = 0; i + 1 < n; i += 2)
    blend(targets.subspan(i * classes, classes), targets.subspan((i + 1) * classes, classes),
          static_cast<float>(how.lambda));
  return how;
}

namespace {

template <class T>
void mix_values(const MixOptions& options, const BatchPart& part, const MixShape& shape,
                std::span<T> images, std::span<const std::int32_t> labels,
                std::span<float> targets) {
  const std::size_t n = labels.size(),
                    pixels = static_cast<std::size_t>(shape.h) * shape.w * shape.c;
  CHECK(images.size() == n * pixels, "one image per label");
  const Mix how = mix_targets(options, part, shape, labels, targets);
  if (how.lambda == 1) return;
  const auto keep = static_cast<float>(how.lambda);
  for (std::size_t i = 0; i + 1 < n; i += 2) {
    const std::span<T> first = images.subspan(i * pixels, pixels),
                       second = images.subspan((i + 1) * pixels, pixels);
    if (how.is_cutmix())
      for (int y = how.box.top; y < how.box.top + how.box.h; ++y) {
        const std::size_t row = (static_cast<std::size_t>(y) * shape.w + how.box.left) * shape.c,
                          length = static_cast<std::size_t>(how.box.w) * shape.c;
        std::swap_ranges(first.begin() + static_cast<std::ptrdiff_t>(row),
                         first.begin() + static_cast<std::ptrdiff_t>(row + length),
                         second.begin() + static_cast<std::ptrdiff_t>(row));
      }
    else if constexpr (std::is_same_v<T, float>)
      blend(first, second, keep);
    else
      CHECK(false, "pixels are not blended");
  }
}

}  // namespace

void mix(const MixOptions& options, const BatchPart& part, const MixShape& shape,
         std::span<float> images, std::span<const std::int32_t> labels, std::span<float> targets) {
  mix_values(options, part, shape, images, labels, targets);
}

void mix(const MixOptions& options, const BatchPart& part, const MixShape& shape,
         std::span<std::uint8_t> images, std::span<const std::int32_t> labels,
         std::span<float> targets) {
  CHECK(!options.blends(), "pixels are not blended: mixup takes normalised images");
  mix_values(options, part, shape, images, labels, targets);
}

}  // namespace tessera::data
