// Buckets: tensors side by side in one flat tensor, so that an update is one loop and a collective
// one message. A bucket is [n], or [parts, n] where a model axis cuts its tensors: row i holds part
// i of each. Convention: offsets count elements of one row.
#include "base/check.h"
#include "base/index.h"
#include "ir/signature.h"
#include "ops/table.h"

namespace tessera::ops {
namespace {

using namespace ir;

constexpr std::int64_t most_offset = std::int64_t{1}
                                     << 36;  // of an attribute: keeps sums from overflowing

// The dim of a tensor that is cut into parts divides evenly.
void check_parts(const Shape& shape, std::int64_t parts, int dim) {
  CHECK(parts == 1 || (dim >= 0 && at(dim) < shape.size() && shape[at(dim)] % parts == 0),
        to_string(shape) + " is not cut into " + std::to_string(parts) + " equal parts along dim " +
            std::to_string(dim));
}
Types infer_view(const Attrs& attrs, In in) {
  const Type& x = only(in);
  const View& a = std::get<View>(attrs);
  CHECK(a.parts >= 1 && (x.rank() == 2 ? x.shape[0] == a.parts : x.rank() == 1 && a.parts == 1),
        "a bucket is [n] or [parts, n]");
  check_parts(a.shape, a.parts, a.dim);
  CHECK(a.offset >= 0 && elements(a.shape) / a.parts <= x.shape.back() - a.offset,
        "a view lies inside its bucket");
  return {{x.dtype, a.shape, {}}};
}
std::int64_t view_offset(const Attrs& attrs, In, int) {
  const View& a = std::get<View>(attrs);
  return a.parts == 1 ? a.offset : -1;
}
Grads view_vjp(Builder& b, const Eqn& e, Grad g) {
  const View& a = std::get<View>(e.attrs);
  return {b.emit1(Op::pack,
                  Pack{.offsets = {a.offset},
                       .size = b.type(e.in[0]).shape.back(),
                       .parts = a.parts,
                       .dims = a.parts > 1 ? std::vector{a.dim} : std::vector<int>{}},
                  {g[0]})};
}

Types infer_pack(const Attrs& attrs, In in) {
  const Pack& a = std::get<Pack>(attrs);
  CHECK(a.offsets.size() == in.size() && !in.empty(), "pack gives every operand its offset");
  CHECK(a.parts >= 1 && ((a.parts == 1 && a.dims.empty()) || a.dims.size() == in.size()),
        "pack says along which dim every operand is cut");
  std::int64_t end = 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    CHECK(in[i].dtype == in[0].dtype, "operands of pack agree in element type");
    CHECK(a.offsets[i] >= end && a.offsets[i] <= most_offset,
          "operands of pack stand in order and do not overlap");
    if (a.parts > 1) check_parts(in[i].shape, a.parts, a.dims[i]);
    end = a.offsets[i] + in[i].elements() / a.parts;
  }
  CHECK(end <= a.size, "operands of pack fit the bucket");
  return {{in[0].dtype, a.dims.empty() ? Shape{a.size} : Shape{a.parts, a.size}, {}}};
}
Grads pack_vjp(Builder& b, const Eqn& e, Grad g) {
  const Pack a = std::get<Pack>(e.attrs);
  Grads out;
  for (std::size_t i = 0; i < e.in.size(); ++i)
    out.push_back(b.emit1(Op::view,
                          View{.offset = a.offsets[i],
                               .shape = b.type(e.in[i]).shape,
                               .parts = a.parts,
                               .dim = a.parts > 1 ? a.dims[i] : -1},
                          {g[0]}));
  return out;
}

// The row of a bucket goes with the dim that is cut into parts; everything else stays whole.
std::string bucket_letters(std::int64_t parts, int rank) {
  return rank == 2 ? (parts > 1 ? "rz!" : "y!z!") : "z!";
}
std::string tensor_letters(int rank, std::int64_t parts, int dim) {
  std::string out = pinned(alphabet(rank));
  if (parts > 1) out.replace(at(dim) * 2, 2, "r");
  return out;
}
std::string place_view(const Attrs& attrs, In in, In) {
  const View& a = std::get<View>(attrs);
  return bucket_letters(a.parts, in[0].rank()) + "->" +
         tensor_letters(static_cast<int>(a.shape.size()), a.parts, a.dim);
}
std::string place_pack(const Attrs& attrs, In in, In) {
  const Pack& a = std::get<Pack>(attrs);
  std::string out;
  for (std::size_t i = 0; i < in.size(); ++i)
    out += (i ? "," : "") + tensor_letters(in[i].rank(), a.parts, a.parts > 1 ? a.dims[i] : -1);
  return out + "->" + bucket_letters(a.parts, a.dims.empty() ? 1 : 2);
}

// A bucket of several parts is [parts, size], of which this rank has some rows.
std::int64_t rows_of(const Part& part, Var bucket) {
  return part.type(bucket).rank() == 2 ? part.shape(bucket)[0] : 1;
}
void local_view(Attrs& attrs, const Part& part) {
  View& a = std::get<View>(attrs);
  a.shape = part.shape(part.eqn.out[0]);
  a.parts = rows_of(part, part.eqn.in[0]);
  if (a.parts == 1) a.dim = -1;
}
void local_pack(Attrs& attrs, const Part& part) {
  std::get<Pack>(attrs).parts = rows_of(part, part.eqn.out[0]);
}

}  // namespace

std::vector<OpDef> bucket_rows() {
  return {
      {.op = Op::view,
       .doc = "a tensor inside a flat bucket",
       .sig = "",
       .infer = infer_view,
       .vjp = view_vjp,
       .view = view_offset,
       .placement = place_view,
       .linear = {0},
       .local = local_view},
      {.op = Op::pack,
       .doc = "tensors side by side in a flat bucket, zeros between",
       .sig = "",
       .infer = infer_pack,
       .vjp = pack_vjp,
       .gathers = true,
       .placement = place_pack,
       .adds = true,
       .local = local_pack},
      {.op = Op::copy,
       .doc = "the same elements in storage of their own: how what rests away comes, and goes back",
       .sig = "*->*",
       .linear = {0}},
  };
}

}  // namespace tessera::ops
