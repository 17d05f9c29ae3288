// Fast optimizer steps in f32: one pass over a flat bucket; clipping and the test for finite
// numbers are scalars. Convention: results may be the operands' storage; with ok == 0 nothing
// changes, bit for bit, whatever the gradient holds.
#pragma once

#include "exec/cpu/kernel.h"

namespace tessera::exec::cpu {

// The scalars of one pass over the arrays, worked out in double beforehand.
struct AdamWScalars {
  float factor, decay;               // of the gradient; 1 - lr * weight_decay
  float beta1, rest1, beta2, rest2;  // rest = 1 - beta
  float step, root, eps;             // lr / (1 - beta1^t); 1 / sqrt(1 - beta2^t)
};
struct SgdScalars {
  float factor, weight_decay, momentum, lr;
  bool nesterov;
};

}  // namespace tessera::exec::cpu
