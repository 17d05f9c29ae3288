#include "exec/cpu/simd/convert.h"

#include <bit>

#include "base/half.h"
#include "exec/cpu/gemm/micro.h"
#include "exec/cpu/simd/vector.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/simd/convert.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set
#include "hwy/highway.h"

#include "exec/cpu/simd/low-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {
void widen(const std::uint16_t* x, float* y, std::int64_t n) {
  along_row(n, [&](std::int64_t i, auto where)
                   HWY_ATTR { store_two<false>(where, load_two(where, x + i), y + i); });
}
void narrow(const float* x, std::uint16_t* y, std::int64_t n) {
  along_row(n, [&](std::int64_t i, auto where)
                   HWY_ATTR { store_two<false>(where, load_two(where, x + i), y + i); });
}

template <bool machine>
HWY_INLINE void scale_of_low(const std::uint16_t* x, std::uint16_t* y, std::int64_t n,
                             float factor) {
  const auto f = hn::Set(hn::ScalableTag<float>(), factor);
  along_row(n, [&](std::int64_t i, auto where) HWY_ATTR {
    const Two v = load_two(where, x + i);
    store_two<machine>(where, Two{hn::Mul(v.a, f), hn::Mul(v.b, f)}, y + i);
  });
}
void scale_low(const std::uint16_t* x, std::uint16_t* y, std::int64_t n, float factor) {
  scale_of_low<false>(x, y, n, factor);
}
void scale_low_rounding(const std::uint16_t* x, std::uint16_t* y, std::int64_t n, float factor) {
  scale_of_low<true>(x, y, n, factor);
}

// Plain loops, which the compiler turns into vectors of this instruction set.
void widen_half(const std::uint16_t* x, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = from_half(x[i]);
}
void narrow_half(const float* x, std::uint16_t* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = to_half(x[i]);
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::exec::cpu {

HWY_EXPORT(widen);
HWY_EXPORT(narrow);
HWY_EXPORT(scale_low);
HWY_EXPORT(scale_low_rounding);
HWY_EXPORT(widen_half);
HWY_EXPORT(narrow_half);

float widen_bf16(std::uint16_t x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16);
}

std::uint16_t round_to_bf16(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x), kept = bits >> 16;
  return static_cast<std::uint16_t>(x != x ? kept | 0x40u : (bits + 0x7fffu + (kept & 1u)) >> 16);
}

void widen_bf16(const std::uint16_t* x, float* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(widen)(x, y, n);
}
void round_to_bf16(const float* x, std::uint16_t* y, std::int64_t n) {
  static const RoundLow of_machine = machine_round();
  if (of_machine == nullptr) return HWY_DYNAMIC_DISPATCH(narrow)(x, y, n);
  for (std::int64_t i = of_machine(x, y, n); i < n; ++i) y[i] = round_to_bf16(x[i]);
}
void scale_bf16(const std::uint16_t* x, std::uint16_t* y, std::int64_t n, float factor) {
  static const bool rounds = machine_round() != nullptr;
  if (rounds)
    HWY_DYNAMIC_DISPATCH(scale_low_rounding)(x, y, n, factor);
  else
    HWY_DYNAMIC_DISPATCH(scale_low)(x, y, n, factor);
}

void widen_f16(const std::uint16_t* x, float* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(widen_half)(x, y, n);
}
void round_to_f16(const float* x, std::uint16_t* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(narrow_half)(x, y, n);
}

void widen_low(ir::DType low, const std::uint16_t* x, float* y, std::int64_t n, ThreadPool& pool) {
  for_chunks(pool, n, chunk, [&](std::int64_t begin, std::int64_t size) {
    if (low == ir::DType::f16)
      widen_f16(x + begin, y + begin, size);
    else
      widen_bf16(x + begin, y + begin, size);
  });
}
void round_to_low(ir::DType low, const float* x, std::uint16_t* y, std::int64_t n,
                  ThreadPool& pool) {
  for_chunks(pool, n, chunk, [&](std::int64_t begin, std::int64_t size) {
    if (low == ir::DType::f16)
      round_to_f16(x + begin, y + begin, size);
    else
      round_to_bf16(x + begin, y + begin, size);
  });
}

}  // namespace tessera::exec::cpu
#endif
