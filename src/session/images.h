// The images of a batch on their way into a plan.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "compile/compile.h"

namespace tessera::run {

// A look at the images of a batch, NHWC: pixels, or numbers that are normalised already. It is made
// of whatever holds bytes or floats in a row.
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

  ImageForm form() const { return form_; }
  std::size_t size() const {  // values
    return form_ == ImageForm::pixels ? pixels_.size() : numbers_.size();
  }
  std::span<const float> numbers() const { return numbers_; }
  std::span<const std::uint8_t> pixels() const { return pixels_; }

 private:
  std::span<const float> numbers_;
  std::span<const std::uint8_t> pixels_;
  ImageForm form_ = ImageForm::numbers;
};

}  // namespace tessera::run
