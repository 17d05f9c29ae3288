// What a data set is: numbered 8-bit images of one size with a label each.
// Convention: get() is const and thread-safe, and a sample depends on its index alone, so any thread may produce any sample.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera::data {

enum class Split { train, test };

// Pixels in [0, 1] become (x - mean) / deviation, in training, evaluation and prediction alike.
inline constexpr float default_mean = 0.5f, default_deviation = 0.5f;

class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual std::int64_t size() const = 0;
  virtual const std::vector<std::string>& class_names() const = 0;
  virtual int height() const = 0;
  virtual int width() const = 0;
  virtual int channels() const = 0;
  // index in [0, size()); pixels.size() == pixels_per_image(); throws Error(data) naming the sample when it cannot be had.
  virtual void get(std::int64_t index, std::span<std::uint8_t> pixels_hwc, std::int32_t& label) const = 0;

  int classes() const { return static_cast<int>(class_names().size()); }
  std::size_t pixels_per_image() const { return static_cast<std::size_t>(height()) * width() * channels(); }
};

}  // namespace tessera::data
