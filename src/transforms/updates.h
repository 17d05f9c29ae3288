// How each optimizer updates one bucket. One function per row of ir/optimizers.h, of its name.
#pragma once

#include "ir/builder.h"
#include "ir/optimizers.h"
#include "transforms/transforms.h"

namespace tessera::transforms {

struct Update {
  const Optimizer& spec;
  const Bucket& bucket;
  std::vector<ir::Var> kept;  // the weights, then the states in the order of the row
  ir::Var grad;               // clipped
  ir::Var lr, step;
  double weight_decay() const { return bucket.decay ? spec.weight_decay : 0.0; }
};

namespace updates {
// The new values of `kept`, in the same order. A step that does not count is the caller's affair.
#define X(name, ...) std::vector<ir::Var> name(ir::Builder& b, const Update& u);
TESSERA_OPTIMIZERS(X)
#undef X
}  // namespace updates

}  // namespace tessera::transforms
