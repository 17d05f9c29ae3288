// Content hashes: XXH3-64 (the distribution's xxhash), written as 16 hexadecimal digits.
// Convention: a hash guards against damage, not against malice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tessera::files {

std::uint64_t xxh3(std::span<const std::byte> bytes);
inline std::uint64_t xxh3(std::string_view text) { return xxh3(std::as_bytes(std::span(text))); }
std::string hash_text(std::uint64_t hash);  // "00c0ffee00c0ffee"

}  // namespace tessera::files
