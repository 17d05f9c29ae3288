// Attention and its gradient of tokens that lie behind each other, in f32 and bf16.
#pragma once

#include "exec/cpu/kernel.h"

namespace tessera::exec::cpu {

void attend_tokens(const Call& call);
void attend_tokens_grad(const Call& call);
Scratch scratch_of_tokens(const ir::Attrs& attrs, std::span<const ir::Type> in);
Scratch grad_scratch_of_tokens(const ir::Attrs& attrs, std::span<const ir::Type> in);

}  // namespace tessera::exec::cpu
