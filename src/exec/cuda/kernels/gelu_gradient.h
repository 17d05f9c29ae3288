// gelu_grad with a second result; without one it is a map like others (pointwise.cu).
#pragma once

#include "exec/cuda/kernel.h"

namespace tessera::exec::cuda {

void gelu_grad_with_sums(const Call& call);

}  // namespace tessera::exec::cuda
