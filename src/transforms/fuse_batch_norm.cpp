// Fuses the neighbours of a batch norm in a network of residual blocks with it. Forward: the ReLU
// behind it, or the sum with a shortcut and the ReLU behind that, become part of it. Backward: the
// gradient of that ReLU becomes part of what reads it. Sums over the batch stay values of their
// own, which ranks may add up.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "ir/builder.h"
#include "transforms/transforms.h"
#include "transforms/uses.h"

namespace tessera::transforms {
namespace {

using namespace ir;

bool stands_beside(const Eqn& a, const Eqn& b) {
  return a.phase == b.phase && a.stage == b.stage && a.micro == b.micro;
}

struct Forward {
  const Eqn *norm, *relu;
  Var addend = none;
  const Eqn* other = nullptr;  // the norm that makes the addend, where it is fused too
};
// The equations that become one with a relu_grad: sums over its result for a norm, for the norm of
// a shortcut, and the sum that alone makes the gradient that comes to it.
struct Summed {
  const Eqn *sums = nullptr, *other = nullptr, *add = nullptr;
};
struct Fusions {
  std::map<int, Forward> forward;  // by the index of the ReLU
  std::map<Var, Forward> made;     // by what the ReLU gives
  std::map<int, Var> masked;       // batch_norm_sums and batch_norm_grad: dy before the ReLU
  std::map<int, Summed> summed;    // by the index of the relu_grad
  std::set<int> gone;
};

// A norm that only `reader` reads, as it was written.
const Eqn* norm_for(const Uses& uses, Var v, const Eqn& reader) {
  const Eqn* norm = uses.made_by(v, Op::batch_norm);
  if (!norm || !uses.read_once(v) || norm->in.size() != 6 ||
      std::get<BatchNorm>(norm->attrs).relu || !stands_beside(*norm, reader))
    return nullptr;
  return norm;
}
// Whether statistics of the norm are read only behind the ReLU, where the fused equation stands.
bool read_later(const Uses& uses, const Eqn& norm, const Eqn& relu) {
  for (const Var v : {norm.out[1], norm.out[2]})
    if (v != none)
      for (const int reader : uses.readers[at(v)])
        if (reader < uses.index(relu)) return false;
  return true;
}

std::optional<Forward> before_relu(const Uses& uses, const Eqn& relu) {
  Forward found{norm_for(uses, relu.in[0], relu), &relu};
  if (const Eqn* add = uses.made_by(relu.in[0], Op::add);
      !found.norm && add && uses.read_once(relu.in[0]) && stands_beside(*add, relu) &&
      uses.program.type(add->in[0]) == uses.program.type(add->in[1]))
    for (const std::size_t side : {0u, 1u})
      if (!found.norm && (found.norm = norm_for(uses, add->in[side], relu)))
        found.addend = add->in[1 - side];
  if (!found.norm || !read_later(uses, *found.norm, relu)) return std::nullopt;
  const Eqn* other = found.addend == none ? nullptr : norm_for(uses, found.addend, relu);
  if (other && other->attrs == found.norm->attrs && read_later(uses, *other, relu))
    found.other = other;
  return found;
}

void find_forward(const Uses& uses, Fusions& all) {
  for (const Eqn& e : uses.program.eqns) {
    if (e.op != Op::relu) continue;
    const auto found = before_relu(uses, e);
    if (!found) continue;
    all.forward[uses.index(e)] = *found;
    all.made[e.out[0]] = *found;
    all.gone.insert(uses.index(*found->norm));
    if (found->addend != none) all.gone.insert(uses.made_at(e.in[0]));
    if (found->other) all.gone.insert(uses.index(*found->other));
  }
}

// Whether an equation is part of the gradient of this norm, with `dy` for the norm's result.
bool is_gradient(const Eqn& e, const Eqn& norm, Var dy) {
  return (e.op == Op::batch_norm_sums || e.op == Op::batch_norm_grad) &&
         !std::get<BatchNorm>(e.attrs).relu && e.in[0] == dy && e.in[1] == norm.in[0] &&
         e.in[2] == norm.out[1] && e.in[3] == norm.out[2];
}

// Where only the norm's own gradient reads that of the ReLU, it takes what comes to the ReLU.
void fold_mask(const Uses& uses, const Eqn& e, const Eqn& norm, Fusions& all) {
  const std::vector<int>& readers = uses.readers[at(e.out[0])];
  if (static_cast<std::size_t>(uses.count[at(e.out[0])]) != readers.size()) return;  // an output
  for (const int reader : readers)
    if (!is_gradient(uses.program.eqns[static_cast<std::size_t>(reader)], norm, e.out[0])) return;
  for (const int reader : readers) all.masked[reader] = e.in[1];
  all.gone.insert(uses.index(e));
}

// The sum that makes v, all of whose readers but the last are marks on the way to v; null: there is
// none. The equations on the way are added to `between`.
const Eqn* sum_behind(const Uses& uses, Var v, const Eqn& reader, std::set<int>& between) {
  while (v != none && uses.read_once(v)) {
    const int index = uses.made_at(v);
    if (index < 0) return nullptr;
    between.insert(index);
    const Eqn& maker = uses.program.eqns[static_cast<std::size_t>(index)];
    if (!stands_beside(maker, reader)) return nullptr;
    if (maker.op == Op::add) {
      const Type& type = uses.program.type(maker.out[0]);
      const bool plain = uses.program.type(maker.in[0]) == type &&
                         uses.program.type(maker.in[1]) == type && maker.in[0] != maker.in[1];
      return plain ? &maker : nullptr;
    }
    if (maker.op != Op::mark) return nullptr;
    v = maker.in[0];
  }
  return nullptr;
}

// The sums over `dz` that the gradient of a norm needs; null: they cannot be made where `e` stands.
const Eqn* sums_of(const Uses& uses, const Eqn& e, const Eqn& norm) {
  for (const Var v : {norm.in[0], norm.out[1], norm.out[2]})
    if (uses.made_at(v) >= uses.index(e)) return nullptr;
  for (const int reader : uses.readers[at(e.out[0])]) {
    const Eqn& sums = uses.program.eqns[static_cast<std::size_t>(reader)];
    if (sums.op == Op::batch_norm_sums && is_gradient(sums, norm, e.out[0]) &&
        stands_beside(sums, e))
      return &sums;
  }
  return nullptr;
}

// Behind a sum the gradient of the ReLU is read by the shortcut too: one pass writes it and makes
// the sums of the norm, and of the shortcut's own norm.
void fold_sums(const Uses& uses, const Eqn& e, const Forward& forward, Fusions& all) {
  Summed found{sums_of(uses, e, *forward.norm)};
  if (!found.sums) return;
  all.gone.insert(uses.index(*found.sums));
  if (forward.other) found.other = sums_of(uses, e, *forward.other);
  if (found.other) all.gone.insert(uses.index(*found.other));
  std::set<int> between;
  if ((found.add = sum_behind(uses, e.in[1], e, between))) all.gone.merge(between);
  all.summed[uses.index(e)] = found;
}

void find_backward(const Uses& uses, Fusions& all) {
  for (const Eqn& e : uses.program.eqns) {
    if (e.op != Op::relu_grad) continue;
    const auto found = all.made.find(e.in[0]);
    if (found == all.made.end()) continue;
    const Forward& forward = found->second;
    if (forward.addend == none)
      fold_mask(uses, e, *forward.norm, all);
    else
      fold_sums(uses, e, forward, all);
  }
}

void write_norm(Rewriter& r, const Eqn& e, const Forward& found) {
  const Eqn& norm = *found.norm;
  BatchNorm attrs = std::get<BatchNorm>(norm.attrs);
  attrs.relu = true;
  Eqn fused = norm;
  fused.out[0] = e.out[0];
  std::vector<Var> in = r(norm.in);
  if (found.other) {
    const std::vector<Var> more = r(found.other->in);
    in.insert(in.end(), more.begin(), more.end());
    fused.out.insert(fused.out.end(), {found.other->out[1], found.other->out[2]});
  } else if (found.addend != none) {
    in.push_back(r(found.addend));
  }
  r.copy_with(fused, attrs, in);
}

void write_masked(Rewriter& r, const Eqn& e, const Eqn& norm, Var dy) {
  BatchNorm attrs = std::get<BatchNorm>(e.attrs);
  attrs.relu = true;
  std::vector<Var> in = r(e.in);
  in[0] = r(dy);
  if (e.op == Op::batch_norm_sums) in.push_back(r(norm.in[4]));
  in.push_back(r(norm.in[5]));
  r.copy_with(e, attrs, in);
}

void write_sums(Rewriter& r, const Eqn& e, const Summed& found) {
  const Eqn &sums = *found.sums, *other = found.other, *add = found.add;
  Eqn fused = e;
  fused.op = Op::relu_grad_sums;
  fused.out = {e.out[0], sums.out[0], sums.out[1]};
  std::vector<Var> in = {r(e.in[0]), r(add ? add->in[0] : e.in[1]), r(sums.in[1]), r(sums.in[2]),
                         r(sums.in[3])};
  if (other) {
    in.insert(in.end(), {r(other->in[1]), r(other->in[2]), r(other->in[3])});
    fused.out.push_back(other->out[1]);
    // The sum of the gradient alone is the same for both; it may be the other's only.
    if (fused.out[1] == none) fused.out[1] = other->out[0];
  }
  if (add) in.push_back(r(add->in[1]));
  r.copy_with(fused, sums.attrs, in);
  if (other && other->out[0] != none) r.set(other->out[0], r(fused.out[1]));
}

// A sum over nothing but dims of extent 1, of a value that is whole on every rank: a reshape.
bool only_reshapes(const Program& p, const Eqn& e) {
  if (e.op != Op::sum || e.out[0] == none) return false;
  const Type &from = p.type(e.in[0]), &to = p.type(e.out[0]);
  return from.dtype == to.dtype && from.elements() == to.elements() && from.rank() == 2 &&
         from.shape[0] == 1 && to.rank() == 1 &&
         std::all_of(from.at.begin(), from.at.end(),
                     [](const Place& place) { return place == Place{}; });
}

void write_reshape(Rewriter& r, const Eqn& e) {
  Eqn same = e;
  same.op = Op::reshape;
  r.copy_with(same, Reshape{r.from.type(e.out[0]).shape}, r(e.in));
}

}  // namespace

// relu(batch_norm(x) [+ r]) -> batch_norm relu; its gradient -> batch_norm_sums and batch_norm_grad
// relu, or where a shortcut reads it too relu_grad_sums. The gradient of gain and bias of one group
// is those sums themselves.
Program fuse_batch_norm(const Program& program) {
  const Uses uses(program);
  Fusions all;
  find_forward(uses, all);
  find_backward(uses, all);
  std::map<Var, const Eqn*> norm_of;  // by the mean
  for (const auto& [index, found] : all.forward)
    if (found.norm->out[1] != none) norm_of[found.norm->out[1]] = found.norm;
  Rewriter r(program);
  for (std::size_t i = 0; i < program.eqns.size(); ++i) {
    const Eqn& e = program.eqns[i];
    const int index = static_cast<int>(i);
    if (all.gone.contains(index)) continue;
    if (const auto found = all.forward.find(index); found != all.forward.end())
      write_norm(r, e, found->second);
    else if (const auto dy = all.masked.find(index); dy != all.masked.end())
      write_masked(r, e, *norm_of.at(e.in[2]), dy->second);
    else if (const auto sums = all.summed.find(index); sums != all.summed.end())
      write_sums(r, e, sums->second);
    else if (only_reshapes(program, e))
      write_reshape(r, e);
    else
      r.copy(e);
  }
  return r.finish();
}

}  // namespace tessera::transforms
