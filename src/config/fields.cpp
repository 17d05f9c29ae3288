#include "config/fields.h"

#include <algorithm>
#include <map>

#include "ir/optimizers.h"

namespace tessera::config {
namespace {

constexpr double steps_cap = 1e12;

Accepts from(double low, double high) { return {.low = low, .high = high}; }
Accepts above(double low, double high) { return {.low = low, .high = high, .above_low = true}; }
Accepts below(double low, double high) { return {.low = low, .high = high, .below_high = true}; }
Accepts one_of(std::string_view choices, std::string_view later = "") {
  return {.choices = choices, .later = later};
}
Accepts one_or_more_of(std::string_view choices) { return {.choices = choices, .several = true}; }
Accepts list_or(std::string_view words, double low, double high) {
  return {.low = low, .high = high, .choices = words};
}
Accepts list(std::size_t longest, double low, double high) {
  return {.low = low, .high = high, .longest = longest};
}
Accepts or_flag(Accepts accepts, std::string_view yes, std::string_view no) {
  accepts.yes = yes;
  accepts.no = no;
  return accepts;
}
Accepts derived(Accepts accepts, std::string_view standard) {
  accepts.standard = standard;
  return accepts;
}
Accepts or_word(Accepts accepts, std::string_view word) {
  accepts.word = word;
  return accepts;
}
Accepts any() { return {}; }
Accepts optional() { return {.optional = true}; }

// One number of heads, or one for each stage.
Ref heads(Config& c) {
  const models::Family* family = models::find_family(c.model.family);
  return family && family->staged() ? Ref(&c.model.stage_heads) : Ref(&c.model.heads);
}

// Choices that a table elsewhere holds: "vit|swin|resnet", "adamw|sgd|lamb".
const std::string& family_choices() {
  static const std::string all = [] {
    std::string out;
    for (const models::Family* family : models::families())
      out += (out.empty() ? "" : "|") + std::string(family->name);
    return out;
  }();
  return all;
}
const std::string& optimizer_choices() {
  static const std::string all = [] {
    std::string out;
    for (const ir::OptimizerRow& row : ir::optimizers())
      out += (out.empty() ? "" : "|") + std::string(row.name);
    return out;
  }();
  return all;
}
// "adamw: Adam with decoupled weight decay; sgd: ..."
const std::string& optimizer_docs() {
  static const std::string all = [] {
    std::string out;
    for (const ir::OptimizerRow& row : ir::optimizers())
      out += (out.empty() ? "" : "; ") + std::string(row.name) + ": " + std::string(row.doc);
    return out;
  }();
  return all;
}
// "adamw, lamb: " and the text, by who reads the key.
std::string_view read_by(std::string_view key, std::string_view text) {
  static std::map<std::string_view, std::string> all;
  std::string& out = all[key];
  if (!out.empty()) return out;
  for (const ir::OptimizerRow& row : ir::optimizers())
    if (row.reads(key)) out += (out.empty() ? "" : ", ") + std::string(row.name);
  return out += ": " + std::string(text);
}

#define AT(member) [](Config& c) -> Ref { return &c.member; }
// clang-format off
std::vector<Field> model_fields() {
  return {
      {"model", "name", AT(model.name), optional(), "the preset to start from (`tessera models` lists them); other model keys override it"},
      {"model", "family", AT(model.family), one_of(family_choices()), "without a name: start from the family's torchvision defaults"},
      {"model", "init", AT(init), optional(), "weights to start from; the head is replaced when the number of classes differs"},
      {"model", "image", [](Config& c) -> Ref { return Image{&c.model.image_h, &c.model.image_w}; }, from(1, 16384),
       "pixels: a number or [height, width]; follows data.source where that states a size"},
      {"model", "channels", AT(model.channels), from(1, 1024), "channels of an image; follows data.source likewise"},
      {"model", "patch", AT(model.patch), from(1, 1024), "side of a square patch; vit: divides the image"},
      {"model", "dim", AT(model.dim), from(1, 65536), "width of the residual stream; swin: of the first stage, it doubles with each"},
      {"model", "depth", AT(model.depth), from(1, 1024), "number of encoder blocks"},
      {"model", "heads",
       heads, from(1, 4096),
       "attention heads; divides dim; swin: a list, one number per stage"},
      {"model", "mlp", AT(model.mlp), from(1, 1048576), "hidden width of the MLP"},
      {"model", "classes", AT(model.classes), from(1, 1048576), "number of classes; follows data.source likewise"},
      {"model", "pool", AT(model.pool), one_of("class|mean"), "what the head reads: the class token or the mean of all tokens"},
      {"model", "dropout", AT(model.dropout), below(0, 1), "probability of dropping an activation"},
      {"model", "drop_path", AT(model.drop_path), below(0, 1), "probability of dropping a residual branch of a sample (stochastic depth)"},
      {"model", "depths", AT(model.depths), from(1, 1024), "swin: blocks of each stage"},
      {"model", "window", [](Config& c) -> Ref { return Image{&c.model.window_h, &c.model.window_w}; }, from(1, 256),
       "swin: tokens of an attention window, a number or [height, width]"},
      {"model", "block", AT(model.block), one_of("basic|bottleneck"), "resnet: two 3x3 convolutions, or 1x1, 3x3, 1x1"},
      {"model", "layers", AT(model.layers), from(1, 1024), "resnet: blocks of each stage"},
      {"model", "width", AT(model.width), from(1, 4096), "resnet: channels of the stem and of the first stage; they double with each"},
      {"model", "stem", AT(model.stem), one_of("imagenet|cifar"), "resnet: 7x7 with stride 2 and max-pool, or 3x3"},
      {"model", "batch_norm", AT(model.batch_norm), one_of("local|sync|deferred"), "resnet: whose samples share statistics: a rank's micro-batch, or all ranks'; deferred: as local, but running statistics move once per update, by the whole batch"},
      {"model", "mlp_ratio", AT(model.mlp_ratio), above(0, 64), "swin: hidden width of the MLP over the width of its stage"},
      {"model", "head_init", AT(model.head_init), one_of("zero|normal"), "how the head starts"},
  };
}
std::vector<Field> data_fields() {
  return {
      {"data", "source", AT(data.source), any(), "synthetic, synthetic:HxWxC,CLASSES, cifar10:DIR, cifar100:DIR, folder:DIR or npy:DIR"},
      {"data", "fraction", AT(data.fraction), above(0, 1), "part of the training samples to use"},
      {"data", "train_size", AT(data.train_size), from(1, 1e9), "training samples of the synthetic source"},
      {"data", "test_size", AT(data.test_size), from(1, 1e9), "test samples of the synthetic source"},
      {"data", "workers", AT(data.workers), from(0, 256), "threads that prepare batches ahead; 0: in the training thread"},
      {"data", "augment_on", AT(data.augment_on), one_of("auto|loader|device"), "who crops, flips, erases and mixes: the loader's threads, or the device inside of the step, to the same bits; auto: the device where that is a card, the loader where it is the CPU"},
      {"data", "resident", AT(data.resident), or_flag(one_of("auto|yes|no"), "auto", "no"), "keep the training pictures on the device, so that a batch is a list of their numbers; auto: on a card, where they take at most 1 GiB and nothing of a picture is left to the loader"},
      {"data", "shuffle", AT(data.shuffle), any(), "a new order of the training samples each epoch"},
      {"data", "balanced", AT(data.balanced), any(), "draw every class equally often, for classes of uneven sizes; needs shuffle"},
      {"data", "drop_last", AT(data.drop_last), any(), "leave out the last batch of an epoch when it is smaller than the others"},
      {"data", "val_fraction", AT(data.val_fraction), below(0, 1), "part of each class kept for testing, for image folders without val/ or test/"},
      {"data", "class_weights", AT(data.class_weights), one_of("none|balanced"), "weight of a sample in the loss: all alike, or inverse to its class's frequency"},
      {"data", "normalize", AT(data.normalize), one_of("half|imagenet|cifar10|cifar100"),
       "mean and deviation of the pixels in [0, 1]: 0.5 and 0.5, or those of a data set"},
      {"data", "mean", AT(data.mean), list(1024, -1000, 1000), "instead of those of normalize: one number, or one per channel"},
      {"data", "deviation", AT(data.deviation), list(1024, 1e-6, 1000), "likewise"},
      {"data", "flip", AT(data.flip), or_flag(one_of("none|random|alternating"), "random", "none"),
       "augmentation: mirror half of the training images; alternating: each one every other epoch"},
      {"data", "crop", AT(data.crop), from(0, 1024), "augmentation: random crop after padding by this many pixels"},
      {"data", "crop_mode", AT(data.crop_mode), one_of("zero|reflect"), "what the padding of crop holds: black, or the mirrored image"},
      {"data", "resized_crop", AT(data.resized_crop), or_flag(from(0, 1), "0.08", "0"),
       "augmentation: a random part of the image, resized to the model's size; the smallest part of the area; 0: off"},
      {"data", "resize", AT(data.resize), one_of("before|after"),
       "training images of another size than the model's are resized before the augmentations, or after them (cheaper for small images)"},
      {"data", "color_jitter", AT(data.color_jitter), list(4, 0, 10),
       "augmentation: largest change of brightness, contrast, saturation and hue (at most 0.5), in random order"},
      {"data", "randaugment", AT(data.randaugment), or_flag(list(2, 0, 30), "[2, 9]", "[]"),
       "RandAugment: operations per image, and their magnitude of 0 to 30; an empty list: off"},
      {"data", "autoaugment", AT(data.autoaugment), any(), "AutoAugment with its policy for CIFAR"},
      {"data", "erase", AT(data.erase), from(0, 1), "random erasing: the probability"},
      {"data", "erase_value", AT(data.erase_value), one_of("zero|random"), "what is erased becomes the mean colour, or noise"},
      {"data", "cutout", AT(data.cutout), from(0, 16384), "augmentation: side of a square that becomes the mean colour; 0: off"},
      {"data", "mixup", AT(data.mixup), from(0, 100), "augmentation: Mixup's alpha; 0: off"},
      {"data", "cutmix", AT(data.cutmix), from(0, 100), "augmentation: CutMix's alpha; 0: off"},
      {"data", "mix_prob", AT(data.mix_prob), from(0, 1), "part of the batches that Mixup or CutMix mixes"},
      {"data", "mix_switch", AT(data.mix_switch), from(0, 1), "with both: the part of the mixed batches that CutMix takes"},
      {"data", "interpolation", AT(data.interpolation), one_of("bilinear|bicubic"), "how images are resized, in training and evaluation: Pillow's bilinear or bicubic filter"},
      {"data", "eval_resize", AT(data.eval_resize), from(0, 16384),
       "evaluation: shorter side before the centre crop; 0: the model's side, of folders 8/7 of it, and images of the model's size stay"},
      {"data", "eval_crop", AT(data.eval_crop), one_of("center|squash"), "evaluation: the middle of an image that was resized in its proportions, or all of it, resized to the model's height and width"},
      {"data", "tta", AT(data.tta), one_of("none|flip"), "evaluation: average the predictions of the image and its mirror image"},
  };
}
std::vector<Field> batch_fields() {
  return {
      {"batch", "global", AT(batch.global), from(1, 16777216), "samples per update"},
      {"batch", "micro", AT(batch.micro), from(1, 16777216), "samples of the largest micro-batch of a rank; give any two, or global alone"},
      {"batch", "accumulate", AT(batch.accumulate), from(1, 256), "micro-batches per update (each is written out in the program); their sizes differ by at most one"},
  };
}
std::vector<Field> optim_fields() {
  return {
      {"optim", "name", AT(optim.name), one_of(optimizer_choices(), "lars"), optimizer_docs()},
      {"optim", "lr", AT(optim.lr), above(0, 1000), "peak learning rate, before lr.scale"},
      {"optim", "weight_decay", AT(optim.weight_decay), from(0, 1000), "weight decay; decoupled for adamw"},
      {"optim", "decay_all", AT(optim.decay_all), any(), "decay 1-D tensors, class token and position embeddings too"},
      {"optim", "momentum", AT(optim.momentum), below(0, 1), read_by("momentum", "how much of the last step is kept")},
      {"optim", "nesterov", AT(optim.nesterov), any(), read_by("nesterov", "look ahead; needs momentum")},
      {"optim", "betas", AT(optim.betas), below(0, 1), read_by("betas", "decay of the two moments")},
      {"optim", "eps", AT(optim.eps), above(0, 1), read_by("eps", "added to the root of the second moment")},
      {"optim", "layer_decay", AT(optim.layer_decay), above(0, 1), "each block's learning rate is this times that of the block above it; 1: all alike"},
      {"optim", "freeze", AT(optim.freeze), any(), "what is not trained: none, backbone (all but the head), or N: the embeddings (or stem) and the first N - 1 blocks"},
      {"optim", "clip", AT(optim.clip), from(0, 1e9), "largest global gradient norm; 0: no clipping"},
  };
}
std::vector<Field> lr_fields() {
  return {
      {"lr", "schedule", AT(lr.schedule), one_of("constant|step|cosine|onecycle|ds_warmup|ds_decay|ds_cosine"),
       "how the learning rate moves after the warm-up; ds_*: DeepSpeed's WarmupLR, WarmupDecayLR and WarmupCosineLR, step for step"},
      {"lr", "warmup", AT(lr.warmup), from(0, steps_cap), "linear rise to the peak: steps, or a percentage of the run"},
      {"lr", "start", AT(lr.start), from(0, 1), "where the warm-up starts, as a fraction of the peak"},
      {"lr", "final", AT(lr.final), from(0, 1), "where cosine, onecycle and ds_cosine are headed, as a fraction of the peak: the step after the last one would have it, as in PyTorch's schedulers"},
      {"lr", "rise", AT(lr.rise), one_of("linear|log"), "ds_*: the form of the warm-up"},
      {"lr", "steps", AT(lr.steps), from(0, steps_cap), "ds_decay, ds_cosine: the length that the schedule is made for; 0: that of the run"},
      {"lr", "step_every", AT(lr.step_every), from(1, steps_cap), "step: distance between two drops, in steps or as a percentage"},
      {"lr", "step_gamma", AT(lr.step_gamma), above(0, 1), "step: factor of each drop"},
      {"lr", "scale", AT(lr.scale), one_of("none|linear|sqrt"), "the peak follows the batch: optim.lr times batch.global / lr.scale_from, or times the root of that"},
      {"lr", "scale_from", AT(lr.scale_from), from(1, 16777216), "the batch that optim.lr is meant for, where lr.scale is not none"},
  };
}
std::vector<Field> loss_fields() {
  return {
      {"loss", "label_smoothing", AT(loss.label_smoothing), below(0, 1), "mass spread evenly over all classes"},
  };
}
std::vector<Field> ema_fields() {
  return {
      {"ema", "decay", AT(ema.decay), below(0, 1), "moving average of the weights; 0: off"},
  };
}
std::vector<Field> precision_fields() {
  return {
      {"precision", "dtype", AT(precision.dtype), one_of("f32|bf16|f16|fp8|f64"), "dtype of the computation; fp8: bf16 with the products of transformer blocks in eight bits, on one rank; f64: for checking"},
      {"precision", "loss_scale", AT(precision.loss_scale), from(0, 16777216), "f16: factor on the loss in the backward pass; 0: dynamic, it is halved when a gradient overflows and grows again"},
      {"precision", "initial_scale_power", AT(precision.initial_scale_power), from(0, 24), "f16: a dynamic loss scale begins at 2 to this power"},
      {"precision", "loss_scale_window", AT(precision.loss_scale_window), from(1, steps_cap), "f16: after so many good steps in a row a dynamic loss scale doubles (at most to 2^24)"},
      {"precision", "hysteresis", AT(precision.hysteresis), from(1, 1000000), "f16: of so many overflows only the last halves the loss scale; counted anew when it doubles"},
      {"precision", "min_loss_scale", AT(precision.min_loss_scale), above(0, 16777216), "f16: a dynamic loss scale does not fall below it; overflows at it count as bad steps"},
      {"precision", "quantise", AT(precision.quantise), one_of("none|int8|fp8"), "inference: the linear layers of the blocks, and for int8 their convolutions, in one byte; quantised weights say it themselves"},
      {"precision", "tf32", AT(precision.tf32), any(), "f32 on a card: products and convolutions may round their factors to TF32 (10 bits of mantissa instead of 23), which is faster and less exact"},
      {"precision", "winograd", AT(precision.winograd), any(), "f32 on the CPU: 3x3 convolutions of stride 1 may be computed by Winograd's algorithm, with a third of the multiplications and about three times the rounding error; false: as they are written"},
  };
}
std::vector<Field> parallel_fields() {
  return {
      {"parallel", "dp", AT(parallel.dp), derived(from(1, 65536), "auto"), "data-parallel ranks; unless given: all ranks that the other axes leave"},
      {"parallel", "tp", AT(parallel.tp), from(1, 65536), "tensor-parallel ranks; divides heads and mlp (swin: of every stage), resnet: width"},
      {"parallel", "pp", AT(parallel.pp), from(1, 65536), "pipeline-parallel ranks: the blocks of the model are cut into stages, and micro-batches (batch.accumulate) follow one another"},
      {"parallel", "sp", AT(parallel.sp), from(1, 65536), "sequence-parallel ranks (Ulysses, vit only); at most heads / tp"},
      {"parallel", "zero", AT(parallel.zero), from(0, 3), "what dp ranks share out: 1 optimizer state, 2 + gradients, 3 + weights"},
      {"parallel", "sequence", AT(parallel.sequence), one_of("none|megatron|ulysses"), "sequence parallelism: megatron on the tp ranks, ulysses on the sp ranks (with sp > 1 also unless given)"},
      {"parallel", "schedule", AT(parallel.schedule), any(), "order of a pipeline's work: gpipe, 1f1b, interleaved, zb (zero bubble, ZB-H1), or file:PATH"},
      {"parallel", "stages", AT(parallel.stages), list_or("params|flops|time", 1, 1024), "blocks of each stage, or what the stages balance: parameters, forward FLOPs, or the measured time of the blocks; a merging of Swin counts as a block"},
      {"parallel", "segments", AT(parallel.segments), from(1, 1024), "stages on one rank, with pp = 1"},
      {"parallel", "chunks", AT(parallel.chunks), from(1, 1024), "stages per rank of the interleaved schedule, which takes 2 unless given, or of one that is read from a file"},
      {"parallel", "recompute", AT(parallel.recompute), any(),
       "none, full, or every=N: keep the input of every N-th block and recompute the rest in the backward pass"},
      {"parallel", "weights", AT(parallel.shares), list_or("measured", 0, 1e6), "share of the batch per dp rank; an empty list: equal"},
      {"parallel", "bucket_mb", AT(parallel.bucket_mb), above(0, 65536), "size of a gradient bucket in MiB; ZeRO 2 and 3 cut by layers instead"},
      {"parallel", "overlap", AT(parallel.overlap), any(), "start a reduction as soon as its bucket is complete and compute on; false: one message after another, in place"},
      {"parallel", "prefetch", AT(parallel.prefetch), any(), "zero = 3: gather the weights of the next layer while this one computes"},
      {"parallel", "overlap_update", AT(parallel.overlap_update), any(), "update early buckets while late ones are under way (without optim.clip, and with nothing sent as fp16)"},
      {"parallel", "compress", AT(parallel.compress), any(), "gradients on the wire: none, fp16, bf16, int8, topk=FRACTION, onebit or powersgd=RANK"},
      {"parallel", "comm", AT(parallel.comm), one_of("auto|local|mpi|nccl"), "how ranks talk: threads of one process, MPI, or from card to card (nccl, with run.device = cuda); auto: MPI under mpirun, and NCCL where every rank has a card of its own"},
      {"parallel", "all_reduce", AT(parallel.all_reduce), one_of("auto|shared|ring|hierarchical|mpi"), "how MPI ranks add up: in shared memory, around a ring, both, or by MPI itself; auto: shared on one machine, hierarchical across"},
      {"parallel", "wire", AT(parallel.wire), one_of("f32|fp16|bf16"), "as what f32 sums of 64 KiB and more travel round a ring (all_reduce = ring, or between machines), added up in f32 all the same"},
      {"parallel", "hang_s", AT(parallel.hang_s), from(0, 1e6), "seconds without progress after which a rank that hangs is named and the job ends, at least 1; 0: wait for ever"},
      {"parallel", "disk_s", AT(parallel.disk_s), from(0, 1e6), "seconds that one call to a disk (a flush, a rename) may take before the rank that waits for it counts as hanging; 0: for ever"},
      {"parallel", "persist", AT(parallel.persist), from(0, 1e12), "zero = 3: parameters with fewer elements stay whole on every rank"},
      {"parallel", "offload_optimizer", AT(parallel.offload_optimizer), one_of("none|host|file"), "where the optimizer's moments rest between updates: on the device, in (pinned) memory of the host, or in a file (docs/offload.md)"},
      {"parallel", "offload_params", AT(parallel.offload_params), one_of("none|host|file"), "zero = 3: where the weights that ranks share out rest until a layer needs them: on the device, in (pinned) memory of the host, or in a file (docs/offload.md)"},
      {"parallel", "offload_folder", AT(parallel.offload_folder), optional(), "folder of what rests in a file, on a fast disk of each machine; unless given: the run folder"},
      {"parallel", "offload_mb", AT(parallel.offload_mb), above(0, 65536), "MiB of each moment that come and go at a time; three such pieces are on the device at once"},
  };
}
std::vector<Field> checkpoint_fields() {
  return {
      {"checkpoint", "every", AT(checkpoint.every), or_word(from(0, steps_cap), "auto"), "steps between checkpoints; 0: at the end of each epoch; auto: as many as cost least, from what one takes and mtbf_h"},
      {"checkpoint", "keep", AT(checkpoint.keep), from(1, 1e6), "newest checkpoints that stay on disk"},
      {"checkpoint", "keep_best", AT(checkpoint.keep_best), any(), "also save and keep the one with the best test top-1"},
      {"checkpoint", "mtbf_h", AT(checkpoint.mtbf_h), above(0, 1e6), "every = \"auto\": hours between failures of the job, on the average"},
      {"checkpoint", "memory_every", AT(checkpoint.memory_every), from(0, steps_cap), "with run.restarts: steps between checkpoints in memory, of a rank on its own host and on another one, from which a restart goes on where they are newer than those on disk; 0: none (docs/failures.md)"},
  };
}
std::vector<Field> run_fields() {
  return {
      {"run", "name", AT(run.name), optional(), "name of the run; unless given: the last part of run.out, or the name of the file (without one: model and data) and every value of the command line that changes results"},
      {"run", "out", AT(run.out), optional(), "run folder; unless given: runs/NAME, shown in the first line of a run"},
      {"run", "device", AT(run.device), one_or_more_of("cpu|cuda"), "where it runs; with commas between them one for each rank: cuda,cpu,cpu"},
      {"run", "threads", AT(run.threads), from(1, 4096), "threads of the executor; unless given: a rank's share of the cores"},
      {"run", "threading", AT(run.threading), one_of("auto|heads|rows|products"), "what threads of the CPU share out, to the same bits; auto: every op, in tiles; heads: attention, whole heads; rows: every op, of attention, matrix products and convolutions whole rows of the result; products: matrix products and convolutions, in tiles; what is not shared out one thread does"},
      {"run", "np", AT(run.np), derived(from(1, 65536), "auto"), "ranks to start here; unless given: dp x tp x pp x sp"},
      {"run", "np_min", AT(run.np_min), from(0, 65536), "fewest ranks to go on with when hosts are lost; 0: one copy of the model (tp x pp x sp)"},
      {"run", "restarts", AT(run.restarts), from(0, 1e6), "how many times `train --np` starts its ranks again from the newest checkpoint when one is lost or hangs (docs/failures.md)"},
      {"run", "hostfile", AT(run.hostfile), optional(), "hosts to start ranks on, one a line with its ranks: `node1 slots=4` or `node1:4`; unless given: this machine, or what mpirun finds"},
      {"run", "host_wait_s", AT(run.host_wait_s), from(0, 1e6), "seconds that a restart waits for a host that does not answer before it goes on without it"},
      {"run", "place", AT(run.place), one_of("auto|cores|none"), "cores that an MPI rank keeps to where no launcher has bound it; auto: those of its NUMA node, where a machine has several; cores: as many as its share is, of its own; none: wherever the system puts it"},
      {"run", "oversubscribe", AT(run.oversubscribe), any(), "start the ranks of this machine even where they and their threads are more than its cores, and wait for each other"},
      {"run", "seed", AT(run.seed), from(0, 9.2e18), "every random number follows from it"},
      {"run", "epochs", AT(run.epochs), from(0, 1e9), "passes over the training samples; 0: not given"},
      {"run", "steps", AT(run.steps), from(0, steps_cap), "updates; 0: not given; with both, the run ends at whichever comes first"},
      {"run", "until", AT(run.until), optional(), "stop early: top1=0.94, top5=... or loss=..."},
      {"run", "eval_every", AT(run.eval_every), from(0, 1e9), "epochs between evaluations on the test samples; 0: only at the end"},
      {"run", "csv", AT(run.csv), any(), "write metrics.csv and epochs.csv beside metrics.jsonl"},
      {"run", "tensorboard", AT(run.tensorboard), any(), "write TensorBoard event files (events.out.tfevents.*)"},
      {"run", "trace", AT(run.trace), from(0, 1e6), "steps (after the first) that trace.json shows; 0: none"},
      {"run", "fuse", AT(run.fuse), any(), "let one kernel do what several equations say; false: every equation by itself, of attention in inference each part (slower; for `bench layers` and for comparison)"},
      {"run", "deterministic", AT(run.deterministic), any(), "the same bits in every run; false: convolutions on a card may take engines of cuDNN that add in no fixed order, where those are faster; all else keeps its order"},
  };
}
// clang-format on
#undef AT

}  // namespace

const std::vector<Field>& fields() {
  static const std::vector<Field> all = [] {
    std::vector<Field> out;
    for (const auto section :
         {model_fields, data_fields, batch_fields, optim_fields, lr_fields, loss_fields, ema_fields,
          precision_fields, parallel_fields, checkpoint_fields, run_fields}) {
      const std::vector<Field> rows = section();
      out.insert(out.end(), rows.begin(), rows.end());
    }
    return out;
  }();
  return all;
}

bool applies(const Field& field, const models::ModelConfig& model) {
  const models::Family* family = models::find_family(model.family);
  return field.section != "model" || family == nullptr || family->has(field.key);
}

const Field* find_field(std::string_view section, std::string_view key) {
  const auto& all = fields();
  const auto it = std::find_if(
      all.begin(), all.end(), [&](const Field& f) { return f.section == section && f.key == key; });
  return it == all.end() ? nullptr : &*it;
}

std::vector<std::string> section_names() {
  std::vector<std::string> out;
  for (const Field& f : fields())
    if (out.empty() || out.back() != f.section) out.emplace_back(f.section);
  return out;
}

std::vector<std::string> key_names(std::string_view section) {
  std::vector<std::string> out;
  for (const Field& f : fields())
    if (f.section == section) out.emplace_back(f.key);
  return out;
}

}  // namespace tessera::config
