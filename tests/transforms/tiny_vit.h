// A ViT small enough to try every parameter, as programs before and after the passes that make a
// training step of it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "models/model.h"
#include "transforms/transforms.h"

namespace tessera::test {

// Odd on purpose: a wide image, three heads, five classes.
inline models::ModelConfig tiny_model() {
  models::ModelConfig m;
  m.image_h = 4;
  m.image_w = 6;
  m.channels = 2;
  m.patch = 2;
  m.dim = 6;
  m.depth = 3;
  m.heads = 3;
  m.mlp = 8;
  m.classes = 5;
  return m;
}
inline models::ModelConfig tiny_model_with_dropout() {
  models::ModelConfig m = tiny_model();
  m.pool = "mean";
  m.dropout = 0.2;
  m.drop_path = 0.3;
  return m;
}

// Forward and loss of one micro-batch: inputs images, labels, inv_count (and rng with dropout);
// outputs loss and correct.
inline ir::Program vit_loss(const models::ModelConfig& m, ir::DType real, std::int64_t batch) {
  using namespace ir;
  Builder b;
  b.program().name = "tiny";
  const Var images =
      b.input(Input::batch, "images", {real, {batch, m.image_h, m.image_w, m.channels}, {}});
  std::map<std::string, Var> params;
  for (const models::Param& p : models::parameters(m))
    params[p.name] = b.input(Input::param, p.name, {real, p.shape, {}}, p.dims);
  const Var logits = models::forward(b, m, images, {.random = true},
                                     [&](const std::string& name) { return params.at(name); });
  const auto scope = b.scope("loss");
  const Var labels = b.input(Input::batch, "labels", {DType::i32, {batch}, {}}),
            inv_count = b.input(Input::scalar, "inv_count", {real, {}, {}});
  const Var each = b.emit1(Op::nll, Loss{0.1},
                           {b.emit1(Op::log_softmax, None{}, {logits}, "logp"), labels}, "nll");
  b.output("loss", b.mul(",->", b.sum("b->", each, "total"), inv_count, "loss"));
  b.output("correct",
           b.sum("b->", b.emit1(Op::correct, TopK{1}, {logits, labels}, "top1"), "correct"));
  return b.take();
}

inline ir::Program vit_gradients(const models::ModelConfig& m, ir::DType real, std::int64_t batch) {
  return transforms::simplify(transforms::autodiff(vit_loss(m, real, batch)));
}

inline std::vector<transforms::Bucket> vit_buckets(const models::ModelConfig& m, ir::DType real) {
  std::map<std::string, bool> decays;
  for (const models::Param& p : models::parameters(m)) decays[p.name] = p.decay;
  return transforms::plan_buckets(vit_loss(m, real, 1), [&](const std::string& name) {
    return transforms::Group{decays.at(name)};
  });
}

inline ir::Program fuse_all(const ir::Program& p) {
  using namespace transforms;
  return simplify(fuse_update(fuse_loss(fuse_norm(fuse_contract(p)))));
}

// A whole step over the given micro-batches, every pass in its place.
struct StepOptions {
  transforms::Optimizer optimizer{.weight_decay = 0.05, .clip = 0.5};
  bool bf16 = false;
  int remat = 0;
  bool fuse = true;
};
inline ir::Program vit_step(const models::ModelConfig& m, ir::DType real,
                            const std::vector<std::int64_t>& micro, const StepOptions& o = {}) {
  using namespace transforms;
  std::vector<Program> parts;
  for (const std::int64_t batch : micro) parts.push_back(autodiff(vit_loss(m, real, batch)));
  Program p = accumulate(parts);
  if (o.bf16) p = precision(p, ir::DType::bf16);
  const std::vector<Bucket> list = vit_buckets(m, real);
  p = simplify(optimizer(buckets(p, list), o.optimizer, list));
  if (o.remat > 0) p = remat(p, o.remat);
  return o.fuse ? fuse_all(p) : p;
}

}  // namespace tessera::test
