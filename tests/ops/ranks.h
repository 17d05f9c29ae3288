// A placed program on every rank of its mesh, in this process: values cut into what each rank
// holds, the local programs run side by side, and the whole put together again. Convention: what
// all ranks hold of one value is a vector by rank.
#pragma once

#include <string>
#include <vector>

#include "ir/program.h"
#include "ops/array.h"

namespace tessera::test {

using Parts = std::vector<Array>;

// Cut where sharded, a copy each where replicated; where partial, shares that add up to the whole
// and are never rounded: random ones in f64, halves, quarters, ... in f32, random whole numbers in
// all other types (bf16 must hold small whole numbers itself).
Parts hand_out(const Array& whole, const ir::Type& type, const ir::Mesh& mesh,
               const std::string& key);

// In f64. Expects that ranks with one place have the same bits.
Array put_together(const Parts& parts, const ir::Type& type, const ir::Mesh& mesh);

// Lowers and runs the program on all ranks: inputs and outputs in the program's order. Inputs must
// not be parameters or state.
std::vector<Parts> run_ranks(const ir::Program& program, const std::vector<Parts>& inputs);

}  // namespace tessera::test
