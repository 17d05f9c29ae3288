// The configuration of a run: one plain struct, section by section as in the TOML file, every value
// resolved after load(). Convention: names are the keys of the file; the table in fields.cpp is the
// only other place that lists them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/config.h"

namespace tessera::config {

// A length of the run: steps, or a percentage of all its steps ("5%").
struct Span {
  std::int64_t steps = 0;
  double percent = 0.0;  // used when is_percent
  bool is_percent = false;
  std::int64_t of(std::int64_t total) const;
  bool operator==(const Span&) const = default;
};

// A list of numbers, or a word that says how to find them ("params", "measured"); both empty: not
// set.
struct ListOrWord {
  std::vector<double> list;
  std::string word;
  bool operator==(const ListOrWord&) const = default;
};

struct Data {
  std::string source = "synthetic";
  double fraction = 1.0;
  std::int64_t train_size = 8192, test_size = 1024;  // synthetic only
  std::int64_t workers = 1;
  std::string augment_on = "auto";
  std::string resident = "auto";
  std::int64_t held = 0;  // pictures that the device holds: follows from `resident` and the data
                          // (input/resident.h), no key
  std::int64_t held_h = 0,
               held_w = 0;  // their size: the program resizes where it is not the model's
  bool shuffle = true;
  bool balanced = false;
  bool drop_last = false;
  double val_fraction = 0.1;  // folder only
  std::string class_weights = "none";
  std::string normalize = "half";
  std::vector<double> mean, deviation;  // empty: those of `normalize`
  std::string flip = "none";
  std::int64_t crop = 0;
  std::string crop_mode = "zero";
  double resized_crop = 0.0;
  std::string resize = "before";
  std::vector<double> color_jitter;  // brightness, contrast, saturation, hue; fewer: the rest is 0
  std::vector<double> randaugment;   // operations and magnitude; empty: off
  bool autoaugment = false;
  double erase = 0.0;
  std::string erase_value = "zero";
  std::int64_t cutout = 0;
  double mixup = 0.0, cutmix = 0.0, mix_prob = 1.0, mix_switch = 0.5;
  std::string interpolation = "bilinear";
  std::int64_t eval_resize = 0;
  std::string eval_crop = "center";
  std::string tta = "none";
  bool operator==(const Data&) const = default;
};

// global samples per update are cut into `accumulate` micro-batches and each of those over the dp
// ranks; `micro` is a rank's largest part (parts of one cut differ by at most one).
struct Batch {
  std::int64_t global = 128, micro = 128, accumulate = 1;
  bool operator==(const Batch&) const = default;
};

struct Optim {
  std::string name = "adamw";
  double lr = 1e-3, weight_decay = 0.05;
  bool decay_all = false;
  double momentum = 0.9;
  bool nesterov = false;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double clip = 0.0;
  double layer_decay = 1.0;
  std::string freeze = "none";
  bool operator==(const Optim&) const = default;
};

struct Lr {
  std::string schedule = "cosine";
  Span warmup = {0, 5.0, true};
  double start = 0.0, final = 0.0;  // fractions of the peak
  std::string rise = "linear";
  std::int64_t steps = 0;
  Span step_every = {0, 30.0, true};
  double step_gamma = 0.1;
  std::string scale = "none";
  std::int64_t scale_from = 256;  // samples per update
  bool operator==(const Lr&) const = default;
};

struct Loss {
  double label_smoothing = 0.0;
  bool operator==(const Loss&) const = default;
};

struct Ema {
  double decay = 0.0;
  bool operator==(const Ema&) const = default;
};

struct Precision {
  std::string dtype = "f32";
  double loss_scale = 0.0;  // f16 only, like the keys below; 0: dynamic
  std::int64_t initial_scale_power = 16, loss_scale_window = 2000, hysteresis = 1;
  double min_loss_scale = 1.0;
  std::string quantise = "none";  // inference: none | int8 | fp8
  bool tf32 = false;              // on cards
  bool winograd = true;           // f32 on the CPU
  bool operator==(const Precision&) const = default;
};

struct Parallel {
  // load() fills in dp: all ranks that the other axes leave, unless given.
  std::int64_t dp = 1, tp = 1, pp = 1, sp = 1, zero = 0;
  std::string sequence = "none", schedule = "1f1b";
  ListOrWord stages = {{}, "flops"};
  std::int64_t segments = 1, chunks = 1;
  std::string recompute = "none";
  ListOrWord shares;  // parallel.weights: of a batch, per dp rank
  double bucket_mb = 4.0;
  bool overlap = true, prefetch = true, overlap_update = true;
  std::string compress = "none", comm = "auto", all_reduce = "auto", wire = "f32";
  double hang_s = 300.0;
  double disk_s = 600.0;
  std::int64_t persist = 100000;  // elements
  std::string offload_optimizer = "none", offload_params = "none";
  std::string offload_folder;  // "": the run folder
  double offload_mb = 16.0;
  bool operator==(const Parallel&) const = default;
};

struct Checkpoint {
  std::int64_t every = 0, keep = 2;  // every = -1: auto
  bool keep_best = true;
  double mtbf_h = 24.0;
  std::int64_t memory_every = 0;  // 0: no checkpoints in memory
  bool operator==(const Checkpoint&) const = default;
};

struct Run {
  std::string name, out;  // load() fills both
  std::string device = "cpu";
  std::int64_t threads = 1;        // load() takes all cores unless told
  std::string threading = "auto";  // auto, heads, rows or products
  std::int64_t np = 1, seed = 0;   // load() makes np the number of ranks of the mesh
  std::int64_t np_min = 0;         // 0: one copy of the model
  std::int64_t restarts = 0;
  std::string hostfile;  // "": this machine, or what the launcher knows
  double host_wait_s = 30.0;
  std::string place = "auto";  // auto, cores or none
  bool oversubscribe = false;  // more ranks and threads than cores may be started
  std::int64_t epochs = 0,
               steps = 0;  // 0: not given; with both, the run ends at whichever comes first
  std::string until;       // "" or METRIC=VALUE
  std::int64_t eval_every = 1;
  bool csv = true, tensorboard = true;
  std::int64_t trace = 5;  // steps
  bool fuse = true;
  bool deterministic = true;
  bool operator==(const Run&) const = default;
};

// The layout that was asked for, where fewer ranks are left than that (config/shrink.h); no key. dp
// = 0: all are here.
struct Whole {
  std::int64_t dp = 0, np = 0, micro = 0, accumulate = 0;
  std::vector<double> shares;  // parallel.weights
  bool operator==(const Whole&) const = default;
};

struct Config {
  models::ModelConfig model = models::preset("vit_tiny_cifar");
  std::string init;  // model.init: weights to start from; "": drawn
  Data data;
  Batch batch;
  Optim optim;
  Lr lr;
  Loss loss;
  Ema ema;
  Precision precision;
  Parallel parallel;
  Checkpoint checkpoint;
  Run run;
  Whole whole;
  bool operator==(const Config&) const = default;
};

// The texts with a small syntax of their own. Each throws Error(usage) on text that load() would
// have refused.

// synthetic | synthetic:HxWxC,CLASSES | cifar10:DIR | cifar100:DIR | folder:DIR. Sizes are 0 where
// the source does not state them.
struct Source {
  std::string kind, dir;
  std::int64_t h = 0, w = 0, channels = 0, classes = 0, train_size = 0;
  bool has_class_folders() const { return kind == "folder" || kind == "npy"; }
};
Source parse_source(std::string_view text);

// "top1=0.94": stop once the metric reaches the value (top1, top5: at least; loss: at most).
struct Target {
  std::string metric;
  double value = 0.0;
};
Target parse_until(std::string_view text);

// The part that is not trained: "none" -> 0, "backbone" (all but the head) -> -1, "N": the
// embeddings (or stem) and the first N - 1 layers -> N.
std::int64_t parse_freeze(std::string_view text);

// "none" -> 0, "full" -> 1 (every block is recomputed from its input), "every=N" -> N (the input of
// every N-th block is kept).
std::int64_t parse_recompute(std::string_view text);

// How gradients are sent: none | fp16 | bf16 | int8 | onebit | topk=FRACTION | powersgd=RANK.
struct Compression {
  std::string kind = "none";
  double fraction = 0.0;  // topk
  std::int64_t rank = 0;  // powersgd
};
Compression parse_compress(std::string_view text);

// The order of a pipeline's work: gpipe | 1f1b | interleaved | zb (also zb-h1), or file:PATH, which
// lists it rank by rank.
struct Schedule {
  std::string kind, path;  // kind "file" has a path
};
Schedule parse_schedule(std::string_view text);

}  // namespace tessera::config
