#include "files/hash.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL  // header only: nothing to link, nothing to carry but the header
#include <xxhash.h>

namespace tessera::files {

std::uint64_t xxh3(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

struct Xxh3::State {
  XXH3_state_t state;
};
Xxh3::Xxh3() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->state); }
Xxh3::~Xxh3() = default;
void Xxh3::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(&state_->state, bytes.data(), bytes.size());
}
std::uint64_t Xxh3::value() const { return XXH3_64bits_digest(&state_->state); }

std::string hash_text(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace tessera::files
