// layer_norm and add_norm whose `to` is a quantised type.
#pragma once

#include "exec/cuda/kernel.h"

namespace tessera::exec::cuda {

void run_norm_bytes(const Call& call, bool adds);

}  // namespace tessera::exec::cuda
