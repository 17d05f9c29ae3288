#include "compile/compile.h"

#include <cmath>
#include <map>
#include <tuple>

#include "base/check.h"
#include "compile/input_program.h"
#include "compile/pipeline.h"
#include "compile/program_memo.h"
#include "compile/stages.h"
#include "input/augment.h"
#include "ir/builder.h"
#include "models/model.h"
#include "models/weights.h"

namespace tessera::run {
namespace {

using namespace ir;
using transforms::Pass;

// Forward, loss and counts of one micro-batch, as plain equations in one precision.
Program write_model(const StepSpec& spec, Goal goal, std::int64_t batch, Weights weights,
                    ImageForm form) {
  const config::Config& config = spec.config;
  const models::ModelConfig& m = config.model;
  const DType real = spec.real;
  Builder b;
  b.program().name = goal == Goal::train       ? "train_step"
                     : goal == Goal::gradients ? "gradients"
                     : goal == Goal::evaluate  ? "evaluate"
                     : goal == Goal::predict   ? "predict"
                                               : "recalibrate";
  const Var images = write_input(b, spec, batch, form);
  std::map<std::string, Var> params;
  for (const models::Param& p : models::parameters(m)) {
    const Type type{real, p.shape, {}};
    // For gradients alone every parameter counts, frozen or not.
    if (goal == Goal::gradients ? !p.buffer : group_of(config, p).has_value())
      params[p.name] = b.input(Input::param, p.name, type, p.dims);
    else
      params[p.name] = b.input(Input::state, state_name(p, weights), type, p.dims,
                               state_role(p, weights), p.name);
    // The average's own statistics rest in a training program, so that they are part of its state.
    if (goal == Goal::train && p.buffer && config.ema.decay > 0)
      b.input(Input::state, state_name(p, Weights::average), type, p.dims,
              state_role(p, Weights::average), p.name);
  }
  const bool training = goal == Goal::train || goal == Goal::gradients;
  const models::Mode mode{
      .random = goal == Goal::train,
      .batch_statistics = training || goal == Goal::recalibrate,
      .momentum = goal == Goal::recalibrate ? 1.0 : 0.1,
      .groups = m.batch_norm != "sync" && batch >= spec.layout.dp ? spec.layout.dp : 1};
  const Var logits = models::forward(b, m, images, mode, [&](const std::string& name) {
    CHECK(params.contains(name), "the model reads a parameter that it does not declare: " + name);
    return params[name];
  });
  if (goal == Goal::recalibrate) return b.take();
  if (goal != Goal::train) b.output("logits", logits);
  if (goal == Goal::predict) return b.take();

  const auto scope = b.scope("loss");
  const Var labels = b.input(Input::batch, "labels", {DType::i32, {batch}, {}});
  const Var inv_count = b.input(Input::scalar, "inv_count", {real, {}, {}});
  // Mixed targets are soft, and smoothed already.
  const bool soft = goal == Goal::train && mix_options(config).enabled();
  const double smoothing = goal == Goal::train && !soft ? config.loss.label_smoothing : 0.0;
  const Var target =
      soft ? b.input(Input::batch, "targets", {real, {batch, m.classes}, {}}) : labels;
  const Var logp = b.emit1(Op::log_softmax, None{}, {logits}, "logp");
  Var each = b.emit1(Op::nll, Loss{smoothing}, {logp, target}, "nll");
  if (goal == Goal::train && config.data.class_weights != "none")
    each = b.mul("b,b->b", each, b.input(Input::batch, "weights", {real, {batch}, {}}), "weighted");
  b.output("loss", b.mul(",->", b.sum("b->", each, "total"), inv_count, "loss"));
  b.output("correct",
           b.sum("b->", b.emit1(Op::correct, TopK{1}, {logits, labels}, "top1"), "correct"));
  if (goal == Goal::evaluate)
    b.output("correct5",
             b.sum("b->", b.emit1(Op::correct, TopK{5}, {logits, labels}, "top5"), "correct5"));
  return b.take();
}

// The stage that a persistent input belongs to: of its bucket, or of the parameter itself; -1: no
// stage's, or nobody knows.
std::function<int(const Input&)> stage_of_inputs(const StepSpec& spec) {
  std::map<std::string, int> of_buckets;
  for (const transforms::Bucket& bucket : spec.buckets) of_buckets[bucket.name] = bucket.stage;
  return [of_buckets, &spec](const Input& in) {
    const std::map<std::string, int>& stages = of_bucket(in.role) ? of_buckets : spec.stages;
    const auto found = stages.find(in.role == Role::none ? in.name : in.of);
    return found == stages.end() ? -1 : found->second;
  };
}

transforms::Quantisation quantisation_of(const config::Config& config) {
  transforms::Quantisation out;
  for (const models::Param& p : models::parameters(config.model))
    if (models::is_inner_linear(config.model, p)) out.params.insert(p.name);
  out.per_channel = config.precision.quantise == "int8";
  out.to = out.per_channel ? DType::i8 : DType::f8e4m3;
  return out;
}

// The passes in order, one line each. They look at the spec while they run.
std::vector<Pass> passes_for(const StepSpec& spec, Goal goal,
                             const std::vector<std::int64_t>& micro, Weights weights,
                             ImageForm form) {
  const config::Config& config = spec.config;
  const bool differentiate = goal == Goal::train || goal == Goal::gradients;
  const bool several = spec.mesh.ranks() > 1;
  const Role set = role_of(weights);
  std::vector<Pass> passes;
  // A pipeline's equations know their stage.
  const bool stages = pipelined(config, goal);
  const std::vector<std::int64_t> blocks =
      stages && spec.blocks.empty() ? blocks_per_stage(config) : spec.blocks;
  const auto cut = [=](const Program& p) { return stages ? transforms::cut(p, blocks) : p; };
  if (stages) passes.push_back({"cut", cut, true, true});
  // Gradients are equations like any other. In f16 they are those of a scaled loss.
  const transforms::Seed seed = spec.low != DType::f16 ? transforms::Seed::one
                                : goal == Goal::train  ? transforms::Seed::input
                                                       : transforms::Seed::number;
  const auto autodiff = [=](const Program& p) { return transforms::autodiff(p, seed); };
  if (differentiate) passes.push_back({"autodiff", autodiff, true, true});
  // The micro-batches of a step side by side, their gradients added in order.
  if (micro.size() > 1)
    passes.push_back({"accumulate",
                      [=, &spec](const Program& first) {
                        std::vector<Program> parts = {first};
                        for (std::size_t i = 1; i < micro.size(); ++i) {
                          if (micro[i] == micro[i - 1]) {  // of one size, so the same
                            parts.push_back(Program(parts.back()));
                            continue;
                          }
                          parts.push_back(cut(write_model(spec, goal, micro[i], weights, form)));
                          if (differentiate) parts.back() = autodiff(parts.back());
                        }
                        return transforms::accumulate(parts, spec.layout.zero >= 2 && several);
                      },
                      true, true});
  // bf16 or f16 where it pays, f32 where it matters. Gradients that nobody asked for go first: they
  // would pass for readers of the loss.
  if (spec.low)
    passes.push_back({"precision",
                      [low = *spec.low](const Program& p) {
                        return transforms::precision(transforms::simplify(p), low);
                      },
                      false, true});
  // Linear layers of the blocks in one byte.
  if (config.precision.quantise != "none" && (goal == Goal::evaluate || goal == Goal::predict))
    passes.push_back({"quantise",
                      [what = quantisation_of(config)](const Program& p) {
                        return transforms::quantise(p, what);
                      },
                      false, true});
  // Running statistics of the whole batch, not of one micro-batch after the other.
  if (config.model.batch_norm == "deferred" && (differentiate || goal == Goal::recalibrate))
    passes.push_back({"defer", transforms::defer, false, true});
  // Parameters become views of flat buckets; the update is one equation per bucket.
  if (goal != Goal::gradients)
    passes.push_back(
        {"buckets",
         [=, &spec](const Program& p) { return transforms::buckets(p, spec.buckets, set); }, true,
         true});
  if (goal == Goal::train)
    passes.push_back({"optimizer",
                      [&spec](const Program& p) {
                        return transforms::optimizer(p, spec.optimizer, spec.buckets);
                      },
                      true, true});
  passes.push_back({"simplify", transforms::simplify});
  // Trade memory for time, before fusion hides the marks.
  if (const auto every = static_cast<int>(config::parse_recompute(config.parallel.recompute));
      differentiate && every > 0)
    passes.push_back({"remat", [=](const Program& p) { return transforms::remat(p, every); }});
  // Weights that are shared out rest elsewhere until a layer needs them.
  const config::Parallel& parallel = config.parallel;
  const auto piece = static_cast<std::int64_t>(parallel.offload_mb * (1 << 20));
  const bool weights_away = goal != Goal::gradients && parallel.offload_params != "none";
  if (weights_away)
    passes.push_back({"rest_weights",
                      [home = *ir::parse_home(parallel.offload_params), piece](const Program& p) {
                        return transforms::rest_weights(p, home, piece);
                      },
                      true, true});
  // Where everything lives, and what must cross ranks to get there.
  passes.push_back({"place",
                    [&spec](const Program& p) {
                      return transforms::place(transforms::strategy(p, spec.layout));
                    },
                    true, true});
  // Sums of gradients over dp in fewer bytes, before messages are joined.
  if (several && goal == Goal::train && spec.compression.kind != "none")
    passes.push_back({"compress",
                      [&spec](const Program& p) {
                        return transforms::compress(p, spec.compression, spec.buckets);
                      },
                      false, true});
  // The order of the schedule, every value on its stage, and what crosses over.
  if (stages)
    passes.push_back({"pipeline",
                      [=, &spec](const Program& p) {
                        return transforms::pipeline(
                            p, schedule_of(spec, goal, static_cast<int>(micro.size())),
                            stage_of_inputs(spec));
                      },
                      true, true});
  if (several) {
    // Small messages travel together; gradients leave as soon as they are complete.
    passes.push_back({"combine", transforms::combine});
    passes.push_back({"hoist_reductions", transforms::hoist_reductions});
  }
  const bool fixed = goal == Goal::evaluate || goal == Goal::predict;
  if (config.run.fuse) {
    // A norm by fixed statistics is a scale and an offset of the convolution before it.
    if (fixed) passes.push_back({"fold_norm", transforms::fold_norm, false});
    // One visit of memory instead of two; a rounding in between may disappear.
    passes.push_back({"fuse_contract", transforms::fuse_contract, false});
    passes.push_back({"fuse_norm", transforms::fuse_norm, false});
    if (!fixed) passes.push_back({"fuse_batch_norm", transforms::fuse_batch_norm, false});
    if (spec.low) passes.push_back({"fuse_low", transforms::fuse_low, false});
    if (differentiate) passes.push_back({"fuse_attention", transforms::fuse_attention, false});
    passes.push_back({"fuse_loss", transforms::fuse_loss, false});
    if (goal == Goal::train) passes.push_back({"fuse_update", transforms::fuse_update, false});
  } else if (fixed) {
    // Every part of attention by itself, too.
    passes.push_back({"split_attention", transforms::split_attention, false});
  }
  if (spec.fp8 && (goal == Goal::train || (fixed && spec.infers)))
    passes.push_back(
        {"fp8",
         [train = goal == Goal::train](const Program& p) { return transforms::fp8(p, train); },
         false, true});
  // What fusion left without a reader.
  passes.push_back({"dce", transforms::simplify});
  if (parallel.zero == 3 && parallel.prefetch && (spec.layout.dp > 1 || weights_away))
    passes.push_back({"prefetch", transforms::prefetch});
  // The step counts itself, on every rank.
  if (goal == Goal::train)
    passes.push_back({"count",
                      [&spec](const Program& p) { return transforms::count(p, spec.loss_scale); },
                      true, true});
  // What only the update reads rests elsewhere in between.
  if (goal == Goal::train && parallel.offload_optimizer != "none")
    passes.push_back({"offload",
                      [home = *ir::parse_home(parallel.offload_optimizer),
                       piece](const Program& p) { return transforms::offload(p, home, piece); },
                      true, true});
  // An update of whole tensors has its weights there as a whole.
  if (goal == Goal::train && weights_away)
    passes.push_back({"bring_updates", transforms::bring_updates, true, true});
  return passes;
}

// Whether other threads may ask for the same program, and it follows from what they ask with: no
// file is read for it, nobody looks on, nothing is left out.
bool asked_by_many(const StepSpec& spec, Goal goal, const transforms::RunOptions& options) {
  return spec.mesh.ranks() > 1 && options.disabled.empty() && options.dump_dir.empty() &&
         !options.before &&
         !(pipelined(spec.config, goal) && spec.config.parallel.schedule.starts_with("file:"));
}

}  // namespace

std::optional<transforms::Group> group_of(const config::Config& config,
                                          const models::Param& param) {
  if (param.buffer) return std::nullopt;
  const models::Depth at = models::depth_of(config.model, param.name);
  const std::int64_t frozen = config::parse_freeze(config.optim.freeze);
  // The head (below nothing) is never frozen; "backbone" is every layer before it.
  if (at.above > 0 && frozen != 0 && (frozen < 0 || at.below < frozen)) return std::nullopt;
  transforms::Group group{param.decay || config.optim.decay_all,
                          std::pow(config.optim.layer_decay, static_cast<double>(at.above)), -1, -1,
                          false};
  // Gradients that are shared out leave block by block: that of one block at a time is whole.
  if (config.parallel.zero == 2 && group.decay) group.block = static_cast<int>(at.below);
  if (config.parallel.zero == 3) {
    group.resident = ir::elements(param.shape) < config.parallel.persist;
    if (!group.resident) group.block = static_cast<int>(at.below);
  }
  return group;
}

ImageForm image_form(const config::Config& config, Goal goal) {
  switch (goal) {
    case Goal::gradients:
      return ImageForm::numbers;
    case Goal::train:
    case Goal::recalibrate:
      if (config.data.held > 0) return ImageForm::held;
      if (device_work(config).any()) return ImageForm::drawn;
      return trains_on_pixels(config) ? ImageForm::pixels : ImageForm::numbers;
    default:
      return reads_arrays(config) ? ImageForm::numbers : ImageForm::pixels;
  }
}

Role role_of(Weights weights) { return weights == Weights::live ? Role::weights : Role::average; }

Role state_role(const models::Param& param, Weights weights) {
  if (!param.buffer) return Role::frozen;
  return weights == Weights::live ? Role::statistics : Role::average_statistics;
}

std::string state_name(const models::Param& param, Weights weights) {
  return param.buffer && weights == Weights::average ? "ema." + param.name : param.name;
}

DType storage_dtype(const config::Config& config) {
  return config.precision.dtype == "f64" ? DType::f64 : DType::f32;
}

// Gradients leave in blocks of layers of about parallel.bucket_mb, the last layers first: what is
// left for the end of the backward pass, when nothing hides it, is the remainder.
static void cut_into_blocks(const config::Config& config,
                            std::vector<std::pair<models::Param, transforms::Group>>& params) {
  const double most = config.parallel.bucket_mb * (1 << 20);
  // By decay, rate and stage: bytes of the open block, blocks before it.
  std::map<std::tuple<bool, double, int>, std::pair<double, int>> filled;
  for (auto it = params.rbegin(); it != params.rend(); ++it) {
    auto& [bytes, blocks] = filled[{it->second.decay, it->second.lr_scale, it->second.stage}];
    const auto more =
        static_cast<double>(ir::elements(it->first.shape) * ir::size_of(storage_dtype(config)));
    if (bytes > 0 && bytes + more > most) {
      bytes = 0;
      ++blocks;
    }
    bytes += more;
    it->second.block = blocks;
  }
  for (auto& [param, group] : params) {
    const int last = filled[{group.decay, group.lr_scale, group.stage}].second;
    group.block = last == 0 ? -1 : last - group.block;  // in the order of the layers
  }
}

std::vector<transforms::Bucket> model_buckets(const StepSpec& spec) {
  const config::Config& config = spec.config;
  Builder b;
  std::vector<std::pair<models::Param, transforms::Group>> params;
  for (const models::Param& p : models::parameters(config.model))
    if (auto group = group_of(config, p)) {
      if (!spec.stages.empty()) group->stage = spec.stages.at(p.name);
      params.emplace_back(p, *group);
    }
  if (spec.layout.zero < 2 && spec.mesh.ranks() > 1) cut_into_blocks(config, params);
  std::map<std::string, transforms::Group> groups;
  for (const auto& [p, group] : params) {
    b.input(Input::param, p.name, {spec.real, p.shape, {}}, p.dims);
    groups[p.name] = group;
  }
  return transforms::plan_buckets(
      b.program(), [&](const std::string& name) { return groups.at(name); }, spec.layout.tp);
}

Compiled compile(const StepSpec& spec, Goal goal, const std::vector<std::int64_t>& micro,
                 const plan::Target& target, const transforms::RunOptions& options, Weights weights,
                 int rank, std::optional<ImageForm> asked) {
  const config::Config& config = spec.config;
  const ImageForm form = asked.value_or(image_form(config, goal));
  CHECK(!micro.empty() && (micro.size() == 1 || goal == Goal::train || pipelined(config, goal)),
        "only train and pipelines take several micro-batches");
  const auto make = [&] {
    GlobalProgram made;
    made.program =
        transforms::run(write_model(spec, goal, micro[0], weights, form),
                        passes_for(spec, goal, micro, weights, form), options, &made.passes);
    return made;
  };
  Compiled out;
  if (asked_by_many(spec, goal, options)) {
    const ProgramMemo::Made made = program_memo().get({config, goal, micro, weights, form}, make);
    out.program = made->program, out.passes = made->passes;
  } else {
    GlobalProgram made = make();
    out.program = std::move(made.program), out.passes = std::move(made.passes);
  }
  out.plan = plan::lower(out.program, rank, target, config.parallel.overlap);
  return out;
}

}  // namespace tessera::run
