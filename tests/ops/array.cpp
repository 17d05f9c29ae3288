#include "ops/array.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/half.h"
#include "exec/common/quantised.h"

namespace tessera::test {
namespace {

constexpr std::size_t guard = 64;
constexpr std::byte guard_byte{0xa5};

template <class T>
T read(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}
template <class T>
void write(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(T));
}

}  // namespace

Array::Array(ir::DType dtype, ir::Shape shape, int skew)
    : dtype_(dtype),
      shape_(std::move(shape)),
      size_(ir::elements(shape_)),
      bytes_(static_cast<std::size_t>(size_ * ir::size_of(dtype_))) {
  total_ = bytes() + 4 * guard;
  storage_ = std::make_unique_for_overwrite<std::byte[]>(total_);
  std::memset(storage_.get(), static_cast<int>(guard_byte), total_);
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(storage_.get()) % 64;
  before_ = guard + (64 - misaligned) + static_cast<std::size_t>(skew * ir::size_of(dtype_));
  data_ = storage_.get() + before_;
  std::memset(data_, 0, bytes());
}

Array::Array(const Array& other, int skew) : Array(other.dtype_, other.shape_, skew) {
  if (bytes() > 0) std::memcpy(data_, other.data_, bytes());
}

double Array::operator[](std::int64_t i) const {
  const std::byte* at = data_ + i * ir::size_of(dtype_);
  switch (dtype_) {
    case ir::DType::f64:
      return read<double>(at);
    case ir::DType::f32:
      return read<float>(at);
    case ir::DType::bf16:
      return std::bit_cast<float>(static_cast<std::uint32_t>(read<std::uint16_t>(at)) << 16);
    case ir::DType::f16:
      return from_half(read<std::uint16_t>(at));
    case ir::DType::i64:
      return static_cast<double>(read<std::int64_t>(at));
    case ir::DType::i32:
      return read<std::int32_t>(at);
    case ir::DType::u8:
      return read<std::uint8_t>(at);
    case ir::DType::f8e4m3:
    case ir::DType::f8e5m2:
    case ir::DType::i8:
      return exec::from_quantised(read<std::uint8_t>(at), dtype_);
  }
  return 0;
}

void Array::set(std::int64_t i, double value) {
  std::byte* at = data_ + i * ir::size_of(dtype_);
  switch (dtype_) {
    case ir::DType::f64:
      return write(at, value);
    case ir::DType::f32:
      return write(at, static_cast<float>(value));
    case ir::DType::bf16:
      return write(
          at, static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >>
                                         16));  // cut off: inputs only
    case ir::DType::f16:
      return write(at, to_half(static_cast<float>(value)));
    case ir::DType::i64:
      return write(at, static_cast<std::int64_t>(value));
    case ir::DType::i32:
      return write(at, static_cast<std::int32_t>(value));
    case ir::DType::u8:
      return write(at, static_cast<std::uint8_t>(value));
    case ir::DType::f8e4m3:
    case ir::DType::f8e5m2:
    case ir::DType::i8:
      return write(at, exec::to_quantised(static_cast<float>(value), dtype_));
  }
}

void Array::set_bytes(std::byte value) { std::memset(data_, static_cast<int>(value), bytes()); }

bool Array::guards_intact() const {
  const std::byte* const all = storage_.get();
  const auto is_guard = [](std::byte b) { return b == guard_byte; };
  return std::all_of(all, all + before_, is_guard) &&
         std::all_of(all + before_ + bytes_, all + total_, is_guard);
}

bool Array::same_bits(const Array& other) const {
  return dtype_ == other.dtype_ && shape_ == other.shape_ &&
         (bytes() == 0 || std::memcmp(data_, other.data_, bytes()) == 0);
}

Array Array::as(ir::DType dtype) const {
  Array out(dtype, shape_);
  for (std::int64_t i = 0; i < size(); ++i) out.set(i, (*this)[i]);
  return out;
}

double relative_error(const Array& a, const Array& b) {
  CHECK(a.shape() == b.shape(),
        "compare " + ir::to_string(a.shape()) + " with " + ir::to_string(b.shape()));
  double difference = 0, size = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const double d = a[i] - b[i];
    difference += d * d;
    size += b[i] * b[i];
  }
  if (size == 0) return difference == 0 ? 0.0 : std::numeric_limits<double>::infinity();
  return std::sqrt(difference / size);
}

}  // namespace tessera::test
