// A dense, row-major tensor as kernels see it. Convention: its address is of whatever memory the
// executor computes in.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ir/type.h"

namespace tessera::exec {

struct Tensor {
  ir::DType dtype = ir::DType::f32;
  ir::Shape shape;
  std::byte* data = nullptr;  // null: an absent operand, or a result nobody reads

  explicit operator bool() const { return data != nullptr; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
  std::int64_t elements() const { return ir::elements(shape); }
  std::int64_t bytes() const { return elements() * ir::size_of(dtype); }
};

}  // namespace tessera::exec
