#include "exec/cpu/simd/gelu_table.h"

#include <array>
#include <vector>

#include "exec/cpu/simd/convert.h"
#include "exec/cpu/simd/vector.h"

namespace tessera::exec::cpu {

namespace {
constexpr std::int64_t all = 65536;

std::vector<float> every_number() {
  std::vector<float> x(all);
  for (std::int64_t i = 0; i < all; ++i)
    x[static_cast<std::size_t>(i)] = widen_bf16(static_cast<std::uint16_t>(i));
  return x;
}

std::vector<std::uint16_t> make_gelu(bool tanh) {
  std::vector<float> x = every_number();
  vector_gelu_low(x.data(), x.data(), all, tanh);
  std::vector<std::uint16_t> y(all);
  round_to_bf16(x.data(), y.data(), all);
  return y;
}

std::vector<std::uint32_t> make_slope(bool tanh) {
  const std::vector<float> x = every_number();
  std::vector<float> slope(all, 1.0f);
  vector_gelu_grad(x.data(), slope.data(), slope.data(), all, tanh);
  std::vector<std::uint32_t> bits(all);
  std::memcpy(bits.data(), slope.data(), all * sizeof(float));
  return bits;
}
}  // namespace

const std::uint16_t* gelu_table(bool tanh) {
  static const std::array tables{make_gelu(false), make_gelu(true)};
  return tables[tanh ? 1 : 0].data();
}
const std::uint32_t* gelu_slope_table(bool tanh) {
  static const std::array tables{make_slope(false), make_slope(true)};
  return tables[tanh ? 1 : 0].data();
}

}  // namespace tessera::exec::cpu
