#include "config/deepspeed/deepspeed.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/config.h"  // defines: Batch, for its default
#include "config/deepspeed/file.h"
#include "ir/optimizers.h"

namespace tessera::config {
namespace {

using Kind = Value::Kind;
using deepspeed::active;
using deepspeed::is_auto;
using deepspeed::is_number;
using deepspeed::number_of;
using deepspeed::of;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

class Interpreter : DeepSpeedFile {
 public:
  Interpreter(const JsonNode& root, std::string file) : DeepSpeedFile(root, std::move(file)) {}

  DeepSpeedReading run() {
    block("", root_);
    whole("train_batch_size", "batch.global");
    whole("train_micro_batch_size_per_gpu", "batch.micro");
    whole("gradient_accumulation_steps", "batch.accumulate");
    if (out_.automatic.contains("batch.global")) fallback("batch.global", of(Batch{}.global));
    set("optim.decay_all", "", of(true),
        {file_});  // DeepSpeed is handed all parameters as one group
    optimizer();
    scheduler();
    number("gradient_clipping", "optim.clip");
    precision();
    zero();
    whole("tensor_parallel.autotp_size", "parallel.tp", 1);
    whole("tensor_parallel.tp.tp_size", "parallel.tp");
    whole("sequence_parallel_size", "parallel.sp");
    whole("pipeline.stages", "parallel.pp");
    if (out_.automatic.contains("parallel.pp"))
      out_.silent.push_back({"pipeline.stages", "\"auto\"", "parallel.pp says"});
    flag("dataloader_drop_last", "data.drop_last");
    flag("tensorboard.enabled", "run.tensorboard");
    flag("csv_monitor.enabled", "run.csv");
    if (const JsonNode* op = at("gradient_allreduce_op");
        op && op->value.text != "mean" && !op->is_null() && !is_auto(*op))
      problem(*op,
              "gradient_allreduce_op = " + describe(op->value) +
                  " is not supported: gradients are averaged",
              "leave the key out");
    if (const JsonNode* dtype = at("data_types.grad_accum_dtype"); dtype && active(*dtype))
      warn(dtype->place,
           "data_types.grad_accum_dtype is not supported and is ignored: gradients are accumulated "
           "in f32",
           "");
    return std::move(out_);
  }

 private:
  // Goes through a block and those inside it: unknown keys and keys that are not supported are
  // noted.
  void block(const std::string& name, const JsonNode& node) {
    for (const JsonMember& m : node.members) {
      const std::string path = clean(name.empty() ? m.key : name + "." + m.key, 80);
      const DeepSpeedKey known = deepspeed_key(name, m.key);
      if (known.role == DeepSpeedRole::unknown) {
        unknown(path, m, known);
      } else if (known.role == DeepSpeedRole::used && is_deepspeed_block(path)) {
        if (m.value.value.kind == Kind::table)
          (path != "scheduler.params" || own_schedule()) ? block(path, m.value) : void();
        else if (!m.value.is_null() && !is_auto(m.value) && path != "zero_optimization")
          wrong(path, m.value, "an object");
      } else if (known.role != DeepSpeedRole::used) {
        const bool ignored = known.role == DeepSpeedRole::off && active(m.value);
        if (ignored) warn(m.place, path + " is not supported and is ignored", "");
        out_.silent.push_back(
            {path, describe(m.value.value), ignored ? "not supported, ignored" : "no effect here"});
      }
    }
  }

  bool own_schedule() const {
    const JsonNode* type = at("scheduler.type");
    return type && (type->value.text == "WarmupLR" || type->value.text == "WarmupDecayLR" ||
                    type->value.text == "WarmupCosineLR");
  }

  void unknown(const std::string& path, const JsonMember& m, const DeepSpeedKey& known) {
    if (path == "micro_batch_per_gpu" &&
        m.value.value.kind == Kind::integer) {  // judged once the number of ranks is known
      out_.micro_per_gpu = m.value.value.integer;
      out_.micro_per_gpu_place = m.place;
      out_.silent.push_back({path, describe(m.value.value), "no key of DeepSpeed's"});
    } else if (known.forbidden) {
      out_.problems.push_back(
          {m.place, "there is no key " + path + ", and DeepSpeed refuses it", known.suggestion});
    } else {
      warn(m.place, path + " is no key of DeepSpeed's and is ignored", known.suggestion);
      out_.silent.push_back({path, describe(m.value.value), "no key of DeepSpeed's, ignored"});
    }
  }

  // The row that DeepSpeed's type means. Its own types are known in any case, PyTorch's ("=SGD" in
  // the row) only as PyTorch writes them.
  const ir::OptimizerRow* optimizer_called(const std::string& type, const JsonNode& node) {
    std::vector<std::string> all;
    std::string advice;
    for (const ir::OptimizerRow& row : ir::optimizers())
      for (const std::string_view word : ir::words(row.deepspeed)) {
        const bool exact = word.starts_with("=");
        const std::string known(word.substr(exact ? 1 : 0));
        if (exact ? type == known : lower(type) == lower(known)) return &row;
        if (lower(type) == lower(known)) advice = "DeepSpeed knows it as \"" + known + "\"";
        all.push_back(known);
      }
    std::sort(all.begin(), all.end());
    problem(node, "optimizer.type = " + describe(node.value) + " is not supported",
            advice.empty() ? "choose " + alternatives(all) : advice);
    return nullptr;
  }

  void optimizer() {
    const JsonNode* type = at("optimizer.type");
    if (type == nullptr || type->is_null()) return;
    const std::optional<std::string> said = text_at("optimizer.type", "optim.name");
    if (!said) return;
    const std::string name = lower(*said);
    const ir::OptimizerRow* row = optimizer_called(*said, *type);
    if (row == nullptr) return;
    set("optim.name", "optimizer.type", of(std::string(row->name)), type->place);
    const bool adam = row->name == "adamw";  // which has modes of its own in these files
    const bool torch = adam && flag_at("optimizer.params.torch_adam", "").value_or(false);
    const bool decoupled =
        name == "adamw" || flag_at("optimizer.params.adam_w_mode", "").value_or(true);
    fallback("optim.lr", of(1e-3));
    fallback("optim.weight_decay", of(torch && decoupled ? 0.01 : 0.0));
    if (row->reads("momentum")) fallback("optim.momentum", of(0.0));
    if (!decoupled)
      set("optim.weight_decay", "", of(0.0), {file_});  // a TOML file means decoupled decay
    number("optimizer.params.lr", "optim.lr");
    number("optimizer.params.eps", "optim.eps");
    number("optimizer.params.weight_decay", "optim.weight_decay");
    if (row->reads("momentum")) number("optimizer.params.momentum", "optim.momentum");
    if (row->reads("nesterov")) flag("optimizer.params.nesterov", "optim.nesterov");
    if (const JsonNode* betas = spoken("optimizer.params.betas", "optim.betas"))
      set("optim.betas", "optimizer.params.betas", betas->value, betas->place);
    if (const JsonNode* mode = at("optimizer.params.adam_w_mode");
        mode && adam && !decoupled && decay() != 0)
      problem(*mode,
              "optimizer.params.adam_w_mode = false: Adam with L2 regularisation is not supported",
              "leave it out for AdamW, or set weight_decay to 0");
    if (row->name == "lamb")
      warn(type->place,
           "Lamb's trust ratio is not clamped to min_coeff and max_coeff (DeepSpeed: 0.01 and 10) "
           "here",
           "");
    for (const char* key : {"amsgrad", "maximize", "dampening", "bias_correction", "max_grad_norm"})
      refuse_param(key);
  }

  double decay() {
    const JsonNode* node = at("optimizer.params.weight_decay");
    return node && is_number(node->value) ? number_of(node->value) : 0.0;
  }

  void refuse_param(const std::string& key) {
    const JsonNode* node = at("optimizer.params." + key);
    if (node == nullptr) return;
    const bool neutral = key == "bias_correction"
                             ? node->value.kind == Kind::boolean && node->value.boolean
                             : !active(*node);
    if (key == "max_grad_norm")
      problem(*node, "optimizer.params.max_grad_norm is refused by DeepSpeed too",
              "use gradient_clipping");
    else if (!neutral)
      problem(*node,
              fmt::format("optimizer.params.{} = {} is not supported", key, describe(node->value)),
              "leave it out");
  }

  // DeepSpeed's three own schedules are ours too (train/learning_rate.cpp); their peak is the
  // schedule's, not the optimizer's.
  void scheduler() {
    const JsonNode* type = at("scheduler.type");
    if (type == nullptr || type->is_null()) {
      if (at("optimizer.type") != nullptr) {
        fallback("lr.schedule", of(std::string("constant")));
        fallback("lr.warmup", of(std::int64_t{0}));
      }
      return;
    }
    const std::optional<std::string> name = text_at("scheduler.type", "lr.schedule");
    if (!name) return;
    const bool decay = *name == "WarmupDecayLR", cosine = *name == "WarmupCosineLR";
    if (!own_schedule())
      return warn(type->place,
                  "scheduler.type = " + describe(type->value) +
                      " is not supported and is ignored: [lr] says what is used",
                  "choose WarmupLR, WarmupDecayLR or WarmupCosineLR, or write [lr] in a TOML file");
    set("lr.schedule", "scheduler.type",
        of(std::string(decay    ? "ds_decay"
                       : cosine ? "ds_cosine"
                                : "ds_warmup")),
        type->place);
    fallback("lr.warmup", of(std::int64_t{1000}));
    fallback("lr.rise", of(std::string("log")));
    whole("scheduler.params.warmup_num_steps", "lr.warmup");
    if (const std::optional<std::string> rise =
            text_at("scheduler.params.warmup_type", "lr.rise")) {
      const Place& place = at("scheduler.params.warmup_type")->place;
      if (*rise != "log" && *rise != "linear")
        warn(place, "scheduler.params.warmup_type is unknown: DeepSpeed takes log", "");
      set("lr.rise", "scheduler.params.warmup_type",
          of(std::string(*rise == "linear" ? "linear" : "log")), place);
    }
    if (decay || cosine) {
      whole("scheduler.params.total_num_steps", "lr.steps");
      if (at("scheduler.params.total_num_steps") == nullptr)
        problem(*type, "scheduler.params.total_num_steps is missing, which " + *name + " needs",
                "\"auto\" takes the length of the run");
    }
    if (cosine) {
      fallback("lr.final", of(1e-4));
      number("scheduler.params.warmup_min_ratio", "lr.start");
      number("scheduler.params.cos_min_ratio", "lr.final");
    } else {
      peak();
    }
  }

  void peak() {
    const JsonNode* node = at("scheduler.params.warmup_max_lr");
    const double low = number_at("scheduler.params.warmup_min_lr", "lr.start").value_or(0.0);
    if (node != nullptr &&
        (is_auto(*node) || node->is_null())) {  // the optimizer's rate, as newer versions have it
      out_.automatic.emplace("optim.lr");
      if (low > 0)
        problem(*at("scheduler.params.warmup_min_lr"),
                "scheduler.params.warmup_min_lr needs a warmup_max_lr that is a number", "");
      return;
    }
    const double high = number_at("scheduler.params.warmup_max_lr", "optim.lr").value_or(1e-3);
    const JsonNode* rate = at("optimizer.params.lr");
    if (rate && is_number(rate->value) && number_of(rate->value) != high)
      warn(
          rate->place,
          fmt::format("optimizer.params.lr = {} gives way to scheduler.params.warmup_max_lr = {}{}",
                      number_text(number_of(rate->value)), number_text(high),
                      node ? "" : ", DeepSpeed 0.15.3's default"),
          "");
    set("optim.lr", "scheduler.params.warmup_max_lr", of(high),
        node ? node->place : at("scheduler.type")->place);
    if (const JsonNode* least = at("scheduler.params.warmup_min_lr");
        least && is_number(least->value)) {
      if (low < 0 || low > high)
        problem(*least,
                fmt::format(
                    "scheduler.params.warmup_min_lr = {} is not between 0 and warmup_max_lr = {}",
                    low, high),
                "");
      else
        set("lr.start", "scheduler.params.warmup_min_lr", of(high > 0 ? low / high : 0.0),
            least->place);
    }
  }

  void precision() {
    const bool half = flag_at("fp16.enabled", "precision.dtype").value_or(false);
    const char* block =
        at("bf16") == nullptr && at("bfloat16") != nullptr ? "bfloat16.enabled" : "bf16.enabled";
    const std::optional<bool> yes = flag_at(block, "precision.dtype");
    if (half && yes.value_or(false))
      problem(*at("fp16.enabled"), fmt::format("fp16.enabled and {} are both true", block),
              "switch one of them off");
    else if (half)
      set("precision.dtype", "fp16.enabled", of(std::string("f16")), at("fp16.enabled")->place);
    else if (yes)
      set("precision.dtype", block, of(std::string(*yes ? "bf16" : "f32")), at(block)->place);
    if (!half && at("fp16.enabled") != nullptr)
      out_.silent.push_back(
          {"fp16.enabled", describe(at("fp16.enabled")->value), "no effect here"});
    loss_scale(half);
  }

  // DeepSpeed's own defaults where the block is silent; without f16 its keys say nothing.
  void loss_scale(bool half) {
    if (!half) {
      for (const char* key : {"loss_scale", "initial_scale_power", "loss_scale_window",
                              "hysteresis", "min_loss_scale"})
        if (const std::string path = std::string("fp16.") + key; at(path) != nullptr)
          out_.silent.push_back({path, describe(at(path)->value), "no effect here"});
      return;
    }
    fallback("precision.loss_scale_window", of(std::int64_t{1000}));
    fallback("precision.hysteresis", of(std::int64_t{2}));
    number("fp16.loss_scale", "precision.loss_scale");
    whole("fp16.initial_scale_power", "precision.initial_scale_power");
    whole("fp16.loss_scale_window", "precision.loss_scale_window");
    whole("fp16.hysteresis", "precision.hysteresis");
    number("fp16.min_loss_scale", "precision.min_loss_scale");
  }

  void zero() {
    const JsonNode* node = at("zero_optimization");
    if (node == nullptr || node->is_null()) return;
    if (node->value.kind == Kind::boolean)
      return set("parallel.zero", "zero_optimization",
                 of(std::int64_t{node->value.boolean ? 1 : 0}), node->place);
    if (node->value.kind != Kind::table) return wrong("zero_optimization", *node, "an object");
    whole("zero_optimization.stage", "parallel.zero");
    flag("zero_optimization.overlap_comm", "parallel.overlap");
    for (const char* path : {"zero_optimization.param_persistence_threshold",
                             "zero_optimization.stage3_param_persistence_threshold"})
      whole(path, "parallel.persist");
    if (const std::optional<std::int64_t> n =
            whole_at("zero_optimization.reduce_bucket_size", "parallel.bucket_mb");
        n && *n != 0)
      set("parallel.bucket_mb", "zero_optimization.reduce_bucket_size",
          of(static_cast<double>(*n) * 4 / (1 << 20)),
          at("zero_optimization.reduce_bucket_size")->place);
    // The older way to say the same.
    if (const std::string old = "zero_optimization.cpu_offload";
        const std::optional<bool> host = flag_at(old, "parallel.offload_optimizer")) {
      if (*host)
        set("parallel.offload_optimizer", old, of(std::string("host")), at(old)->place);
      else
        out_.silent.push_back({old, "false", "no effect here"});
    }
    offload("zero_optimization.offload_optimizer");
    offload("zero_optimization.offload_param");
  }

  // State and the weights of ZeRO 3 go to the host or into a file.
  void offload(const std::string& block) {
    const std::string key = block + ".device";
    const std::optional<std::string> device = text_at(key, "");
    if (!device) return;
    const bool host = *device == "cpu", file = *device == "nvme",
               params = block.ends_with("offload_param");
    const JsonNode* const stage = at("zero_optimization.stage");
    const bool third = stage && stage->value.kind == Kind::integer && stage->value.integer == 3;
    if ((host || file) && (!params || third)) {
      set(params ? "parallel.offload_params" : "parallel.offload_optimizer", key,
          of(std::string(host ? "host" : "file")), at(key)->place);
      return offload_path(block, file);
    }
    const bool none = *device == "none" || *device == "null";
    if (!none)
      warn(at(block)->place,
           fmt::format("{} = \"{}\" is not supported and is ignored{}", key, clean(*device, 40),
                       host || file ? ": it is for the weights of stage 3" : ""),
           "");
    out_.silent.push_back({key, "\"" + clean(*device, 40) + "\"",
                           none ? "no effect here" : "not supported, ignored"});
  }

  // One folder has all that rests in files.
  void offload_path(const std::string& block, bool file) {
    const std::string key = block + ".nvme_path";
    const std::optional<std::string> path = text_at(key, "");
    if (!path) return;
    if (file && (folder_.empty() || folder_ == *path)) {
      if (folder_.empty()) set("parallel.offload_folder", key, of(*path), at(key)->place);
      folder_ = *path;
      return;
    }
    if (file)
      warn(at(key)->place,
           fmt::format("{} = \"{}\" is ignored: all files of offload are in one folder, and that "
                       "of the optimizer is \"{}\"",
                       key, clean(*path, 80), clean(folder_, 80)),
           "");
    out_.silent.push_back({key, describe(at(key)->value), "no effect here"});
  }

  std::string folder_;  // of files of offload
};

}  // namespace

DeepSpeedReading read_deepspeed(std::string_view text, const std::string& file) {
  HjsonDocument document = read_hjson(text, file);
  if (!document.problems.empty()) {
    DeepSpeedReading out;
    out.readable = false;
    out.problems = std::move(document.problems);
    return out;
  }
  return Interpreter(document.root, file).run();
}

}  // namespace tessera::config
