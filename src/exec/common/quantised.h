// Elements of quantised types (ir::is_quantised) as numbers, one at a time. Convention: a number is
// its element times the scale that it was divided by.
#pragma once

#include <bit>
#include <cstdint>

#include "base/float8.h"
#include "ir/type.h"

namespace tessera::exec {

constexpr float largest_quantised(ir::DType dtype) {
  return dtype == ir::DType::i8 ? 127.0f : dtype == ir::DType::f8e4m3 ? 448.0f : 57344.0f;
}

// By value: code on a card cannot read the constants of the host by their addresses.
constexpr Float8 float8_of(ir::DType dtype) {
  if (dtype == ir::DType::f8e4m3) return {e4m3.mantissa, e4m3.bias, e4m3.most};
  return {e5m2.mantissa, e5m2.bias, e5m2.most};
}

constexpr std::uint8_t to_quantised(float value, ir::DType dtype) {
  if (dtype == ir::DType::i8) return static_cast<std::uint8_t>(to_int8(value));
  return to_float8(value, float8_of(dtype));
}

constexpr float from_quantised(std::uint8_t bits, ir::DType dtype) {
  if (dtype == ir::DType::i8) return static_cast<float>(static_cast<std::int8_t>(bits));
  return from_float8(bits, float8_of(dtype));
}

// The smallest power of two by which numbers up to `amax` may be divided so that none saturates;
// as a power of two it rounds nothing itself. `start` where amax is 0.
constexpr float delayed_scale(float amax, ir::DType dtype, float start) {
  if (!(amax > 0)) return start;
  const auto bits = std::bit_cast<std::uint32_t>(amax / largest_quantised(dtype));
  std::uint32_t exponent = (bits + 0x7fffffu) >> 23;
  exponent = exponent < 1 ? 1 : exponent > 253 ? 253 : exponent;
  return std::bit_cast<float>(exponent << 23);
}

}  // namespace tessera::exec
