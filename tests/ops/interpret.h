// The smallest executor: one kernel call on arrays, and a walk over a program's equations with the
// f64 reference kernels.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/threads.h"
#include "exec/cpu/kernel.h"
#include "ir/program.h"
#include "ops/array.h"

namespace tessera::test {

// Calls a kernel on tensors as they are; scratch is allocated by the rule, filled with NaN and
// guarded.
void call_kernel(exec::cpu::Kernel kernel, exec::cpu::ScratchRule scratch, ir::Op op,
                 const ir::Attrs& attrs, const std::vector<exec::cpu::Tensor>& in,
                 const std::vector<exec::cpu::Tensor>& out, ThreadPool& pool);

// The f64 row of the op on fresh results (inferred types).
std::vector<Array> run_reference(ir::Op op, const ir::Attrs& attrs, const std::vector<Array>& in,
                                 ThreadPool& pool);

// Runs a program whose floats are f64; `inputs` by name. Returns every value that was defined, by
// Var.
std::map<ir::Var, Array> interpret(const ir::Program& program,
                                   const std::map<std::string, Array>& inputs, ThreadPool& pool);

std::vector<ir::Type> types_of(const std::vector<Array>& arrays);

}  // namespace tessera::test
