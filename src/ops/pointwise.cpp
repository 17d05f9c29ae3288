// Element by element: formula beside derivative.
#include "base/check.h"
#include "ir/signature.h"
#include "ops/table.h"

namespace tessera::ops {
namespace {

using namespace ir;

// a * b and a + b: the first operand has the dims of the result, the second some of them.
Types infer_binary(const Attrs& attrs, In in) {
  const std::string& sig = std::get<Sig>(attrs).sig;
  const auto shapes = infer_shapes(sig, in);
  CHECK(in.size() == 2 && shapes.size() == 1 && letters_in(sig, 0) == letters_out(sig),
        "\"" + sig + "\" takes two operands, the first with the dims of the result");
  for (char c : letters_in(sig, 1))
    CHECK(letters_out(sig).find(c) != std::string::npos,
          "the second operand of \"" + sig + "\" has a dim that the result lacks");
  CHECK(is_float(in[0].dtype) && in[0].dtype == in[1].dtype,
        "takes two operands of one float type");
  return {{in[0].dtype, shapes[0], {}}};
}

// Sums a gradient down to the dims of an operand.
Var sum_to(Builder& b, const std::string& from, const std::string& to, Var g) {
  return from == to ? g : b.sum(from + "->" + to, g);
}

Grads add_vjp(Builder& b, const Eqn& e, Grad g) {  // d(a + b) = da + db
  const std::string& sig = std::get<Sig>(e.attrs).sig;
  return {g[0], sum_to(b, letters_out(sig), letters_in(sig, 1), g[0])};
}

Grads mul_vjp(Builder& b, const Eqn& e, Grad g) {  // d(a b) = b da + a db
  const std::string& sig = std::get<Sig>(e.attrs).sig;
  const std::string full = letters_out(sig), part = letters_in(sig, 1);
  return {b.mul(sig, g[0], e.in[1]),
          sum_to(b, full, part, b.mul(full + "," + full + "->" + full, g[0], e.in[0]))};
}

Grads scale_vjp(Builder& b, const Eqn& e, Grad g) {
  return {b.scale(g[0], std::get<Scale>(e.attrs).factor)};
}
Grads gelu_vjp(Builder& b, const Eqn& e, Grad g) {
  return {b.emit1(Op::gelu_grad, e.attrs, {e.in[0], g[0]})};
}

std::string gelu_grad_signature(const Attrs& attrs, int) {
  return std::get<Gelu>(attrs).sums ? "*c,*c->*c,c" : "*,*->*";
}
Types infer_gelu_grad(const Attrs& attrs, In in) {
  const auto s = infer_shapes(gelu_grad_signature(attrs, 2), in);
  Types out{{in[0].dtype, s[0], {}}};
  if (s.size() > 1) out.push_back({statistics_of(in[0].dtype), s[1], {}});
  return out;
}

Grads select_vjp(Builder& b, const Eqn& e, Grad g) {
  const Type& t = b.type(g[0]);
  const Var zero = b.constant(0, t.dtype, t.shape);
  return {none, b.emit1(Op::select, None{}, {e.in[0], g[0], zero}),
          b.emit1(Op::select, None{}, {e.in[0], zero, g[0]})};
}

Types infer_select(const Attrs&, In in) {
  CHECK(in.size() == 3 && in[1].dtype == in[2].dtype,
        "select takes a flag and two values of one type");
  return {{in[1].dtype, infer_shapes(",*,*->*", in)[0], {}}};
}

Types infer_cast(const Attrs& attrs, In in) {
  const DType to = std::get<Cast>(attrs).to;
  CHECK(!is_quantised(to) && !is_quantised(only(in).dtype),
        "cast knows no quantised types; quantize gives them, contract takes them");
  return {{to, in[0].shape, {}}};
}
Grads cast_vjp(Builder& b, const Eqn& e, Grad g) { return {b.cast(g[0], b.type(e.in[0]).dtype)}; }

Types infer_dropout(const Attrs& attrs, In in) {
  const Dropout& a = std::get<Dropout>(attrs);
  CHECK(in.size() == 2 && in[1].dtype == DType::i64 && in[1].shape == Shape{3},
        "dropout takes a value and rng i64[3] (seed, step, position)");
  CHECK(a.rate >= 0 && a.rate < 1, "a dropout rate is at least 0 and less than 1");
  CHECK(in[0].rank() >= 1, "dropout's first dim is the sample");
  CHECK(a.whole.size() == a.start.size() &&
            (a.whole.empty() || a.whole.size() + 1 == in[0].shape.size()),
        "a part of a sample says where it begins in every dim of the whole one");
  for (std::size_t i = 0; i < a.whole.size(); ++i)
    CHECK(a.start[i] >= 0 && in[0].shape[i + 1] <= a.whole[i] &&
              a.start[i] <= a.whole[i] - in[0].shape[i + 1],
          "a part of a sample lies inside the whole one");
  return {{in[0].dtype, in[0].shape, {}}};
}
// The mask is a function of the key alone, so the derivative is the same op on the gradient.
Grads dropout_vjp(Builder& b, const Eqn& e, Grad g) {
  return {b.emit1(Op::dropout, e.attrs, {g[0], e.in[1]}), none};
}

// From the result: the operand need not be kept.
Grads relu_vjp(Builder& b, const Eqn& e, Grad g) {
  return {b.emit1(Op::relu_grad, None{}, {e.out[0], g[0]})};
}

Grads mark_vjp(Builder& b, const Eqn& e, Grad g) { return {b.emit1(Op::mark, e.attrs, {g[0]})}; }

// Drawn by position in the global batch and place in the whole sample.
void local_dropout(Attrs& attrs, const Part& part) {
  Dropout& a = std::get<Dropout>(attrs);
  const Shape& all = part.type(part.eqn.out[0]).shape;
  const std::vector<Range> mine = part.ranges(part.eqn.out[0]);
  a.base += mine[0].begin;
  bool whole = true;
  for (std::size_t i = 1; i < mine.size(); ++i) whole &= mine[i].size == all[i];
  if (whole) return;
  a.whole.assign(all.begin() + 1, all.end());
  a.start.clear();
  for (std::size_t i = 1; i < mine.size(); ++i) a.start.push_back(mine[i].begin);
}

}  // namespace

std::vector<OpDef> activation_rows() {
  return {
      {.op = Op::gelu,
       .doc = "x/2 (1 + erf(x/sqrt 2)), or its tanh form",
       .sig = "*->*",
       .vjp = gelu_vjp,
       .may_alias = {{0, 0}},
       .low = "l"},
      {.op = Op::gelu_grad,
       .doc = "x, g -> g gelu'(x), [its sum over rows (made by fusion)]",
       .sig = "",
       .infer = infer_gelu_grad,
       .may_alias = {{0, 1}, {0, 0}},
       .signature = gelu_grad_signature,
       .low = "l"},
      {.op = Op::relu,
       .doc = "max(x, 0)",
       .sig = "*->*",
       .vjp = relu_vjp,
       .may_alias = {{0, 0}},
       .low = "l"},
      {.op = Op::relu_grad,
       .doc = "y, g -> g where y = relu(x) is above 0",
       .sig = "*,*->*",
       .may_alias = {{0, 1}, {0, 0}},
       .low = "l"},
  };
}

std::vector<OpDef> pointwise_rows() {
  return {
      {.op = Op::add,
       .doc = "a + b, b broadcast over the dims that it lacks",
       .sig = "",
       .infer = infer_binary,
       .vjp = add_vjp,
       .may_alias = {{0, 0}},
       .adds = true,
       .low = "l",
       .carries_gradient = true},
      {.op = Op::mul,
       .doc = "a * b, b broadcast over the dims that it lacks",
       .sig = "",
       .infer = infer_binary,
       .vjp = mul_vjp,
       .may_alias = {{0, 0}},
       .linear = {0, 1},
       .low = "l",
       .carries_gradient = true},
      {.op = Op::scale,
       .doc = "factor * x",
       .sig = "*->*",
       .vjp = scale_vjp,
       .may_alias = {{0, 0}},
       .linear = {0},
       .low = "l"},
      {.op = Op::select,
       .doc = "flag, a, b -> a where the flag is not 0, else b",
       .sig = ",*,*->*",
       .infer = infer_select,
       .vjp = select_vjp,
       .may_alias = {{0, 1}, {0, 2}}},
      {.op = Op::cast,
       .doc = "to another element type, rounding to nearest even",
       .sig = "*->*",
       .infer = infer_cast,
       .vjp = cast_vjp},
      {.op = Op::dropout,
       .doc = "x, rng -> x/(1-rate) or 0, drawn by (seed, stream, step, sample, element); "
              "per_sample: drop-path",
       .sig = "b*,r!->b*",
       .infer = infer_dropout,
       .vjp = dropout_vjp,
       .may_alias = {{0, 0}},
       .linear = {0},
       .low = "l",
       .local = local_dropout},
      {.op = Op::mark,
       .doc = "identity that names a place: remat boundary, pipeline cut, placement pin",
       .sig = "*->*",
       .vjp = mark_vjp,
       .view = view_all,
       .low = "l",
       .carries_gradient = true},
  };
}

}  // namespace tessera::ops
