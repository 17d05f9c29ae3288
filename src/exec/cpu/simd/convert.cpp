#include "exec/cpu/simd/convert.h"

#include <bit>

#include "base/half.h"
#include "exec/cpu/gemm/micro.h"
#include "exec/cpu/simd/vector.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/simd/convert.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Both return how many elements they did: all but the last partial vector.
std::int64_t widen(const std::uint16_t* x, float* y, std::int64_t n) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::Rebind<std::uint16_t, decltype(d)> half;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(half, x + i)))), d,
               y + i);
  return i;
}

std::int64_t narrow(const float* x, std::uint16_t* y, std::int64_t n) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<std::uint16_t, decltype(d)> half;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto one = hn::Set(du, 1), below_half = hn::Set(du, 0x7fff), quiet = hn::Set(du, 0x40);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    const auto bits = hn::BitCast(du, v);
    const auto kept = hn::ShiftRight<16>(bits);
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(below_half, hn::And(kept, one))));
    const auto nan = hn::RebindMask(du, hn::IsNaN(v));
    hn::StoreU(
        hn::DemoteTo(half, hn::BitCast(di, hn::IfThenElse(nan, hn::Or(kept, quiet), rounded))),
        half, y + i);
  }
  return i;
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
  for (std::int64_t i = HWY_DYNAMIC_DISPATCH(widen)(x, y, n); i < n; ++i) y[i] = widen_bf16(x[i]);
}
void round_to_bf16(const float* x, std::uint16_t* y, std::int64_t n) {
  static const RoundLow of_machine = machine_round();
  for (std::int64_t i = of_machine ? of_machine(x, y, n) : HWY_DYNAMIC_DISPATCH(narrow)(x, y, n);
       i < n; ++i)
    y[i] = round_to_bf16(x[i]);
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
