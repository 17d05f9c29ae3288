// The effective values of a run with a DeepSpeed file: what each of its keys became, and who
// decided. Convention: the keys that every such run has come first, then what the file says beside
// them.
#include <fmt/format.h>

#include <algorithm>

#include "config/deepspeed/deepspeed.h"
#include "config/fields.h"
#include "ir/optimizers.h"

namespace tessera::config {
namespace {

struct Row {
  std::string_view deepspeed, key;
  bool (*shown)(const Config&) = nullptr;  // unset: always
};
// A key that only some optimizers read is shown for those.
bool is_read(std::string_view key, const Config& c) {
  const auto reads = [&](const ir::OptimizerRow& row) {
    return key.starts_with("optim.") && row.reads(key.substr(6));
  };
  const ir::OptimizerRow* row = ir::find_optimizer(c.optim.name);
  return (row && reads(*row)) ||
         std::none_of(ir::optimizers().begin(), ir::optimizers().end(), reads);
}
bool own_schedule(const Config& c) { return c.lr.schedule.starts_with("ds_"); }
bool in_f16(const Config& c) { return c.precision.dtype == "f16"; }

const Row rows[] = {
    {"train_batch_size", "batch.global"},
    {"train_micro_batch_size_per_gpu", "batch.micro"},
    {"gradient_accumulation_steps", "batch.accumulate"},
    {"(data-parallel ranks)", "parallel.dp"},
    {"optimizer.type", "optim.name"},
    {"optimizer.params.lr", "optim.lr"},
    {"optimizer.params.weight_decay", "optim.weight_decay"},
    {"(all parameters decay)", "optim.decay_all"},
    {"optimizer.params.betas", "optim.betas"},
    {"optimizer.params.eps", "optim.eps"},
    {"optimizer.params.momentum", "optim.momentum"},
    {"optimizer.params.nesterov", "optim.nesterov"},
    {"scheduler.type", "lr.schedule"},
    {"scheduler.params.warmup_num_steps", "lr.warmup"},
    {"scheduler.params.warmup_type", "lr.rise", own_schedule},
    {"gradient_clipping", "optim.clip"},
    {"fp16.enabled", "precision.dtype", in_f16},
    {"bf16.enabled", "precision.dtype"},
    {"fp16.loss_scale", "precision.loss_scale", in_f16},
    {"fp16.initial_scale_power", "precision.initial_scale_power", in_f16},
    {"fp16.loss_scale_window", "precision.loss_scale_window", in_f16},
    {"fp16.hysteresis", "precision.hysteresis", in_f16},
    {"fp16.min_loss_scale", "precision.min_loss_scale", in_f16},
    {"zero_optimization.stage", "parallel.zero"},
    {"zero_optimization.offload_optimizer.device", "parallel.offload_optimizer",
     [](const Config& c) { return c.parallel.offload_optimizer != "none"; }},
    {"zero_optimization.offload_param.device", "parallel.offload_params",
     [](const Config& c) { return c.parallel.offload_params != "none"; }},
    {"pipeline.stages", "parallel.pp", [](const Config& c) { return c.parallel.pp > 1; }},
    {"zero_optimization.stage3_param_persistence_threshold", "parallel.persist",
     [](const Config& c) { return c.parallel.zero == 3; }},
};

std::string value_of(const Config& config, std::string_view key) {
  const auto dot = key.find('.');
  return toml_value(*find_field(key.substr(0, dot), key.substr(dot + 1)), config);
}

}  // namespace

std::vector<Effective> effective_values(
    const Config& config, const DeepSpeedReading& reading,
    const std::map<std::string, std::string, std::less<>>& layers) {
  std::vector<Effective> out;
  const auto add = [&](std::string_view deepspeed, std::string_view key) {
    if (std::any_of(out.begin(), out.end(), [&](const Effective& e) { return e.key == key; }))
      return;
    const auto layer = layers.find(key);
    std::string source = layer != layers.end() ? layer->second : "default";
    const bool derived = key.starts_with("batch.") || key == "parallel.dp";
    if (source == "default" && derived) source = "derived";
    if (source != "deepspeed" && source != "flag" && reading.automatic.contains(key))
      source = "auto";
    std::string note;
    if (key == "optim.clip" && source == "default")
      note = "DeepSpeed 0.15.3's default; newer versions clip at 1.0";
    out.push_back({.deepspeed = std::string(deepspeed),
                   .key = std::string(key),
                   .value = value_of(config, key),
                   .source = std::move(source),
                   .note = std::move(note)});
  };
  for (const Row& row : rows)
    if (is_read(row.key, config) && (row.shown == nullptr || row.shown(config)))
      add(row.deepspeed, row.key);
  for (const DeepSpeedSetting& s : reading.settings) add(s.path, s.key);
  for (const DeepSpeedReading::Silent& s : reading.silent)
    out.push_back(
        {.deepspeed = s.path, .key = "", .value = s.value, .source = "deepspeed", .note = s.note});
  return out;
}

std::string effective_text(const std::vector<Effective>& all) {
  if (all.empty()) return "";
  std::size_t first = 0, second = 0, third = 0;
  for (const Effective& e : all) {
    first = std::max(first, e.deepspeed.size());
    second = std::max(second, e.key.size());
    third = std::max(third, e.value.size());
  }
  first = std::min<std::size_t>(first, 52);
  third = std::min<std::size_t>(third, 24);
  std::string out = fmt::format("{:<{}}  {:<{}}  {:<{}}  source\n", "deepspeed", first, "key",
                                second, "value", third);
  for (const Effective& e : all)
    out += fmt::format("{:<{}}  {:<{}}  {:<{}}  {}{}\n", e.deepspeed, first, e.key, second, e.value,
                       third, e.source, e.note.empty() ? "" : "  (" + e.note + ")");
  return out;
}

}  // namespace tessera::config
