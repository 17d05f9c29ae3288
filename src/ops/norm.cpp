// Normalisation over the last dim: layer norm and the softmax family. Statistics are kept in f32
// (f64 for f64).
#include "base/check.h"
#include "ir/signature.h"
#include "ops/table.h"

namespace tessera::ops {
namespace {

using namespace ir;

// x, gain, bias -> y = (x - mean) rstd gain + bias, mean, rstd
DType norm_type(const Attrs& attrs, In in) {
  return std::get<Norm>(attrs).to.value_or(in[0].dtype);
}
// A quantised result needs a scale, and comes with its turned copy and the largest |y|.
bool in_bytes(const Attrs& attrs) {
  const auto to = std::get<Norm>(attrs).to;
  return to && is_quantised(*to);
}
std::string layer_norm_signature(const Attrs& attrs, int) {
  return in_bytes(attrs) ? "*!c!,c!,c!,->*!c!,*!,*!,c!*!," : "*c!,c!,c!->*c!,*,*";
}
std::string add_norm_signature(const Attrs& attrs, int) {
  return in_bytes(attrs) ? "*!c!,*!c!,c!,c!,->*!c!,*!c!,*!,*!,c!*!," : "*c!,*c!,c!,c!->*c!,*c!,*,*";
}
void add_bytes(const Attrs& attrs, In in, const std::vector<Shape>& shapes, Types& out) {
  if (!in_bytes(attrs)) return;
  CHECK(in[0].dtype == DType::f32 && in.back().dtype == DType::f32,
        "a norm with a quantised result takes f32, and a scale in f32");
  out.push_back({*std::get<Norm>(attrs).to, shapes[out.size()], {}});
  out.push_back({DType::f32, shapes[out.size()], {}});
}
Types infer_layer_norm(const Attrs& attrs, In in) {
  const auto s = infer_shapes(layer_norm_signature(attrs, 0), in);
  const DType stat = statistics_of(in[0].dtype);
  Types out{{norm_type(attrs, in), s[0], {}}, {stat, s[1], {}}, {stat, s[2], {}}};
  add_bytes(attrs, in, s, out);
  return out;
}
// The result of a product that a norm alone reads may have the type of the norm's other results: it
// is rounded where it is made, and widened where it is read.
void check_read(const char* op, const char* operand, const Type& read, const Type& x,
                const Attrs& attrs) {
  CHECK(read.dtype == x.dtype || read.dtype == std::get<Norm>(attrs).to ||
            (in_bytes(attrs) && is_low(read.dtype)),
        std::string(op) + ": " + operand + " is " + std::string(name(read.dtype)) + " beside " +
            std::string(name(x.dtype)) + "; it has the type of x, or that of `to`");
}
Types infer_add_norm(const Attrs& attrs, In in) {
  const auto s = infer_shapes(add_norm_signature(attrs, 0), in);
  check_read("add_norm", "r", in[1], in[0], attrs);
  const DType stat = statistics_of(in[0].dtype);
  Types out{{in[0].dtype, s[0], {}},
            {norm_type(attrs, in), s[1], {}},
            {stat, s[2], {}},
            {stat, s[3], {}}};
  add_bytes(attrs, in, s, out);
  return out;
}
std::string norm_grad_signature(const Attrs& attrs, int operands) {
  return std::string("*c!,*c!,*,*,c!") + (operands == 6 ? ",*c!" : "") + "->*c!,c!,c!" +
         (std::get<Norm>(attrs).to ? ",*c!,c!" : "");
}
Types infer_layer_norm_grad(const Attrs& attrs, In in) {
  const auto s = infer_shapes(norm_grad_signature(attrs, static_cast<int>(in.size())), in);
  check_read("layer_norm_grad", "dy", in[0], in[1], attrs);
  Types out{{in[1].dtype, s[0], {}}, {in[4].dtype, s[1], {}}, {in[4].dtype, s[2], {}}};
  if (const auto to = std::get<Norm>(attrs).to) {
    out.push_back({*to, s[3], {}});
    out.push_back({in[4].dtype, s[4], {}});
  }
  return out;
}
// With n = (x - mean) rstd and h = dy gain:  dx = rstd (h - mean(h) - n mean(h n)),  dgain = sum dy
// n,  dbias = sum dy.
Grads layer_norm_vjp(Builder& b, const Eqn& e, Grad g) {
  CHECK(g[1] == none && g[2] == none, "the gradient of layer_norm's statistics is not defined");
  return b.emit(Op::layer_norm_grad, e.attrs, {g[0], e.in[0], e.out[1], e.out[2], e.in[1]},
                {"dx", "dgain", "dbias"});
}

// y = softmax(x): dx = y (g - sum(g y)).   y = log softmax(x): dx = g - exp(y) sum(g).
Grads softmax_vjp(Builder& b, const Eqn& e, Grad g) {
  return {b.emit1(Op::softmax_grad, None{}, {e.out[0], g[0]})};
}
Grads log_softmax_vjp(Builder& b, const Eqn& e, Grad g) {
  return {b.emit1(Op::log_softmax_grad, None{}, {e.out[0], g[0]})};
}

}  // namespace

std::vector<OpDef> norm_rows() {
  return {
      {.op = Op::layer_norm,
       .doc = "x, gain, bias, [scale] -> normalised over the last dim, mean, 1/standard deviation, "
              "[where `to` is quantised: turned, the largest number]",
       .sig = "",
       .infer = infer_layer_norm,
       .vjp = layer_norm_vjp,
       .may_alias = {{0, 0}},
       .signature = layer_norm_signature,
       .low = "l."},
      {.op = Op::layer_norm_grad,
       .doc = "dy, x, mean, rstd, gain, [addend] -> dx (+ addend), dgain, dbias, [dx in another "
              "type, its sum over rows (made by fusion)]",
       .sig = "",
       .infer = infer_layer_norm_grad,
       .may_alias = {{0, 5}, {0, 0}, {0, 1}},
       .signature = norm_grad_signature,
       .low = "ll."},
      {.op = Op::add_norm,
       .doc = "x, r, gain, bias, [scale] -> x + r, its layer norm, mean, rstd (made by fusion), "
              "[as layer_norm]",
       .sig = "",
       .infer = infer_add_norm,
       .may_alias = {{0, 0}, {0, 1}},
       .signature = add_norm_signature},
      {.op = Op::softmax,
       .doc = "over the last dim",
       .sig = "*c!->*c!",
       .vjp = softmax_vjp,
       .may_alias = {{0, 0}},
       .low = "l"},
      {.op = Op::softmax_grad,
       .doc = "y, g -> y (g - sum(g y))",
       .sig = "*c!,*c!->*c!",
       .may_alias = {{0, 1}, {0, 0}},
       .low = "l"},
      {.op = Op::log_softmax,
       .doc = "over the last dim",
       .sig = "*c!->*c!",
       .vjp = log_softmax_vjp,
       .may_alias = {{0, 0}}},
      {.op = Op::log_softmax_grad,
       .doc = "y, g -> g - exp(y) sum(g)",
       .sig = "*c!,*c!->*c!",
       .may_alias = {{0, 1}, {0, 0}}},
  };
}

}  // namespace tessera::ops
