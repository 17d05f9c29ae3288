// The kernels of a card: one row per op, in the order of the vocabulary.
#include <array>

#include "exec/cuda/kernel.h"

namespace tessera::exec::cuda {

namespace {
// clang-format off
#define ROW(op) KernelRow{ir::Op::op, run_##op, nullptr}
#define ROW_WITH_WORKSPACE(op) KernelRow{ir::Op::op, run_##op, workspace_##op}
#define CROSSES(op) KernelRow{ir::Op::op, nullptr, nullptr}
#define TO_COME(op) KernelRow{ir::Op::op, nullptr, nullptr}
constexpr std::array rows{
    ROW_WITH_WORKSPACE(contract),
    TO_COME(conv), TO_COME(conv_input_grad), TO_COME(conv_filter_grad), TO_COME(max_pool), TO_COME(max_pool_grad),
    ROW(attention), ROW_WITH_WORKSPACE(attention_grad),
    ROW(add), ROW(mul), ROW(scale), ROW(gelu), ROW(gelu_grad), ROW(relu), ROW(relu_grad), ROW(select), ROW(cast), ROW(dropout), ROW(mark),
    TO_COME(layer_norm), TO_COME(layer_norm_grad), TO_COME(add_norm),
    TO_COME(softmax), TO_COME(softmax_grad), TO_COME(log_softmax), TO_COME(log_softmax_grad),
    TO_COME(moments), TO_COME(batch_norm), TO_COME(batch_norm_sums), TO_COME(batch_norm_grad),
    TO_COME(running_stats), TO_COME(batch_norm_fixed), TO_COME(batch_norm_scale),
    TO_COME(nll), TO_COME(nll_grad), TO_COME(cross_entropy), TO_COME(cross_entropy_grad), TO_COME(correct),
    ROW(constant), ROW(reshape), ROW(transpose), ROW(slice), ROW(concat), ROW(pad), ROW(stack), ROW(unstack), ROW(broadcast),
    ROW(patchify), ROW(unpatchify), ROW(view), ROW(pack),
    TO_COME(window), TO_COME(unwindow), TO_COME(window_mask), TO_COME(bias_table), TO_COME(bias_table_grad),
    TO_COME(sum), TO_COME(sumsq), TO_COME(alarm),
    ROW(sgd), ROW(adamw), ROW(ema), ROW(clip), ROW(finite), ROW(advance), ROW(lookup),
    TO_COME(lamb_direction), TO_COME(segment_sumsq), TO_COME(lamb_update),
    CROSSES(all_reduce), CROSSES(all_gather), CROSSES(reduce_scatter), CROSSES(all_to_all),
    ROW(own), ROW(once), ROW(widen), CROSSES(transfer), CROSSES(send), CROSSES(recv),
    CROSSES(compressed_reduce), TO_COME(orthogonalise),
};
#undef ROW
#undef ROW_WITH_WORKSPACE
#undef CROSSES
#undef TO_COME
// clang-format on

constexpr bool in_order() {
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (static_cast<std::size_t>(rows[i].op) != i) return false;
  return rows.size() == static_cast<std::size_t>(ir::op_count);
}
static_assert(in_order(), "every op of TESSERA_OPS has its row here, in its order");

}  // namespace

const KernelRow& kernel(ir::Op op) { return rows[static_cast<std::size_t>(op)]; }

// Every kernel takes f64, f32 and bf16 (bf16 by way of float, on every card) and whatever integers
// the op's own rule allows; what crosses ranks is bytes.
bool supports(ir::Op op, ir::DType) {
  return kernel(op).run != nullptr || ir::def(op).crosses != ir::Crossing::none;
}

}  // namespace tessera::exec::cuda
