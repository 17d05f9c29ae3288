// A norm, or a product with an activation, whose result is quantised to i8 and read nowhere else
// gives bytes itself: the tensor between the two is neither written nor read. Convention: this is
// for inference on one rank, and for executors that say they can (plan::Target::gives_bytes).
#include <map>

#include "ir/builder.h"
#include "ir/signature.h"
#include "transforms/transforms.h"
#include "transforms/uses.h"

namespace tessera::transforms {
namespace {

using namespace ir;

// Which result of the equation becomes bytes; none: it can give no bytes.
Var result_of(const Program& p, const Eqn& e) {
  if (e.op == Op::layer_norm || e.op == Op::add_norm) {
    const auto to = std::get<Norm>(e.attrs).to;
    const bool wide = p.type(e.in[0]).dtype == DType::f32;
    return wide && !(to && is_quantised(*to)) ? e.out[e.op == Op::add_norm ? 1 : 0] : none;
  }
  if (e.op != Op::contract || e.out[0] == none) return none;
  const Contract& a = std::get<Contract>(e.attrs);
  const bool bytes = p.type(e.in[0]).dtype == DType::i8;
  return bytes && !a.act.empty() && !a.to && p.type(e.out[0]).rank() > 1 ? e.out[0] : none;
}

// Elements stay where they are and have one scale, an input.
bool is_plain(const Uses& uses, const Eqn& e) {
  if (e.op != Op::quantize || e.out.size() != 1) return false;
  const Quantize& a = std::get<Quantize>(e.attrs);
  const Signature& sig = parsed_signature(a.sig);
  return a.to == DType::i8 && a.act.empty() && sig.in[1].letters.empty() &&
         sig.out[0].letters == sig.in[0].letters && uses.made_at(e.in[1]) < 0;
}

// The quantisations that their operands' makers take over, by the index of the maker.
std::map<int, const Eqn*> matches_in(const Program& program, const Uses& uses) {
  std::map<int, const Eqn*> out;
  for (const Eqn& e : program.eqns) {
    if (!is_plain(uses, e) || !uses.read_once(e.in[0])) continue;
    const int made = uses.made_at(e.in[0]);
    if (made < 0) continue;
    const Eqn& maker = program.eqns[static_cast<std::size_t>(made)];
    if (result_of(program, maker) == e.in[0] && maker.phase == e.phase) out[made] = &e;
  }
  return out;
}

Attrs into_bytes(const Eqn& e) {
  if (e.op != Op::contract) {
    Norm attrs = std::get<Norm>(e.attrs);
    attrs.to = DType::i8;
    return attrs;
  }
  Contract attrs = std::get<Contract>(e.attrs);
  attrs.sig.insert(attrs.sig.find("->"), ",");
  attrs.to = DType::i8;
  return attrs;
}

}  // namespace

Program fuse_bytes(const Program& program) {
  const Uses uses(program);
  const std::map<int, const Eqn*> matches = matches_in(program, uses);
  Rewriter r(program);
  for (const Eqn& e : program.eqns) {
    const auto match = matches.find(uses.index(e));
    if (match == matches.end()) {
      const int made = e.op == Op::quantize ? uses.made_at(e.in[0]) : -1;
      if (const auto gone = matches.find(made); gone == matches.end() || gone->second != &e)
        r.copy(e);
      continue;
    }
    const Eqn& quantize = *match->second;
    std::vector<Var> in = r(e.in);
    in.push_back(r(quantize.in[1]));
    std::vector<std::string> names;
    for (const Var v : e.out)
      names.push_back(v == none             ? "_"
                      : v == quantize.in[0] ? program.name_of(quantize.out[0])
                                            : program.name_of(v));
    names.insert(names.end(), {"_", "_"});  // turned, and the largest number
    r.enter(e);
    const std::vector<Var> out = r.to.emit_named(e.op, into_bytes(e), in, names);
    for (std::size_t i = 0; i < e.out.size(); ++i)
      if (e.out[i] != none) r.set(e.out[i] == quantize.in[0] ? quantize.out[0] : e.out[i], out[i]);
  }
  return r.finish();
}

}  // namespace tessera::transforms
