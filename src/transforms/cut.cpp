// Where a model is cut into stages. Convention: by dataflow, not by position: an equation belongs
// to the latest stage that it gets something from, and what follows from parameters and constants
// alone to the first stage that reads it; so statistics that are written at the end and tables that
// are made in advance stand with their layer.
#include <algorithm>

#include "base/check.h"
#include "transforms/transforms.h"
#include "transforms/uses.h"

namespace tessera::transforms {

using namespace ir;

Program cut(const Program& program, const std::vector<std::int64_t>& blocks) {
  std::vector<int> ends;  // per mark: the stage that it closes, or -1
  for (std::size_t s = 0; s < blocks.size(); ++s) {
    CHECK(blocks[s] > 0, "a stage has at least one block");
    ends.resize(ends.size() + static_cast<std::size_t>(blocks[s]) + (s == 0 ? 1 : 0), -1);
    ends.back() = static_cast<int>(s);
  }
  Program p = program;
  const int last = static_cast<int>(blocks.size()) - 1;
  const Uses uses(p);
  std::vector<int> level(p.values.size(), -1);  // the stage that may read a value; -1: any
  for (const Input& in : p.inputs)
    if (in.name == "images" || in.name == "samples") level[at(in.var)] = 0;
  std::size_t marks = 0;
  for (Eqn& e : p.eqns) {
    e.stage = -1;
    for (Var v : e.in)
      if (v != none) e.stage = std::max(e.stage, level[at(v)]);
    int then = e.stage;
    if (e.op == Op::mark && std::get<Mark>(e.attrs).label == "residual") {
      CHECK(marks < ends.size(), "the stages have fewer blocks than the model");
      if (ends[marks] == e.stage && e.stage < last) ++then;
      ++marks;
    }
    for (Var v : e.out)
      if (v != none) level[at(v)] = then;
  }
  CHECK(marks == ends.size(), "the stages have more blocks than the model");
  for (std::size_t i = p.eqns.size(); i-- > 0;) {
    Eqn& e = p.eqns[i];
    if (e.stage >= 0) continue;
    e.stage = last;
    for (Var v : e.out)
      for (const int reader : v == none ? std::vector<int>{} : uses.readers[at(v)])
        e.stage = std::min(e.stage, p.eqns[static_cast<std::size_t>(reader)].stage);
  }
  return p;
}

}  // namespace tessera::transforms
