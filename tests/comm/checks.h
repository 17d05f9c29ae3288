// Checks that hold on any Comm, whatever the back end and the number of ranks: every rank of the
// group calls the same ones in order. Convention: no check returns early on one rank only (EXPECT,
// never ASSERT), or the others would wait for it.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/comm.h"

namespace tessera::comm {

struct Check {
  const char* name;
  void (*run)(Comm& comm);
};
std::span<const Check> verb_checks();  // verbs_check.cpp: one verb at a time
std::span<const Check>
group_checks();  // groups_check.cpp: groups, operations in flight, determinism, traffic
std::span<const Check>
memory_checks();              // memory_check.cpp: buffers that others reach, random sequences
void run_checks(Comm& comm);  // all of them

template <class T>
Bytes bytes(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}
template <class T>
ConstBytes const_bytes(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

struct Bf16 {
  std::uint16_t bits = 0;
  Bf16() = default;
  explicit Bf16(float x)
      : bits(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16)) {
  }  // cuts: for values that fit
  explicit operator double() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

// The same numbers on every rank that asks for them.
inline std::uint64_t noise(std::uint64_t seed) {
  seed += 0x9e3779b97f4a7c15u;
  seed = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9u;
  seed = (seed ^ (seed >> 27)) * 0x94d049bb133111ebu;
  return seed ^ (seed >> 31);
}
// Rank r's element i: a small whole number, so that sums over 32 ranks are exact in every dtype and
// order.
inline int small(int rank, std::int64_t i) {
  return static_cast<int>(
      noise(static_cast<std::uint64_t>(i) * 64 + static_cast<std::uint64_t>(rank)) % 8);
}
// A number in (-1, 1) whose sums depend on the order.
inline double fraction(int rank, std::int64_t i) {
  return static_cast<double>(
             noise(static_cast<std::uint64_t>(i) * 64 + static_cast<std::uint64_t>(rank)) >> 11) *
             0x1p-52 -
         1;
}

}  // namespace tessera::comm
