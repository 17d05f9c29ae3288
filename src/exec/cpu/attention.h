// attention and its gradient in f32: a task holds the scores of some queries of one head, never those of the batch.
// Convention: scratch is per thread (scores of one block), plus partial bias gradients that belong to no thread.
#pragma once

#include "exec/cpu/kernel.h"

namespace tessera::exec::cpu {

void fast_attention(const Call& call);
void fast_attention_grad(const Call& call);
std::size_t scratch_attention(const ir::Attrs& attrs, std::span<const ir::Type> in, std::span<const ir::Type> out);
std::size_t scratch_attention_grad(const ir::Attrs& attrs, std::span<const ir::Type> in, std::span<const ir::Type> out);

}  // namespace tessera::exec::cpu
