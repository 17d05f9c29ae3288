// Resizing's two passes over bytes, with the instruction that adds four products of bytes to a sum
// (ARMv8.2's UDOT). Convention: a 22-bit weight is three unsigned digits of 8 bits, lowest first,
// each with a sum of its own. Shifting the lower sum's upper part into the next one is exact, so
// that the result has the bits of a single 32-bit sum.
//
// Built with flags of its own: nothing but this may be included or instantiated there, or other
// files would link to such code.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::data::dot {

constexpr int quad = 4;  // taps per instruction
constexpr int rows =
    4;  // source rows that go across together, so that weights are loaded once for all
constexpr int digits = 3;  // of a weight

// Whether this build and this machine have the instruction.
bool available();

// How four values that lie side by side in the target row are made from four taps each.
struct alignas(16) Lookup {
  std::uint8_t digit[digits][16];  // [value][tap]
  std::uint8_t from[16];           // [value][tap]: which of the 16 or 32 bytes (`reach`)
};

// `rows` rows, `line` apart, of `groups` (an even number) times four values: the i-th four come
// from bytes at[i * quads] .. of the source, and so on for every quad of their taps.
void across(const std::uint8_t* const* src, const Lookup* lookups, const std::int32_t* at,
            int quads, int reach, std::size_t groups, std::int32_t* dst, std::size_t line);

}  // namespace tessera::data::dot
