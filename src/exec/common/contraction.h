// A contraction as a matrix product: any signature becomes loops around C[m,n] = sum over k of
// A[m,k] B[k,n]. Letters fall into rows (A and C), columns (B and C), batch (all three) and k (A
// and B); runs of letters that are contiguous wherever they appear become one loop. The largest
// runs make the matrix product, the others loop around it. Convention: everything here is a
// function of signature and shapes; neither threads nor addresses have a say.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/type.h"

namespace tessera::exec {

using Strides = std::array<std::int64_t, 128>;  // by letter; 0 where a tensor lacks it

// Letters of one kind that are contiguous in every tensor that has them, walked as one loop;
// strides in elements, 0 where a tensor lacks them.
struct Run {
  std::string letters;
  std::int64_t extent = 1;
  std::int64_t a = 0, b = 0, c = 0;
};

// One product per step of the outer loops, summed over the steps of outer_k.
struct Contraction {
  bool swapped =
      false;  // A is the operand w, B is x: so that n ends with the last letter of the result
  bool products =
      false;  // m = n = 1 everywhere: no matrix product inside, but sums of elementwise products
  Run m, n, k;
  std::vector<Run> outer, outer_k;
  Strides extents{};                      // of every letter
  std::vector<Strides> addend_strides{};  // of the further operands

  std::int64_t outer_steps() const;
  std::int64_t outer_k_steps() const;
  std::int64_t c_elements() const { return m.extent * n.extent * outer_steps(); }
};

// Shapes of x, w and the addends in the order of the signature.
Contraction analyse_contraction(std::string_view sig, std::span<const ir::Shape> in);

}  // namespace tessera::exec
