#include "compile/compile.h"

#include <cmath>
#include <map>
#include <tuple>

#include "base/check.h"
#include "compile/input_program.h"
#include "compile/passes.h"
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
  transforms::Group group{
      .decay = param.decay || config.optim.decay_all,
      .lr_scale = std::pow(config.optim.layer_decay, static_cast<double>(at.above)),
      .stage = -1,
      .block = -1,
      .resident = false};
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
    plan::Target asked_of = target;  // and what it answers is noted
    if (target.cuts_windows)
      asked_of.cuts_windows = [&](const ir::Attention& attrs, const ir::Type& q) {
        return made.windows.emplace_back(WindowAnswer{attrs, q, target.cuts_windows(attrs, q)})
            .cuts;
      };
    const auto write = [&](std::int64_t batch) {
      return write_model(spec, goal, batch, weights, form);
    };
    const ProgramRequest request{.spec = spec,
                                 .target = asked_of,
                                 .goal = goal,
                                 .micro = micro,
                                 .weights = weights,
                                 .write = write};
    made.program = transforms::run(write(micro[0]), passes_for(request), options, &made.passes);
    return made;
  };
  Compiled out;
  if (asked_by_many(spec, goal, options)) {
    const ProgramKey key{.config = config,
                         .device = target.device,
                         .cuts_windows = static_cast<bool>(target.cuts_windows),
                         .goal = goal,
                         .micro = micro,
                         .weights = weights,
                         .form = form};
    ProgramMemo::Made made = program_memo().get(key, make);
    // That of another card of this process.
    if (!made->suits(target)) made = std::make_shared<const GlobalProgram>(make());
    out.program = made->program;
    out.passes = made->passes;
  } else {
    GlobalProgram made = make();
    out.program = std::move(made.program);
    out.passes = std::move(made.passes);
  }
  out.plan = plan::lower(out.program, rank, target, config.parallel.overlap);
  return out;
}

}  // namespace tessera::run
