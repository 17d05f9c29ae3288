// A plan from a program's text, and where its values lie by name.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/check.h"
#include "plan/plan.h"

namespace tessera::test {

inline const plan::Target no_workspace{};

struct Planned {
  plan::Plan plan;
  plan::Assignment assignment;
  plan::Layout layout;

  explicit Planned(const ir::Program& p)
      : plan(plan::lower(p, 0, no_workspace)),
        assignment(plan::assign(p)),
        layout(plan::lay_out(assignment.intervals)) {}
  explicit Planned(const std::string& text) : Planned(verified(ir::parse(text))) {}

  plan::Slot operator[](const std::string& name) const {
    for (std::size_t v = 0; v < plan.program.values.size(); ++v)
      if (plan.program.values[v].name == name) {
        const plan::Storage& s = assignment.values[v];
        return {
            s.base,
            s.offset + (s.interval < 0 ? 0 : layout.offsets[static_cast<std::size_t>(s.interval)]),
            plan.program.values[v].type};
      }
    ADD_FAILURE() << "no value " << name;
    return {};
  }
  bool same(const std::string& a, const std::string& b) const {
    return (*this)[a].base == (*this)[b].base && (*this)[a].offset == (*this)[b].offset;
  }
  bool inside(const std::string& part, const std::string& whole, std::int64_t offset) const {
    return (*this)[part].base == (*this)[whole].base &&
           (*this)[part].offset == (*this)[whole].offset + offset;
  }
  int steps(ir::Op op) const {
    int n = 0;
    for (const plan::Step& s : plan.steps) n += s.op == op;
    return n;
  }

 private:
  static ir::Program verified(ir::Program p) {
    ir::verify(p);
    return p;
  }
};

}  // namespace tessera::test
