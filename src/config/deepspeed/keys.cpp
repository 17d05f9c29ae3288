// The keys of a DeepSpeed configuration, block by block, and what they are to us.
// Convention: one row per block; a key in no row is unknown. DeepSpeed refuses unknown keys in the
// blocks marked so and ignores them elsewhere.
#include <algorithm>

#include "config/deepspeed/deepspeed.h"

namespace tessera::config {
namespace {

struct Block {
  std::string_view name;
  bool forbids;
  std::string_view used, quiet, off;  // keys, separated by |
};

const Block blocks[] = {
    {"", false,
     "train_batch_size|train_micro_batch_size_per_gpu|gradient_accumulation_steps|optimizer|"
     "scheduler|gradient_clipping|fp16|bf16|bfloat16|"
     "zero_optimization|tensorboard|csv_monitor|dataloader_drop_last|tensor_parallel|sequence_"
     "parallel_size|activation_checkpointing|"
     "flops_profiler|pipeline|checkpoint|comms_logger|data_types|timers|gradient_allreduce_op",
     "steps_per_print|wall_clock_breakdown|memory_breakdown|dump_state|prescale_gradients|gradient_"
     "predivide_factor|disable_allgather|"
     "vocabulary_size|log_level|zero_allow_untested_optimizer|zero_force_ds_cpu_optimizer|managed_"
     "gradient_accumulation|aio|"
     "seq_parallel_communication_data_type|seq_parallel_comm_data_type",
     "amp|torch_autocast|communication_data_type|sparse_gradients|elasticity|autotuning|wandb|"
     "comet|compression_training|sparse_attention|"
     "progressive_layer_drop|curriculum_learning|data_efficiency|quantize_training|eigenvalue|"
     "nebula|datastates|hybrid_engine|"
     "expert_parallel|compile|graph_harvesting|use_data_before_expert_parallelism"},
    {"optimizer", false, "type|params", "legacy_fusion", ""},
    {"optimizer.params", false,
     "lr|betas|eps|weight_decay|momentum|nesterov|adam_w_mode|torch_adam|bias_correction|amsgrad|"
     "dampening|maximize|max_grad_norm|max_"
     "coeff|"
     "min_coeff",
     "fused|foreach|capturable|differentiable|set_grad_none|eps_inside_sqrt|fp32_optimizer_states|"
     "adamw_mode",
     ""},
    {"scheduler", false, "type|params", "", ""},
    {"scheduler.params", false,
     "warmup_min_lr|warmup_max_lr|warmup_num_steps|warmup_type|total_num_steps|warmup_min_ratio|"
     "cos_min_ratio",
     "last_batch_iteration", ""},
    {"zero_optimization", true,
     "stage|reduce_bucket_size|overlap_comm|offload_optimizer|offload_param|cpu_offload|stage3_"
     "param_"
     "persistence_threshold|"
     "param_persistence_threshold",
     "contiguous_gradients|reduce_scatter|allgather_partitions|allgather_bucket_size|use_multi_"
     "rank_bucket_allreduce|round_robin_gradients|"
     "ignore_unused_parameters|load_from_fp32_weights|elastic_checkpoint|legacy_stage1|sub_group_"
     "size|stage3_prefetch_bucket_size|"
     "prefetch_bucket_size|stage3_model_persistence_threshold|model_persistence_threshold|stage3_"
     "max_live_parameters|max_live_parameters|"
     "stage3_max_reuse_distance|max_reuse_distance|stage3_gather_16bit_weights_on_model_save|"
     "gather_16bit_weights_on_model_save|"
     "stage3_gather_fp16_weights_on_model_save|stage3_module_granularity_threshold|module_"
     "granularity_threshold|"
     "stage3_use_all_reduce_for_fetch_params|use_all_reduce_for_fetch_params|stage3_allgather_"
     "sequential|memory_efficient_linear|"
     "override_module_apply|log_trace_cache_warnings|enable_sanity_checks|leaf_module|mics_shard_"
     "size|mics_hierarchical_params_gather|"
     "zero_hpz_partition_size|cpu_offload_use_pin_memory",
     "cpu_offload_param|zero_quantized_weights|zero_quantized_nontrainable_weights|"
     "zero_quantized_gradients|zeropp_loco_param|"
     "zenflow"},
    {"zero_optimization.offload_optimizer", true, "device|nvme_path",
     "buffer_count|pin_memory|pipeline_read|pipeline_write|pipeline|fast_init|ratio|"
     "super_offload|cpuadam_cores_perc",
     ""},
    {"zero_optimization.offload_param", true, "device|nvme_path",
     "buffer_count|buffer_size|max_in_cpu|pin_memory", ""},
    {"fp16", true,
     "enabled|loss_scale|initial_scale_power|loss_scale_window|hysteresis|min_loss_scale",
     "auto_cast", "consecutive_hysteresis|fp16_master_weights_and_grads"},
    {"bf16", true, "enabled", "immediate_grad_update|check_grad_overflow",
     "bf16_master_weights_and_grads|bf16_optimizer_states"},
    {"tensorboard", true, "enabled", "output_path|job_name", ""},
    {"csv_monitor", true, "enabled", "output_path|job_name", ""},
    {"tensor_parallel", true, "autotp_size|tp", "",
     "tp_overlap_comm|partition_config|preset_model|tp_grain_size|injection_policy_tuple"},
    {"activation_checkpointing", false, "", "synchronize_checkpoint_boundary|profile",
     "partition_activations|number_checkpoints|contiguous_memory_optimization|cpu_checkpointing"},
    {"flops_profiler", false, "",
     "recompute_fwd_factor|profile_step|module_depth|top_modules|detailed|output_file", "enabled"},
    {"comms_logger", true, "", "verbose|prof_all|debug|prof_ops", "enabled"},
    {"pipeline", false, "stages",
     "partition|seed_layers|activation_checkpoint_interval|pipe_partitioned|grad_partitioned|use_"
     "reentrant",
     ""},
    {"checkpoint", false, "", "tag_validation|parallel_write|writer",
     "load_universal|use_node_local_storage"},
    {"data_types", false, "grad_accum_dtype", "param_dtype|buffer_dtype", ""},
    {"timers", false, "", "throughput", ""},
};

const Block* find_block(std::string_view name) {
  if (name == "bfloat16") name = "bf16";
  const auto it = std::find_if(std::begin(blocks), std::end(blocks),
                               [&](const Block& b) { return b.name == name; });
  return it == std::end(blocks) ? nullptr : it;
}

bool lists(std::string_view words, std::string_view word) {
  const std::vector<std::string> all = split(words, '|');
  return std::find(all.begin(), all.end(), word) != all.end();
}

}  // namespace

bool is_deepspeed_block(std::string_view path) { return find_block(path) != nullptr; }

DeepSpeedKey deepspeed_key(std::string_view block_name, std::string_view key) {
  const Block* block = find_block(block_name);
  if (block == nullptr) return {};
  if (lists(block->used, key)) return {DeepSpeedRole::used, "", false};
  if (lists(block->quiet, key)) return {DeepSpeedRole::quiet, "", false};
  if (lists(block->off, key)) return {DeepSpeedRole::off, "", false};
  DeepSpeedKey out{DeepSpeedRole::unknown, "", block->forbids};
  std::vector<std::string> names;
  for (const std::string_view list : {block->used, block->quiet, block->off})
    for (std::string& name : split(list, '|')) names.push_back(std::move(name));
  const std::string near = key.size() > 64 ? "" : nearest(key, names);
  if (!near.empty()) out.suggestion = "did you mean " + near + "?";
  if (!near.empty()) return out;
  for (const Block& other : blocks)
    if (lists(other.used, key) || lists(other.quiet, key) || lists(other.off, key)) {
      out.suggestion = "it is a key of " +
                       (other.name.empty() ? "the outermost object" : std::string(other.name));
      return out;
    }
  return out;
}

}  // namespace tessera::config
