// Names that people know from other programs.
#include <array>
#include <utility>

#include "config/flags.h"

namespace tessera::config {
namespace {

using Pair = std::pair<std::string_view, std::string_view>;

constexpr std::array dtypes = {
    Pair{"fp32", "f32"},    Pair{"float32", "f32"}, Pair{"float", "f32"},     Pair{"fp16", "f16"},
    Pair{"float16", "f16"}, Pair{"half", "f16"},    Pair{"bfloat16", "bf16"}, Pair{"fp64", "f64"},
    Pair{"float64", "f64"}, Pair{"double", "f64"}};

constexpr std::array model_names = {Pair{"vit_base_patch16_224", "vit_b_16"},
                                    Pair{"vit_base_patch32_224", "vit_b_32"},
                                    Pair{"vit_large_patch16_224", "vit_l_16"},
                                    Pair{"vit_large_patch32_224", "vit_l_32"},
                                    Pair{"vit_huge_patch14_224", "vit_h_14"},
                                    Pair{"swin_tiny_patch4_window7_224", "swin_t"},
                                    Pair{"swin_small_patch4_window7_224", "swin_s"},
                                    Pair{"swin_base_patch4_window7_224", "swin_b"},
                                    Pair{"google/vit-base-patch16-224", "vit_b_16"},
                                    Pair{"google/vit-base-patch32-224", "vit_b_32"},
                                    Pair{"google/vit-large-patch16-224", "vit_l_16"},
                                    Pair{"microsoft/swin-tiny-patch4-window7-224", "swin_t"},
                                    Pair{"microsoft/swin-small-patch4-window7-224", "swin_s"},
                                    Pair{"microsoft/swin-base-patch4-window7-224", "swin_b"},
                                    Pair{"microsoft/resnet-50", "resnet50"}};

constexpr std::array foreign_flags = {
    Pair{"fp16", "--dtype f16"},
    Pair{"bf16", "--dtype bf16"},
    Pair{"amp", "--dtype bf16, or f16 with a loss scale"},
    Pair{"num-epochs", "--epochs"},
    Pair{"num_epochs", "--epochs"},
    Pair{"batch_size", "--global-batch"},
    Pair{"learning_rate", "--lr"},
    Pair{"num-workers", "--set data.workers=N"},
    Pair{"workers", "--set data.workers=N"},
    Pair{"weight-decay", "--set optim.weight_decay=X"},
    Pair{"opt", "--set optim.name=NAME"},
    Pair{"sched", "--set lr.schedule=NAME"},
    Pair{"pretrained", "--init W"},
    Pair{"initial-checkpoint", "--init W"},
    Pair{"resume", "nothing: the same command goes on with its run"},
    Pair{"output", "--out"},
    Pair{"output-dir", "--out"},
    Pair{"output_dir", "--out"},
    Pair{"nproc_per_node", "--np"},
    Pair{"nproc-per-node", "--np"},
    Pair{"gpus", "--device cuda --np N"},
    Pair{"deepspeed_config", "--deepspeed"},
    Pair{"dataset", "--data"},
    Pair{"data-dir", "--data folder:DIR"}};

template <std::size_t n>
std::string_view found_in(const std::array<Pair, n>& pairs, std::string_view word) {
  for (const auto& [theirs, ours] : pairs)
    if (theirs == word) return ours;
  return {};
}

}  // namespace

std::string in_our_words(std::string_view key, std::string_view value) {
  std::string_view ours;
  if (key == "precision.dtype") ours = found_in(dtypes, value);
  if (key == "model.name") ours = found_in(model_names, value);
  return std::string(ours.empty() ? value : ours);
}

std::string_view answer_to_foreign_flag(std::string_view flag) {
  return found_in(foreign_flags, flag);
}

}  // namespace tessera::config
