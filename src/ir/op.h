// The vocabulary: one X-macro row per op with its attributes (ir/attrs.h), and the OpDef row that
// gives an op its meaning. Convention: meaning lives in ops/ (one family per file), kernels in
// exec/; nothing here runs.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/attrs.h"
#include "ir/type.h"

namespace tessera::ir {

using Var = int;
inline constexpr Var none = -1;  // an absent operand or result, printed as _

// name, attributes; one family per line, in the order of the files in ops/
// clang-format off
#define TESSERA_OPS(X)                                                                                      \
  /* contract   */ X(contract, Contract)                                                                    \
  /* quantize   */ X(quantize, Quantize) X(delayed_scale, DelayedScale) X(amax_history, None)               \
  /* conv       */ X(conv, Conv) X(conv_input_grad, Conv) X(conv_filter_grad, Conv)                         \
                   X(max_pool, Pool) X(max_pool_grad, Pool)                                                 \
  /* attention  */ X(attention, Attention) X(attention_grad, Attention)                                     \
  /* pointwise  */ X(add, Sig) X(mul, Sig) X(scale, Scale) X(gelu, Gelu) X(gelu_grad, Gelu)                 \
                   X(relu, None) X(relu_grad, None) X(select, None) X(cast, Cast) X(dropout, Dropout)       \
                   X(mark, Mark)                                                                            \
  /* norm       */ X(layer_norm, Norm) X(layer_norm_grad, Norm) X(add_norm, Norm)                           \
                   X(softmax, None) X(softmax_grad, None) X(log_softmax, None) X(log_softmax_grad, None)    \
  /* batch_norm */ X(moments, BatchNorm) X(batch_norm, BatchNorm) X(batch_norm_sums, BatchNorm)             \
                   X(batch_norm_grad, BatchNorm) X(relu_grad_sums, BatchNorm) X(running_stats, BatchNorm)   \
                   X(batch_norm_fixed, BatchNorm) X(batch_norm_scale, BatchNorm)                            \
  /* loss       */ X(nll, Loss) X(nll_grad, Loss) X(cross_entropy, Loss) X(cross_entropy_grad, Loss)        \
                   X(correct, TopK)                                                                         \
  /* shape      */ X(constant, Constant) X(reshape, Reshape) X(transpose, Transpose) X(slice, Slice)        \
                   X(concat, Dim) X(pad, Pad) X(stack, None) X(unstack, None) X(broadcast, Broadcast)       \
                   X(patchify, Patch) X(unpatchify, Patch)                                                  \
  /* bucket     */ X(view, View) X(pack, Pack) X(copy, None)                                                \
  /* window     */ X(window, Window) X(unwindow, Window) X(window_mask, WindowMask)                         \
                   X(bias_table, BiasTable) X(bias_table_grad, BiasTable)                                   \
  /* reduce     */ X(sum, Sum) X(sumsq, None) X(alarm, None)                                                \
  /* update     */ X(sgd, Sgd) X(adamw, AdamW) X(ema, Ema) X(clip, Clip) X(finite, None)                     \
                   X(advance, None) X(lookup, None) X(loss_scale, LossScale) X(rescale, LossScale)          \
  /* lamb       */ X(lamb_direction, AdamW) X(segment_sumsq, Segments) X(lamb_update, Segments)              \
  /* collective */ X(all_reduce, Collective) X(all_gather, Collective) X(reduce_scatter, Collective)        \
                   X(all_to_all, Collective) X(own, Collective) X(once, Collective) X(widen, Collective)    \
                   X(transfer, Message) X(send, Message) X(recv, Message)                                   \
  /* compress   */ X(compressed_reduce, Compressed) X(orthogonalise, Stream)                                    \
  /* image      */ X(normalise, Normalise) X(augment, Augment) X(gather_samples, None) X(resize, Resize)
// clang-format on

enum class Op : std::uint8_t {
#define X(op, attrs) op,
  TESSERA_OPS(X)
#undef X
};
inline constexpr int op_count = 0
#define X(op, attrs) +1
    TESSERA_OPS(X)
#undef X
    ;

Attrs default_attrs(Op op);

std::string_view name(Op op);
std::optional<Op> parse_op(std::string_view text);

struct Cost {
  double flops = 0;  // 2 x multiply-adds of contractions and convolutions (docs/cli.md)
  double bytes = 0;  // operands read once, results written once
};

struct Eqn;
struct Part;
class Builder;

// How an op of one rank's program crosses ranks: not at all, together with its group, or as a
// message from one stage to the next.
enum class Crossing : std::uint8_t { none, collective, point_to_point };

struct OpDef {
  using Infer = std::vector<Type> (*)(const Attrs&, std::span<const Type> in);
  using Signature = std::string (*)(const Attrs&, int operands);
  using Vjp = std::vector<Var> (*)(
      Builder&, const Eqn&, std::span<const Var> grad);  // one gradient (or none) per operand
  using CostRule = Cost (*)(const Attrs&, std::span<const Type> in, std::span<const Type> out);
  using PlacementRule = std::string (*)(const Attrs&, std::span<const Type> in,
                                        std::span<const Type> out);
  using ViewRule = std::int64_t (*)(const Attrs&, std::span<const Type> in,
                                    int result);    // element offset in operand 0, or -1: a copy
  using LocalRule = void (*)(Attrs&, const Part&);  // ir/part.h
  struct Alias {
    int out, in;
  };

  Op op;
  std::string_view doc;   // one line for docs/ir.md
  std::string_view sig;   // dim signature; "" when it is an attribute. '*' any dims, '!' a dim that
                          // may not be sharded
  Infer infer = nullptr;  // null: shapes by signature, dtype of operand 0
  Vjp vjp = nullptr;  // null: not differentiable (gradients of it are an error, or none for integer
                      // operands)
  CostRule cost = nullptr;            // null: no FLOPs
  ViewRule view = nullptr;            // results may share operand 0's storage
  std::vector<Alias> may_alias = {};  // result may overwrite the operand when it is its last use
  // The same, but only kernels of which Target::overwrites says so can do it.
  std::vector<Alias> some_alias = {};
  bool gathers =
      false;  // operands may be produced directly inside the result's storage (stack, pack)
  Signature signature = nullptr;  // null: `sig`, or the attribute
  // How sharding passes through (ir/placement.h). null: by the signature; letters name dims that
  // are cut alike, whatever their extents.
  PlacementRule placement = nullptr;
  std::vector<int> linear =
      {};  // operands in each of which the op is linear: a partial sum there gives partial sums
  bool adds = false;              // linear in all operands together
  std::vector<int> follows = {};  // results of what is whole anyway: where they lack the sharded
                                  // letter they are whole, no partial sums
  // Mixed precision, one letter per operand: 'l' is cast to the low type, '.' stays f32. The last
  // letter also holds for every operand after it. Empty: the op runs in f32.
  std::string_view low = "";
  Crossing crosses = Crossing::none;
  bool carries_gradient = false;  // in the update phase: the result of a gradient is that gradient
                                  // on its way to the optimizer
  // Attributes that hold extents or positions become one rank's. null: they are the same on all.
  LocalRule local = nullptr;
};

// The row of an op (ops/table.cpp). Every op has one; a test says so.
const OpDef& def(Op op);

// Rules applied: what the verifier, the planner and the cost model call.
std::string signature(Op op, const Attrs& attrs, int operands);
std::vector<Type> infer(Op op, const Attrs& attrs, std::span<const Type> in);
Cost cost(Op op, const Attrs& attrs, std::span<const Type> in, std::span<const Type> out);

}  // namespace tessera::ir
