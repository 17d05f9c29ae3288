// Which steps threads share out (run.threading). How the others are cut, kernels say
// (Call::share_out).
#include <algorithm>

#include "exec/common/contraction.h"
#include "exec/cpu/kernel.h"

namespace tessera::exec::cpu {
namespace {

// Whether each head, or sample, has a product of its own: both factors and the result have its
// letter.
bool product_per_head(const ir::Attrs& attrs, std::span<const ir::Type> in) {
  std::vector<ir::Shape> shapes;
  for (const ir::Type& type : in) shapes.push_back(type.shape);
  const Contraction c = analyse_contraction(std::get<ir::Contract>(attrs).sig, shapes);
  return std::any_of(c.outer.begin(), c.outer.end(),
                     [](const Run& run) { return run.a != 0 && run.b != 0 && run.c != 0; });
}

}  // namespace

bool shared_out(Threading threading, ir::Op op, const ir::Attrs& attrs,
                std::span<const ir::Type> in) {
  using enum ir::Op;
  if (threading == Threading::products)
    return op == contract || op == conv || op == conv_input_grad || op == conv_filter_grad;
  if (threading != Threading::heads) return true;
  return op == attention || op == attention_grad || op == softmax || op == softmax_grad ||
         (op == contract && product_per_head(attrs, in));
}

}  // namespace tessera::exec::cpu
