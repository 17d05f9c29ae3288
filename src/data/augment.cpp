#include "data/augment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "base/check.h"
#include "data/arrays/augment_numbers.h"
#include "data/augment_color.h"
#include "data/augment_policy.h"

namespace tessera::data {
namespace {

struct Size {
  int h, w, c;
};

// The images on the way from the decoder to the output; they belong to a thread and keep their
// storage.
struct Scratch {
  Image converted, current, other;
};
Scratch& scratch() {
  thread_local Scratch own;
  return own;
}

const Image& with_channels(const Image& image, int channels, Image& converted) {
  if (image.c == channels) return image;
  if (image.c > 4 || channels > 4)
    throw Error(ErrorKind::data,
                fmt::format("an image has {} channels, the model reads {}", image.c, channels),
                "data");
  return converted = to_channels(image, channels);
}

void copy_pixels(const Image& image, std::span<std::uint8_t> out) {
  CHECK(image.numbers.empty(), "an image of numbers is not fed as pixels");
  CHECK(out.size() == image.pixels.size(), "the output has the size of the image");
  std::copy(image.pixels.begin(), image.pixels.end(), out.begin());
}

template <class T>
void mirror_rows(std::span<T> images, int width, int channels) {
  const std::size_t row = static_cast<std::size_t>(width) * channels;
  CHECK(row > 0 && images.size() % row == 0, "a batch is whole rows of pixels");
  for (std::size_t at = 0; at < images.size(); at += row) {
    T *left = &images[at], *right = left + row - channels;
    for (; left < right; left += channels, right -= channels)
      std::swap_ranges(left, left + channels, right);
  }
}

void check(const AugmentOptions& o, const Size& size) {
  const auto refuse = [](const char* key, const std::string& message) {
    throw Error(ErrorKind::usage, message, key);
  };
  CHECK(size.h > 0 && size.w > 0 && size.c > 0,
        fmt::format("a model's image of {} x {} x {}", size.h, size.w, size.c));
  const auto part = [](double value) { return value >= 0 && value <= 1; };
  if (!part(o.resized_crop))
    refuse("data.resized_crop",
           fmt::format("a crop of {} of the area; expected 0 to 1", o.resized_crop));
  if (!(o.ratio_low > 0 && o.ratio_low <= o.ratio_high))
    refuse("data.resized_crop", "ratios must be above 0 and in order");
  if (o.crop < 0)
    refuse("data.crop", fmt::format("padding of {} pixels; expected 0 or more", o.crop));
  if (o.randaugment_ops < 0 || o.randaugment_magnitude < 0 ||
      o.randaugment_magnitude >= randaugment_bins)
    refuse("data.randaugment", fmt::format("magnitude {}; expected 0 to {}",
                                           o.randaugment_magnitude, randaugment_bins - 1));
  for (const double strength : o.jitter)
    if (!(strength >= 0))
      refuse("data.color_jitter", fmt::format("{}; expected 0 or more", strength));
  if (o.jitter[3] > 0.5)
    refuse("data.color_jitter", fmt::format("hue {}; expected at most 0.5", o.jitter[3]));
  if (!part(o.erase.probability))
    refuse("data.erase", fmt::format("probability {}; expected 0 to 1", o.erase.probability));
  if (o.cutout < 0)
    refuse("data.cutout", fmt::format("a square of {} pixels; expected 0 or more", o.cutout));
  if (o.eval_resize != 0 && o.eval_resize < std::min(size.h, size.w))
    refuse("data.eval_resize", fmt::format("{} is less than the model's {} pixels", o.eval_resize,
                                           std::min(size.h, size.w)));
}

class Train {
 public:
  Train(const AugmentOptions& options, const Size& size, const Normalisation& statistics)
      : o_(options), size_(size), normalise_(statistics, size.c) {
    check(o_, size_);
    jitters_ = std::any_of(o_.jitter.begin(), o_.jitter.end(),
                           [](double strength) { return strength > 0; });
  }

  Want wants(int height, int width, const SampleKey& key) const {
    if (o_.resized_crop == 0 && !o_.resize_first) return {{0, 0, height, width}};
    return {read_by(fit(height, width, key)), size_.h, size_.w};
  }

  // The image of the model's size, before normalisation; it lies in `image` or in the scratch.
  const Image& pixels(const Image& image, const SampleKey& key) const {
    Scratch& s = scratch();
    const Image* now = &with_channels(image, size_.c, s.converted);
    if (o_.resized_crop > 0 || (o_.resize_first && !is_size(*now))) {
      resample(*now, fit(now->h, now->w, key), s.current);
      now = &s.current;
    }
    const bool mirrored = flipped(o_.flip, key);
    if (o_.crop == 0 && !mirrored && !changes_pixels() && is_size(*now)) return *now;
    crop(*now, crop_of(*now, key), o_.padding, s.other);
    std::swap(s.current, s.other);
    if (mirrored) mirror(s.current);
    change_pixels(key, s);
    return s.current;
  }

  void apply(const Image& image, const SampleKey& key, std::span<float> out) const {
    normalise_(pixels(image, key), out);
    if (o_.erase.probability > 0) {
      const Draw draw(key, "erase");
      const Region region = draw_erase(draw, o_.erase, size_.h, size_.w);
      o_.erase.random ? erase_random(region, draw.key().with("values"), size_.w, size_.c, out)
                      : erase(region, size_.w, size_.c, out);
    }
    if (o_.cutout > 0)
      erase(draw_cutout(Draw(key, "cutout"), o_.cutout, size_.h, size_.w), size_.w, size_.c, out);
  }

 private:
  bool is_size(const Image& image) const { return image.h == size_.h && image.w == size_.w; }
  bool changes_pixels() const { return o_.randaugment_ops > 0 || o_.autoaugment || jitters_; }

  // How a picture becomes one of the model's size: a random part of it, or its middle.
  Resampling fit(int height, int width, const SampleKey& key) const {
    if (o_.resized_crop == 0)
      return centered(height, width, size_.h, size_.w, size_.h, size_.w, o_.filter);
    const Draw draw(key, "resized crop");
    return resized(
        draw_resized_crop(draw, height, width, o_.resized_crop, 1.0, o_.ratio_low, o_.ratio_high),
        size_.h, size_.w, o_.filter);
  }

  Region crop_of(const Image& image, const SampleKey& key) const {
    return o_.crop > 0 ? draw_padded_crop(Draw(key, "crop"), image.h, image.w, o_.crop)
                       : whole(image);
  }

  void change_pixels(const SampleKey& key, Scratch& s) const {
    if (o_.randaugment_ops > 0)
      randaugment(Draw(key, "randaugment"), o_.randaugment_ops, o_.randaugment_magnitude,
                  s.current);
    if (o_.autoaugment) autoaugment(Draw(key, "autoaugment"), s.current);
    if (jitters_) color_jitter(Draw(key, "jitter"), o_.jitter, s.current);
    if (!is_size(s.current)) {
      resample(s.current,
               centered(s.current.h, s.current.w, size_.h, size_.w, size_.h, size_.w, o_.filter),
               s.other);
      std::swap(s.current, s.other);
    }
  }

  AugmentOptions o_;
  Size size_;
  Normalise normalise_;
  bool jitters_ = false;
};

class Eval {
 public:
  Eval(const AugmentOptions& options, const Size& size, const Normalisation& statistics)
      : size_(size),
        cover_h_(size.h),
        cover_w_(size.w),
        squash_(options.eval_squash),
        filter_(options.filter),
        normalise_(statistics, size.c) {
    check(options, size);
    keep_ = options.eval_squash || options.eval_keep || options.eval_resize == 0;
    if (options.eval_resize == 0) return;
    const int side = std::min(size.h, size.w);
    const auto scaled = [&](std::int64_t length) {
      return static_cast<int>(length * options.eval_resize / side);
    };
    cover_h_ = scaled(size.h);
    cover_w_ = scaled(size.w);
  }

  Want wants(int height, int width) const {
    if (stays(height, width)) return {{0, 0, height, width}};
    return {read_by(fit(height, width)), size_.h, size_.w};
  }

  const Image& pixels(const Image& image) const {
    Scratch& s = scratch();
    const Image& input = with_channels(image, size_.c, s.converted);
    if (stays(input.h, input.w)) return input;
    resample(input, fit(input.h, input.w), s.current);
    return s.current;
  }

  void apply(const Image& image, std::span<float> out) const { normalise_(pixels(image), out); }

 private:
  bool stays(int height, int width) const { return keep_ && height == size_.h && width == size_.w; }

  Resampling fit(int height, int width) const {
    if (squash_) return resized({0, 0, height, width}, size_.h, size_.w, filter_);
    return centered(height, width, cover_h_, cover_w_, size_.h, size_.w, filter_);
  }

  Size size_;
  int cover_h_, cover_w_;
  bool keep_ = true, squash_ = false;
  Filter filter_ = Filter::bilinear;
  Normalise normalise_;
};

}  // namespace

Transform make_train_transform(const AugmentOptions& options, int height, int width, int channels,
                               const Normalisation& statistics) {
  const auto train =
      std::make_shared<const Train>(options, Size{height, width, channels}, statistics);
  const auto numbers =
      std::make_shared<const NumberTransform>(options, true, height, width, channels, statistics);
  return {[train](int h, int w, const SampleKey& key) { return train->wants(h, w, key); },
          [train, numbers](const Image& image, const SampleKey& key, std::span<float> out) {
            image.numbers.empty() ? train->apply(image, key, out) : numbers->apply(image, key, out);
          },
          [train](const Image& image, const SampleKey& key, std::span<std::uint8_t> out) {
            copy_pixels(train->pixels(image, key), out);
          }};
}

Transform make_eval_transform(const AugmentOptions& options, int height, int width, int channels,
                              const Normalisation& statistics) {
  const auto eval =
      std::make_shared<const Eval>(options, Size{height, width, channels}, statistics);
  const auto numbers =
      std::make_shared<const NumberTransform>(options, false, height, width, channels, statistics);
  return {[eval](int h, int w, const SampleKey&) { return eval->wants(h, w); },
          [eval, numbers](const Image& image, const SampleKey& key, std::span<float> out) {
            image.numbers.empty() ? eval->apply(image, out) : numbers->apply(image, key, out);
          },
          [eval](const Image& image, const SampleKey&, std::span<std::uint8_t> out) {
            copy_pixels(eval->pixels(image), out);
          }};
}

bool flipped(Flip flip, const SampleKey& key) {
  const Key flips = Key{key.seed}.with("flip");
  if (flip == Flip::random)
    return random_bits(flips.with(static_cast<std::uint64_t>(key.epoch)),
                       static_cast<std::uint64_t>(key.position)) &
           1;
  if (flip == Flip::alternating)
    return (random_bits(flips, static_cast<std::uint64_t>(key.index)) ^
            static_cast<std::uint64_t>(key.epoch)) &
           1;
  return false;
}

void color_jitter(Draw draw, const std::array<double, 4>& strength, Image& image) {
  std::array<int, 4> order = {0, 1, 2, 3};
  for (int i = 3; i > 0; --i)
    std::swap(order[static_cast<std::size_t>(i)],
              order[static_cast<std::size_t>(draw.below(i + 1))]);
  std::array<double, 4> value{};
  for (std::size_t k = 0; k < 4; ++k)
    value[k] = k == 3 ? draw.uniform(-strength[k], strength[k])
                      : draw.uniform(std::max(0.0, 1.0 - strength[k]), 1.0 + strength[k]);
  for (const int k : order) {
    if (strength[static_cast<std::size_t>(k)] == 0) continue;
    const double amount = value[static_cast<std::size_t>(k)];
    switch (k) {
      case 0:
        brightness(image, amount);
        break;
      case 1:
        contrast(image, amount);
        break;
      case 2:
        saturation(image, amount);
        break;
      default:
        hue(image, amount);
    }
  }
}

void mirror_batch(std::span<float> images, int width, int channels) {
  mirror_rows(images, width, channels);
}
void mirror_batch(std::span<std::uint8_t> images, int width, int channels) {
  mirror_rows(images, width, channels);
}

}  // namespace tessera::data
