// The kernels of the CPU: one row per op, in the order of the vocabulary.
#include <array>

#include "exec/cpu/kernel.h"

namespace tessera::exec::cpu {

namespace {
// clang-format off
#define ROW(op) KernelRow{ir::Op::op, reference_##op<double>, fast_##op}
#define ROW_WITH_SCRATCH(op) KernelRow{ir::Op::op, reference_##op<double>, fast_##op, scratch_##op}
#define ROW_THAT_PACKS(op) KernelRow{ir::Op::op, reference_##op<double>, fast_##op, scratch_##op, packed_##op, pack_##op}
#define ROW_OF_REFERENCE(op) KernelRow{ir::Op::op, reference_##op<double>, reference_##op<float>}
// The kernel takes bf16 as it is.
constexpr KernelRow low(KernelRow row) {
  row.low = true;
  return row;
}
constexpr std::array rows{
    low(ROW_THAT_PACKS(contract)),
    low(ROW(quantize)), ROW_OF_REFERENCE(delayed_scale), ROW_OF_REFERENCE(amax_history),
    low(ROW_THAT_PACKS(conv)), low(ROW_WITH_SCRATCH(conv_input_grad)), low(ROW_WITH_SCRATCH(conv_filter_grad)), low(ROW_WITH_SCRATCH(max_pool)), low(ROW_WITH_SCRATCH(max_pool_grad)),
    low(ROW_WITH_SCRATCH(attention)), low(ROW_WITH_SCRATCH(attention_grad)),
    low(ROW(add)), low(ROW(mul)), low(ROW(scale)), low(ROW(gelu)), low(ROW_WITH_SCRATCH(gelu_grad)), low(ROW(relu)), low(ROW(relu_grad)), ROW(select), ROW(cast), low(ROW(dropout)), ROW(mark),
    low(ROW(layer_norm)), low(ROW_WITH_SCRATCH(layer_norm_grad)), low(ROW_WITH_SCRATCH(add_norm)),
    ROW(softmax), ROW(softmax_grad), ROW(log_softmax), ROW(log_softmax_grad),
    low(ROW_WITH_SCRATCH(moments)), low(ROW_WITH_SCRATCH(batch_norm)), low(ROW_WITH_SCRATCH(batch_norm_sums)), low(ROW_WITH_SCRATCH(batch_norm_grad)),
    low(ROW_WITH_SCRATCH(relu_grad_sums)), ROW(running_stats), low(ROW_WITH_SCRATCH(batch_norm_fixed)), ROW_OF_REFERENCE(batch_norm_scale),
    ROW(nll), ROW(nll_grad), ROW(cross_entropy), ROW(cross_entropy_grad), ROW(correct),
    low(ROW(constant)), low(ROW(reshape)), low(ROW(transpose)), low(ROW(slice)), low(ROW(concat)), low(ROW(pad)), low(ROW(stack)), low(ROW(unstack)), low(ROW(broadcast)),
    low(ROW(patchify)), low(ROW(unpatchify)), ROW(view), ROW(pack), ROW(copy),
    low(ROW(window)), low(ROW(unwindow)), ROW_OF_REFERENCE(window_mask), ROW_OF_REFERENCE(bias_table), ROW_OF_REFERENCE(bias_table_grad),
    low(ROW_WITH_SCRATCH(sum)), ROW_WITH_SCRATCH(sumsq), ROW_WITH_SCRATCH(alarm),
    ROW(sgd), ROW(adamw), ROW(ema), ROW(clip), ROW(finite), ROW_OF_REFERENCE(advance), ROW_OF_REFERENCE(lookup),
    ROW_OF_REFERENCE(loss_scale), ROW_OF_REFERENCE(rescale),
    ROW(lamb_direction), ROW(segment_sumsq), ROW(lamb_update),
    ROW(all_reduce), ROW_WITH_SCRATCH(all_gather), ROW_WITH_SCRATCH(reduce_scatter), ROW_WITH_SCRATCH(all_to_all),
    ROW(own), ROW(once), ROW(widen), ROW(transfer), ROW(send), ROW(recv),
    ROW_WITH_SCRATCH(compressed_reduce), ROW_OF_REFERENCE(orthogonalise),
    low(ROW(normalise)), ROW_WITH_SCRATCH(augment), ROW(gather_samples), ROW_WITH_SCRATCH(resize),
};
#undef ROW
#undef ROW_WITH_SCRATCH
#undef ROW_THAT_PACKS
#undef ROW_OF_REFERENCE
// clang-format on

constexpr bool in_order() {
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (static_cast<std::size_t>(rows[i].op) != i) return false;
  return rows.size() == static_cast<std::size_t>(ir::op_count);
}
static_assert(in_order(), "every op of TESSERA_OPS has its kernels here, in its order");
}  // namespace

const KernelRow& kernel(ir::Op op) { return rows[static_cast<std::size_t>(op)]; }

// Doubles are the reference kernels' business. The f32 kernels take bf16 and f16 too, which are
// widened around them, and whatever integers the op's own rule allows.
bool supports(ir::Op op, ir::DType dtype) {
  return (dtype == ir::DType::f64 ? kernel(op).f64 : kernel(op).f32) != nullptr;
}

// A convolution in bf16 reads each addend before it writes the result there; its sums lie
// elsewhere.
bool overwrites(ir::Op op, std::span<const ir::Type> in) {
  return op == ir::Op::conv && in.size() == 5 && in[0].dtype == ir::DType::bf16;
}

}  // namespace tessera::exec::cpu
