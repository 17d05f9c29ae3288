// The kernels of a card: one row per op, in the order of the vocabulary.
#include <array>

#include "exec/cuda/kernel.h"
#include "exec/cuda/products/conv.h"

namespace tessera::exec::cuda {

namespace {
// clang-format off
#define ROW(op) KernelRow{ir::Op::op, run_##op, nullptr}
#define ROW_WITH_WORKSPACE(op) KernelRow{ir::Op::op, run_##op, workspace_##op}
#define ROW_THAT_PACKS(op) KernelRow{ir::Op::op, run_##op, workspace_##op, packed_##op, pack_##op}
#define CROSSES(op) KernelRow{ir::Op::op, nullptr, nullptr}
#define CROSSES_WITH_WORKSPACE(op) KernelRow{ir::Op::op, nullptr, workspace_##op}
constexpr std::array rows{
    ROW_WITH_WORKSPACE(contract),
    ROW_WITH_WORKSPACE(quantize), ROW(delayed_scale), ROW(amax_history),
    ROW_THAT_PACKS(conv), ROW_WITH_WORKSPACE(conv_input_grad), ROW_WITH_WORKSPACE(conv_filter_grad), ROW(max_pool), ROW(max_pool_grad),
    ROW_WITH_WORKSPACE(attention), ROW_WITH_WORKSPACE(attention_grad),
    ROW(add), ROW(mul), ROW(scale), ROW(gelu), ROW_WITH_WORKSPACE(gelu_grad), ROW(relu), ROW(relu_grad), ROW(select), ROW(cast), ROW(dropout), ROW(mark),
    ROW(layer_norm), ROW_WITH_WORKSPACE(layer_norm_grad), ROW(add_norm),
    ROW(softmax), ROW(softmax_grad), ROW(log_softmax), ROW(log_softmax_grad),
    ROW_WITH_WORKSPACE(moments), ROW(batch_norm), ROW_WITH_WORKSPACE(batch_norm_sums), ROW(batch_norm_grad),
    ROW_WITH_WORKSPACE(relu_grad_sums), ROW(running_stats), ROW(batch_norm_fixed), ROW(batch_norm_scale),
    ROW(nll), ROW(nll_grad), ROW(cross_entropy), ROW(cross_entropy_grad), ROW(correct),
    ROW(constant), ROW(reshape), ROW(transpose), ROW(slice), ROW(concat), ROW(pad), ROW(stack), ROW(unstack), ROW(broadcast),
    ROW(patchify), ROW(unpatchify), ROW(view), ROW(pack), ROW(copy),
    ROW(window), ROW(unwindow), ROW(window_mask), ROW(bias_table), ROW(bias_table_grad),
    ROW_WITH_WORKSPACE(sum), ROW_WITH_WORKSPACE(sumsq), ROW_WITH_WORKSPACE(alarm),
    ROW(sgd), ROW(adamw), ROW(ema), ROW(clip), ROW(finite), ROW(advance), ROW(lookup),
    ROW(loss_scale), ROW(rescale),
    ROW(lamb_direction), ROW_WITH_WORKSPACE(segment_sumsq), ROW(lamb_update),
    CROSSES(all_reduce), CROSSES_WITH_WORKSPACE(all_gather), CROSSES_WITH_WORKSPACE(reduce_scatter), CROSSES_WITH_WORKSPACE(all_to_all),
    ROW(own), ROW(once), ROW(widen), CROSSES(transfer), CROSSES(send), CROSSES(recv),
    CROSSES(compressed_reduce), ROW_WITH_WORKSPACE(orthogonalise),
    ROW(normalise), ROW(augment), ROW(gather_samples), ROW_WITH_WORKSPACE(resize),
};
#undef ROW
#undef ROW_WITH_WORKSPACE
#undef ROW_THAT_PACKS
#undef CROSSES
#undef CROSSES_WITH_WORKSPACE
// clang-format on

constexpr bool in_order() {
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (static_cast<std::size_t>(rows[i].op) != i) return false;
  return rows.size() == static_cast<std::size_t>(ir::op_count);
}
static_assert(in_order(), "every op of TESSERA_OPS has its row here, in its order");

}  // namespace

const KernelRow& kernel(ir::Op op) { return rows[static_cast<std::size_t>(op)]; }

// Every kernel takes f64, f32, bf16 and f16 (the last two by way of float, on every card) and
// whatever integers the op's own rule allows, but for conv, which takes no i8; what crosses ranks
// is bytes.
bool supports(ir::Op op, ir::DType dtype) {
  if (op == ir::Op::conv && dtype == ir::DType::i8) return false;
  return kernel(op).run != nullptr || ir::def(op).crosses != ir::Crossing::none;
}

bool overwrites(ir::Op op, const ir::Attrs& attrs, std::span<const ir::Type> in) {
  return op == ir::Op::conv && conv_adds_in_place(attrs, in);
}

}  // namespace tessera::exec::cuda
