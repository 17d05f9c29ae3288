// How a contraction runs on a card: which of its loops the library takes in one call, which are
// calls, and what it adds. Convention: a pure function of signature, shapes and element types.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "exec/common/contraction.h"
#include "exec/cuda/products/blas.h"

namespace tessera::exec::cuda {

struct Way {
  Contraction c;
  std::string result;           // its letters
  ir::DType factors{}, type{};  // of the factors (where they differ, of A) and of the results
  ir::DType b_factor{};
  bool scaled = false;           // the library multiplies by both scales
  int scales = 0;                // the first of the operands after the factors
  Product product{.rows = 0};    // without addresses; rows 0: the library cannot take it
  bool turned = false;           // rows of the library's result are m, not n
  std::vector<Run> loops;        // calls: the outer loops but for the one that is batched
  Run batch;                     // of the product; extent 1: none
  int bias = -1, residual = -1;  // addends that the library adds, counted from the first scale
  bool fused = true;             // it adds all of them
  bool wide_sums = false;        // the sum is kept in f32 until the pass rounds it

  bool by_library() const { return product.rows > 0; }
  std::int64_t calls() const { return c.outer_steps() / batch.extent * c.outer_k_steps(); }
};

Way way_of(const ir::Contract& attr, std::span<const ir::Shape> shapes,
           std::span<const ir::DType> dtypes);

inline std::uint8_t letter_of(char c) { return static_cast<std::uint8_t>(c); }

}  // namespace tessera::exec::cuda
