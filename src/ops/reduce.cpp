// Sums.
#include "base/check.h"
#include "ir/signature.h"
#include "ops/table.h"

namespace tessera::ops {
namespace {

using namespace ir;

Types infer_sum(const Attrs& attrs, In in) {
  const Sum& a = std::get<Sum>(attrs);
  const auto shapes = infer_shapes(a.sig, in);
  CHECK(in.size() == 1 && shapes.size() == 1,
        "\"" + a.sig + "\" takes one operand and gives one result");
  return {{a.out.value_or(in[0].dtype), shapes[0], {}}};
}
// d(sum x) = dx: the gradient is spread over the dims that were summed.
Grads sum_vjp(Builder& b, const Eqn& e, Grad g) {
  const std::string& sig = std::get<Sum>(e.attrs).sig;
  const Type x = b.type(e.in[0]);
  const Var same = b.type(g[0]).dtype == x.dtype ? g[0] : b.cast(g[0], x.dtype);
  return {b.emit1(Op::broadcast, Broadcast{letters_out(sig) + "->" + letters_in(sig, 0), x.shape},
                  {same})};
}

Types infer_sumsq(const Attrs&, In in) { return {{statistics_of(only(in).dtype), {}, {}}}; }
Grads sumsq_vjp(Builder& b, const Eqn& e, Grad g) {  // d(sum x^2) = 2 x dx
  const std::string x = alphabet(b.type(e.in[0]).rank());
  return {b.scale(b.mul(x + ",->" + x, e.in[0], g[0]), 2.0)};
}

}  // namespace

std::vector<OpDef> reduce_rows() {
  return {{.op = Op::sum,
           .doc = "over the dims that the result lacks",
           .sig = "",
           .infer = infer_sum,
           .vjp = sum_vjp,
           .linear = {0},
           .low = "l"},
          {.op = Op::sumsq,
           .doc = "sum of squares of all elements",
           .sig = "*->",
           .infer = infer_sumsq,
           .vjp = sumsq_vjp},
          // The alarm of a sum over ranks is defined as the sum of their alarms, so each rank looks
          // at its own part.
          {.op = Op::alarm,
           .doc = "0 when the norm of all elements is below 1e12, else NaN; of a partial sum: of "
                  "each rank's part",
           .sig = "*->",
           .infer = infer_sumsq,
           .linear = {0}}};
}

}  // namespace tessera::ops
