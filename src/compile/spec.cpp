#include "compile/spec.h"

#include <cmath>

#include "compile/compile.h"
#include "compile/pipeline.h"
#include "compile/stages.h"
#include "config/pipeline.h"

namespace tessera::run {
namespace {

transforms::Layout resolved_layout(const config::Config& config) {
  const config::Parallel& p = config.parallel;
  return {.dp = static_cast<int>(p.dp),
          .sp = static_cast<int>(p.sp),
          .tp = static_cast<int>(p.tp),
          .pp = static_cast<int>(p.pp),
          .zero = static_cast<int>(p.zero),
          .megatron_sequence = p.sequence == "megatron",
          .shares = p.shares.list,
          .most_samples = config.batch.global};
}

transforms::Compression resolved_compression(const config::Config& config) {
  const config::Compression c = config::parse_compress(config.parallel.compress);
  return {.kind = c.kind, .keep = c.fraction, .rank = c.rank, .always = false};
}

// Whether a step may be judged by what each rank has before it is added up. As fp16 a sum may
// overflow though nothing was large before; all other kinds have f32's range.
bool judged_early(const StepSpec& spec) {
  const config::Parallel& p = spec.config.parallel;
  return p.overlap_update && p.dp * p.sp > 1 && p.wire != "fp16" && spec.compression.kind != "fp16";
}

transforms::Optimizer resolved_optimizer(const StepSpec& spec) {
  const config::Optim& o = spec.config.optim;
  return {.name = o.name,
          .beta1 = o.betas[0],
          .beta2 = o.betas[1],
          .eps = o.eps,
          .momentum = o.momentum,
          .weight_decay = o.weight_decay,
          .nesterov = o.nesterov,
          .clip = o.clip,
          .ema = spec.config.ema.decay,
          .early = judged_early(spec)};
}

std::optional<ir::DType> low_dtype(const config::Config& config) {
  if (config.precision.dtype == "fp8") return ir::DType::bf16;
  const ir::DType asked = ir::parse_dtype(config.precision.dtype);
  return ir::is_low(asked) ? std::optional(asked) : std::nullopt;
}

ir::LossScale resolved_loss_scale(const config::Precision& p) {
  ir::LossScale out{.least = p.min_loss_scale,
                    .window = p.loss_scale_window,
                    .hysteresis = p.hysteresis,
                    .fixed = p.loss_scale > 0};
  out.first = out.fixed ? p.loss_scale : std::ldexp(1.0, static_cast<int>(p.initial_scale_power));
  return out;
}

// Stages by time that nobody measured: a model in segments runs everything but training without.
bool cut_is_known(const config::Parallel& p) {
  return p.pp > 1 || (p.segments > 1 && (p.stages.word != "time" || !p.stages.list.empty()));
}

}  // namespace

StepSpec resolve(const config::Config& config) {
  StepSpec out;
  out.config = config;
  out.real = storage_dtype(config);
  out.layout = resolved_layout(config);
  out.mesh = out.layout.mesh();
  if (cut_is_known(config.parallel)) out.blocks = blocks_per_stage(config);
  if (config.parallel.pp > 1) {
    out.stages = stages_of_parameters(config.model, out.blocks);
    out.schedule = read_schedule(config);
  }
  out.buckets = model_buckets(out);
  out.compression = resolved_compression(config);
  out.low = low_dtype(config);
  out.fp8 = config.precision.dtype == "fp8";
  out.loss_scale = resolved_loss_scale(config.precision);
  out.optimizer = resolved_optimizer(out);
  return out;
}

void StepSpec::share_by(const std::vector<double>& shares) {
  config.parallel.shares.list = layout.shares = shares;
}

}  // namespace tessera::run
