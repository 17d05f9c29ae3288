// What turns pixels as data sets store them into the numbers that a model computes with.
#include <cmath>

#include "base/check.h"
#include "ops/table.h"

namespace tessera::ops {
namespace {

using namespace ir;

Types infer_normalise(const Attrs& attrs, In in) {
  const Normalise& a = std::get<Normalise>(attrs);
  const Type& x = only(in);
  CHECK(x.dtype == DType::u8 && x.rank() >= 1, "normalise takes pixels u8[..., channels], got " +
                                                   std::string(name(x.dtype)) + to_string(x.shape));
  CHECK(is_float(a.to), "normalise gives a float type, not " + std::string(name(a.to)));
  const auto channels = static_cast<std::size_t>(x.shape.back());
  for (const std::vector<double>* list : {&a.mean, &a.deviation})
    CHECK(list->size() == 1 || list->size() == channels,
          "normalise takes one mean and one deviation, or one per channel: found " +
              std::to_string(list->size()) + " for " + std::to_string(channels) + " channels");
  for (const double mean : a.mean) CHECK(std::isfinite(mean), "a mean is a finite number");
  for (const double deviation : a.deviation)
    CHECK(std::isfinite(deviation) && deviation > 0, "a deviation is a finite number above 0");
  return {{a.to, x.shape, {}}};
}

}  // namespace

std::vector<OpDef> image_rows() {
  return {
      // A channel's statistics stand at its place in the whole dim.
      {.op = Op::normalise,
       .doc = "pixels -> (pixel / 255 - mean) / deviation, channel (the last dim) by channel, "
              "rounded to f32",
       .sig = "*c!->*c!",
       .infer = infer_normalise},
  };
}

}  // namespace tessera::ops
