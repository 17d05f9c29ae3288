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

// Rows of n numbers, `pitch` apart, over the sums.
void divide_rows(float* x, std::int64_t rows, std::int64_t n, std::int64_t pitch, const float* sum);

}  // namespace tessera::exec::cpu
