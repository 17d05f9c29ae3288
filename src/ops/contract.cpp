// contract: the product of two tensors summed over the dims that the result lacks; the one op
// behind every linear layer.
#include <algorithm>
#include <map>

#include "base/check.h"
#include "ir/signature.h"
#include "ops/table.h"

namespace tessera::ops {
namespace {

using namespace ir;

// Both factors are of one float type, or both are quantised; products of these have scales.
void check_factors(const Contract& a, In in) {
  const DType x = in[0].dtype, w = in[1].dtype;
  CHECK(a.scales >= 0 && static_cast<std::size_t>(a.scales) + 2 <= in.size(),
        "contract has " + std::to_string(in.size() - 2) + " operands after its factors, not " +
            std::to_string(a.scales) + " scales");
  if (!is_quantised(x)) {
    CHECK(is_float(x) && x == w && a.scales == 0,
          "the factors of contract have one float type, or are quantised and have scales");
    return;
  }
  CHECK(is_quantised(w) && (x == DType::i8) == (w == DType::i8),
        "the factors of contract are both i8, or each is f8e4m3 or f8e5m2");
  CHECK(a.out == DType::f32 || (a.out && is_low(*a.out)),
        "a contract of quantised factors says that `out` is f32, bf16 or f16");
  for (std::size_t i = 2; i < 2 + static_cast<std::size_t>(a.scales); ++i)
    CHECK(in[i].dtype == DType::f32, "the scales of contract are f32");
}

// A quantised result needs its scale, which is the last operand.
void check_quantised(const Contract& a, In in, const Type& y) {
  CHECK(is_quantised(*a.to) && is_quantised(in[0].dtype) &&
            (*a.to == DType::i8) == (in[0].dtype == DType::i8) && !a.act.empty() && y.rank() > 1,
        "a contract whose result is quantised has quantised factors, all of them i8 or none, an "
        "activation, and two dims or more");
  CHECK(in.size() > 2 + static_cast<std::size_t>(a.scales) && in.back().dtype == DType::f32 &&
            in.back().shape.empty(),
        "the last operand of a contract whose result is quantised is its scale, f32[]");
}

// The last of these letters or extents in front.
template <class Dims>
Dims turned(Dims dims) {
  std::rotate(dims.begin(), dims.end() - 1, dims.end());
  return dims;
}

Types infer_contract(const Attrs& attrs, In in) {
  const Contract& a = std::get<Contract>(attrs);
  CHECK(in.size() >= 2, "contract takes two operands and then addends");
  const Signature& sig = parsed_signature(a.sig);
  CHECK(sig.in.size() == in.size() && sig.out.size() == 1,
        "\"" + a.sig + "\" lists " + std::to_string(sig.in.size()) + " operands and " +
            std::to_string(sig.out.size()) + " results; there are " + std::to_string(in.size()) +
            " and 1");
  check_factors(a, in);
  const std::string& out = sig.out[0].letters;
  for (char c : out)
    CHECK(sig.in[0].letters.find(c) != std::string::npos ||
              sig.in[1].letters.find(c) != std::string::npos,
          std::string("dim ") + c + " of \"" + a.sig + "\" is in no factor");
  for (std::size_t i = 2; i < sig.in.size(); ++i)
    for (char c : sig.in[i].letters)
      CHECK(out.find(c) != std::string::npos,
            "a scale or an addend of \"" + a.sig + "\" has a dim that the result lacks");
  CHECK(a.act.empty() || a.act == "gelu" || a.act == "gelu_tanh",
        "contract knows act gelu and gelu_tanh, not " + a.act);
  const Type y{a.out.value_or(in[0].dtype), infer_shapes(a.sig, in)[0], {}};
  if (!a.to) return a.act.empty() ? Types{y} : Types{y, y};
  check_quantised(a, in, y);
  return {{*a.to, y.shape, {}}, y, {*a.to, turned(y.shape), {}}, {DType::f32, {}, {}}};
}

// Parts of a tensor would need the largest number of all of it, as in quantize.
std::string place_contract(const Attrs& attrs, In, In) {
  const Contract& a = std::get<Contract>(attrs);
  if (!a.to) return a.sig;
  const std::string y = letters_out(a.sig);
  return pinned(a.sig + "," + y + "," + turned(y) + ",");
}

// y = sum x*w:  dx = sum dy*w,  dw = sum dy*x, each over the dims that it lacks.
Grads contract_vjp(Builder& b, const Eqn& e, Grad g) {
  const Contract& a = std::get<Contract>(e.attrs);
  CHECK(e.in.size() == 2 && a.act.empty(),
        "a fused contract has no derivative; differentiate before fusion");
  const std::string x = letters_in(a.sig, 0), w = letters_in(a.sig, 1), y = letters_out(a.sig);
  return {b.contract(y + "," + w + "->" + x, g[0], e.in[1]),
          b.contract(y + "," + x + "->" + w, g[0], e.in[0])};
}

Cost contract_cost(const Attrs& attrs, In in, In) {
  const Contract& a = std::get<Contract>(attrs);
  const Signature& sig = parsed_signature(a.sig);
  std::map<char, double> extents;
  for (std::size_t i = 0; i < 2; ++i)
    for (std::size_t j = 0; j < in[i].shape.size(); ++j)
      extents[sig.in[i].letters[j]] = static_cast<double>(in[i].shape[j]);
  double products = 1;
  for (const auto& [letter, extent] : extents) products *= extent;
  return {2 * products, 0};
}

}  // namespace

std::vector<OpDef> contract_rows() {
  return {{.op = Op::contract,
           .doc =
               "act(sum of x*w over the dims that the result lacks, times `scales` operands, + "
               "further operands); results y, and the value before act, [where `to` is given, by "
               "the scale that is the last operand: turned, the largest number]",
           .sig = "",
           .infer = infer_contract,
           .vjp = contract_vjp,
           .cost = contract_cost,
           .placement = place_contract,
           .linear = {0, 1},
           .low = "l"}};
}

}  // namespace tessera::ops
