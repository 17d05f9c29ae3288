// quantize to i8, as inference has it: f32 or bf16 times the inverse of a scale, which is one
// number or one per row, rounded to nearest even and cut off at 127. Everything else that the op
// can do goes to the reference. Convention: the same bits as the reference gives.
#include "exec/cpu/simd/vector.h"  // before Highway: the instruction sets we build for

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/quantize.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "base/float8.h"
#include "exec/cpu/kernel.h"
#include "exec/cpu/low.h"
#include "ir/signature.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE auto load_wide(D d, const float* x) {
  return hn::LoadU(d, x);
}
template <class D>
HWY_INLINE auto load_wide(D d, const Low* x) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<std::uint16_t, D> half;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(half, x))));
}

// Returns how many elements it did: all but the last partial pair of vectors.
template <class T>
HWY_INLINE std::int64_t to_bytes(const T* HWY_RESTRICT x, float inverse, std::int64_t n,
                                 std::int8_t* HWY_RESTRICT y) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<std::int16_t, decltype(d)> half;
  const hn::Twice<decltype(half)> both;
  const hn::Rebind<std::int8_t, decltype(both)> bytes;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, inverse);
  const auto least = hn::Set(bytes, std::int8_t{-127});
  const auto demoted = [&](const T* HWY_RESTRICT at) HWY_ATTR {
    auto v = hn::Mul(load_wide(d, at), factor);
    if constexpr (!HWY_ARCH_ARM)  // whose conversions saturate, and make 0 of a NaN
      v = hn::Min(hn::Max(hn::IfThenZeroElse(hn::IsNaN(v), v), hn::Set(d, -127.0f)),
                  hn::Set(d, 127.0f));
    return hn::DemoteTo(half, hn::NearestInt(v));
  };
  std::int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto pair = hn::Combine(both, demoted(x + i + lanes), demoted(x + i));
    hn::StoreU(hn::Max(hn::DemoteTo(bytes, pair), least), bytes, y + i);
  }
  return i;
}
std::int64_t floats_to_bytes(const float* x, float inverse, std::int64_t n, std::int8_t* y) {
  return to_bytes(x, inverse, n, y);
}
std::int64_t lows_to_bytes(const Low* x, float inverse, std::int64_t n, std::int8_t* y) {
  return to_bytes(x, inverse, n, y);
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::exec::cpu {

HWY_EXPORT(floats_to_bytes);
HWY_EXPORT(lows_to_bytes);

namespace {

void quantise_row(const Tensor& x, std::int64_t begin, float scale, std::int64_t n,
                  std::int8_t* y) {
  const float inverse = 1 / scale;
  if (is_bf16(x)) {
    const Low* const from = x.as<Low>() + begin;
    for (std::int64_t i = HWY_DYNAMIC_DISPATCH(lows_to_bytes)(from, inverse, n, y); i < n; ++i)
      y[i] = to_int8(widen_bf16(from[i]) * inverse);
  } else {
    const float* const from = x.as<float>() + begin;
    for (std::int64_t i = HWY_DYNAMIC_DISPATCH(floats_to_bytes)(from, inverse, n, y); i < n; ++i)
      y[i] = to_int8(from[i] * inverse);
  }
}

}  // namespace

void fast_quantize(const Call& call) {
  const auto& attr = call.attr<ir::Quantize>();
  const ir::Signature& sig = ir::parsed_signature(attr.sig);
  const Tensor &x = call.in[0], &scale = call.in[1];
  const std::string &letters = sig.in[0].letters, &by = sig.in[1].letters;
  const bool plain = attr.to == ir::DType::i8 && attr.act.empty() && call.out.size() == 1 &&
                     sig.out[0].letters == letters && letters.starts_with(by) &&
                     (x.dtype == ir::DType::f32 || is_bf16(x));
  if (!plain) return reference_quantize<float>(call);
  const std::int64_t n = x.elements(), rows = scale.elements(), columns = rows > 0 ? n / rows : 0;
  if (n == 0 || !call.out[0]) return;
  const auto* const scales = scale.as<float>();
  auto* const y = call.out[0].as<std::int8_t>();
  for_chunks(call.pool, n, chunk, [&](std::int64_t begin, std::int64_t size) {
    for (std::int64_t i = begin; i < begin + size;) {
      const std::int64_t row = i / columns, end = std::min((row + 1) * columns, begin + size);
      quantise_row(x, i, scales[row], end - i, y + i);
      i = end;
    }
  });
}

}  // namespace tessera::exec::cpu
#endif
