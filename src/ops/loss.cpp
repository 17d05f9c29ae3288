// Losses per sample. A target is a label (i32[b]) or a distribution (like the logits); q = (1 -
// smoothing) target + smoothing / classes.
#include "base/check.h"
#include "ir/signature.h"
#include "ops/table.h"

namespace tessera::ops {
namespace {

using namespace ir;

void check_target(const Type& logits, const Type& target) {
  CHECK(logits.rank() == 2, "logits are [b,c]");
  const bool labels = target.dtype == DType::i32 && target.shape == Shape{logits.shape[0]};
  CHECK(labels || (is_float(target.dtype) && target.shape == logits.shape),
        "a target is i32[b] or a distribution [b,c], got " + std::string(name(target.dtype)) +
            to_string(target.shape));
}
Types infer_per_sample(const Attrs&, In in) {
  CHECK(in.size() == 2, "takes logits and target");
  check_target(in[0], in[1]);
  return {{statistics_of(in[0].dtype), {in[0].shape[0]}, {}}};
}
Types infer_loss_grad(const Attrs&, In in) {
  CHECK(in.size() == 3 && in[2].shape == Shape{in[0].shape[0]},
        "takes logits, target and a gradient per sample");
  check_target(in[0], in[1]);
  return {{in[0].dtype, in[0].shape, {}}};
}
Types infer_correct(const Attrs& attrs, In in) {
  CHECK(std::get<TopK>(attrs).k >= 1, "k is at least 1");
  return infer_per_sample(attrs, in);
}
std::string per_sample_signature(const Attrs&, int) { return "bc!,b->b"; }
std::string loss_grad_signature(const Attrs&, int) { return "bc!,b,b->bc!"; }
std::string target_letters(const Type& target) { return target.rank() == 2 ? "bc!" : "b"; }
std::string per_sample_placement(const Attrs&, In in, In) {
  return "bc!," + target_letters(in[1]) + "->b";
}
std::string loss_grad_placement(const Attrs&, In in, In) {
  return "bc!," + target_letters(in[1]) + ",b->bc!";
}

// nll = -sum q y: dy = -g q.   cross entropy = nll(log softmax(x)): dx = g (softmax(x) sum(q) - q).
Grads nll_vjp(Builder& b, const Eqn& e, Grad g) {
  return {b.emit1(Op::nll_grad, e.attrs, {e.in[0], e.in[1], g[0]}), none};
}
Grads cross_entropy_vjp(Builder& b, const Eqn& e, Grad g) {
  return {b.emit1(Op::cross_entropy_grad, e.attrs, {e.in[0], e.in[1], g[0]}), none};
}

}  // namespace

std::vector<OpDef> loss_rows() {
  return {
      {.op = Op::nll,
       .doc = "log-probabilities, target -> -sum q y per sample",
       .sig = "",
       .infer = infer_per_sample,
       .vjp = nll_vjp,
       .signature = per_sample_signature,
       .placement = per_sample_placement},
      {.op = Op::nll_grad,
       .doc = "y, target, g -> -g q",
       .sig = "",
       .infer = infer_loss_grad,
       .may_alias = {{0, 0}},
       .signature = loss_grad_signature,
       .placement = loss_grad_placement},
      {.op = Op::cross_entropy,
       .doc = "logits, target -> nll of their log softmax, per sample",
       .sig = "",
       .infer = infer_per_sample,
       .vjp = cross_entropy_vjp,
       .signature = per_sample_signature,
       .placement = per_sample_placement},
      {.op = Op::cross_entropy_grad,
       .doc = "logits, target, g -> g (softmax sum(q) - q)",
       .sig = "",
       .infer = infer_loss_grad,
       .may_alias = {{0, 0}},
       .signature = loss_grad_signature,
       .placement = loss_grad_placement},
      {.op = Op::correct,
       .doc =
           "logits, target -> 1 where the target is among the k largest (ties: lower index first)",
       .sig = "",
       .infer = infer_correct,
       .signature = per_sample_signature,
       .placement = per_sample_placement},
  };
}

}  // namespace tessera::ops
