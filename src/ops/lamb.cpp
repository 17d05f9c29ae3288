// LAMB, split so that it works on flat buckets and on parts of them: the direction of every
// element, two norms per tensor, the scaled step.
#include <algorithm>

#include "base/check.h"
#include "ir/signature.h"
#include "ops/table.h"

namespace tessera::ops {
namespace {

using namespace ir;

// w, m, v, grad, step -> direction, m, v
Types infer_direction(const Attrs&, In in) {
  infer_shapes("*,*,*,*,->*", in);
  return {{in[0].dtype, in[0].shape, {}},
          {in[1].dtype, in[0].shape, {}},
          {in[2].dtype, in[0].shape, {}}};
}

std::int64_t check_segments(const Attrs& attrs, const Type& bucket) {
  const Segments& a = std::get<Segments>(attrs);
  CHECK(a.offsets.size() == a.sizes.size() && bucket.rank() >= 1,
        "segments are offsets and sizes in a flat bucket");
  std::int64_t at = 0;
  for (std::size_t i = 0; i < a.offsets.size(); ++i) {
    CHECK(a.offsets[i] >= at && a.sizes[i] >= 0 && a.sizes[i] <= bucket.shape.back() - a.offsets[i],
          "segments lie in order inside their bucket");
    at = a.offsets[i] + a.sizes[i];
  }
  return static_cast<std::int64_t>(a.offsets.size());
}
Types infer_segment_sumsq(const Attrs& attrs, In in) {
  return {{statistics_of(only(in).dtype), {check_segments(attrs, in[0])}, {}}};
}
// w, direction, sum of squares of both per segment, lr -> w
Types infer_update(const Attrs& attrs, In in) {
  infer_shapes("*a,*a,s,s,->*a", in);
  CHECK(in[2].shape[0] == check_segments(attrs, in[0]), "lamb_update takes one norm per segment");
  return {{in[0].dtype, in[0].shape, {}}};
}

// Cuts the segments down to what lies in this rank's part of the bucket.
void local_segments(Attrs& attrs, const Part& part) {
  Segments& a = std::get<Segments>(attrs);
  const Range mine = part.ranges(part.eqn.in[0]).back();
  const auto inside = [&](std::int64_t at) {
    return std::clamp(at - mine.begin, std::int64_t{0}, mine.size);
  };
  for (std::size_t i = 0; i < a.offsets.size(); ++i) {
    const std::int64_t begin = inside(a.offsets[i]), end = inside(a.offsets[i] + a.sizes[i]);
    a.offsets[i] = begin;
    a.sizes[i] = end - begin;
  }
}

}  // namespace

std::vector<OpDef> lamb_rows() {
  return {
      {.op = Op::lamb_direction,
       .doc = "w, m, v, grad, step -> Adam's direction + weight_decay w, m, v",
       .sig = "*,*,*,*,->*,*,*",
       .infer = infer_direction,
       .may_alias = {{0, 3}, {1, 1}, {2, 2}}},
      {.op = Op::segment_sumsq,
       .doc = "sum of squares of each tensor in a bucket",
       .sig = "*a->s",
       .infer = infer_segment_sumsq,
       .local = local_segments},
      {.op = Op::lamb_update,
       .doc = "w, direction, sumsq of each per tensor, lr -> w - lr r direction; r = norm of w "
              "over that of direction, 1 where one is 0",
       .sig = "*a,*a,s!,s!,->*a",
       .infer = infer_update,
       .may_alias = {{0, 0}, {0, 1}},
       .local = local_segments},
  };
}

}  // namespace tessera::ops
