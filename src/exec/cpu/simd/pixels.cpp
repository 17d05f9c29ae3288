#include "exec/cpu/simd/pixels.h"

#include "exec/cpu/simd/vector.h"  // before Highway: the instruction sets we build for

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/simd/pixels.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void pixel_lines(const std::uint8_t* x, float* y, std::int64_t blocks, const float* lines) {
  const hn::CappedTag<float, 16> d;
  const hn::Rebind<std::int32_t, decltype(d)> whole;
  const hn::Rebind<std::uint8_t, decltype(d)> bytes;
  const int lanes = static_cast<int>(hn::Lanes(d));
  for (std::int64_t b = 0; b < blocks; ++b, x += pixel_block, y += pixel_block)
    for (int i = 0; i < pixel_block; i += lanes) {
      const float* line = lines + i;
      const auto value = hn::ConvertTo(d, hn::PromoteTo(whole, hn::LoadU(bytes, x + i)));
      const auto upper = hn::MulAdd(value, hn::LoadU(d, line), hn::LoadU(d, line + pixel_block));
      const auto rest = hn::MulAdd(value, hn::LoadU(d, line + 2 * pixel_block),
                                   hn::LoadU(d, line + 3 * pixel_block));
      hn::StoreU(hn::Add(upper, rest), d, y + i);
    }
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::exec::cpu {

HWY_EXPORT(pixel_lines);

void vector_pixel_lines(const std::uint8_t* x, float* y, std::int64_t blocks, const float* lines) {
  HWY_DYNAMIC_DISPATCH(pixel_lines)(x, y, blocks, lines);
}

}  // namespace tessera::exec::cpu
#endif
