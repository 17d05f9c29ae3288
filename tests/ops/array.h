// A tensor for tests: dense storage between two guard zones, filled and read as doubles whatever
// its dtype. Convention: `skew` moves the data off its 64-byte boundary by whole elements, as a
// view into a bucket would be.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "exec/common/tensor.h"
#include "ir/type.h"

namespace tessera::test {

class Array {
 public:
  Array() = default;
  Array(ir::DType dtype, ir::Shape shape, int skew = 0);
  Array(const Array& other) : Array(other, 0) {}
  Array(const Array& other, int skew);
  Array(Array&&) = default;
  Array& operator=(Array&&) = default;
  Array& operator=(const Array& other) { return *this = Array(other); }

  ir::DType dtype() const { return dtype_; }
  const ir::Shape& shape() const { return shape_; }
  ir::Type type() const { return {dtype_, shape_, {}}; }
  std::int64_t size() const { return size_; }
  std::size_t bytes() const { return bytes_; }
  std::byte* data() const { return data_; }
  exec::Tensor tensor() const { return {dtype_, shape_, data_}; }

  double operator[](std::int64_t i) const;
  void set(std::int64_t i, double value);
  void set_bytes(std::byte value);  // every byte of the data; 0xff is NaN in every float type
  bool guards_intact() const;
  bool same_bits(const Array& other) const;
  Array as(ir::DType dtype) const;  // the same values in another dtype

 private:
  ir::DType dtype_ = ir::DType::f32;
  ir::Shape shape_;
  std::int64_t size_ = 0;
  std::size_t bytes_ = 0;
  std::unique_ptr<std::byte[]> storage_;
  std::size_t before_ = 0;  // bytes in front of the data
  std::size_t total_ = 0;
  std::byte* data_ = nullptr;
};

// norm(a - b) / norm(b); 0 when both are zero, NaN when either holds one.
double relative_error(const Array& a, const Array& b);

}  // namespace tessera::test
