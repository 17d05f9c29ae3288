// The ops that turn pixels as data sets store them into the numbers that a model computes with.
#include <cmath>

#include "base/check.h"
#include "base/picture_draw.h"
#include "ops/table.h"

namespace tessera::ops {
namespace {

using namespace ir;

std::string written(const Type& type) {
  return std::string(name(type.dtype)) + to_string(type.shape);
}

// The type of the numbers that pixels become, for both ops.
template <class A>
Types numbers_of(const std::string& op, const A& a, const Type& x) {
  CHECK(x.dtype == DType::u8 && x.rank() >= 1,
        op + " takes pixels u8[..., channels], got " + written(x));
  CHECK(is_float(a.to), op + " gives a float type, not " + std::string(name(a.to)));
  const auto channels = static_cast<std::size_t>(x.shape.back());
  for (const std::vector<double>* list : {&a.mean, &a.deviation})
    CHECK(list->size() == 1 || list->size() == channels,
          op + " takes one mean and one deviation, or one per channel: found " +
              std::to_string(list->size()) + " for " + std::to_string(channels) + " channels");
  for (const double mean : a.mean) CHECK(std::isfinite(mean), "a mean is a finite number");
  for (const double deviation : a.deviation)
    CHECK(std::isfinite(deviation) && deviation > 0, "a deviation is a finite number above 0");
  return {{a.to, x.shape, {}}};
}

Types infer_normalise(const Attrs& attrs, In in) {
  return numbers_of("normalise", std::get<Normalise>(attrs), only(in));
}

Types infer_augment(const Attrs& attrs, In in) {
  CHECK(in.size() == 2 || in.size() == 4,
        "augment takes pictures and draws, or those of partners too: got " +
            std::to_string(in.size()) + " operands");
  for (std::size_t i = 0; i < in.size(); i += 2) {
    const Type &pictures = in[i], &draws = in[i + 1];
    CHECK(pictures.rank() == 4 && pictures.shape == in[0].shape && pictures.dtype == DType::u8,
          "augment takes pictures u8[n,h,w,c], all of one shape, got " + written(pictures));
    CHECK(draws.dtype == DType::i32 &&
              draws.shape == Shape({pictures.shape[0], picture_draw_columns}),
          "augment takes a row of draws i32[n,16] for every picture, got " + written(draws));
  }
  return numbers_of("augment", std::get<Augment>(attrs), in[0]);
}
std::string signature_augment(const Attrs&, int operands) {
  return operands == 2 ? "bh!w!c!,bk!->bh!w!c!" : "bh!w!c!,bk!,bh!w!c!,bk!->bh!w!c!";
}

Types infer_gather(const Attrs&, In in) {
  CHECK(in.size() == 2 && in[0].rank() >= 1, "gather_samples takes a set and indices");
  CHECK(in[1].dtype == DType::i32 && in[1].rank() == 1,
        "gather_samples takes indices i32[n], got " + written(in[1]));
  Shape shape = in[0].shape;
  shape[0] = in[1].shape[0];
  return {{in[0].dtype, shape, {}}};
}

Types infer_resize(const Attrs& attrs, In in) {
  const Resize& a = std::get<Resize>(attrs);
  const Type& x = only(in);
  CHECK(x.dtype == DType::u8 && x.rank() == 4 && x.shape[1] > 0 && x.shape[2] > 0,
        "resize takes pictures u8[n,h,w,c], got " + written(x));
  const auto fits = [](std::int64_t begin, std::int64_t size, std::int64_t all) {
    return begin >= 0 && size > 0 && begin <= all - size && all <= 1 << 20;
  };
  CHECK(fits(a.top, a.rows, a.height) && fits(a.left, a.columns, a.width),
        "resize keeps a part of the picture that it makes");
  return {{x.dtype, {x.shape[0], a.rows, a.columns, x.shape[3]}, {}}};
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
      {.op = Op::augment,
       .doc =
           "pictures, draws [partners, their draws] -> the numbers that normalise gives, of each "
           "picture cropped, mirrored, hidden in part and mixed with its partner as its row says",
       .sig = "",
       .infer = infer_augment,
       .signature = signature_augment},
      {.op = Op::gather_samples,
       .doc = "a set of samples, indices -> those samples; zeros where an index is outside of it",
       .sig = "n!*,b->b*",
       .infer = infer_gather},
      {.op = Op::resize,
       .doc = "pictures -> a part of each picture resized, with the bits of the loader",
       .sig = "bh!w!c!->by!x!c!",
       .infer = infer_resize},
  };
}

}  // namespace tessera::ops
