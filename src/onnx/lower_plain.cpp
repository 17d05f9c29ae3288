// Ops of one element, of rows, and of shapes.
#include <cmath>

#include "onnx/lowering.h"

namespace tessera::onnx {
namespace {

using namespace ir;

struct Sides {
  std::string a, b, result;
};
Sides sides_of(const std::string& sig) {
  const std::size_t comma = sig.find(','), arrow = sig.find("->");
  if (comma == sig.npos) return {sig.substr(0, arrow), "", sig.substr(arrow + 2)};
  return {sig.substr(0, comma), sig.substr(comma + 1, arrow - comma - 1), sig.substr(arrow + 2)};
}

// An operand with its dims in the order of the result and 1 where the result has more.
std::string spread(Lowering& to, Var v, const std::string& letters, const std::string& result) {
  if (letters == result) return to.name(v);
  std::vector<int> perm;
  Shape shape;
  for (const char letter : result) {
    const std::size_t dim = letters.find(letter);
    if (dim != letters.npos) perm.push_back(static_cast<int>(dim));
    shape.push_back(dim == letters.npos ? 1 : to.shape(v)[dim]);
  }
  std::size_t ones = 0;  // in front, where broadcasting adds them by itself
  while (ones < shape.size() && letters.find(result[ones]) == letters.npos) ++ones;
  shape.erase(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(ones));
  if (to.is_constant(v)) {
    Constant value = permuted(to.constant(v), perm);
    value.shape = shape;
    return to.parameter(to.program.name_of(v), value);
  }
  Shape turned;
  for (const int dim : perm) turned.push_back(to.shape(v)[static_cast<std::size_t>(dim)]);
  return to.reshape(to.transpose(to.name(v), perm), turned, shape);
}

void add_or_mul(Lowering& to, const Eqn& e) {
  const Sides sides = sides_of(std::get<Sig>(e.attrs).sig);
  const char* op = e.op == Op::add ? "Add" : "Mul";
  const bool turned = sides.a == sides.b && sides.result == sides.a && sides.a.size() == 4 &&
                      (to.is_channels_first(e.in[0]) || to.is_channels_first(e.in[1]));
  if (turned)
    to.set_channels_first(e.out[0],
                          to.node(op, {to.channels_first(e.in[0]), to.channels_first(e.in[1])}));
  else
    to.set(e.out[0], to.node(op, {spread(to, e.in[0], sides.a, sides.result),
                                  spread(to, e.in[1], sides.b, sides.result)}));
}

void sum(Lowering& to, const Eqn& e) {
  const Sides sides = sides_of(std::get<Sum>(e.attrs).sig);
  const bool turned = to.is_channels_first(e.in[0]);
  constexpr std::int64_t place[] = {0, 2, 3, 1};  // of [b,h,w,c] in [b,c,h,w]
  Dims dims;
  for (std::size_t i = 0; i < sides.a.size(); ++i)
    if (sides.result.find(sides.a[i]) == std::string::npos)
      dims.push_back(turned ? place[i] : static_cast<std::int64_t>(i));
  CHECK(!turned || (dims == Dims{2, 3}), "of an image its pixels are summed");
  to.set(e.out[0], to.node("ReduceSum",
                           {turned ? to.channels_first(e.in[0]) : to.name(e.in[0]), to.whole(dims)},
                           {{"keepdims", std::int64_t{0}}}));
}

void gelu(Lowering& to, const Eqn& e) {
  if (std::get<Gelu>(e.attrs).tanh)
    throw Error(ErrorKind::usage, "GELU in its tanh form is not written", "--onnx");
  const std::string x = to.name(e.in[0]);
  const std::string erf = to.node("Erf", {to.node("Mul", {x, to.number(std::sqrt(0.5))})});
  to.set(e.out[0], to.node("Mul", {to.node("Mul", {x, to.number(0.5)}),
                                   to.node("Add", {erf, to.number(1.0)})}));
}

void broadcast(Lowering& to, const Eqn& e) {
  const Broadcast& attrs = std::get<Broadcast>(e.attrs);
  const Sides sides = sides_of(attrs.sig);
  std::vector<std::string> sizes;
  for (const std::int64_t dim : attrs.shape)
    sizes.push_back(dim == any_batch ? to.batch_size() : to.whole({dim}));
  const std::string shape = to.node("Concat", sizes, {{"axis", std::int64_t{0}}});
  to.set(e.out[0], to.node("Expand", {spread(to, e.in[0], sides.a, sides.result), shape}));
}

void pad(Lowering& to, const Eqn& e) {
  const Pad& attrs = std::get<Pad>(e.attrs);
  const std::size_t rank = to.shape(e.in[0]).size();
  Dims pads(2 * rank, 0);
  pads[static_cast<std::size_t>(attrs.dim)] = attrs.before;
  pads[rank + static_cast<std::size_t>(attrs.dim)] = attrs.after;
  to.set(e.out[0], to.node("Pad", {to.name(e.in[0]), to.whole(pads)}));
}

void patchify(Lowering& to, const Eqn& e) {
  const std::int64_t p = std::get<Patch>(e.attrs).size;
  const Shape &s = to.shape(e.in[0]), &result = to.shape(e.out[0]);
  const Shape cut = {s[0], s[1] / p, p, s[2] / p, p, s[3]};
  const Shape turned = {s[0], s[1] / p, s[2] / p, p, p, s[3]};
  to.set(e.out[0],
         to.reshape(to.transpose(to.reshape(to.name(e.in[0]), s, cut), {0, 1, 3, 2, 4, 5}), turned,
                    result));
}

void layer_norm(Lowering& to, const Eqn& e) {
  to.set(e.out[0],
         to.node("LayerNormalization", {to.name(e.in[0]), to.name(e.in[1]), to.name(e.in[2])},
                 {{"axis", std::int64_t{-1}},
                  {"epsilon", static_cast<float>(std::get<Norm>(e.attrs).eps)}}));
}

// The same value under another name.
void alias(Lowering& to, const Eqn& e) {
  if (to.is_constant(e.in[0]))
    to.set_constant(e.out[0], to.constant(e.in[0]));
  else if (to.is_channels_first(e.in[0]))
    to.set_channels_first(e.out[0], to.channels_first(e.in[0]));
  else
    to.set(e.out[0], to.name(e.in[0]));
}

void reshaped(Lowering& to, const Eqn& e) {
  if (to.is_constant(e.in[0]))
    to.set_constant(e.out[0], {to.shape(e.out[0]), to.constant(e.in[0]).values});
  else
    to.set(e.out[0], to.reshape(to.name(e.in[0]), to.shape(e.in[0]), to.shape(e.out[0])));
}

}  // namespace

bool lower_plain(Lowering& to, const Eqn& e) {
  switch (e.op) {
    case Op::add:
    case Op::mul:
      add_or_mul(to, e);
      return true;
    case Op::sum:
      sum(to, e);
      return true;
    case Op::scale:
      to.set(e.out[0],
             to.node("Mul", {to.name(e.in[0]), to.number(std::get<Scale>(e.attrs).factor)}));
      return true;
    case Op::gelu:
      gelu(to, e);
      return true;
    case Op::relu:
      if (to.is_channels_first(e.in[0]))
        to.set_channels_first(e.out[0], to.node("Relu", {to.channels_first(e.in[0])}));
      else
        to.set(e.out[0], to.node("Relu", {to.name(e.in[0])}));
      return true;
    case Op::mark:
      alias(to, e);
      return true;
    case Op::layer_norm:
      layer_norm(to, e);
      return true;
    case Op::reshape:
      reshaped(to, e);
      return true;
    case Op::broadcast:
      broadcast(to, e);
      return true;
    case Op::pad:
      pad(to, e);
      return true;
    case Op::patchify:
      patchify(to, e);
      return true;
    case Op::slice: {
      const Slice& attrs = std::get<Slice>(e.attrs);
      to.set(e.out[0],
             to.slice(to.name(e.in[0]), attrs.dim, attrs.start, attrs.start + attrs.size));
      return true;
    }
    case Op::concat: {
      std::vector<std::string> parts;
      for (const Var v : e.in) parts.push_back(to.name(v));
      to.set(e.out[0],
             to.node("Concat", parts, {{"axis", std::int64_t{std::get<Dim>(e.attrs).dim}}}));
      return true;
    }
    case Op::unstack:
      for (std::size_t i = 0; i < e.out.size(); ++i)
        to.set(e.out[i],
               to.node("Squeeze", {to.slice(to.name(e.in[0]), 0, static_cast<std::int64_t>(i),
                                            static_cast<std::int64_t>(i) + 1),
                                   to.whole({0})}));
      return true;
    default:
      return false;
  }
}

}  // namespace tessera::onnx
