// Values that a plan which changes no weights computes from them alone: casts, folded norms, tables
// and masks. They are the same in every run, so they come first and are made once, and those that
// the rest reads stay in persistent buffers. Convention: executors run the steps before
// Plan::prepared only after a persistent buffer was written.
#pragma once

#include <string>
#include <vector>

#include "ir/program.h"
#include "plan/target.h"

namespace tessera::plan {

struct Plan;

struct Prepared {
  std::size_t eqns = 0;           // the first so many
  std::vector<std::string> kept;  // per Var: the buffer that keeps it; empty: none
};

// Reorders the local program: what is made once goes first. Nothing where the target keeps nothing
// or the program updates a buffer. Plans that compute the same of the same buffers name it alike.
Prepared prepare(ir::Program& program, const Target& target);

// Buffers that no step of a run reads once what is made of them is there, the weights in f32 of an
// inference in bf16 above all, go to the host where the target's kernels reach it.
void set_aside(Plan& plan, const Target& target);

}  // namespace tessera::plan
