// Makers and readers of each value, for pattern-matching passes.
#pragma once

#include <vector>

#include "base/index.h"
#include "ir/program.h"

namespace tessera::transforms {

struct Uses {
  explicit Uses(const ir::Program& p)
      : program(p),
        maker(p.values.size(), -1),
        count(p.values.size(), 0),
        readers(p.values.size()) {
    for (std::size_t i = 0; i < p.eqns.size(); ++i) {
      for (ir::Var v : p.eqns[i].out)
        if (v != ir::none) maker[at(v)] = static_cast<int>(i);
      for (ir::Var v : p.eqns[i].in)
        if (v != ir::none) {
          ++count[at(v)];
          readers[at(v)].push_back(static_cast<int>(i));
        }
    }
    for (const ir::Output& o : p.outputs) ++count[at(o.var)];
  }

  // The equation that makes v as its first result, when it is this op; null otherwise.
  const ir::Eqn* made_by(ir::Var v, ir::Op op) const {
    if (v == ir::none || maker[at(v)] < 0) return nullptr;
    const ir::Eqn& eqn = program.eqns[static_cast<std::size_t>(maker[at(v)])];
    return eqn.op == op && eqn.out[0] == v ? &eqn : nullptr;
  }
  bool read_once(ir::Var v) const { return count[at(v)] == 1; }
  int index(const ir::Eqn& eqn) const { return static_cast<int>(&eqn - program.eqns.data()); }
  int made_at(ir::Var v) const { return v == ir::none ? -1 : maker[at(v)]; }

  const ir::Program& program;
  std::vector<int> maker, count;
  std::vector<std::vector<int>> readers;
};

}  // namespace tessera::transforms
