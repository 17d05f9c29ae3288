#include "config/flags.h"

namespace tessera::config {

const std::vector<Flag>& flags() {
  static const std::vector<Flag> all = {
      {"--model", "model.name", "NAME", "model preset (`tessera models` lists them)"},
      {"--data", "data.source", "SPEC",
       "synthetic | synthetic:64x64x3,10 | cifar10:DIR | cifar100:DIR | folder:DIR | npy:DIR"},
      {"--init", "model.init", "W",
       "start from these weights (another number of classes: with a new head)"},
      {"--global-batch", "batch.global", "N", "samples per update", "--batch-size"},
      {"--micro-batch", "batch.micro", "N", "samples of a rank per micro-batch"},
      {"--accumulate", "batch.accumulate", "N", "micro-batches per update",
       "--gradient-accumulation-steps"},
      {"--lr", "optim.lr", "X", "peak learning rate", "--learning-rate"},
      {"--dtype", "precision.dtype", "D", "f32 | bf16 | f16 | fp8 | f64 (for checking)"},
      {"--device", "run.device", "D", "cpu or cuda; or one for each rank: cuda,cpu,cpu"},
      {"--threads", "run.threads", "N", "threads of the executor"},
      {"--dp", "parallel.dp", "N", "data-parallel ranks"},
      {"--tp", "parallel.tp", "N", "tensor-parallel ranks"},
      {"--pp", "parallel.pp", "N", "pipeline-parallel ranks"},
      {"--sp", "parallel.sp", "N", "sequence-parallel ranks"},
      {"--zero", "parallel.zero", "0..3", "sharding of optimizer state, gradients and weights"},
      {"--schedule", "parallel.schedule", "S", "gpipe | 1f1b | interleaved | zb | file:PATH"},
      {"--np", "run.np", "N",
       "ranks to start; MIN:MAX: as many as the hosts have, and go on with MIN"},
      {"--restarts", "run.restarts", "N", "start the ranks again when one is lost or hangs"},
      {"--hostfile", "run.hostfile", "FILE", "hosts to start ranks on"},
      {"--oversubscribe", "run.oversubscribe", "", "start more ranks or threads than cores"},
      {"--comm", "parallel.comm", "C", "auto | local | mpi | nccl"},
      {"--epochs", "run.epochs", "N", "passes over the training samples"},
      {"--steps", "run.steps", "N", "updates"},
      {"--until", "run.until", "M=V", "stop early, for example top1=0.94"},
      {"--seed", "run.seed", "N", "seed of every random number"},
      {"--out", "run.out", "DIR", "run folder"},
      {"--deepspeed", "deepspeed", "DS.json",
       "a DeepSpeed configuration, unchanged (docs/deepspeed.md)"},
  };
  return all;
}

Override from_set(std::string_view text) {
  const auto equals = text.find('=');
  const auto trim = [](std::string_view s) {
    const auto first = s.find_first_not_of(" \t");
    return first == s.npos ? std::string_view{}
                           : s.substr(first, s.find_last_not_of(" \t") - first + 1);
  };
  Override out;
  out.origin = "--set " + std::string(text);
  if (equals == text.npos) return out;
  out.key = trim(text.substr(0, equals));
  out.value = in_our_words(out.key, trim(text.substr(equals + 1)));
  return out;
}

Override from_flag(const Flag& flag, std::string_view value) {
  return {.key = std::string(flag.key),
          .value = in_our_words(flag.key, value),
          .origin = std::string(flag.name) + (flag.metavar.empty() ? "" : " " + std::string(value)),
          .is_flag = true};
}

std::vector<Override> all_from_flag(const Flag& flag, std::string_view value) {
  const auto colon = value.find(':');
  if (flag.key != "run.np" || colon == value.npos) return {from_flag(flag, value)};
  Override most = from_flag(flag, value), least = most;
  most.value = value.substr(colon + 1);
  least.key = "run.np_min";
  least.value = value.substr(0, colon);
  return {most, least};
}

}  // namespace tessera::config
