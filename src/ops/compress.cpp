// Gradient compression: a reduction whose parts are encoded on the way, and what a low rank needs.
//   sum, left = compressed_reduce x residual, with sum + (left of all ranks) = x + residual of all
//   ranks: what is not sent now is sent later.
// Seen by all ranks together it is no identity, as other moves are: how much is left depends on how
// many ranks there are.
#include <algorithm>

#include "base/check.h"
#include "ir/wire.h"
#include "ops/table.h"

namespace tessera::ops {
namespace {

using namespace ir;

Types infer_compressed(const Attrs& attrs, In in) {
  const Compressed& a = std::get<Compressed>(attrs);
  const std::optional<Wire> wire = parse_wire(a.wire);
  CHECK(wire, "a compressed reduction is written as fp16, bf16, int8, onebit or topk, not \"" +
                  a.wire + "\"");
  CHECK(in.size() == (has_residual(*wire) ? 2u : 1u),
        a.wire + (has_residual(*wire) ? " takes a tensor and what was left of the last one"
                                      : " leaves nothing: it takes one tensor"));
  for (const Type& type : in)
    CHECK((type.dtype == DType::f32 || type.dtype == DType::f64) && type.dtype == in[0].dtype &&
              type.shape == in[0].shape,
          "what is compressed is f32 or f64, and so is what was left of it");
  CHECK(*wire == Wire::topk ? a.keep > 0 && a.keep <= 1 : a.keep == 0,
        "topk, and nothing else, keeps a share of the elements");
  CHECK(a.dim >= -1 && a.dim < in[0].rank(),
        "a compressed reduction names a dim that its operand lacks");
  std::vector<Type> out;
  for (const Type& type : in) out.push_back({type.dtype, type.shape, {}});
  if (a.parts.empty()) return out;
  std::int64_t rest = in[0].elements();
  for (const std::int64_t part : a.parts) {
    CHECK(part >= 0 && part <= rest, "the parts of a compressed reduction make up its operand");
    rest -= part;
  }
  CHECK(rest == 0, "the parts of a compressed reduction make up its operand");
  CHECK(a.index >= 0 && static_cast<std::size_t>(a.index) < a.parts.size(),
        "a rank has a place in its group");
  if (a.dim < 0) return out;
  Shape& shape = out[0].shape;
  for (int i = 0; i < a.dim; ++i)
    CHECK(shape[static_cast<std::size_t>(i)] == 1,
          "the parts of a compressed reduction lie together");
  const std::int64_t inner = elements(Shape(shape.begin() + a.dim + 1, shape.end()));
  shape[static_cast<std::size_t>(a.dim)] =
      a.parts[static_cast<std::size_t>(a.index)] / std::max<std::int64_t>(inner, 1);
  return out;
}

// The elements that each rank of the group adds up: its part of the result, or an even share where
// all get everything.
void local_compressed(Attrs& attrs, const Part& part) {
  Compressed& a = std::get<Compressed>(attrs);
  CHECK(part.eqn.out[0] != none, "nobody reads what a compressed reduction adds up");
  const std::vector<int> group = part.group(a.axis);
  const std::int64_t mine = elements(part.shape(part.eqn.in[0]));
  a.index = part.index(a.axis);
  for (std::size_t i = 0; i < group.size(); ++i)
    a.parts.push_back(
        a.dim >= 0 ? elements(local_shape(part.type(part.eqn.out[0]), part.program.mesh, group[i]))
                   : split(mine, static_cast<int>(group.size()), static_cast<int>(i)).size);
}

}  // namespace

std::vector<OpDef> compress_rows() {
  return {
      {.op = Op::compressed_reduce,
       .doc = "x, [residual] -> the sum over `axis` of what ranks decode of x + residual (P to R, "
              "or with `dim` P to S), and what was not "
              "sent",
       .sig = "",
       .infer = infer_compressed,
       .may_alias = {{0, 0}, {1, 1}},
       .crosses = Crossing::collective,
       .carries_gradient = true,
       .local = local_compressed},
      {.op = Op::orthogonalise,
       .doc = "columns that are orthonormal and span what those of x do; one that adds nothing "
              "becomes a random one",
       .sig = "n!r!->n!r!"},
  };
}

}  // namespace tessera::ops
