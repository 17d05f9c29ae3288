// Folding for evaluation: batch norm by fixed statistics is x scale + offset, which the convolution
// before it applies to its own result, and after that a residual sum and relu. Convention: the
// folded conv stands where the last of its parts stood, so that every operand is there.
#include <map>
#include <set>

#include "ir/builder.h"
#include "transforms/transforms.h"
#include "transforms/uses.h"

namespace tessera::transforms {
namespace {

using namespace ir;

struct Chain {
  const Eqn *conv, *norm;
  Var addend = none;
  bool relu = false;
};

// Whether nothing follows the product, and the scales of quantised factors.
bool is_plain(const Eqn& conv) {
  const Conv& a = std::get<Conv>(conv.attrs);
  return conv.in.size() == 2 + static_cast<std::size_t>(a.scales) && !a.relu;
}

// The only equation that reads v; null when there are others, or v is an output.
const Eqn* only_reader(const Uses& uses, Var v) {
  if (!uses.read_once(v) || uses.readers[at(v)].empty()) return nullptr;
  return &uses.program.eqns[static_cast<std::size_t>(uses.readers[at(v)][0])];
}

}  // namespace

// relu(batch_norm_fixed(conv(x, f), ...) + r) -> conv(x, f, scale, offset, r) relu; the sum and
// relu may be absent.
Program fold_norm(const Program& program) {
  const Uses uses(program);
  std::map<int, Chain> chains;  // by the index of their last equation
  std::set<int> gone;           // every equation of a chain
  for (const Eqn& norm : program.eqns) {
    if (norm.op != Op::batch_norm_fixed) continue;
    const Eqn* conv = uses.made_by(norm.in[0], Op::conv);
    if (!conv || !is_plain(*conv) || !uses.read_once(norm.in[0])) continue;
    Chain chain{conv, &norm};
    const Eqn* last = &norm;
    gone.insert({uses.index(*conv), uses.index(norm)});
    const Eqn* next = only_reader(uses, last->out[0]);
    if (next && next->op == Op::add && program.type(next->in[0]) == program.type(next->in[1]) &&
        !gone.contains(uses.index(*next))) {
      chain.addend = next->in[next->in[0] == last->out[0] ? 1 : 0];
      last = next;
      gone.insert(uses.index(*last));
      next = only_reader(uses, last->out[0]);
    }
    if (next && next->op == Op::relu) {
      chain.relu = true;
      last = next;
      gone.insert(uses.index(*last));
    }
    chains[uses.index(*last)] = chain;
  }

  Rewriter r(program);
  for (std::size_t i = 0; i < program.eqns.size(); ++i) {
    const Eqn& e = program.eqns[i];
    const auto found = chains.find(static_cast<int>(i));
    if (found == chains.end()) {
      if (!gone.contains(static_cast<int>(i))) r.copy(e);
      continue;
    }
    const auto& [conv, norm, addend, relu] = found->second;
    r.enter(*norm);
    const std::string name = program.name_of(norm->out[0]);
    const std::vector<Var> affine = r.to.emit_named(
        Op::batch_norm_scale, BatchNorm{.eps = std::get<BatchNorm>(norm->attrs).eps},
        {r(norm->in[1]), r(norm->in[2]), r(norm->in[3]), r(norm->in[4])},
        {name + ".scale", name + ".offset"});
    std::vector<Var> in = r(conv->in);
    in.insert(in.end(), {affine[0], affine[1]});
    if (addend != none) in.push_back(r(addend));
    Conv attrs = std::get<Conv>(conv->attrs);
    attrs.relu = relu;
    r.copy_with(Eqn{.op = Op::conv,
                    .attrs = attrs,
                    .in = {},
                    .out = {e.out[0]},
                    .scope = conv->scope,
                    .phase = conv->phase},
                attrs, in);
  }
  return r.finish();
}

}  // namespace tessera::transforms
