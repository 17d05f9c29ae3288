// From a decoded image to a model's input: what training draws anew each epoch, and what evaluation
// always does. Convention: every draw is keyed by the sample (seed, epoch, position) and by the
// augmentation's name; alternating flips by the index.
//
// Training, in this order: fit to the model's size (resize_first) or random resized crop; padded
// crop; flip; RandAugment or AutoAugment; colour jitter; fit to the model's size (unless it came
// first); normalise; random erasing; cutout.
#pragma once

#include <array>
#include <span>

#include "data/augment_erase.h"
#include "data/augment_geometry.h"
#include "data/normalise.h"
#include "data/transform.h"

namespace tessera::data {

enum class Flip { none, random, alternating };

struct AugmentOptions {
  // An image of another size than the model's is made to cover it, keeping its proportions, and its
  // middle is taken: before the other augmentations, or after them (which is cheaper when the model
  // is larger than the data).
  bool resize_first = true;

  double resized_crop = 0.0;  // smallest part of the area, up to all of it; 0: off
  double ratio_low = 3.0 / 4, ratio_high = 4.0 / 3;
  int crop = 0;  // pixels of padding on each side
  Padding padding = Padding::zero;
  Flip flip = Flip::none;  // alternating: each image is flipped every other epoch, half of the
                           // images in each

  int randaugment_ops = 0,
      randaugment_magnitude = 9;  // 0 operations: off; the magnitude is a bin of 31
  bool autoaugment = false;       // the policy for CIFAR
  std::array<double, 4> jitter =
      {};  // brightness, contrast, saturation, hue: largest change, hue at most 0.5

  EraseOptions erase;
  int cutout = 0;  // side of the square; 0: off

  // Whether all is done before normalisation, so that pixels are all that training draws.
  bool ends_with_pixels() const { return erase.probability == 0 && cutout == 0; }

  // Evaluation: the image is made to cover the model's size times eval_resize / (its shorter side),
  // then the middle is taken; 0: to cover the model's size. eval_keep: images that already have the
  // model's size stay as they are.
  int eval_resize = 0;
  bool eval_keep = true;
  bool eval_squash = false;  // instead: all of the image, resized to the model's height and width
  Filter filter = Filter::bilinear;  // of every resizing
};

// Both take images of any size and of 1 to 4 channels (or of exactly `channels`), and throw
// Error(usage) on options that make no sense.
Transform make_train_transform(const AugmentOptions& options, int height, int width, int channels,
                               const Normalisation& statistics);
Transform make_eval_transform(const AugmentOptions& options, int height, int width, int channels,
                              const Normalisation& statistics);

// Whether a sample is flipped; the loader's key, so that runs without other augmentations stay as
// they were.
bool flipped(Flip flip, const SampleKey& key);
// Brightness, contrast, saturation and hue in random order.
void color_jitter(Draw draw, const std::array<double, 4>& strength, Image& image);

// Test-time augmentation: mirrors every image of a [n, height, width, channels] batch; the caller
// averages both predictions.
void mirror_batch(std::span<float> images, int width, int channels);
void mirror_batch(std::span<std::uint8_t> images, int width, int channels);

}  // namespace tessera::data
