// What the case files of the families share: why a fast f32 kernel may differ from the f64 reference, and common operands.
// Convention: a family of ops has one function here; a file holds one family or a few small ones.
#pragma once

#include "ops/cases.h"

namespace tessera::test {

using Rows = std::vector<Case>;

inline constexpr Tolerance exact{0, "moves, compares or counts elements: no rounding"};
inline constexpr Tolerance rounding{3e-7, "a few roundings per element, 6e-8 each"};
inline constexpr Tolerance curve{1e-6, "exp, erf or tanh by polynomial, some units in the last place"};
inline constexpr Tolerance sums{2e-6, "a sum of up to a few thousand f32 terms grows by the root of their number times 6e-8"};
inline constexpr Tolerance chain{5e-6, "two sums and an exponential in a row"};

inline Operand labels_of(std::int64_t b) { return {{b}, Fill::labels, ir::DType::i32}; }
inline const Operand draws{{3}, Fill::rng, ir::DType::i64};
inline const Operand scalar_one{{}, Fill::one}, scalar_zero{{}, Fill::zero}, scalar_rate{{}, Fill::rate},
    scalar_positive{{}, Fill::positive}, scalar_step{{}, Fill::count, ir::DType::i64};

Rows contract_cases();
Rows conv_cases();
Rows attention_cases();
Rows pointwise_cases();
Rows norm_cases();
Rows batch_norm_cases();
Rows loss_cases();
Rows shape_cases();
Rows reduce_cases();
Rows update_cases();
Rows lamb_cases();

}  // namespace tessera::test
