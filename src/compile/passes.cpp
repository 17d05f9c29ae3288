#include "compile/passes.h"

#include <map>

#include "compile/pipeline.h"
#include "compile/stages.h"
#include "config/devices.h"
#include "models/model.h"
#include "models/weights.h"

namespace tessera::run {
namespace {

using namespace ir;
using Passes = std::vector<transforms::Pass>;

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
    if (models::is_quantisable(config.model, p, config.precision.quantise))
      out.params.insert(p.name);
  out.per_channel = config.precision.quantise == "int8";
  out.to = out.per_channel ? DType::i8 : DType::f8e4m3;
  return out;
}

bool has_several_ranks(const StepSpec& spec) { return spec.mesh.ranks() > 1; }

// Weights that rest elsewhere until a layer needs them.
bool offloads_weights(const ProgramRequest& r) {
  return r.goal != Goal::gradients && r.spec.config.parallel.offload_params != "none";
}
std::int64_t offload_bytes(const ProgramRequest& r) {
  return static_cast<std::int64_t>(r.spec.config.parallel.offload_mb * (1 << 20));
}

// The equations of a whole step: stages, gradients, micro-batches.
void add_step(Passes& passes, const ProgramRequest& r) {
  const StepSpec& spec = r.spec;
  // A pipeline's equations know their stage.
  const bool stages = pipelined(spec.config, r.goal);
  const std::vector<std::int64_t> blocks =
      stages && spec.blocks.empty() ? blocks_per_stage(spec.config) : spec.blocks;
  const auto cut = [=](const Program& p) { return stages ? transforms::cut(p, blocks) : p; };
  if (stages) passes.push_back({"cut", cut, true, true});
  // Gradients are equations like any other. In f16 they are those of a scaled loss.
  const transforms::Seed seed = spec.low != DType::f16  ? transforms::Seed::one
                                : r.goal == Goal::train ? transforms::Seed::input
                                                        : transforms::Seed::number;
  const auto autodiff = [=](const Program& p) { return transforms::autodiff(p, seed); };
  if (r.differentiates()) passes.push_back({"autodiff", autodiff, true, true});
  if (r.micro.size() == 1) return;
  // The micro-batches of a step side by side, their gradients added in order.
  const auto accumulate = [cut, autodiff, &r](const Program& first) {
    std::vector<Program> parts = {first};
    for (std::size_t i = 1; i < r.micro.size(); ++i) {
      if (r.micro[i] == r.micro[i - 1]) {  // of one size, so the same
        parts.push_back(Program(parts.back()));
        continue;
      }
      parts.push_back(cut(r.write(r.micro[i])));
      if (r.differentiates()) parts.back() = autodiff(parts.back());
    }
    return transforms::accumulate(parts, r.spec.layout.zero >= 2 && has_several_ranks(r.spec));
  };
  passes.push_back({"accumulate", accumulate, true, true});
}

// The element types of values, and statistics over a batch.
void add_precision(Passes& passes, const ProgramRequest& r) {
  const config::Config& config = r.spec.config;
  // bf16 or f16 where it pays, f32 where it matters. Gradients that nobody asked for go first: they
  // would pass for readers of the loss.
  if (r.spec.low)
    passes.push_back({"precision",
                      [low = *r.spec.low](const Program& p) {
                        return transforms::precision(transforms::simplify(p), low);
                      },
                      false, true});
  // Linear layers and convolutions of the blocks in one byte.
  if (config.precision.quantise != "none" && r.infers())
    passes.push_back({"quantise",
                      [what = quantisation_of(config)](const Program& p) {
                        return transforms::quantise(p, what);
                      },
                      false, true});
  // Running statistics of the whole batch, not of one micro-batch after the other.
  if (config.model.batch_norm == "deferred" && (r.differentiates() || r.goal == Goal::recalibrate))
    passes.push_back({"defer", transforms::defer, false, true});
}

// Weights in buckets, their update, and what is computed twice instead of kept.
void add_update(Passes& passes, const ProgramRequest& r) {
  const StepSpec& spec = r.spec;
  // Parameters become views of flat buckets; the update is one equation per bucket.
  if (r.goal != Goal::gradients)
    passes.push_back({"buckets",
                      [&spec, set = role_of(r.weights)](const Program& p) {
                        return transforms::buckets(p, spec.buckets, set);
                      },
                      true, true});
  if (r.goal == Goal::train)
    passes.push_back({"optimizer",
                      [&spec](const Program& p) {
                        return transforms::optimizer(p, spec.optimizer, spec.buckets);
                      },
                      true, true});
  passes.push_back({"simplify", transforms::simplify});
  // Trade memory for time, before fusion hides the marks.
  const auto every = static_cast<int>(config::parse_recompute(spec.config.parallel.recompute));
  if (r.differentiates() && every > 0)
    passes.push_back({"remat", [=](const Program& p) { return transforms::remat(p, every); }});
}

// Where everything lives, what must cross ranks to get there, and in which order.
void add_placement(Passes& passes, const ProgramRequest& r) {
  const StepSpec& spec = r.spec;
  const config::Parallel& parallel = spec.config.parallel;
  // Weights that are shared out rest elsewhere until a layer needs them.
  if (offloads_weights(r))
    passes.push_back({"rest_weights",
                      [home = *ir::parse_home(parallel.offload_params), piece = offload_bytes(r)](
                          const Program& p) { return transforms::rest_weights(p, home, piece); },
                      true, true});
  passes.push_back({"place",
                    [&spec](const Program& p) {
                      return transforms::place(transforms::strategy(p, spec.layout));
                    },
                    true, true});
  // Sums of gradients over dp in fewer bytes, before messages are joined.
  if (has_several_ranks(spec) && r.goal == Goal::train && spec.compression.kind != "none")
    passes.push_back({"compress",
                      [&spec](const Program& p) {
                        return transforms::compress(p, spec.compression, spec.buckets);
                      },
                      false, true});
  // The order of the schedule, every value on its stage, and what crosses over.
  if (pipelined(spec.config, r.goal))
    passes.push_back({"pipeline",
                      [&r](const Program& p) {
                        return transforms::pipeline(
                            p, schedule_of(r.spec, r.goal, static_cast<int>(r.micro.size())),
                            stage_of_inputs(r.spec));
                      },
                      true, true});
  if (has_several_ranks(spec)) {
    // Small messages travel together; gradients leave as soon as they are complete.
    passes.push_back({"combine", transforms::combine});
    passes.push_back({"hoist_reductions", transforms::hoist_reductions});
  }
}

// One visit of memory instead of two; a rounding in between may disappear.
void add_fusion(Passes& passes, const ProgramRequest& r) {
  const bool train = r.goal == Goal::train;
  const config::Config& config = r.spec.config;
  if (config.run.fuse) {
    // A norm by fixed statistics is a scale and an offset of the convolution before it.
    if (r.infers()) passes.push_back({"fold_norm", transforms::fold_norm, false});
    // All ranks run one program: where their devices differ, none of them cuts windows by itself.
    if (r.target.cuts_windows && !config::mixed(config))
      passes.push_back({"fuse_windows",
                        [takes = r.target.cuts_windows](const Program& p) {
                          return transforms::fuse_windows(p, takes);
                        },
                        false});
    passes.push_back({"fuse_contract", transforms::fuse_contract, false});
    passes.push_back({"fuse_norm", transforms::fuse_norm, false});
    if (!r.infers()) passes.push_back({"fuse_batch_norm", transforms::fuse_batch_norm, false});
    if (r.spec.low) passes.push_back({"fuse_low", transforms::fuse_low, false});
    if (config.precision.quantise == "int8" && r.infers() && r.target.gives_bytes &&
        !config::mixed(config))
      passes.push_back({"fuse_bytes", transforms::fuse_bytes, false});
    if (r.differentiates()) passes.push_back({"fuse_attention", transforms::fuse_attention, false});
    passes.push_back({"fuse_loss", transforms::fuse_loss, false});
    if (train) passes.push_back({"fuse_update", transforms::fuse_update, false});
  } else if (r.infers()) {
    // Every part of attention by itself, too.
    passes.push_back({"split_attention", transforms::split_attention, false});
  }
  if (r.spec.fp8 && (train || (r.infers() && r.spec.infers)))
    passes.push_back(
        {"fp8", [train](const Program& p) { return transforms::fp8(p, train); }, false, true});
  // Fusion leaves values without a reader.
  passes.push_back({"dce", transforms::simplify});
}

// Weights and state that come early or rest elsewhere, and the step's count of itself.
void add_residence(Passes& passes, const ProgramRequest& r) {
  const config::Parallel& parallel = r.spec.config.parallel;
  if (parallel.zero == 3 && parallel.prefetch && (r.spec.layout.dp > 1 || offloads_weights(r)))
    passes.push_back({"prefetch", transforms::prefetch});
  if (r.goal != Goal::train) return;
  // The step counts itself, on every rank.
  passes.push_back({"count",
                    [&r](const Program& p) { return transforms::count(p, r.spec.loss_scale); },
                    true, true});
  // State that only the update reads rests elsewhere in between.
  if (parallel.offload_optimizer != "none")
    passes.push_back(
        {"offload",
         [home = *ir::parse_home(parallel.offload_optimizer), piece = offload_bytes(r)](
             const Program& p) { return transforms::offload(p, home, piece); },
         true, true});
  // An update of whole tensors has its weights there as a whole.
  if (offloads_weights(r))
    passes.push_back({"bring_updates", transforms::bring_updates, true, true});
}

}  // namespace

std::vector<transforms::Pass> passes_for(const ProgramRequest& request) {
  Passes passes;
  add_step(passes, request);
  add_precision(passes, request);
  add_update(passes, request);
  add_placement(passes, request);
  add_fusion(passes, request);
  add_residence(passes, request);
  return passes;
}

}  // namespace tessera::run
