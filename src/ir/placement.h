// How sharding passes through an equation, one mesh axis at a time: what must be true of a placed
// program, and what place() chooses from. Convention: letters name dims that are cut alike. An
// operand that has the sharded letter is cut there, any other is whole; a result that has it is cut
// there, one that lacks it is a partial sum.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/program.h"

namespace tessera::ir {

struct Letters {
  std::vector<std::string> in, out;  // one letter per dim of every operand and result
  std::string pinned;                // letters that may not be sharded
};
Letters letters_of(Op op, const Attrs& attrs, std::span<const Type> in, std::span<const Type> out);

Place place_of(const std::string& letters,
               char letter);  // sharded where the letter stands, else replicated

// Whether results that lack the sharded letter are partial sums: not where a bias, an activation or
// a relu comes after the sum.
bool sums_alone(const Eqn& eqn);

// The place of result `r` when this letter is sharded.
Place result_place(Op op, const Letters& letters, std::size_t r, char letter);

// Places of the results on one axis, given those of the operands; nothing when the op cannot work
// on such parts.
std::optional<std::vector<Place>> propagate(const Program& program, const Eqn& eqn, int axis);

// CHECKs that the results of an equation are placed as its operands make them.
void check_places(const Program& program, const Eqn& eqn);

}  // namespace tessera::ir
