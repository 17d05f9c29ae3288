#include "files/hash.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL  // header only: nothing to link, nothing to carry but the header
#include <xxhash.h>

namespace tessera::files {

std::uint64_t xxh3(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string hash_text(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace tessera::files
