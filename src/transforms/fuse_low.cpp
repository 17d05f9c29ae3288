// Mixed precision leaves equations beside a norm or an activation: the cast of what it gives to the
// type that products read, and the sum of its gradient over rows, which is that of a bias. The
// kernel has the values in its registers, so it writes both. Rounding is that of the cast. And
// before it: what it adds to the residual stream, or the gradient that comes back, is read in the
// low type, without a cast to f32; a product whose result a norm alone reads gives it in the low
// type, as every other product does. The stream itself stays as wide as it is.
#include <map>
#include <set>

#include "ir/builder.h"
#include "ir/signature.h"
#include "transforms/transforms.h"
#include "transforms/uses.h"

namespace tessera::transforms {
namespace {

using namespace ir;

bool beside(const Eqn& a, const Eqn& b) {
  return a.phase == b.phase && a.stage == b.stage && a.micro == b.micro;
}

bool sums_rows(const Eqn& e) {
  if (e.op != Op::sum) return false;
  const std::string& sig = std::get<Sum>(e.attrs).sig;
  const std::string in = letters_in(sig, 0);
  return in.size() > 1 && letters_out(sig) == in.substr(in.size() - 1);
}
bool casts_down(const Eqn& e) { return e.op == Op::cast && is_low(std::get<Cast>(e.attrs).to); }

// The equations that read a value, also across marks.
std::vector<const Eqn*> readers_of(const Uses& uses, Var v) {
  std::vector<const Eqn*> out;
  for (const int index : uses.readers[at(v)]) {
    const Eqn& e = uses.program.eqns[static_cast<std::size_t>(index)];
    if (e.op != Op::mark)
      out.push_back(&e);
    else
      for (const Eqn* behind : readers_of(uses, e.out[0])) out.push_back(behind);
  }
  return out;
}

struct Match {
  const Eqn *cast = nullptr, *sum = nullptr;
};

// The cast that alone reads the result of a norm.
Match after_norm(const Uses& uses, const Eqn& e) {
  const Var y = e.out[e.op == Op::add_norm ? 1 : 0];
  if (y == none || !uses.read_once(y) || uses.readers[at(y)].empty()) return {};
  const Eqn& reader = uses.program.eqns[static_cast<std::size_t>(uses.readers[at(y)][0])];
  return {casts_down(reader) && beside(reader, e) ? &reader : nullptr};
}

// A cast and a sum among the readers of a gradient.
Match after_gradient(const Uses& uses, const Eqn& e) {
  Match found;
  for (const Eqn* reader : readers_of(uses, e.out[0])) {
    if (!beside(*reader, e)) continue;
    if (casts_down(*reader) && !found.cast) found.cast = reader;
    if (sums_rows(*reader) && !found.sum) found.sum = reader;
  }
  return found;
}

std::map<int, Match> matches_in(const Program& program, const Uses& uses) {
  std::map<int, Match> out;
  for (const Eqn& e : program.eqns) {
    Match found;
    if (e.op == Op::layer_norm || e.op == Op::add_norm) found = after_norm(uses, e);
    if (e.op == Op::layer_norm_grad && e.out[0] != none) found = after_gradient(uses, e);
    // The gradient of an activation is low already.
    if (e.op == Op::gelu_grad && is_low(program.type(e.out[0]).dtype))
      found = {nullptr, after_gradient(uses, e).sum};
    else if (!found.cast)
      continue;
    if (found.cast || found.sum) out[uses.index(e)] = found;
  }
  return out;
}

// The operand that a norm may read in the low type: what is added, or the gradient of its result.
std::size_t low_operand(const Eqn& e) { return e.op == Op::add_norm ? 1 : 0; }

// Whether products of such factors come in a low type elsewhere: of that type, or of bytes.
bool rounds_to(DType low, DType factors) { return factors == low || factors == DType::i8; }

// The values that fused norms read instead of casts to f32, and the products that round their
// result.
struct Reads {
  std::map<int, Var> instead;   // by the index of the norm
  std::map<int, DType> rounds;  // by the index of the contract
};

Reads reads_in(const Program& program, const Uses& uses, const std::map<int, Match>& matches) {
  Reads out;
  for (const auto& [index, match] : matches) {
    const Eqn& e = program.eqns[static_cast<std::size_t>(index)];
    if ((e.op != Op::add_norm && e.op != Op::layer_norm_grad) || !match.cast) continue;
    const DType low = std::get<Cast>(match.cast->attrs).to;
    const Var v = e.in[low_operand(e)];
    if (program.type(e.in[e.op == Op::add_norm ? 0 : 1]).dtype != DType::f32) continue;
    const Eqn *cast = uses.made_by(v, Op::cast), *product = uses.made_by(v, Op::contract);
    if (cast && program.type(cast->in[0]).dtype == low) out.instead[index] = cast->in[0];
    // In f16 what is small would lose bits, or all of them.
    if (low == DType::bf16 && product && uses.read_once(v) && beside(*product, e) &&
        product->out.size() == 1 && std::get<Contract>(product->attrs).out == DType::f32 &&
        rounds_to(low, program.type(product->in[0]).dtype))
      out.rounds[uses.index(*product)] = low;
  }
  return out;
}

// A product in a low type; what is added to it is cast to that type.
void copy_rounded(Rewriter& r, const Eqn& e, DType low) {
  Contract attrs = std::get<Contract>(e.attrs);
  attrs.out.reset();
  if (attrs.scales > 0) attrs.out = low;  // its factors are bytes
  std::vector<Var> in = r(e.in);
  r.enter(e);
  for (std::size_t i = 2 + static_cast<std::size_t>(attrs.scales); i < in.size(); ++i)
    if (r.to.type(in[i]).dtype != low)
      in[i] = r.to.emit_named(Op::cast, Cast{low}, {in[i]},
                              {r.to.name_of(in[i]) + "." + std::string(name(low))})[0];
  r.copy_with(e, attrs, in);
}

}  // namespace

Program fuse_low(const Program& program) {
  const Uses uses(program);
  const std::map<int, Match> matches = matches_in(program, uses);
  const Reads reads = reads_in(program, uses, matches);
  std::set<int> gone;
  for (const auto& [index, match] : matches)
    for (const Eqn* e : {match.cast, match.sum})
      if (e) gone.insert(uses.index(*e));
  Rewriter r(program);
  for (std::size_t i = 0; i < program.eqns.size(); ++i) {
    const Eqn& e = program.eqns[i];
    const auto found = matches.find(static_cast<int>(i));
    if (gone.contains(static_cast<int>(i))) continue;
    if (const auto rounds = reads.rounds.find(static_cast<int>(i)); rounds != reads.rounds.end()) {
      copy_rounded(r, e, rounds->second);
      continue;
    }
    if (found == matches.end()) {
      r.copy(e);
      continue;
    }
    const Match& match = found->second;
    const Var copy = match.cast ? match.cast->out[0] : none,
              sum = match.sum ? match.sum->out[0] : none;
    Eqn fused = e;
    Attrs attrs = e.attrs;
    if (Norm* norm = std::get_if<Norm>(&attrs)) norm->to = std::get<Cast>(match.cast->attrs).to;
    if (Gelu* gelu = std::get_if<Gelu>(&attrs)) gelu->sums = true;
    if (e.op == Op::gelu_grad)
      fused.out.push_back(sum);
    else if (e.op == Op::layer_norm_grad)
      fused.out.insert(fused.out.end(), {copy, sum});
    else
      fused.out[e.op == Op::add_norm ? 1 : 0] = copy;
    std::vector<Var> in = r(e.in);
    if (const auto low = reads.instead.find(static_cast<int>(i)); low != reads.instead.end())
      in[low_operand(e)] = r(low->second);
    r.copy_with(fused, attrs, in);
  }
  return r.finish();
}

}  // namespace tessera::transforms
