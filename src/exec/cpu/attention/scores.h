// The scores of an attention between its two products: bias, mask and softmax over rows that lie in
// a buffer of the calling thread. Convention: rows are score_pitch(n) floats apart, so that both
// products meet whole vectors; what is behind the n numbers of a row becomes zeros.
#pragma once

#include <cstdint>

#include "exec/cpu/gemm/micro.h"

namespace tessera::exec::cpu {

inline std::int64_t score_pitch(std::int64_t n) {
  return (n + panel_columns - 1) / panel_columns * panel_columns;
}

struct ScoreRows {
  float* scores = nullptr;
  std::int64_t rows = 0, n = 0;
};
// Scores become exp(score + bias + mask - greatest), with the greatest and the sum of each row.
void exponentials(const ScoreRows& rows, Addend bias, Addend mask, float* greatest, float* sum);

// Rows of n scores, dense: they become P = exp(score + bias + mask - lse), and `gradients`, which
// are those of P, become dS = P (gradient - dots), with one number of lse and of dots for each row.
void score_gradients(const ScoreRows& rows, Addend bias, Addend mask, const float* lse,
                     const float* dots, float* gradients);

// The products of rows of n numbers, `pitch` apart, summed up.
void row_dots(const float* a, const float* b, std::int64_t rows, std::int64_t n, std::int64_t pitch,
              float* dots);
void row_dots(const Low* a, const Low* b, std::int64_t rows, std::int64_t n, std::int64_t pitch,
              float* dots);

// Rows of n numbers, `pitch` apart, over the sums.
void divide_rows(float* x, std::int64_t rows, std::int64_t n, std::int64_t pitch, const float* sum);

}  // namespace tessera::exec::cpu
