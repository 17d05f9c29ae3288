// How gradients are written for the wire, and how many bytes that takes: what a plan predicts and
// an executor sends. Convention: a block is its scale (f32) and then its elements, so any run of
// whole blocks is an encoding by itself.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "ir/type.h"

namespace tessera::ir {

enum class Wire : std::uint8_t { fp16, bf16, int8, onebit, topk };

constexpr std::optional<Wire> parse_wire(std::string_view text) {
  if (text == "fp16") return Wire::fp16;
  if (text == "bf16") return Wire::bf16;
  if (text == "int8") return Wire::int8;
  if (text == "onebit") return Wire::onebit;
  if (text == "topk") return Wire::topk;
  return std::nullopt;
}

// Whether what was not sent is kept for the next step; two bytes per element are near enough.
constexpr bool has_residual(Wire wire) { return wire != Wire::fp16 && wire != Wire::bf16; }

inline constexpr std::int64_t wire_block = 1024;  // elements that share a scale

// Bytes of `n` elements that are all sent.
constexpr std::int64_t wire_bytes(Wire wire, std::int64_t n) {
  const std::int64_t scales = (n + wire_block - 1) / wire_block * 4;
  return wire == Wire::int8 ? scales + n : wire == Wire::onebit ? scales + (n + 7) / 8 : 2 * n;
}

// How many of `n` elements topk sends, and the bytes of their list: indices (u32), then values as
// they are.
inline std::int64_t top_count(double keep, std::int64_t n) {
  return std::clamp(static_cast<std::int64_t>(std::ceil(keep * static_cast<double>(n))),
                    std::min<std::int64_t>(n, 1), n);
}
inline std::int64_t top_bytes(std::int64_t count, DType dtype) {
  return count * (4 + size_of(dtype));
}

}  // namespace tessera::ir
