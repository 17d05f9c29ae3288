// Fusion: neighbours that one kernel can do in one visit of memory. Each pass collects its matches
// first, then rewrites in one walk. In f32 and f64 the fused contract rounds exactly as its parts;
// the others add up or round in another order, and in bf16 a rounding disappears.
#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "ir/builder.h"
#include "ir/signature.h"
#include "transforms/transforms.h"
#include "transforms/uses.h"

namespace tessera::transforms {
namespace {

using namespace ir;

// The letters of `part` in the alphabet of an equation whose result letters `from` stand at the
// places of `to`.
std::string translate(const std::string& part, const std::string& from, const std::string& to) {
  std::string out;
  for (char c : part) out += to[from.find(c)];
  return out;
}

bool has_addend(const Eqn& contract) {
  const int scales = std::get<Contract>(contract.attrs).scales;
  return contract.in.size() != static_cast<std::size_t>(2 + scales);
}

Var through_marks(const Uses& uses, Var v) {
  while (const Eqn* mark = uses.made_by(v, Op::mark)) v = mark->in[0];
  return v;
}

}  // namespace

// add(contract(x, w), b) -> contract(x, w, b); then gelu(that) -> contract act=gelu with results y,
// h. The fused equation stands where the add stood, because a bias may be cast between the two.
Program fuse_contract(const Program& program) {
  const Uses uses(program);
  std::map<int, const Eqn*> bias, act;  // by the index of the add: the contract; the gelu
  std::set<int> gone;
  for (const Eqn& e : program.eqns) {
    if (e.op == Op::add) {
      const Eqn* c = uses.made_by(e.in[0], Op::contract);
      const bool is_bias = program.type(e.in[1]).rank() < program.type(e.in[0]).rank();
      if (!c || !is_bias || !uses.read_once(e.in[0]) || has_addend(*c) ||
          !std::get<Contract>(c->attrs).act.empty() || c->phase != e.phase)
        continue;
      bias[uses.index(e)] = c;
      gone.insert(uses.index(*c));
    } else if (e.op == Op::gelu) {
      const Eqn* add = uses.made_by(e.in[0], Op::add);
      if (!add || !bias.contains(uses.index(*add)) || add->phase != e.phase ||
          act.contains(uses.index(*add)))
        continue;
      act[uses.index(*add)] = &e;
      gone.insert(uses.index(e));
    }
  }
  Rewriter r(program);
  for (std::size_t i = 0; i < program.eqns.size(); ++i) {
    const Eqn& e = program.eqns[i];
    const auto found = bias.find(static_cast<int>(i));
    if (gone.contains(static_cast<int>(i))) continue;
    if (found == bias.end()) {
      r.copy(e);
      continue;
    }
    const Eqn &add = e, &product = *found->second;
    Contract c = std::get<Contract>(product.attrs);
    const std::string y = letters_out(c.sig), add_sig = std::get<Sig>(add.attrs).sig;
    c.sig = c.sig.substr(0, c.sig.find("->")) + "," +
            translate(letters_in(add_sig, 1), letters_out(add_sig), y) + "->" + y;
    std::vector<Var> in = r(product.in);
    in.push_back(r(add.in[1]));
    Eqn fused{.op = Op::contract,
              .attrs = c,
              .in = {},
              .out = add.out,
              .scope = product.scope,
              .phase = product.phase,
              .stage = product.stage,
              .micro = product.micro};
    if (const auto gelu = act.find(static_cast<int>(i)); gelu != act.end()) {
      c.act = std::get<Gelu>(gelu->second->attrs).tanh ? "gelu_tanh" : "gelu";
      fused.out = {gelu->second->out[0], add.out[0]};
    }
    r.copy_with(fused, c, in);
  }
  return r.finish();
}

// Whether a value is there before the equation `index`, or can be: weights that rest away from the
// device are brought and cut to size where they are used, which depends on nothing that is worked
// out. What must then move ahead is added to `ahead`, in order.
bool there_before(const Uses& uses, Var v, int index, std::vector<int>& ahead) {
  const int made = uses.made_at(v);
  if (made < index) return true;
  const Eqn& e = uses.program.eqns[static_cast<std::size_t>(made)];
  if ((e.op != Op::copy && e.op != Op::view) || e.in.size() != 1 ||
      !there_before(uses, e.in[0], index, ahead))
    return false;
  if (std::find(ahead.begin(), ahead.end(), made) == ahead.end()) ahead.push_back(made);
  return true;
}

// layer_norm(x + r) -> add_norm(x, r), also across marks; dx + g -> layer_norm_grad with addend.
Program fuse_norm(const Program& program) {
  const Uses uses(program);
  std::map<int, std::vector<int>> ahead;  // by the index of the add
  std::map<int, const Eqn*> norm, grad;   // by the index of the add, and of the layer_norm_grad
  std::set<int> gone;
  for (const Eqn& e : program.eqns) {
    if (e.op == Op::layer_norm) {
      const Eqn* add = uses.made_by(through_marks(uses, e.in[0]), Op::add);
      if (!add || add->phase != e.phase ||
          program.type(add->in[1]).shape != program.type(add->in[0]).shape ||
          norm.contains(uses.index(*add)))
        continue;
      std::vector<int> moved;
      if (!there_before(uses, e.in[1], uses.index(*add), moved) ||
          !there_before(uses, e.in[2], uses.index(*add), moved))
        continue;
      ahead[uses.index(*add)] = moved;
      norm[uses.index(*add)] = &e;
      gone.insert(uses.index(e));
    } else if (e.op == Op::add && program.type(e.in[0]) == program.type(e.in[1])) {
      for (const int side : {0, 1}) {
        const Eqn* dx = uses.made_by(e.in[static_cast<std::size_t>(side)], Op::layer_norm_grad);
        const Var other = e.in[static_cast<std::size_t>(1 - side)];
        if (!dx || !uses.read_once(dx->out[0]) || dx->in.size() != 5 || other == dx->out[0] ||
            grad.contains(uses.index(*dx)))
          continue;
        if (uses.made_at(other) >= uses.index(*dx) || gone.contains(uses.index(e))) continue;
        grad[uses.index(*dx)] = &e;
        gone.insert(uses.index(e));
        break;
      }
    }
  }
  Rewriter r(program);
  for (std::size_t i = 0; i < program.eqns.size(); ++i) {
    const Eqn& e = program.eqns[i];
    if (gone.contains(static_cast<int>(i))) continue;
    if (const auto n = norm.find(static_cast<int>(i)); n != norm.end()) {
      const Eqn& ln = *n->second;
      for (const int before : ahead[static_cast<int>(i)])
        if (gone.insert(before).second) r.copy(program.eqns[static_cast<std::size_t>(before)]);
      const Eqn fused{.op = Op::add_norm,
                      .attrs = ln.attrs,
                      .in = {},
                      .out = {e.out[0], ln.out[0], ln.out[1], ln.out[2]},
                      .scope = e.scope,
                      .phase = e.phase,
                      .stage = e.stage,
                      .micro = e.micro};
      r.copy_with(fused, ln.attrs, {r(e.in[0]), r(e.in[1]), r(ln.in[1]), r(ln.in[2])});
    } else if (const auto g = grad.find(static_cast<int>(i)); g != grad.end()) {
      const Eqn& add = *g->second;
      Eqn fused = e;
      fused.out[0] = add.out[0];
      std::vector<Var> in = r(e.in);
      in.push_back(r(add.in[add.in[0] == e.out[0] ? 1 : 0]));
      r.copy_with(fused, e.attrs, in);
    } else {
      r.copy(e);
    }
  }
  return r.finish();
}

// nll(log_softmax(x), t) -> cross_entropy(x, t), and log_softmax_grad(nll_grad) ->
// cross_entropy_grad.
Program fuse_loss(const Program& program) {
  const Uses uses(program);
  Rewriter r(program);
  for (const Eqn& e : program.eqns) {
    if (e.op == Op::nll) {
      if (const Eqn* y = uses.made_by(e.in[0], Op::log_softmax)) {
        Eqn fused = e;
        fused.op = Op::cross_entropy;
        r.copy_with(fused, e.attrs, {r(y->in[0]), r(e.in[1])});
        continue;
      }
    } else if (e.op == Op::log_softmax_grad) {
      const Eqn* inner = uses.made_by(e.in[1], Op::nll_grad);
      const Eqn* y = uses.made_by(e.in[0], Op::log_softmax);
      if (inner && y && inner->in[0] == e.in[0]) {
        Eqn fused = e;
        fused.op = Op::cross_entropy_grad;
        r.copy_with(fused, inner->attrs, {r(y->in[0]), r(inner->in[1]), r(inner->in[2])});
        continue;
      }
    }
    r.copy(e);
  }
  return r.finish();
}

// update(w, g * factor) with select(ok, new, old) on every result -> one update with factor and ok:
// one visit of the bucket.
Program fuse_update(const Program& program) {
  const Uses uses(program);
  std::map<int, std::vector<const Eqn*>> selects;
  std::set<int> gone;
  for (const Eqn& e : program.eqns) {
    if (e.op != Op::sgd && e.op != Op::adamw) continue;
    std::vector<const Eqn*> found;
    for (std::size_t k = 0; k < e.out.size(); ++k) {
      if (e.out[k] == none || !uses.read_once(e.out[k]) || uses.readers[at(e.out[k])].empty())
        break;
      const Eqn& s = program.eqns[static_cast<std::size_t>(uses.readers[at(e.out[k])][0])];
      if (s.op != Op::select || s.in[1] != e.out[k] || s.in[2] != e.in[k] ||
          (k && s.in[0] != found[0]->in[0]))
        break;
      found.push_back(&s);
    }
    if (found.size() != e.out.size() || uses.made_at(found[0]->in[0]) >= uses.index(e)) continue;
    for (const Eqn* s : found) gone.insert(uses.index(*s));
    selects[uses.index(e)] = std::move(found);
  }
  Rewriter r(program);
  for (std::size_t i = 0; i < program.eqns.size(); ++i) {
    const Eqn& e = program.eqns[i];
    if (gone.contains(static_cast<int>(i))) continue;
    const auto found = selects.find(static_cast<int>(i));
    if (found == selects.end()) {
      r.copy(e);
      continue;
    }
    std::vector<Var> in = r(e.in);
    const std::size_t g = e.out.size();  // the gradient follows weights and state
    const Eqn* scaled = uses.made_by(e.in[g], Op::mul);
    const bool factor =
        scaled && program.type(scaled->in[1]).shape.empty() && uses.read_once(e.in[g]);
    if (factor) {
      in[g] = r(scaled->in[0]);
      in.push_back(r(scaled->in[1]));
    }
    in.push_back(r(found->second[0]->in[0]));
    Attrs attrs = e.attrs;
    std::visit(
        [&](auto& a) {
          if constexpr (requires { a.ok; }) {
            a.factor = factor;
            a.ok = true;
          }
        },
        attrs);
    Eqn fused = e;
    for (std::size_t k = 0; k < e.out.size(); ++k) fused.out[k] = found->second[k]->out[0];
    r.copy_with(fused, attrs, in);
  }
  return r.finish();
}

}  // namespace tessera::transforms
