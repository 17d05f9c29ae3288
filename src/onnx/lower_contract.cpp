// Contractions with parameters, as products of matrices, and attention.
#include "onnx/lowering.h"

namespace tessera::onnx {
namespace {

using namespace ir;

// y = x w over the letters that the result lacks. The weights become one matrix [summed, rest], so
// x is turned until what is summed stands last.
void contract(Lowering& to, const Eqn& e) {
  const Contract& attrs = std::get<Contract>(e.attrs);
  const std::size_t comma = attrs.sig.find(','), arrow = attrs.sig.find("->");
  const std::string x = attrs.sig.substr(0, comma),
                    w = attrs.sig.substr(comma + 1, arrow - comma - 1),
                    y = attrs.sig.substr(arrow + 2);
  CHECK(e.in.size() == 2 && attrs.act.empty() && to.is_constant(e.in[1]),
        "a forward program multiplies by parameters");
  std::string kept, summed, rest;
  for (const char letter : x) (w.find(letter) == w.npos ? kept : summed) += letter;
  for (const char letter : w)
    if (x.find(letter) == x.npos) rest += letter;
  std::vector<int> perm, columns;
  Shape turned, rows, made;
  for (const char letter : kept + summed) {
    perm.push_back(static_cast<int>(x.find(letter)));
    turned.push_back(to.shape(e.in[0])[x.find(letter)]);
  }
  std::int64_t width = 1, depth = 1;
  for (const char letter : summed) {
    CHECK(y.find(letter) == y.npos, "what both operands have is summed: " + attrs.sig);
    columns.push_back(static_cast<int>(w.find(letter)));
    depth *= to.shape(e.in[1])[w.find(letter)];
  }
  for (const char letter : rest) {
    columns.push_back(static_cast<int>(w.find(letter)));
    width *= to.shape(e.in[1])[w.find(letter)];
  }
  rows.assign(turned.begin(), turned.begin() + static_cast<std::ptrdiff_t>(kept.size()));
  made = rows;
  rows.push_back(depth);
  Shape product = made;
  product.push_back(width);
  for (const char letter : rest) made.push_back(to.shape(e.in[1])[w.find(letter)]);
  Constant matrix = permuted(to.constant(e.in[1]), columns);
  matrix.shape = {depth, width};
  const std::string input = to.reshape(to.transpose(to.name(e.in[0]), perm), turned, rows);
  const std::string out =
      to.node("MatMul", {input, to.weights(to.program.name_of(e.in[1]), matrix)});
  std::vector<int> back;
  for (const char letter : y) back.push_back(static_cast<int>((kept + rest).find(letter)));
  to.set(e.out[0], to.transpose(to.reshape(out, product, made), back));
}

// q k v [*,t,h,d]: softmax(scale q k' + bias + mask) v, a head at a time.
void attention(Lowering& to, const Eqn& e) {
  const Attention& attrs = std::get<Attention>(e.attrs);
  const int rank = static_cast<int>(to.shape(e.in[0]).size());
  std::vector<int> heads, keys;  // [*,h,t,d] and [*,h,d,t]
  for (int i = 0; i < rank - 3; ++i) heads.push_back(i);
  keys = heads;
  for (const int i : {rank - 2, rank - 3, rank - 1}) heads.push_back(i);
  for (const int i : {rank - 2, rank - 1, rank - 3}) keys.push_back(i);
  std::string scores = to.node(
      "MatMul", {to.transpose(to.name(e.in[0]), heads), to.transpose(to.name(e.in[1]), keys)});
  scores = to.node("Mul", {scores, to.number(attrs.scale)});
  std::size_t next = 3;
  if (attrs.bias) scores = to.node("Add", {scores, to.numbers(to.constant(e.in[next++]))});
  if (attrs.mask) {  // [n,t,t], of windows, for every head
    Constant mask = to.constant(e.in[next++]);
    mask.shape.insert(mask.shape.begin() + 1, 1);
    scores = to.node("Add", {scores, to.numbers(mask)});
  }
  const std::string shares = to.node("Softmax", {scores}, {{"axis", std::int64_t{-1}}});
  to.set(e.out[0],
         to.transpose(to.node("MatMul", {shares, to.transpose(to.name(e.in[2]), heads)}), heads));
}

}  // namespace

bool lower_contract(Lowering& to, const Eqn& e) {
  if (e.op == Op::contract)
    contract(to, e);
  else if (e.op == Op::attention)
    attention(to, e);
  else
    return false;
  return true;
}

}  // namespace tessera::onnx
