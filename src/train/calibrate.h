// Scales of what quantised layers read, from images. Convention: int8 takes the bound with the
// least mean square error over a histogram of magnitudes: a few outliers would cost all other
// numbers their bits, so they are cut off where that loses less. fp8, whose steps shrink with the
// number, takes the largest magnitude.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "session/session.h"

namespace tessera::run {

// How often each magnitude was seen; the range doubles as often as it has to.
class Magnitudes {
 public:
  void add(std::span<const float> values);
  double largest() const { return largest_; }
  std::int64_t count() const;
  // The bound at which rounding to whole multiples of bound / steps and cutting off what is beyond
  // loses least.
  double best_bound(double steps) const;

 private:
  static constexpr std::size_t bins = 2048;
  std::vector<std::int64_t> count_ = std::vector<std::int64_t>(bins);
  double range_ = 1.0 / 1024, largest_ = 0;
};

// The scales of "int8" or "fp8", by parameter, from the first `samples` images in the order of the
// seed; the session computes in f32. Error(nonfinite) where an activation is not finite.
std::map<std::string, double> calibrate(Session& session, const config::Config& config,
                                        const data::Dataset& images, std::string_view as,
                                        std::int64_t samples, std::int64_t batch);

}  // namespace tessera::run
