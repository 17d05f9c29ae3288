// Losses and accuracy over rows of class scores in f32; targets are labels (i32 or i64) or soft (f32).
// Convention: q = (1 - smoothing) target + smoothing / classes is the distribution that the scores are held against.
#pragma once

#include "exec/cpu/kernel.h"

namespace tessera::exec::cpu {

void fast_nll(const Call& call);
void fast_nll_grad(const Call& call);
void fast_cross_entropy(const Call& call);
void fast_cross_entropy_grad(const Call& call);
void fast_correct(const Call& call);

}  // namespace tessera::exec::cpu
