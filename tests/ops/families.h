// This header has what the case files of the families share: common operands, and where each family
// is. Convention: a family of ops has one function here; a file holds one family or a few small
// ones.
#pragma once

#include "ops/cases.h"

namespace tessera::test {

using Rows = std::vector<Case>;

inline Operand labels_of(std::int64_t b) { return {{b}, Fill::labels, ir::DType::i32}; }
inline const Operand draws{{3}, Fill::rng, ir::DType::i64};
inline const Operand scalar_one{{}, Fill::one}, scalar_zero{{}, Fill::zero},
    scalar_rate{{}, Fill::rate}, scalar_positive{{}, Fill::positive},
    scalar_step{{}, Fill::count, ir::DType::i64};

Rows contract_cases();
Rows quantize_cases();
Rows conv_cases();
Rows attention_cases();
Rows pointwise_cases();
Rows norm_cases();
Rows batch_norm_cases();
Rows loss_cases();
Rows shape_cases();
Rows window_cases();
Rows reduce_cases();
Rows update_cases();
Rows lamb_cases();
Rows compress_cases();
Rows image_cases();

}  // namespace tessera::test
