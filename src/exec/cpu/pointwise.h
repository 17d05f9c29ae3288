// Fast elementwise kernels in f32; broadcasts run as vector operations over merged dims (shape.h, Walk).
// Convention: result 0 may be operand 0's storage (gelu_grad: either operand's), never partly overlap it.
#pragma once

#include "exec/cpu/kernel.h"

namespace tessera::exec::cpu {

void fast_add(const Call& call);
void fast_mul(const Call& call);
void fast_scale(const Call& call);
void fast_gelu(const Call& call);
void fast_gelu_grad(const Call& call);
void fast_select(const Call& call);
void fast_cast(const Call& call);  // between all dtypes, whatever the executor widens elsewhere
void fast_dropout(const Call& call);
void fast_mark(const Call& call);

}  // namespace tessera::exec::cpu
