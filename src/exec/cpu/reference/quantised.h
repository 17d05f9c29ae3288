// Products and convolutions of quantised factors and norms with a quantised result, which the
// kernels of all element types share.
#pragma once

#include "exec/cpu/kernel.h"

namespace tessera::exec::cpu {

void contract_quantised(const Call& call);
void conv_quantised(const Call& call);
void norm_quantised(const Call& call, bool adds);  // layer_norm, add_norm

}  // namespace tessera::exec::cpu
