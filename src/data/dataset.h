// A data set: numbered 8-bit images with a label each, all of one size or each of its own.
// Convention: get() is const and thread-safe, and a sample depends on its index alone, so any
// thread may produce any sample.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/bad_samples.h"
#include "data/image.h"

namespace tessera::data {

enum class Split { train, test };

class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual std::int64_t size() const = 0;
  virtual const std::vector<std::string>& class_names() const = 0;
  virtual int channels() const = 0;  // of every image that get() gives
  virtual int height() const = 0;    // of every image; 0: they differ
  virtual int width() const = 0;
  virtual std::int32_t label(std::int64_t index) const = 0;
  // index in [0, size()). The image's storage is reused, and pixels that are not wanted may be
  // anything. Throws Error(data) naming the sample when it cannot be had.
  virtual void get(std::int64_t index, const Wants& wants, Image& image) const = 0;
  // The name of a sample in messages: a path where there is one.
  virtual std::string sample_name(std::int64_t index) const {
    return "sample " + std::to_string(index);
  }

  int classes() const { return static_cast<int>(class_names().size()); }
  // The samples that could not be had so far, whoever asked for them.
  BadSamples& bad() const { return *bad_; }

 private:
  std::unique_ptr<BadSamples> bad_ = std::make_unique<BadSamples>();
};

}  // namespace tessera::data
