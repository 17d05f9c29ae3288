// Counter-based random numbers: a pure function of (key, counter), the same bits on every host and
// device. Convention: a key is folded from global identities (seed, stream, step, scope or
// parameter name, sample position); the counter is the logical element index. Nothing here is keyed
// by a local, physical or running index.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

namespace tessera {

// FNV-1a: names (scopes, parameters) become keys.
constexpr std::uint64_t hash_name(std::string_view name) {
  std::uint64_t h = 0xcbf29ce484222325ULL;
  for (char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return h;
}

// The SplitMix64 finaliser (Steele, Lea, Flood 2014): every input bit reaches every output bit.
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

struct Key {
  std::uint64_t bits = 0;
  constexpr Key with(std::uint64_t part) const { return {mix(bits ^ mix(part))}; }
  constexpr Key with(std::string_view name) const { return with(hash_name(name)); }
};

constexpr std::uint64_t random_bits(Key key, std::uint64_t counter) {
  return mix(key.bits + counter * 0xd1342543de82ef95ULL);
}

// [0, 1) with 24 bits: exact in f32, so every dtype draws the same number.
constexpr float uniform(Key key, std::uint64_t counter) {
  return static_cast<float>(random_bits(key, counter) >> 40) * 0x1.0p-24f;
}

// Standard normal by Box-Muller in double.
inline double normal(Key key, std::uint64_t counter) {
  const double u = (static_cast<double>(random_bits(key, 2 * counter) >> 11) + 0.5) * 0x1.0p-53;
  const double v = static_cast<double>(random_bits(key, 2 * counter + 1) >> 11) * 0x1.0p-53;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v);
}

}  // namespace tessera
