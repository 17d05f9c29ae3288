// Checks of a program (ir/program.h), and of one that a pass made from another.
#pragma once

#include "ir/program.h"

namespace tessera::ir {

// As verify(program). `before` has been verified: types are not recomputed for equations that it
// has, with the same op, attributes and types of operands and results, on the same mesh.
void verify(const Program& program, const Program& before);

}  // namespace tessera::ir
