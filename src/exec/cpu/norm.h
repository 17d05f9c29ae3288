// Fast kernels over the last dim in f32: layer norm with its gradient, the residual add in front of it, and the softmax family.
// Convention: a row is one task's affair from start to end; gradients of gain and bias are partial sums over runs of rows, added in order.
#pragma once

#include "exec/cpu/kernel.h"

namespace tessera::exec::cpu {

void fast_layer_norm(const Call& call);
void fast_layer_norm_grad(const Call& call);
void fast_add_norm(const Call& call);
void fast_softmax(const Call& call);
void fast_softmax_grad(const Call& call);
void fast_log_softmax(const Call& call);
void fast_log_softmax_grad(const Call& call);
std::size_t scratch_layer_norm_grad(const ir::Attrs& attrs, std::span<const ir::Type> in, std::span<const ir::Type> out);
std::size_t scratch_add_norm(const ir::Attrs& attrs, std::span<const ir::Type> in, std::span<const ir::Type> out);

}  // namespace tessera::exec::cpu
