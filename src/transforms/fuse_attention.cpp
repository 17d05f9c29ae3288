// The gradients of q, k and v lie one behind the other, [3, .., t, h, d], because forward unstacks
// them. What made q, k and v from one input then has three products for its gradient, each of which
// adds to the one before. With the three side by side for every token, [.., t, 3, h, d], it is one
// product with three times the depth, its weights' gradient is one, too, and that of the bias is a
// sum over rows.
#include <algorithm>
#include <map>
#include <set>

#include "ir/builder.h"
#include "ir/signature.h"
#include "transforms/transforms.h"
#include "transforms/uses.h"

namespace tessera::transforms {
namespace {

using namespace ir;

// Where the dim that counts q, k and v goes: in front of heads and their width.
std::string token_by_token(const std::string& letters) {
  std::string out = letters.substr(1);
  return out.insert(out.size() - 2, letters.substr(0, 1));
}

// The signature of an equation that reads the stack as its operand `which`.
std::string moved(const std::string& sig, int operands, int which) {
  std::string out;
  for (int i = 0; i < operands; ++i) {
    const std::string letters = letters_in(sig, i);
    out += (i ? "," : "") + (i == which ? token_by_token(letters) : letters);
  }
  return out + "->" + letters_out(sig);
}

// Products and sums say by letters what they read, and nothing else is said about its order.
bool reads_by_letters(const Eqn& e, Var stack) {
  if (e.op == Op::sum) return true;
  return e.op == Op::contract && (e.in[0] == stack) != (e.in[1] == stack) &&
         std::count(e.in.begin(), e.in.end(), stack) == 1;
}

// The attention_grad whose dq, dk and dv, in this order, are read by this stack alone.
const Eqn* gradients_in(const Uses& uses, const Eqn& stack) {
  if (stack.op != Op::stack || stack.in.size() != 3) return nullptr;
  const Eqn* grad = uses.made_by(stack.in[0], Op::attention_grad);
  if (!grad || std::get<Attention>(grad->attrs).packed) return nullptr;
  for (std::size_t i = 0; i < 3; ++i)
    if (grad->out[i] != stack.in[i] || !uses.read_once(stack.in[i])) return nullptr;
  return grad;
}

bool read_by_letters(const Uses& uses, Var stack) {
  const std::vector<int>& readers = uses.readers[at(stack)];
  if (readers.empty() || static_cast<int>(readers.size()) != uses.count[at(stack)]) return false;
  return std::all_of(readers.begin(), readers.end(), [&](int i) {
    return reads_by_letters(uses.program.eqns[static_cast<std::size_t>(i)], stack);
  });
}

Attrs attrs_moved(const Eqn& e, Var stack) {
  Attrs attrs = e.attrs;
  const int operands = static_cast<int>(e.in.size()),
            which = static_cast<int>(std::find(e.in.begin(), e.in.end(), stack) - e.in.begin());
  if (Contract* c = std::get_if<Contract>(&attrs)) c->sig = moved(c->sig, operands, which);
  if (Sum* s = std::get_if<Sum>(&attrs)) s->sig = moved(s->sig, operands, which);
  return attrs;
}

// The dims that mesh axes cut, where they go.
Places places_moved(const Type& stack) {
  const int counts = stack.rank() - 3;  // the dim that counts q, k and v
  Places out = stack.at;
  for (Place& place : out)
    if (place.kind == Place::S && place.dim <= counts)
      place.dim = place.dim == 0 ? counts : place.dim - 1;
  return out;
}

}  // namespace

Program fuse_attention(const Program& program) {
  const Uses uses(program);
  std::map<int, const Eqn*> stacks;  // by the index of the attention_grad
  std::set<int> gone;
  std::map<int, Var> readers;  // of a stack that goes
  for (const Eqn& e : program.eqns) {
    const Eqn* grad = gradients_in(uses, e);
    if (!grad || !read_by_letters(uses, e.out[0])) continue;
    stacks[uses.index(*grad)] = &e;
    gone.insert(uses.index(e));
    for (const int reader : uses.readers[at(e.out[0])]) readers[reader] = e.out[0];
  }
  Rewriter r(program);
  for (std::size_t i = 0; i < program.eqns.size(); ++i) {
    const Eqn& e = program.eqns[i];
    const int index = static_cast<int>(i);
    if (gone.contains(index)) continue;
    if (const auto found = stacks.find(index); found != stacks.end()) {
      Eqn fused = e;
      fused.out = {found->second->out[0]};
      fused.out.insert(fused.out.end(), e.out.begin() + 3, e.out.end());
      Attention attrs = std::get<Attention>(e.attrs);
      attrs.packed = true;
      const Var packed = r.copy_with(fused, attrs, r(e.in))[0];
      r.to.program().values[at(packed)].type.at = places_moved(program.type(fused.out[0]));
    } else if (const auto reader = readers.find(index); reader != readers.end()) {
      r.copy_with(e, attrs_moved(e, reader->second), r(e.in));
    } else {
      r.copy(e);
    }
  }
  return r.finish();
}

}  // namespace tessera::transforms
