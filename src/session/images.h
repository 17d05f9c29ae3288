// The images of a batch on their way into a plan.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/picture_draw.h"
#include "compile/compile.h"

namespace tessera::run {

// A look at the images of a batch, NHWC: pixels, or numbers that are normalised already. It is made
// of whatever holds bytes or floats in a row; or of pixels that the plan augments, or of nothing
// but their places in the set that the device holds.
class Images {
 public:
  Images() = default;
  template <class List>
  requires std::convertible_to<const List&, std::span<const float>> Images(const List& numbers)
      : numbers_(numbers), form_(ImageForm::numbers) {}
  template <class List>
  requires std::convertible_to<const List&, std::span<const std::uint8_t>> Images(
      const List& pixels)
      : pixels_(pixels), form_(ImageForm::pixels) {}
  Images(std::span<const std::uint8_t> pixels, std::span<const PictureDraw> draws)
      : pixels_(pixels), draws_(draws), form_(ImageForm::drawn) {}
  // Without draws where nothing is augmented.
  Images(std::span<const std::int32_t> samples, std::span<const PictureDraw> draws)
      : samples_(samples), draws_(draws), form_(ImageForm::held) {}

  ImageForm form() const { return form_; }
  // Images, of so many values each.
  std::size_t count(std::size_t values) const {
    if (form_ == ImageForm::held) return samples_.size();
    return (form_ == ImageForm::numbers ? numbers_.size() : pixels_.size()) / values;
  }
  std::span<const float> numbers() const { return numbers_; }
  std::span<const std::uint8_t> pixels() const { return pixels_; }
  std::span<const std::int32_t> samples() const { return samples_; }
  std::span<const PictureDraw> draws() const { return draws_; }

 private:
  std::span<const float> numbers_;
  std::span<const std::uint8_t> pixels_;
  std::span<const std::int32_t> samples_;
  std::span<const PictureDraw> draws_;
  ImageForm form_ = ImageForm::numbers;
};

}  // namespace tessera::run
