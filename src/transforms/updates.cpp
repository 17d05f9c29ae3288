// The equations of every optimizer's update.
#include "transforms/updates.h"

namespace tessera::transforms::updates {

using namespace ir;

namespace {

AdamW moments(const Update& u) {
  return {.beta1 = u.spec.beta1,
          .beta2 = u.spec.beta2,
          .eps = u.spec.eps,
          .weight_decay = u.weight_decay(),
          .factor = false,
          .ok = false};
}

}  // namespace

std::vector<Var> adamw(Builder& b, const Update& u) {
  return b.emit(Op::adamw, moments(u), {u.kept[0], u.kept[1], u.kept[2], u.grad, u.lr, u.step},
                {"w", "m", "v"});
}

std::vector<Var> sgd(Builder& b, const Update& u) {
  return b.emit(Op::sgd,
                Sgd{.momentum = u.spec.momentum,
                    .weight_decay = u.weight_decay(),
                    .nesterov = u.spec.nesterov,
                    .factor = false,
                    .ok = false},
                {u.kept[0], u.kept[1], u.grad, u.lr}, {"w", "momentum"});
}

std::vector<Var> lamb(Builder& b, const Update& u) {
  Segments tensors;
  for (const Bucket::Entry& entry : u.bucket.entries) {
    tensors.offsets.push_back(entry.offset);
    tensors.sizes.push_back(elements(entry.shape) / u.bucket.parts);
  }
  const std::vector<Var> now =
      b.emit(Op::lamb_direction, moments(u), {u.kept[0], u.kept[1], u.kept[2], u.grad, u.step},
             {"direction", "m", "v"});
  const Var weights = b.emit1(Op::segment_sumsq, tensors, {u.kept[0]}, "sumsq_w"),
            direction = b.emit1(Op::segment_sumsq, tensors, {now[0]}, "sumsq_u");
  return {b.emit1(Op::lamb_update, tensors, {u.kept[0], now[0], weights, direction, u.lr}, "w"),
          now[1], now[2]};
}

}  // namespace tessera::transforms::updates
