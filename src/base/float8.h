// Floats of eight bits <-> f32: to nearest, ties to even, saturating at the largest finite number
// (also what is infinite), subnormals exact. A NaN becomes 0x7f.
//   e4m3: 4 bits of exponent, 448 at most, 2^-9 the smallest; it has no infinities.
//   e5m2: 5 bits of exponent, 57344 at most, 2^-16 the smallest.
#pragma once

#include <bit>
#include <cstdint>

namespace tessera {

struct Float8 {
  int mantissa, bias;
  std::uint32_t most;  // bits of the largest finite number
};
inline constexpr Float8 e4m3{3, 7, 0x7e}, e5m2{2, 15, 0x7b};

constexpr std::uint8_t to_float8(float value, Float8 form) {
  const auto bits = std::bit_cast<std::uint32_t>(value), x = bits & 0x7fffffffu;
  if (x > 0x7f800000u) return 0x7f;
  const int dropped = 23 - form.mantissa;
  const std::uint32_t least = static_cast<std::uint32_t>(128 - form.bias) << 23;
  std::uint32_t found = 0;
  if (x < least) {  // no leading one: adding this number rounds at the step of subnormals
    const std::uint32_t ruler = static_cast<std::uint32_t>(128 - form.bias + dropped) << 23;
    found =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(x) + std::bit_cast<float>(ruler)) - ruler;
  } else {
    const std::uint32_t tie = (std::uint32_t{1} << (dropped - 1)) - 1 + ((x >> dropped) & 1u);
    found = (x - (static_cast<std::uint32_t>(127 - form.bias) << 23) + tie) >> dropped;
  }
  found = found < form.most ? found : form.most;
  return static_cast<std::uint8_t>(found | (bits >> 24 & 0x80u));
}

constexpr float from_float8(std::uint8_t bits, Float8 form) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x80u) << 24, x = bits & 0x7fu;
  const int dropped = 23 - form.mantissa;
  if (x > form.most)  // e5m2 has an infinity behind its largest number, e4m3 its only NaN
    return std::bit_cast<float>(sign |
                                (form.mantissa == 2 && x == 0x7c ? 0x7f800000u : 0x7fc00000u));
  if (x >> form.mantissa == 0) {
    const std::uint32_t step = static_cast<std::uint32_t>(128 - form.bias - form.mantissa) << 23;
    return std::bit_cast<float>(
        sign | std::bit_cast<std::uint32_t>(static_cast<float>(x) * std::bit_cast<float>(step)));
  }
  return std::bit_cast<float>(
      sign | ((x << dropped) + (static_cast<std::uint32_t>(127 - form.bias) << 23)));
}

// To nearest, ties to even, between -127 and 127; a NaN becomes 0.
constexpr std::int8_t to_int8(float value) {
  if (!(value == value)) return 0;
  constexpr float ruler = 12582912;  // 1.5 * 2^23: adding it rounds at 1
  const float x = value < -127 ? -127 : value > 127 ? 127 : value;
  return static_cast<std::int8_t>((x + ruler) - ruler);
}

}  // namespace tessera
