// IEEE binary16 <-> f32 for one element: to nearest, ties to even, infinite from 65520 on,
// subnormals exact. A NaN stays a NaN (quiet; sign and upper payload kept). Convention: every case
// is computed and one is chosen by masks, so that loops over these vectorise.
#pragma once

#include <bit>
#include <cstdint>

namespace tessera {

constexpr std::uint32_t mask_if(bool condition, std::uint32_t value) {
  return value & (0u - static_cast<std::uint32_t>(condition));
}

constexpr std::uint16_t to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value), sign = bits & 0x80000000u, x = bits ^ sign;
  const std::uint32_t usual = (x - 0x38000000u + 0xfffu + ((x >> 13) & 1u)) >> 13;
  // Below 2^-14 there is no leading one: adding 0.5 rounds at 2^-24, which is the step there.
  const std::uint32_t tiny =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(x) + 0.5f) - 0x3f000000u;
  const std::uint32_t huge = 0x7c00u | mask_if(x > 0x7f800000u, 0x200u | ((x >> 13) & 0x3ffu));
  const std::uint32_t half = mask_if(x >= 0x47800000u, huge) | mask_if(x < 0x38800000u, tiny) |
                             mask_if(x - 0x38800000u < 0x0f000000u, usual);
  return static_cast<std::uint16_t>(half | sign >> 16);
}

constexpr float from_half(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16, x = (half & 0x7fffu) << 13;
  const std::uint32_t usual = x + 0x38000000u, huge = x | 0x7f800000u;
  const std::uint32_t tiny = std::bit_cast<std::uint32_t>(
      static_cast<float>(static_cast<std::int32_t>(x >> 13)) * 0x1p-24f);
  return std::bit_cast<float>(sign | mask_if(x >= 0x0f800000u, huge) |
                              mask_if(x < 0x00800000u, tiny) |
                              mask_if(x - 0x00800000u < 0x0f000000u, usual));
}

}  // namespace tessera
