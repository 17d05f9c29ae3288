// Moving elements without changing them. Results that only rename storage are views; stack may be
// filled in place by its operands.
#include <algorithm>

#include "base/check.h"
#include "base/index.h"
#include "ir/signature.h"
#include "ops/table.h"

namespace tessera::ops {
namespace {

using namespace ir;

constexpr std::int64_t most_extent =
    std::int64_t{1} << 36;  // of an attribute: keeps sums and products from overflowing

Type like(const Type& t, Shape shape) { return {t.dtype, std::move(shape), {}}; }

Types infer_constant(const Attrs& attrs, In in) {
  CHECK(in.empty(), "constant takes no operand");
  const Constant& a = std::get<Constant>(attrs);
  CHECK(!is_quantised(a.dtype), "a constant is a number, not a quantised element");
  return {{a.dtype, a.shape, {}}};
}

Types infer_reshape(const Attrs& attrs, In in) {
  const Type& x = only(in);
  const Shape& shape = std::get<Reshape>(attrs).shape;
  CHECK(elements(shape) == x.elements(),
        "reshape keeps the number of elements: " + to_string(x.shape) + " to " + to_string(shape));
  return {like(x, shape)};
}
Grads reshape_vjp(Builder& b, const Eqn& e, Grad g) {
  return {b.reshape(g[0], b.type(e.in[0]).shape)};
}

Types infer_transpose(const Attrs& attrs, In in) {
  const Type& x = only(in);
  const std::vector<int>& perm = std::get<Transpose>(attrs).perm;
  CHECK(perm.size() == x.shape.size(), "transpose permutes every dim");
  std::vector<bool> seen(perm.size(), false);
  Shape shape;
  for (int p : perm) {
    CHECK(p >= 0 && at(p) < perm.size() && !seen[at(p)], "perm is a permutation");
    seen[at(p)] = true;
    shape.push_back(x.shape[at(p)]);
  }
  return {like(x, shape)};
}
Grads transpose_vjp(Builder& b, const Eqn& e, Grad g) {
  const std::vector<int>& perm = std::get<Transpose>(e.attrs).perm;
  std::vector<int> back(perm.size());
  for (std::size_t i = 0; i < perm.size(); ++i) back[at(perm[i])] = static_cast<int>(i);
  return {b.emit1(Op::transpose, Transpose{back}, {g[0]})};
}

void check_dim(const Type& t, int dim) {
  CHECK(dim >= 0 && dim < t.rank(), "dim " + std::to_string(dim) + " of " + to_string(t.shape));
}

Types infer_slice(const Attrs& attrs, In in) {
  const Type& x = only(in);
  const Slice& a = std::get<Slice>(attrs);
  check_dim(x, a.dim);
  CHECK(a.start >= 0 && a.size >= 0 && a.size <= x.shape[at(a.dim)] - a.start,
        "slice lies inside " + to_string(x.shape));
  Shape shape = x.shape;
  shape[at(a.dim)] = a.size;
  return {like(x, shape)};
}
Grads slice_vjp(Builder& b, const Eqn& e, Grad g) {
  const Slice& a = std::get<Slice>(e.attrs);
  const std::int64_t extent = b.type(e.in[0]).shape[at(a.dim)];
  return {b.emit1(Op::pad, Pad{a.dim, a.start, extent - a.start - a.size}, {g[0]})};
}
// Contiguous only when nothing but extents of one lies before the dim.
std::int64_t view_slice(const Attrs& attrs, In in, int) {
  const Slice& a = std::get<Slice>(attrs);
  std::int64_t before = 1, after = 1;
  for (int i = 0; i < in[0].rank(); ++i)
    (i < a.dim ? before : after) *= i == a.dim ? 1 : in[0].shape[at(i)];
  return before == 1 ? a.start * after : -1;
}

Types infer_pad(const Attrs& attrs, In in) {
  const Type& x = only(in);
  const Pad& a = std::get<Pad>(attrs);
  check_dim(x, a.dim);
  CHECK(a.before >= 0 && a.after >= 0 && a.before <= most_extent && a.after <= most_extent,
        "padding is not negative, nor absurdly large");
  Shape shape = x.shape;
  shape[at(a.dim)] += a.before + a.after;
  return {like(x, shape)};
}
Grads pad_vjp(Builder& b, const Eqn& e, Grad g) {
  const Pad& a = std::get<Pad>(e.attrs);
  return {b.emit1(Op::slice, Slice{a.dim, a.before, b.type(e.in[0]).shape[at(a.dim)]}, {g[0]})};
}

Types infer_concat(const Attrs& attrs, In in) {
  const int dim = std::get<Dim>(attrs).dim;
  CHECK(!in.empty(), "concat takes at least one operand");
  check_dim(in[0], dim);
  Shape shape = in[0].shape;
  shape[at(dim)] = 0;
  for (const Type& t : in) {
    Shape same = t.shape;
    CHECK(t.rank() == in[0].rank() && t.dtype == in[0].dtype,
          "operands of concat agree in rank and element type");
    same[at(dim)] = 0;
    Shape want = shape;
    want[at(dim)] = 0;
    CHECK(same == want, "operands of concat agree in every dim but one");
    shape[at(dim)] += t.shape[at(dim)];
  }
  return {like(in[0], shape)};
}
Grads concat_vjp(Builder& b, const Eqn& e, Grad g) {
  const int dim = std::get<Dim>(e.attrs).dim;
  Grads out;
  std::int64_t start = 0;
  for (Var v : e.in) {
    const std::int64_t size = b.type(v).shape[at(dim)];
    out.push_back(b.emit1(Op::slice, Slice{dim, start, size}, {g[0]}));
    start += size;
  }
  return out;
}

Types infer_stack(const Attrs&, In in) {
  CHECK(!in.empty(), "stack takes at least one operand");
  for (const Type& t : in)
    CHECK(t.shape == in[0].shape && t.dtype == in[0].dtype, "operands of stack have one type");
  Shape shape = in[0].shape;
  shape.insert(shape.begin(), static_cast<std::int64_t>(in.size()));
  return {like(in[0], shape)};
}
Grads stack_vjp(Builder& b, const Eqn&, Grad g) { return b.emit(Op::unstack, None{}, {g[0]}); }
Types infer_unstack(const Attrs&, In in) {
  CHECK(in.size() == 1 && in[0].rank() >= 1 && in[0].shape[0] >= 1,
        "unstack takes one operand with a leading dim");
  return Types(static_cast<std::size_t>(in[0].shape[0]),
               like(in[0], Shape(in[0].shape.begin() + 1, in[0].shape.end())));
}
Grads unstack_vjp(Builder& b, const Eqn& e, Grad g) {
  std::vector<Var> parts(g.begin(), g.end());
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (parts[i] == none) {
      const Type whole = b.type(e.in[0]);
      parts[i] = b.constant(0, whole.dtype, Shape(whole.shape.begin() + 1, whole.shape.end()));
    }
  return {b.emit1(Op::stack, None{}, parts)};
}
std::int64_t view_unstack(const Attrs&, In in, int result) {
  return result * (in[0].elements() / std::max<std::int64_t>(1, in[0].shape[0]));
}

Types infer_broadcast(const Attrs& attrs, In in) {
  const Type& x = only(in);
  const Broadcast& a = std::get<Broadcast>(attrs);
  const std::string from = letters_in(a.sig, 0), to = letters_out(a.sig);
  CHECK(from.size() == x.shape.size() && to.size() == a.shape.size(),
        "\"" + a.sig + "\" does not fit the ranks");
  for (std::size_t i = 0; i < from.size(); ++i) {
    const auto j = to.find(from[i]);
    CHECK(j != std::string::npos && a.shape[j] == x.shape[i],
          "\"" + a.sig + "\" of " + to_string(x.shape) + " is not " + to_string(a.shape));
  }
  return {like(x, a.shape)};
}
Grads broadcast_vjp(Builder& b, const Eqn& e, Grad g) {
  const std::string& sig = std::get<Broadcast>(e.attrs).sig;
  return {b.sum(letters_out(sig) + "->" + letters_in(sig, 0), g[0])};
}

Types infer_patchify(const Attrs& attrs, In in) {
  const Type& x = only(in);
  const std::int64_t p = std::get<Patch>(attrs).size;
  CHECK(x.rank() == 4 && p >= 1 && p <= most_extent, "patchify takes images [b,h,w,c]");
  const Shape& s = x.shape;
  CHECK(s[1] % p == 0 && s[2] % p == 0,
        "patches of " + std::to_string(p) + " tile the image " + to_string(s));
  return {like(x, {s[0], (s[1] / p) * (s[2] / p), p, p, s[3]})};
}
Types infer_unpatchify(const Attrs& attrs, In in) {
  const Type& x = only(in);
  const Patch& a = std::get<Patch>(attrs);
  CHECK(
      x.rank() == 5 && a.rows >= 1 && a.rows <= most_extent && a.size >= 1 && a.size <= most_extent,
      "unpatchify takes patches [b,t,p,p,c] and the number of rows");
  const Shape& s = x.shape;
  CHECK(s[2] == a.size && s[3] == a.size && s[1] % a.rows == 0,
        "patches " + to_string(s) + " form rows");
  return {like(x, {s[0], a.rows * a.size, s[1] / a.rows * a.size, s[4]})};
}
Grads patchify_vjp(Builder& b, const Eqn& e, Grad g) {
  const std::int64_t p = std::get<Patch>(e.attrs).size;
  return {b.emit1(Op::unpatchify, Patch{p, b.type(e.in[0]).shape[1] / p}, {g[0]})};
}
Grads unpatchify_vjp(Builder& b, const Eqn& e, Grad g) {
  return {b.emit1(Op::patchify, Patch{std::get<Patch>(e.attrs).size, 0}, {g[0]})};
}

// How each is sharded: dims that stay dims may be cut, those that are merged, cut up or joined may
// not.
std::string with_pinned(const std::string& letters, int dim, char as) {
  std::string out = letters;
  out.replace(at(dim), 1, std::string{as, '!'});
  return out;
}
std::string place_reshape(const Attrs& attrs, In in, In) {
  const Shape &from = in[0].shape, &to = std::get<Reshape>(attrs).shape;
  // Walks both shapes; a dim that keeps its extent and has the same number of elements before it is
  // the same dim.
  std::string a, b;
  char next = 'a';
  std::size_t i = 0, j = 0;
  std::int64_t before_i = 1, before_j = 1;
  while (i < from.size() || j < to.size()) {
    if (i < from.size() && j < to.size() && before_i == before_j && from[i] == to[j]) {
      a += next;
      b += next++;
      before_i *= from[i++];
      before_j *= to[j++];
    } else if (j >= to.size() || (i < from.size() && before_i * from[i] <= before_j * to[j])) {
      a += {next++, '!'};
      before_i *= from[i++];
    } else {
      b += {next++, '!'};
      before_j *= to[j++];
    }
  }
  return a + "->" + b;
}
std::string place_transpose(const Attrs& attrs, In in, In) {
  const std::string x = alphabet(in[0].rank());
  std::string y;
  for (const int p : std::get<Transpose>(attrs).perm) y += x[at(p)];
  return x + "->" + y;
}
std::string place_slice(const Attrs& attrs, In in, In) {
  const std::string x = alphabet(in[0].rank());
  const int dim = std::get<Slice>(attrs).dim;
  return with_pinned(x, dim, 'y') + "->" + with_pinned(x, dim, 'z');
}
std::string place_pad(const Attrs& attrs, In in, In) {
  const std::string x = alphabet(in[0].rank());
  const int dim = std::get<Pad>(attrs).dim;
  return with_pinned(x, dim, 'y') + "->" + with_pinned(x, dim, 'z');
}
std::string place_concat(const Attrs& attrs, In in, In) {
  const std::string part = with_pinned(alphabet(in[0].rank()), std::get<Dim>(attrs).dim, 'z');
  std::string out = part;
  for (std::size_t i = 1; i < in.size(); ++i) out += "," + part;
  return out + "->" + part;
}
std::string place_stack(const Attrs&, In in, In) {
  const std::string part = alphabet(in[0].rank());
  std::string out = part;
  for (std::size_t i = 1; i < in.size(); ++i) out += "," + part;
  return out + "->z!" + part;
}
std::string place_unstack(const Attrs&, In in, In) {
  const std::string part = alphabet(in[0].rank() - 1);
  std::string out = "z!" + part + "->" + part;
  for (std::int64_t i = 1; i < in[0].shape[0]; ++i) out += "," + part;
  return out;
}

std::vector<OpDef> stack_rows() {
  return {
      {.op = Op::stack,
       .doc = "n operands -> [n, ...]",
       .sig = "",
       .infer = infer_stack,
       .vjp = stack_vjp,
       .gathers = true,
       .placement = place_stack,
       .adds = true,
       .low = "l"},
      {.op = Op::unstack,
       .doc = "[n, ...] -> n results",
       .sig = "",
       .infer = infer_unstack,
       .vjp = unstack_vjp,
       .view = view_unstack,
       .placement = place_unstack,
       .linear = {0},
       .low = "l"},
  };
}
std::vector<OpDef> patch_rows() {
  return {
      {.op = Op::patchify,
       .doc = "[b,h,w,c] -> [b,t,p,p,c], patches row by row",
       .sig = "",
       .infer = infer_patchify,
       .vjp = patchify_vjp,
       .placement = [](const Attrs&, In, In) -> std::string { return "bx!y!c->bt!p!q!c"; },
       .linear = {0},
       .low = "l"},
      {.op = Op::unpatchify,
       .doc = "[b,t,p,p,c] -> [b,h,w,c]",
       .sig = "",
       .infer = infer_unpatchify,
       .vjp = unpatchify_vjp,
       .placement = [](const Attrs&, In, In) -> std::string { return "bt!p!q!c->bx!y!c"; },
       .linear = {0},
       .low = "l"},
  };
}
}  // namespace

std::vector<OpDef> shape_rows() {
  std::vector<OpDef> rows = {
      {.op = Op::constant,
       .doc = "a tensor of one value",
       .sig = "",
       .infer = infer_constant,
       .placement =
           [](const Attrs& attrs, In, In) {
             return "->" + alphabet(static_cast<int>(std::get<Constant>(attrs).shape.size()));
           },
       .local = local_shape_of_result<Constant>},
      {.op = Op::reshape,
       .doc = "the same elements under another shape",
       .sig = "",
       .infer = infer_reshape,
       .vjp = reshape_vjp,
       .view = view_all,
       .placement = place_reshape,
       .linear = {0},
       .low = "l",
       .local = local_shape_of_result<Reshape>},
      {.op = Op::transpose,
       .doc = "dim i of the result is dim perm[i]",
       .sig = "",
       .infer = infer_transpose,
       .vjp = transpose_vjp,
       .placement = place_transpose,
       .linear = {0},
       .low = "l"},
      {.op = Op::slice,
       .doc = "`size` elements of one dim from `start`",
       .sig = "",
       .infer = infer_slice,
       .vjp = slice_vjp,
       .view = view_slice,
       .placement = place_slice,
       .linear = {0},
       .low = "l",
       .carries_gradient = true},
      {.op = Op::concat,
       .doc = "operands side by side along one dim",
       .sig = "",
       .infer = infer_concat,
       .vjp = concat_vjp,
       .placement = place_concat,
       .adds = true,
       .low = "l"},
      {.op = Op::pad,
       .doc = "zeros before and after along one dim",
       .sig = "",
       .infer = infer_pad,
       .vjp = pad_vjp,
       .placement = place_pad,
       .linear = {0},
       .low = "l"},
      {.op = Op::broadcast,
       .doc = "repeated along the dims that the operand lacks",
       .sig = "",
       .infer = infer_broadcast,
       .vjp = broadcast_vjp,
       .linear = {0},
       .low = "l",
       .local = local_shape_of_result<Broadcast>},
  };
  for (const auto& more : {stack_rows(), patch_rows()})
    rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

}  // namespace tessera::ops
