// quantize to i8, as inference has it: f32 or bf16 times the inverse of a scale, which is one
// number or one per row, rounded to nearest even and cut off at 127. Everything else that the op
// can do goes to the reference. Convention: the same bits as the reference gives.
#include "exec/cpu/quantize.h"

#include "exec/cpu/simd/vector.h"  // before Highway: the instruction sets we build for

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/quantize.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "exec/cpu/kernel.h"
#include "exec/cpu/low.h"
#include "exec/cpu/simd/low-inl.h"
#include "ir/signature.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {

template <class T>
HWY_INLINE void scaled_to_bytes(const T* HWY_RESTRICT x, float inverse, std::int64_t n,
                                std::int8_t* HWY_RESTRICT y) {
  const auto factor = hn::Set(hn::ScalableTag<float>(), inverse);
  along_row(n, [&](std::int64_t i, auto where) TESSERA_ROW_ATTR {
    const Two v = load_two(where, x + i);
    store_two<false>(where, Two{hn::Mul(v.a, factor), hn::Mul(v.b, factor)}, y + i);
  });
}
void floats_to_bytes(const float* x, float inverse, std::int64_t n, std::int8_t* y) {
  scaled_to_bytes(x, inverse, n, y);
}
void lows_to_bytes(const Low* x, float inverse, std::int64_t n, std::int8_t* y) {
  scaled_to_bytes(x, inverse, n, y);
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::exec::cpu {

HWY_EXPORT(floats_to_bytes);
HWY_EXPORT(lows_to_bytes);

void to_bytes(const float* x, float inverse, std::int64_t n, std::int8_t* y) {
  HWY_DYNAMIC_DISPATCH(floats_to_bytes)(x, inverse, n, y);
}
void to_bytes(const Low* x, float inverse, std::int64_t n, std::int8_t* y) {
  HWY_DYNAMIC_DISPATCH(lows_to_bytes)(x, inverse, n, y);
}

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
      const float inverse = 1 / scales[row];
      if (is_bf16(x))
        to_bytes(x.as<Low>() + i, inverse, end - i, y + i);
      else
        to_bytes(x.as<float>() + i, inverse, end - i, y + i);
      i = end;
    }
  });
}

}  // namespace tessera::exec::cpu
#endif
