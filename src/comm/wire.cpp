// Conversions in plain integer and float steps without branches, so that the compiler makes vectors
// of them on any machine.
#include "comm/wire.h"

#include <bit>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/half.h"

namespace tessera::comm {

namespace {

using std::int64_t;

std::uint16_t to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x), kept = bits >> 16;
  return static_cast<std::uint16_t>(x != x ? kept | 0x40u : (bits + 0x7fffu + (kept & 1u)) >> 16);
}
float from_bf16(std::uint16_t x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16);
}

template <class From, class To, class Convert>
void each(const std::byte* in, std::byte* out, int64_t elements, Convert convert) {
  for (int64_t i = 0; i < elements; ++i) {
    From x;
    std::memcpy(&x, in + i * static_cast<int64_t>(sizeof(From)), sizeof(From));
    const To y = convert(x);
    std::memcpy(out + i * static_cast<int64_t>(sizeof(To)), &y, sizeof(To));
  }
}

}  // namespace

Wire wire_named(std::string_view word) {
  for (const Wire wire : {Wire::f32, Wire::fp16, Wire::bf16})
    if (name(wire) == word) return wire;
  CHECK(false, "nothing travels as " + std::string(word));
}

std::string_view name(Wire wire) {
  return wire == Wire::f32 ? "f32" : wire == Wire::fp16 ? "fp16" : "bf16";
}

void encode(Wire wire, const std::byte* f32, std::byte* out, int64_t elements) {
  if (wire == Wire::f32) std::memcpy(out, f32, static_cast<std::size_t>(4 * elements));
  if (wire == Wire::fp16) each<float, std::uint16_t>(f32, out, elements, to_half);
  if (wire == Wire::bf16) each<float, std::uint16_t>(f32, out, elements, to_bf16);
}

void decode(Wire wire, const std::byte* in, std::byte* f32, int64_t elements) {
  if (wire == Wire::f32) std::memcpy(f32, in, static_cast<std::size_t>(4 * elements));
  if (wire == Wire::fp16) each<std::uint16_t, float>(in, f32, elements, from_half);
  if (wire == Wire::bf16) each<std::uint16_t, float>(in, f32, elements, from_bf16);
}

}  // namespace tessera::comm
