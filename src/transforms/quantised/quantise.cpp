// Products of linear layers and of convolutions in one byte, for inference: both factors are
// quantised by scales that are state, and the product is multiplied by both scales. Convention: the
// bytes of a weight follow from the weight and its scale, so a plan that is loaded makes them once
// (plan/prepare.h).
#include <algorithm>

#include "base/check.h"
#include "ir/builder.h"
#include "ir/signature.h"
#include "transforms/transforms.h"
#include "transforms/uses.h"

namespace tessera::transforms {
namespace {

using namespace ir;

// The parameter that a value is, as it is or cast; null: it is none.
const Input* parameter_of(const Program& p, const Uses& uses, Var v) {
  while (const Eqn* cast = uses.made_by(v, Op::cast)) v = cast->in[0];
  const auto found =
      std::find_if(p.inputs.begin(), p.inputs.end(), [&](const Input& in) { return in.var == v; });
  return found == p.inputs.end() ? nullptr : &*found;
}

// Letters of a weight that the result has: its output channels.
std::string channels_of(const Signature& sig) {
  std::string out;
  for (const char c : sig.in[1].letters)
    if (sig.out[0].letters.find(c) != std::string::npos) out += c;
  return out;
}

Shape extents_of(const std::string& letters, const std::string& of, const Shape& shape) {
  Shape out;
  for (const char c : letters) out.push_back(shape[of.find(c)]);
  return out;
}

}  // namespace

std::string weight_scale_name(const std::string& param) { return param + ".scale"; }
std::string input_scale_name(const std::string& param) { return param + ".input_scale"; }

namespace {

// The letters of a product's operands: what it reads, its weight, and the weight's channels.
struct ProductLetters {
  std::string x, w, channels;
};
ProductLetters letters_of(const Eqn& e, bool per_channel) {
  if (e.op == Op::conv) return {"bxyc", "klco", per_channel ? "o" : ""};
  const Signature& sig = parsed_signature(std::get<Contract>(e.attrs).sig);
  return {sig.in[0].letters, sig.in[1].letters, per_channel ? channels_of(sig) : ""};
}
Attrs with_scales(const Eqn& e, const ProductLetters& letters, DType out) {
  if (e.op == Op::conv) {
    Conv now = std::get<Conv>(e.attrs);
    now.out = out;
    now.scales = 2;
    return now;
  }
  Contract now = std::get<Contract>(e.attrs);
  now.sig = letters.x + "," + letters.w + ",," + letters.channels + "->" +
            parsed_signature(now.sig).out[0].letters;
  now.out = out;
  now.scales = 2;
  return now;
}

}  // namespace

Program quantise(const Program& program, const Quantisation& what) {
  CHECK(is_quantised(what.to), "layers are quantised to i8 or f8e4m3");
  const Uses uses(program);
  Rewriter r(program);
  std::set<std::string> done;
  for (const Eqn& e : program.eqns) {
    const bool product = (e.op == Op::contract || e.op == Op::conv) && e.in.size() == 2;
    const Input* const param = product ? parameter_of(program, uses, e.in[1]) : nullptr;
    if (!param || !what.params.contains(param->name)) {
      r.copy(e);
      continue;
    }
    const ProductLetters letters = letters_of(e, what.per_channel);
    const auto& [x, w, channels] = letters;
    CHECK(done.insert(param->name).second,
          "two products with the quantised parameter " + param->name);
    r.enter(e);
    const Type& type = program.type(param->var);
    // Like a frozen parameter it stays as it was written, so that a plan may work with it ahead.
    const auto scale = [&](const std::string& name, Shape shape) {
      return r.to.input(Input::state, name, {DType::f32, std::move(shape), {}}, {}, Role::frozen,
                        name);
    };
    const Var w_scale = scale(weight_scale_name(param->name), extents_of(channels, w, type.shape)),
              x_scale = scale(input_scale_name(param->name), {});
    const auto quantised = [&](const std::string& letters, const std::string& by, Var v, Var s) {
      const std::string text = letters + "," + by + "->" + letters;
      return r.to.emit_named(Op::quantize, Quantize{.sig = text, .to = what.to}, {v, s},
                             {r.to.name_of(v) + "." + std::string(name(what.to))})[0];
    };
    const Var xq = quantised(x, "", r(e.in[0]), x_scale),
              wq = quantised(w, channels, r(param->var), w_scale);
    r.copy_with(e, with_scales(e, letters, program.type(e.out[0]).dtype),
                {xq, wq, x_scale, w_scale});
  }
  for (const std::string& name : what.params)
    CHECK(done.contains(name), "no product with the parameter " + name + ", which is quantised");
  return r.finish();
}

}  // namespace tessera::transforms
