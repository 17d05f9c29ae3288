// gelu and its slope at every bf16 number, to look up where vectors are short. Normal numbers meet
// a few thousand of the 65,536 entries, which stay near, and loads run beside the vector operations
// that a quotient of polynomials would need.
#pragma once

#include <cstdint>
#include <cstring>

namespace tessera::exec::cpu {

const std::uint16_t* gelu_table(bool tanh);        // vector_gelu_low, rounded to bf16
const std::uint32_t* gelu_slope_table(bool tanh);  // the bits of the slope in f32

// y[i] = table[x[i]], four at a time and as whole numbers, which leaves the vector units alone. y
// may be x.
inline void look_up(const std::uint16_t* table, const std::uint16_t* x, std::uint16_t* y,
                    std::int64_t n) {
  std::int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    std::uint64_t four;
    std::memcpy(&four, x + i, sizeof four);
    const std::uint32_t low = table[four & 0xffff] | std::uint32_t{table[four >> 16 & 0xffff]}
                                                         << 16,
                        high = table[four >> 32 & 0xffff] | std::uint32_t{table[four >> 48]} << 16;
    four = low | std::uint64_t{high} << 32;
    std::memcpy(y + i, &four, sizeof four);
  }
  for (; i < n; ++i) y[i] = table[x[i]];
}
inline void look_up(const std::uint32_t* table, const std::uint16_t* x, float* y, std::int64_t n) {
  // Two entries, stored as one; without the asm statement a compiler joins them in vectors.
  const auto put = [&](std::int64_t i, std::uint64_t first, std::uint64_t second) {
    std::uint64_t two = table[first] | std::uint64_t{table[second]} << 32;
    asm("" : "+r"(two));
    std::memcpy(y + i, &two, sizeof two);
  };
  std::int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    std::uint64_t four;
    std::memcpy(&four, x + i, sizeof four);
    put(i, four & 0xffff, four >> 16 & 0xffff);
    put(i + 2, four >> 32 & 0xffff, four >> 48);
  }
  for (; i < n; ++i) std::memcpy(y + i, table + x[i], sizeof(float));
}

}  // namespace tessera::exec::cpu
