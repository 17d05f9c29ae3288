// The opposite of fusion, for whoever wants to see or time the parts: attention as scores, softmax
// and values. Convention: only where nobody reads lse, so never in a training step, whose gradient
// recomputes the scores from it. Legend as in ops/attention.cpp: t query, s key, h head, d head
// dim; other letters are the dims before them, of which the last counts the windows of a mask.
#include "base/check.h"
#include "ir/builder.h"
#include "transforms/transforms.h"
#include "transforms/uses.h"

namespace tessera::transforms {
namespace {

using namespace ir;

// Dims before those of the tokens.
constexpr std::string_view lead_letters = "abcefgijklmnopq";

}  // namespace

// o = attention(q, k, v, [bias], [mask]) -> softmax(scale q k' + bias + mask) v, the scores in f32
// where q is narrower.
Program split_attention(const Program& program) {
  const Uses uses(program);
  Rewriter r(program);
  for (const Eqn& e : program.eqns) {
    if (e.op != Op::attention || e.out[0] == none ||
        (e.out[1] != none && uses.count[at(e.out[1])] > 0)) {
      r.copy(e);
      continue;
    }
    const Attention& a = std::get<Attention>(e.attrs);
    const Type& type = program.type(e.in[0]);
    CHECK(type.shape.size() - 3 <= lead_letters.size(),
          "too many dims before the tokens of " + program.name_of(e.in[0]));
    const std::string lead(lead_letters.substr(0, type.shape.size() - 3)),
        q = lead + "thd", k = lead + "shd", scores = lead + "hts";
    const std::string& name = program.name_of(e.out[0]);
    r.enter(e);
    const auto emit = [&](Op op, Attrs attrs, std::vector<Var> in, const char* part) {
      return r.to.emit_named(op, std::move(attrs), std::move(in), {name + part})[0];
    };
    Contract product{q + "," + k + "->" + scores, {}, {}};
    if (statistics_of(type.dtype) != type.dtype) product.out = statistics_of(type.dtype);
    Var x = emit(Op::contract, product, {r(e.in[0]), r(e.in[1])}, ".scores");
    x = emit(Op::scale, Scale{a.scale}, {x}, ".scaled");
    if (a.bias) x = emit(Op::add, Sig{scores + ",hts->" + scores}, {x, r(e.in[3])}, ".biased");
    if (a.mask)
      x = emit(Op::add, Sig{scores + "," + lead.back() + "ts->" + scores}, {x, r(e.in.back())},
               ".masked");
    x = emit(Op::softmax, None{}, {x}, ".softmax");
    if (product.out) x = emit(Op::cast, Cast{type.dtype}, {x}, ".narrow");
    const Contract values{scores + "," + k + "->" + q, {}, {}};
    r.copy_with(Eqn{.op = Op::contract,
                    .attrs = values,
                    .in = {},
                    .out = {e.out[0]},
                    .scope = e.scope,
                    .phase = e.phase,
                    .stage = e.stage,
                    .micro = e.micro},
                values, {x, r(e.in[2])});
  }
  return r.finish();
}

}  // namespace tessera::transforms
