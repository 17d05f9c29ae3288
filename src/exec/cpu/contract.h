// contract on the CPU: any signature becomes loops around one matrix product, cut into tiles that threads take.
// Convention: everything in Lowering is a function of signature and shapes; neither threads nor addresses have a say.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "exec/cpu/kernel.h"

namespace tessera::exec::cpu {

// Letters of one kind that are contiguous in every tensor that has them, walked as one loop; strides in elements, 0 where a tensor lacks
// them.
struct Run {
  std::string letters;
  std::int64_t extent = 1;
  std::int64_t a = 0, b = 0, c = 0;
};

// C[m,n] = sum over k of A[m,k] B[k,n], once per step of the outer loops, summed over the steps of outer_k.
struct Lowering {
  bool swapped = false;   // A is the operand w, B is x: so that n ends with the last letter of the result
  bool products = false;  // m = n = 1 everywhere: no matrix product inside, but sums of elementwise products
  Run m, n, k;
  std::vector<Run> outer, outer_k;
  std::int64_t m_tile = 1, n_tile = 1;  // tile of C in one task
  std::int64_t k_chunks = 1;            // tasks along k: the first writes C, the others partial sums that are added in order

  std::int64_t m_tiles() const { return (m.extent + m_tile - 1) / m_tile; }
  std::int64_t n_tiles() const { return (n.extent + n_tile - 1) / n_tile; }
  std::int64_t outer_steps() const;
  std::int64_t c_elements() const { return m.extent * n.extent * outer_steps(); }
  std::int64_t tiles() const { return outer_steps() * m_tiles() * n_tiles(); }
  std::int64_t partial_elements() const { return (k_chunks - 1) * tiles() * m_tile * n_tile; }
};
// Shapes of x, w and the addends in the order of the signature.
Lowering lower_contract(std::string_view sig, std::span<const ir::Shape> in);

}  // namespace tessera::exec::cpu
