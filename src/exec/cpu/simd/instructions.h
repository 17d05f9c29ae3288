// The instruction set that the vector kernels run with. Highway compiles each kernel for several of
// them and takes the best one that the machine has when the first kernel is called. The fallback
// runs on every machine of an architecture (docs/decisions.md).
#pragma once

#include <string>

namespace tessera::exec::cpu {

std::string instruction_set();           // what kernels run with now: AVX3, AVX2, SSE2, NEON, ...
std::string portable_instruction_set();  // the fallback, for machines that have nothing better

// Kernels run with the fallback from now on, whatever the machine has. It is for tests, and no
// kernel may be running meanwhile.
void use_portable_instructions();

}  // namespace tessera::exec::cpu
