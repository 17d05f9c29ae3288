#include "exec/cpu/simd/instructions.h"

#include "exec/cpu/gemm/i8.h"
#include "exec/cpu/simd/vector.h"  // before Highway: the instruction sets we build for

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/simd/instructions.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {

// The table of this function is laid out like those of the kernels, so its answer is also theirs.
std::int64_t compiled_for() { return HWY_TARGET; }

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::exec::cpu {

HWY_EXPORT(compiled_for);

std::string instruction_set() { return hwy::TargetName(HWY_DYNAMIC_DISPATCH(compiled_for)()); }
std::string portable_instruction_set() { return hwy::TargetName(HWY_STATIC_TARGET); }
void use_portable_instructions() {
  hwy::SetSupportedTargetsForTest(HWY_STATIC_TARGET);
  use_low_micro(wide_micro()->name);
  use_vector_f32(true);
  use_i8_micro(portable_i8_micro()->name);
}

}  // namespace tessera::exec::cpu
#endif
