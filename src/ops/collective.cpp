// The collectives, and the three local moves that go with them. Between places (docs/ir.md): R
// replicated, S sharded, P partial sum.
//   all_reduce P->R   reduce_scatter P->S   all_gather S->R   all_to_all S->S'   own R->S   once
//   R->P   widen S->P
// and between stages of a pipeline, where a value is on one of them only: transfer @i->@j   widen
// @i->P. One rank's program has send and recv in a transfer's place. Seen by all ranks together
// each is the identity; placement is what changes. None needs a derivative: programs are
// differentiated first.
#include <numeric>

#include "base/check.h"
#include "ops/table.h"

namespace tessera::ops {
namespace {

using namespace ir;

std::int64_t& extent(Shape& shape, int dim) {
  CHECK(dim >= 0 && static_cast<std::size_t>(dim) < shape.size(),
        "a collective names a dim that its operand lacks");
  return shape[static_cast<std::size_t>(dim)];
}
std::int64_t total(const Shape& parts) {
  return std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
}
std::int64_t mine(const Collective& a, const Shape& parts) {
  CHECK(a.index >= 0 && static_cast<std::size_t>(a.index) < parts.size(),
        "a rank has a place in its group");
  return parts[static_cast<std::size_t>(a.index)];
}
void change(Shape& shape, int dim, std::int64_t from, std::int64_t to) {
  std::int64_t& e = extent(shape, dim);
  CHECK(e == from, to_string(shape) + " does not have the extent " + std::to_string(from) +
                       " that its collective expects");
  e = to;
}

Type same(In in) {
  const Type& x = only(in);
  return {x.dtype, x.shape, {}};
}
Types infer_all_reduce(const Attrs&, In in) { return {same(in)}; }
Types infer_all_gather(const Attrs& attrs, In in) {
  const Collective& a = std::get<Collective>(attrs);
  Type y = same(in);
  extent(y.shape, a.dim);
  if (!a.parts.empty()) change(y.shape, a.dim, mine(a, a.parts), total(a.parts));
  return {y};
}
Types infer_reduce_scatter(const Attrs& attrs, In in) {
  const Collective& a = std::get<Collective>(attrs);
  Type y = same(in);
  extent(y.shape, a.dim);
  if (!a.parts.empty()) change(y.shape, a.dim, total(a.parts), mine(a, a.parts));
  return {y};
}
Types infer_all_to_all(const Attrs& attrs, In in) {
  const Collective& a = std::get<Collective>(attrs);
  Type y = same(in);
  extent(y.shape, a.dim);
  extent(y.shape, a.from);
  if (!a.parts.empty()) {
    change(y.shape, a.dim, total(a.parts), mine(a, a.parts));
    change(y.shape, a.from, mine(a, a.from_parts), total(a.from_parts));
  }
  return {y};
}

Types infer_recv(const Attrs& attrs, In in) {
  const Message& a = std::get<Message>(attrs);
  CHECK(in.empty(), "recv has no operands: it makes what arrives");
  return {{a.dtype, a.shape, {}}};
}

// A collective says how large everybody's part is, and which is this rank's.
void local_index(Attrs& attrs, const Part& part) {
  Collective& a = std::get<Collective>(attrs);
  a.index = part.index(a.axis);
}
void local_gather(Attrs& attrs, const Part& part) {
  local_index(attrs, part);
  Collective& a = std::get<Collective>(attrs);
  a.parts = part.extents(part.eqn.in[0], a.axis, a.dim);
}
void local_scatter(Attrs& attrs, const Part& part) {
  local_index(attrs, part);
  Collective& a = std::get<Collective>(attrs);
  a.parts = part.extents(part.eqn.out[0], a.axis, a.dim);
}
void local_all_to_all(Attrs& attrs, const Part& part) {
  local_scatter(attrs, part);
  Collective& a = std::get<Collective>(attrs);
  a.from_parts = part.extents(part.eqn.in[0], a.axis, a.from);
}

}  // namespace

std::vector<OpDef> collective_rows() {
  return {
      {.op = Op::all_reduce,
       .doc = "P to R over `axis`: the sum over its ranks",
       .sig = "",
       .infer = infer_all_reduce,
       .may_alias = {{0, 0}},
       .crosses = Crossing::collective,
       .carries_gradient = true,
       .local = local_index},
      {.op = Op::all_gather,
       .doc = "S to R: the parts of all ranks along `dim`",
       .sig = "",
       .infer = infer_all_gather,
       .crosses = Crossing::collective,
       .local = local_gather},
      {.op = Op::reduce_scatter,
       .doc = "P to S: this rank's part along `dim` of the sum",
       .sig = "",
       .infer = infer_reduce_scatter,
       .crosses = Crossing::collective,
       .carries_gradient = true,
       .local = local_scatter},
      {.op = Op::all_to_all,
       .doc = "S(from) to S(dim): cut along another dim",
       .sig = "",
       .infer = infer_all_to_all,
       .crosses = Crossing::collective,
       .local = local_all_to_all},
      {.op = Op::own,
       .doc = "R to S: this rank's part along `dim`; nothing is sent",
       .sig = "",
       .infer = infer_all_reduce},
      {.op = Op::once,
       .doc = "R to P: the first rank keeps it, the others have zeros; nothing is sent",
       .sig = "",
       .infer = infer_all_reduce},
      {.op = Op::widen,
       .doc = "S or @ to P: this rank's part among zeros; nothing is sent",
       .sig = "",
       .infer = infer_all_reduce},
      {.op = Op::transfer,
       .doc = "@from to @to: from one stage to another",
       .sig = "",
       .infer = infer_all_reduce},
      {.op = Op::send,
       .doc = "one rank's half of a transfer: its result is nobody's",
       .sig = "",
       .infer = infer_all_reduce,
       .crosses = Crossing::point_to_point},
      {.op = Op::recv,
       .doc = "the other half: what arrives, of the type that is written here",
       .sig = "",
       .infer = infer_recv,
       .crosses = Crossing::point_to_point},
  };
}

}  // namespace tessera::ops
