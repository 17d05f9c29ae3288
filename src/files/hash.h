// Content hashes: XXH3-64 (the distribution's xxhash), written as 16 hexadecimal digits.
// Convention: a hash guards against damage, not against malice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tessera::files {

std::uint64_t xxh3(std::span<const std::byte> bytes);
inline std::uint64_t xxh3(std::string_view text) { return xxh3(std::as_bytes(std::span(text))); }

// The same of bytes that come in pieces.
class Xxh3 {
 public:
  Xxh3();
  ~Xxh3();
  Xxh3(const Xxh3&) = delete;
  Xxh3& operator=(const Xxh3&) = delete;
  void add(std::span<const std::byte> bytes);
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  std::uint64_t value() const;  // of what was added so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string hash_text(std::uint64_t hash);  // "00c0ffee00c0ffee"

}  // namespace tessera::files
