// How f32 numbers travel between machines: as they are, or in half the bytes. Rounded to nearest,
// ties to even; a NaN stays one. fp16 has 11 bits of precision and overflows to infinity past
// 65504; bf16 has 8 and f32's range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera::comm {

enum class Wire : std::uint8_t { f32, fp16, bf16 };
Wire wire_named(std::string_view word);  // f32 | fp16 | bf16
std::string_view name(Wire wire);
inline std::int64_t wire_size(Wire wire) { return wire == Wire::f32 ? 4 : 2; }

// No alignment needed.
void encode(Wire wire, const std::byte* f32, std::byte* out, std::int64_t elements);
void decode(Wire wire, const std::byte* in, std::byte* f32, std::int64_t elements);

}  // namespace tessera::comm
