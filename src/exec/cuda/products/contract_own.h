// Which of contract's products kernels of our own take, by their form and their addresses.
#pragma once

#include <optional>

#include "exec/cuda/products/contract.h"
#include "exec/cuda/products/way.h"

namespace tessera::exec::cuda {

// The operands of a call by what they are to its product.
struct Operands {
  std::span<const Tensor> in;
  const Way& way;

  const Tensor& a() const { return in[way.c.swapped ? 1 : 0]; }
  const Tensor& b() const { return in[way.c.swapped ? 0 : 1]; }
  // Both scales multiply the sum: it does not matter which factor the library takes them for.
  const std::byte* scale(int i) const { return way.scaled ? addend(i)->data : nullptr; }
  // The library wants them at multiples of 16 bytes.
  bool scales_fit() const { return aligned_16(scale(0)) && aligned_16(scale(1)); }
  const Tensor* addend(int i) const {
    return i < 0 ? nullptr : &in[static_cast<std::size_t>(i) + 2];
  }
};

// The product as one of few rows into `c`, where it is one: with its bias, where the library would
// add it.
std::optional<ThinProduct> thin_product(const Operands& operands, std::byte* c);
// The product with its bias as one that gelu may follow in the same kernel, where it has that form;
// it has no results yet.
std::optional<GeluProduct> gelu_product(const Operands& operands);

}  // namespace tessera::exec::cuda
