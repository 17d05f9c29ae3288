#include "config/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "config/batch.h"
#include "config/devices.h"
#include "config/fields.h"
#include "ir/optimizers.h"

namespace tessera::config {
namespace {

// A configuration under check, and what was found.
class Checks {
 public:
  explicit Checks(const Config& config) : c_(config) {}

  CheckOutcome done() { return std::move(found_); }

  void augmentation();
  void sampling();
  void optimizer(bool trains);
  void devices();
  void liberties();
  void wire();
  void patience();
  void compression();
  void offload();

 private:
  void add(std::vector<std::string> keys, std::string message, std::string advice) {
    found_.problems.push_back({std::move(keys), std::move(message), std::move(advice)});
  }
  void note(std::string text) { found_.notes.push_back(std::move(text)); }
  // Models of tokens are transformers; the others convolve.
  bool convolves() const {
    const models::Family* family = models::find_family(c_.model.family);
    return family != nullptr && !family->tokens;
  }
  std::string value(std::string_view name) const { return value_text(c_, name); }

  const Config& c_;
  CheckOutcome found_;
};

void Checks::augmentation() {
  const Data& d = c_.data;
  const std::int64_t channels = c_.model.channels,
                     side = std::min(c_.model.image_h, c_.model.image_w);
  const auto per_channel = [&](const char* key, const std::vector<double>& list) {
    if (list.size() > 1 && static_cast<std::int64_t>(list.size()) != channels)
      add({key, "model.channels"},
          fmt::format("{} has {} numbers but model.channels = {}", key, list.size(), channels),
          "give one number, or one per channel");
  };
  per_channel("data.mean", d.mean);
  per_channel("data.deviation", d.deviation);
  if (d.normalize != "half" && channels != 3 && (d.mean.empty() || d.deviation.empty()))
    add({"data.normalize", "model.channels"},
        fmt::format("data.normalize = {} is about 3 channels, not {}", value("data.normalize"),
                    channels),
        "choose half, or give data.mean and data.deviation");
  if (d.resized_crop > 0 && d.crop > 0)
    add({"data.resized_crop", "data.crop"}, "data.resized_crop and data.crop are both given",
        "choose one of the two crops");
  if (!d.randaugment.empty() && d.autoaugment)
    add({"data.randaugment", "data.autoaugment"},
        "data.randaugment and data.autoaugment are both given", "choose one of the two policies");
  const auto whole = [](double number) { return number == std::floor(number); };
  if (!d.randaugment.empty() && (d.randaugment.size() != 2 || !whole(d.randaugment[0]) ||
                                 !whole(d.randaugment[1]) || d.randaugment[0] < 1))
    add({"data.randaugment"},
        "data.randaugment = " + value("data.randaugment") +
            " is not a number of operations and a magnitude",
        "for example [2, 9], or [] for none");
  if (d.color_jitter.size() == 4 && d.color_jitter[3] > 0.5)
    add({"data.color_jitter"},
        fmt::format("data.color_jitter turns the hue by {}", d.color_jitter[3]),
        "choose at most 0.5 as the fourth number");
  if (d.source.starts_with("npy:"))
    for (const auto& [key, on] : {std::pair{"data.color_jitter", !d.color_jitter.empty()},
                                  std::pair{"data.randaugment", !d.randaugment.empty()},
                                  std::pair{"data.autoaugment", d.autoaugment}})
      if (on)
        add({key, "data.source"},
            fmt::format("{} works on 8-bit colours, but data.source is a folder of arrays", key),
            "leave it out: crops, flips, erasing, cutout, Mixup and CutMix work on arrays");
  if (d.eval_resize > 0 && d.eval_resize < side)
    add({"data.eval_resize", "model.image"},
        fmt::format("data.eval_resize = {} is less than the model's {} pixels", d.eval_resize,
                    side),
        "choose the model's side or more");
}

void Checks::sampling() {
  if (c_.data.balanced && !c_.data.shuffle)
    add({"data.balanced", "data.shuffle"},
        "data.balanced = true draws samples at random, but data.shuffle = false",
        "leave one of them out");
}

void Checks::optimizer(bool trains) {
  const ir::OptimizerRow* row = ir::find_optimizer(c_.optim.name);
  const auto reads = [&](const char* key) { return row && row->reads(key); };
  if (reads("nesterov") && c_.optim.nesterov && c_.optim.momentum == 0)
    add({"optim.nesterov", "optim.momentum"}, "optim.nesterov = true needs optim.momentum > 0",
        "choose a momentum such as 0.9");
  if (c_.lr.schedule == "onecycle" && c_.lr.warmup.of(1000000) == 0)
    add({"lr.warmup", "lr.schedule"},
        "lr.schedule = \"onecycle\" rises first: lr.warmup must be more than 0",
        "choose a length such as \"30%\"");
  if (const std::string peak = peak_text(c_); !peak.empty() && trains) note(peak);
  const Precision& p = c_.precision;
  if (const Precision plain;
      p.dtype != "f16" && p.loss_scale != 1.0 && p.loss_scale != plain.loss_scale)
    note(fmt::format("precision.loss_scale = {} changes nothing: it is for precision.dtype = f16",
                     value("precision.loss_scale")));
  if (p.dtype == "f16" && p.loss_scale == 0 &&
      p.min_loss_scale > std::ldexp(1.0, static_cast<int>(p.initial_scale_power)))
    add({"precision.min_loss_scale", "precision.initial_scale_power"},
        fmt::format("precision.min_loss_scale = {} is more than the scale begins with, 2^{}",
                    value("precision.min_loss_scale"), p.initial_scale_power),
        "choose a larger precision.initial_scale_power or a smaller minimum");
  const bool several = c_.parallel.dp * c_.parallel.tp * c_.parallel.pp * c_.parallel.sp > 1;
  if (p.dtype == "fp8" && several)
    add({"precision.dtype", "parallel.dp"},
        "precision.dtype = \"fp8\" is for one rank: the scales of several are not agreed upon",
        "choose bf16, or one rank");
  if (p.dtype == "fp8" && convolves())
    add({"precision.dtype", "model.family"},
        "precision.dtype = \"fp8\" is for the products in blocks of a transformer, and this model "
        "has none",
        "choose bf16");
  if (p.quantise != "none" && trains)
    add({"precision.quantise"}, "precision.quantise is for inference; a training needs gradients",
        "leave it out, and quantise the trained weights with `tessera quantize`");
  if (p.quantise != "none" && several)
    add({"precision.quantise", "parallel.dp"}, "quantised layers run on one rank",
        "leave precision.quantise or the ranks out");
  if (p.quantise != "none" && p.dtype == "f64")
    add({"precision.quantise", "precision.dtype"},
        "quantised layers have f32 scales, and precision.dtype is f64", "choose f32 or bf16");
  // Rounded to f32 it would be 0 or nearly so, and 0 / 0 where a weight has no gradient yet.
  if (reads("eps") && c_.optim.eps < std::numeric_limits<float>::min() &&
      c_.precision.dtype != "f64")
    add({"optim.eps", "precision.dtype"},
        fmt::format("optim.eps = {} is too small for precision.dtype = {}, whose optimizer "
                    "computes in f32",
                    value("optim.eps"), value("precision.dtype")),
        "choose 1.2e-38 or more (1e-8 is usual), or f64");
}

void Checks::devices() {
  const Parallel& p = c_.parallel;
  const bool several = mixed(c_);
  if (p.comm == "nccl" && !all_on(c_, "cuda"))
    add({"parallel.comm", "run.device"},
        fmt::format("parallel.comm = \"nccl\" is for messages between cards, and run.device = {} "
                    "has {}",
                    value("run.device"), several ? "ranks without one" : "none"),
        several ? "choose parallel.comm = auto, local or mpi: messages then pass through the host"
                : "choose run.device = cuda, or parallel.comm = auto, local or mpi");
  const auto given = static_cast<std::int64_t>(devices_of(c_).size());
  if (const std::int64_t ranks = p.dp * p.tp * p.pp * p.sp; given > 1 && given != ranks)
    add({"run.device"},
        fmt::format("run.device = {} names {} devices for {} rank{}", value("run.device"), given,
                    ranks, ranks == 1 ? "" : "s"),
        "name one device for each rank, or one for all of them");
  if (!several || p.dp == 1) return;
  if (p.shares.list.empty() && p.shares.word.empty())
    note(
        "ranks run on different devices and each gets an equal share of the batch; "
        "parallel.weights = measured shares it out by their speed");
  if (p.zero == 0)
    note(
        "ranks on different devices round their updates differently, so copies of the weights "
        "drift apart by roundings; parallel.zero = 1 lets one rank update each of them for all");
}

// Checks the liberties taken for speed: a note where nothing gains by one.
void Checks::liberties() {
  const bool cards = any_on(c_, "cuda");
  const auto idle = [&](const char* key, const std::string& why) {
    note(fmt::format("{} = {} changes nothing: {}", key, value(key), why));
  };
  if (c_.precision.tf32 && !cards)
    idle("precision.tf32", "it is for cards, and run.device = " + value("run.device"));
  else if (c_.precision.tf32 && c_.precision.dtype != "f32")
    idle("precision.tf32", "it is for f32, and precision.dtype = " + value("precision.dtype"));
  if (!c_.precision.winograd && (!convolves() || c_.precision.dtype != "f32"))
    idle("precision.winograd", "it is for f32 and for models of convolutions");
  else if (!c_.precision.winograd && !any_on(c_, "cpu"))
    idle("precision.winograd", "it is for the CPU, and run.device = " + value("run.device"));
  if (c_.run.threading != "auto" && !any_on(c_, "cpu"))
    idle("run.threading", "it is for cores, and run.device = " + value("run.device"));
  else if (c_.run.threading != "auto" && c_.run.threads == 1)
    idle("run.threading", "run.threads = 1");
  if (c_.run.deterministic) return;
  if (!cards)
    idle("run.deterministic", "no kernel of the CPU would be faster in another order");
  else if (!convolves())
    idle("run.deterministic",
         "only convolutions on a card have kernels that gain, and this model has none");
  else
    note(
        "run.deterministic = false: convolutions may add in no fixed order, so that two runs, or "
        "a run and its resume, may differ in their last bits");
}

void Checks::wire() {
  const Parallel& p = c_.parallel;
  devices();
  liberties();
  const std::string& by = p.all_reduce;
  const bool local = p.comm == "local", nccl = p.comm == "nccl",
             alone = p.dp * p.tp * p.pp * p.sp == 1;
  const auto idle = [&](const char* key, const char* why) {
    note(fmt::format("{} = {} changes nothing: {}", key, value(key), why));
  };
  if (by != "auto" && (alone || local || nccl))
    idle("parallel.all_reduce", alone  ? "there is one rank"
                                : nccl ? "NCCL adds up between cards"
                                       : "ranks that are threads add up in each other's memory");
  if (p.wire == "f32") return;
  if (nccl && !alone) return idle("parallel.wire", "NCCL adds up between cards");
  if (local || by == "shared" || by == "mpi")
    add({"parallel.wire", "parallel.all_reduce", "parallel.comm"},
        "parallel.wire = " + value("parallel.wire") +
            " is for what travels round a ring between MPI ranks, and there is none here",
        "choose parallel.all_reduce = ring, hierarchical or auto without parallel.comm = local; "
        "parallel.compress works with all");
  else if (alone)
    idle("parallel.wire", "there is one rank");
  else if (c_.precision.dtype == "f64")
    idle("parallel.wire", "it is for f32 sums, and precision.dtype = \"f64\" has none");
}

void Checks::patience() {
  if (c_.parallel.hang_s > 0 && c_.parallel.hang_s < 1)
    add({"parallel.hang_s"},
        fmt::format("parallel.hang_s = {} is out of range", value("parallel.hang_s")),
        "choose at least 1 second, or 0 to wait for ever");
}

void Checks::compression() {
  if (c_.parallel.compress == "none") return;
  const std::string said = "parallel.compress = " + value("parallel.compress");
  const bool cut_tokens = c_.parallel.sp > 1 || c_.parallel.sequence == "megatron";
  if (c_.parallel.zero == 3)
    add({"parallel.compress", "parallel.zero"},
        said + " is for sums over dp ranks of whole gradients, which parallel.zero = 3 never has",
        "choose parallel.zero up to 2, or none");
  else if (parse_compress(c_.parallel.compress).kind == "powersgd" && c_.parallel.zero > 0 &&
           cut_tokens)
    add({"parallel.compress", "parallel.zero", "parallel.sequence", "parallel.sp"},
        said + fmt::format(" is for whole matrices, which sequence-parallel ranks with "
                           "parallel.zero = {} never have",
                           c_.parallel.zero),
        "choose parallel.zero = 0, or another kind");
  else if (c_.parallel.dp == 1)
    note(said + " compresses nothing: there is one data-parallel rank");
}

void Checks::offload() {
  const Parallel& p = c_.parallel;
  if (p.offload_optimizer != "file" && p.offload_params != "file" && !p.offload_folder.empty())
    note(fmt::format(
        "parallel.offload_folder changes nothing: it is for state that rests in a file, and "
        "parallel.offload_optimizer = {}",
        value("parallel.offload_optimizer")));
  for (const char* key : {"parallel.offload_optimizer", "parallel.offload_params"})
    if (value(key) == "\"host\"" && c_.run.device == "cpu")
      note(
          fmt::format("{} = \"host\" saves nothing with run.device = \"cpu\": both are "
                      "memory of the host",
                      key));
  if (p.offload_params != "none" && p.zero != 3)
    add({"parallel.offload_params", "parallel.zero"},
        fmt::format("parallel.offload_params = {} is for the weights that ZeRO 3 shares out layer "
                    "by layer, and parallel.zero = {}",
                    value("parallel.offload_params"), p.zero),
        "choose parallel.zero = 3, which also works with one rank, or none");
}

}  // namespace

std::string value_text(const Config& config, std::string_view name) {
  const auto dot = name.find('.');
  return toml_value(*find_field(name.substr(0, dot), name.substr(dot + 1)), config);
}

CheckOutcome augmentation_findings(const Config& config) {
  Checks checks(config);
  checks.augmentation();
  checks.sampling();
  return checks.done();
}

CheckOutcome optimizer_findings(const Config& config, bool trains) {
  Checks checks(config);
  checks.optimizer(trains);
  return checks.done();
}

CheckOutcome communication_findings(const Config& config, bool readable_compression) {
  Checks checks(config);
  checks.wire();
  checks.patience();
  if (readable_compression) checks.compression();
  checks.offload();
  return checks.done();
}

}  // namespace tessera::config
