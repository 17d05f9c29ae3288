// Deferred batch norm (torchgpipe's): micro-batches normalise as they did, but running statistics
// are moved once per step, towards those of the whole batch. What one micro-batch handed to the
// next becomes a sum: of values around the running mean that the step began with, over
// micro-batches and, where every dp rank has a group of its own, over groups.
#include <map>
#include <set>
#include <vector>

#include "base/check.h"
#include "ir/builder.h"
#include "transforms/transforms.h"

namespace tessera::transforms {

using namespace ir;

Program defer(const Program& program) {
  std::set<Var> read_on;  // running means that another micro-batch moves further
  for (const Eqn& eqn : program.eqns)
    if (eqn.op == Op::running_stats) read_on.insert(eqn.in[0]);
  struct Total {
    Var sums[2] = {none, none};  // of x - mean, and of its square
    std::int64_t samples = 0;
  };
  std::map<Var, Total> totals;  // by running mean
  Rewriter r(program);
  // A norm's last one, the one that stays; written behind the sums of all norms, so that what these
  // need of other ranks travels together.
  std::vector<const Eqn*> last;
  const auto write_last = [&] {
    for (const Eqn* eqn : last) {
      const Total& total = totals[r(eqn->in[0])];
      BatchNorm attrs = std::get<BatchNorm>(eqn->attrs);
      attrs.groups = 1;
      attrs.samples = total.samples;
      r.enter(*eqn);
      r.copy_with(*eqn, attrs,
                  {r(eqn->in[0]), r(eqn->in[1]), total.sums[0], total.sums[1], r(eqn->in[4])});
    }
    last.clear();
  };
  for (const Eqn& eqn : program.eqns) {
    if (eqn.op != Op::running_stats) {
      write_last();
      r.copy(eqn);
      continue;
    }
    CHECK(eqn.in[4] == eqn.in[0], "only sums around the running mean can be deferred");
    r.enter(eqn);
    const BatchNorm& attrs = std::get<BatchNorm>(eqn.attrs);
    Total& total = totals[r(eqn.in[0])];
    total.samples += attrs.samples;
    for (std::size_t i = 0; i < 2; ++i) {
      Var more = r(eqn.in[2 + i]);
      const auto emit = [&, name = "all." + r.to.name_of(more)](Op op, Attrs a,
                                                                std::vector<Var> in) {
        return r.to.emit_named(op, std::move(a), std::move(in), {name})[0];
      };
      if (attrs.groups > 1)
        more = emit(Op::reshape, Reshape{{1, r.to.type(more).shape[1]}},
                    {emit(Op::sum, Sum{"gc->c", {}}, {more})});
      total.sums[i] =
          total.sums[i] == none ? more : emit(Op::add, Sig{"gc,gc->gc"}, {total.sums[i], more});
    }
    if (!read_on.contains(eqn.out[0]))
      last.push_back(&eqn);
    else  // the next micro-batch finds what this one found
      for (std::size_t i = 0; i < 2; ++i) r.set(eqn.out[i], r(eqn.in[i]));
  }
  write_last();
  return r.finish();
}

}  // namespace tessera::transforms
