#include "config/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <numeric>

#include "config/batch.h"
#include "config/fields.h"
#include "config/layout.h"
#include "config/outside.h"
#include "config/pipeline.h"
#include "config/run_name.h"
#include "data/class_folders.h"
#include "ir/optimizers.h"

namespace tessera::config {
namespace {

// Capabilities that come with later versions: accepted at their neutral value, refused otherwise.
// To add one, delete its row.
struct Later {
  std::string_view key;
  bool (*used)(const Config&);
  std::string_view reason;
  bool partly = false;  // some other values are there already
};
const Later later[] = {
    {"data.resident", [](const Config& c) { return !c.data.resident; },
     "this build has no data to keep elsewhere; leave it at true", true},
    {"optim.name", [](const Config& c) { return c.optim.name == "lars"; },
     "this build has adamw, sgd and lamb", true},
    {"precision.dtype",
     [](const Config& c) { return c.precision.dtype == "f16" || c.precision.dtype == "fp8"; },
     "it comes with the CUDA executor; choose f32, bf16 or f64", true},
    {"precision.loss_scale", [](const Config& c) { return c.precision.loss_scale != 1.0; },
     "it comes with f16 and the CUDA executor; leave it at 1"},
    {"parallel.comm", [](const Config& c) { return c.parallel.comm == "nccl"; },
     "this build has no CUDA executor; choose auto, local or mpi", true},
    {"run.device", [](const Config& c) { return c.run.device == "cuda"; },
     "this build has no CUDA executor; choose cpu", true},
};

// The keys ("model.heads") that a message of models::problems() names, in order.
std::vector<std::string> keys_in(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; (at = text.find("model.", at)) != text.npos;) {
    const std::size_t end = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", at + 6);
    out.push_back(text.substr(at, end - at));
    at = std::min(end, text.size());
  }
  return out;
}

class Resolver {
 public:
  Resolver(Config& config, const Given& given, std::set<std::string> refused,
           const Situation& situation)
      : c_(config), asked_(config), given_(given), refused_(std::move(refused)), now_(situation) {}

  Outcome run() {
    refuse_later();
    foreign_keys();
    source_and_model();
    augmentation();
    sampling();
    layout();
    batch();  // a rank's part follows from the number of dp ranks
    pipeline();
    optimizer();
    texts();
    wire();
    patience();
    compression();
    length();
    names();
    return {std::move(problems_), std::move(notes_)};
  }

 private:
  bool given(std::string_view key) const { return given_.find(key) != given_.end(); }
  bool trains() const { return now_.purpose == Purpose::train || now_.purpose == Purpose::check; }
  bool refused(std::string_view key) const { return refused_.count(std::string(key)) > 0; }

  // The problem stands at the first of `keys` that was given; nothing is said when one of them was
  // already refused.
  void add(const std::vector<std::string>& keys, std::string message, std::string advice = "") {
    Place place;
    for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
      if (refused(*key)) return;
      if (const auto it = given_.find(*key); it != given_.end()) place = it->second;
    }
    problems_.push_back({std::move(place), std::move(message), std::move(advice)});
  }

  void add(const Finding& f) {
    if (!f.whole) return add(f.keys, f.message, f.advice);
    for (const std::string& key : f.keys)
      if (refused(key)) return;
    problems_.push_back({Place{}, f.message, f.advice});
  }

  std::string value(std::string_view name) const {
    const auto dot = name.find('.');
    return toml_value(*find_field(name.substr(0, dot), name.substr(dot + 1)), c_);
  }

  void refuse_later() {
    for (const Later& row : later) {
      if (!row.used(c_)) continue;
      const std::string key(row.key);
      add({key}, fmt::format("{} = {}: {}", key, value(key), row.reason));
      refused_.insert(key);
    }
  }

  // A key that the family does not read would be a silent mistake.
  void foreign_keys() {
    const models::Family* family = models::find_family(c_.model.family);
    for (const auto& [key, place] : given_) {
      const auto dot = key.find('.');
      if (family == nullptr ||
          applies(*find_field(key.substr(0, dot), key.substr(dot + 1)), c_.model))
        continue;
      add({key}, fmt::format("{} is not a key of the {} family", key, family->name),
          "it has " + std::string(family->keys));
      refused_.insert(key);
    }
  }

  void source_and_model() {
    Source source;
    bool read = !refused("data.source");
    if (read) {
      try {
        source = parse_source(c_.data.source);
      } catch (const Error& e) {
        add({"data.source"}, e.message, e.hint);
        refused_.insert("data.source");
        read = false;
      }
    }
    if (read && source.kind == "folder")
      source.classes = static_cast<std::int64_t>(data::class_folders(source.dir).names.size());
    if (read) {
      follow("model.channels", source.channels, c_.model.channels);
      follow("model.classes", source.classes, c_.model.classes);
      if (source.h > 0 && !given("model.image"))
        c_.model.image_h = source.h, c_.model.image_w = source.w;
      // Pictures are resized to what the model wants; synthetic ones are drawn in its size.
      if (source.kind == "synthetic" && source.h > 0 &&
          (c_.model.image_h != source.h || c_.model.image_w != source.w))
        add({"model.image", "data.source"},
            fmt::format("model.image = {} but data.source = {} has {} x {} images",
                        value("model.image"), value("data.source"), source.h, source.w),
            "leave model.image out and it follows the data");
    }
    for (const std::string& problem : models::problems(c_.model)) {
      std::vector<std::string> keys = keys_in(problem);
      std::string advice;
      if (problem.find("does not divide") != problem.npos) {
        const bool heads = keys[0] == "model.heads";
        const std::int64_t whole =
            heads ? c_.model.dim : std::gcd(c_.model.image_h, c_.model.image_w);
        advice = "choose " + divisors(whole, heads ? c_.model.heads : c_.model.patch);
      }
      keys.push_back("data.source");  // image and classes may have come from there
      keys.push_back("model.name");
      add(keys, problem, advice);
    }
    if (!trains()) return;
    for (const Finding& problem :
         outside_problems(c_, read ? &source : nullptr, now_.purpose == Purpose::check))
      add(problem);
  }

  void sampling() {
    if (c_.data.balanced && !c_.data.shuffle)
      add({"data.balanced", "data.shuffle"},
          "data.balanced = true draws samples at random, but data.shuffle = false",
          "leave one of them out");
  }

  void follow(const std::string& key, std::int64_t stated, std::int64_t& model) {
    if (stated == 0) return;
    if (!given(key)) model = stated;
    if (model != stated)
      add({key, "data.source"},
          fmt::format("{} = {} but data.source = {} has {}", key, model, value("data.source"),
                      stated),
          "leave " + key + " out and it follows the data");
  }

  void augmentation() {
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
    if (d.eval_resize > 0 && d.eval_resize < side)
      add({"data.eval_resize", "model.image"},
          fmt::format("data.eval_resize = {} is less than the model's {} pixels", d.eval_resize,
                      side),
          "choose the model's side or more");
  }

  void batch() {
    for (const char* key : {"batch.global", "batch.micro", "batch.accumulate"})
      if (refused(key)) return;
    BatchGiven wish;
    if (given("batch.global")) wish.global = c_.batch.global;
    if (given("batch.micro")) wish.micro = c_.batch.micro;
    if (given("batch.accumulate")) wish.accumulate = c_.batch.accumulate;
    const BatchSolution solved =
        (now_.deepspeed ? solve_deepspeed_batch : solve_batch)(wish, c_.parallel.dp);
    c_.batch = solved.batch;
    if (solved.problem) add(*solved.problem);
    if (!solved.note.empty()) notes_.push_back(solved.note);
    if (!solved.problem) size();
  }

  // Numbers that are all in range can make a tensor that no memory holds.
  void size() {
    if (!models::problems(c_.model).empty()) return;
    const std::int64_t at_once = largest_micro(c_.batch.global, c_.batch.accumulate, 1);
    const double one = models::widest_tensor(c_.model, c_.run.fuse),
                 elements = static_cast<double>(at_once) * one;
    if (elements <= models::most_elements) return;
    add({"batch.global", "batch.micro", "model.image", "model.patch", "model.mlp", "model.name"},
        fmt::format("{} sample{} at once make a tensor of about {:.1e} elements; at most {:.1e} "
                    "fit any memory",
                    at_once, at_once == 1 ? "" : "s", elements, models::most_elements),
        one > models::most_elements
            ? "choose a smaller model.image, or run.fuse = true"
            : fmt::format("choose at most {:.0f} with batch.global or batch.accumulate",
                          std::floor(models::most_elements / one)));
  }

  void optimizer() {
    const ir::OptimizerRow* row = ir::find_optimizer(c_.optim.name);
    const auto reads = [&](const char* key) { return row && row->reads(key); };
    if (reads("nesterov") && c_.optim.nesterov && c_.optim.momentum == 0)
      add({"optim.nesterov", "optim.momentum"}, "optim.nesterov = true needs optim.momentum > 0",
          "choose a momentum such as 0.9");
    if (c_.lr.schedule == "onecycle" && c_.lr.warmup.of(1000000) == 0)
      add({"lr.warmup", "lr.schedule"},
          "lr.schedule = \"onecycle\" rises first: lr.warmup must be more than 0",
          "choose a length such as \"30%\"");
    if (const std::string peak = peak_text(c_); !peak.empty() && now_.purpose != Purpose::inference)
      notes_.push_back(peak);
    // Rounded to f32 it would be 0 or nearly so, and 0 / 0 where a weight has no gradient yet.
    if (reads("eps") && c_.optim.eps < std::numeric_limits<float>::min() &&
        c_.precision.dtype != "f64")
      add({"optim.eps", "precision.dtype"},
          fmt::format("optim.eps = {} is too small for precision.dtype = {}, whose optimizer "
                      "computes in f32",
                      value("optim.eps"), value("precision.dtype")),
          "choose 1.2e-38 or more (1e-8 is usual), or f64");
    if (c_.precision.dtype == "f64" && c_.run.device != "cpu")
      add({"precision.dtype", "run.device"}, "precision.dtype = \"f64\" runs on the CPU only",
          "choose run.device = \"cpu\" or f32");
  }

  // Text with a syntax of its own: the parser's error becomes a problem.
  template <class F>
  void try_text(const char* key, F&& parse) {
    if (refused(key)) return;
    try {
      parse();
    } catch (const Error& e) {
      add({key}, e.message, e.hint);
      refused_.insert(key);
    }
  }

  void texts() {
    try_text("optim.freeze", [&] { parse_freeze(c_.optim.freeze); });
    try_text("parallel.recompute", [&] { parse_recompute(c_.parallel.recompute); });
    try_text("parallel.compress", [&] { parse_compress(c_.parallel.compress); });
    if (!c_.run.until.empty()) try_text("run.until", [&] { parse_until(c_.run.until); });
  }

  void wire() {
    const Parallel& p = c_.parallel;
    const std::string& by = p.all_reduce;
    const bool local = p.comm == "local", alone = p.dp * p.tp * p.pp * p.sp == 1;
    const auto idle = [&](const char* key, const char* why) {
      notes_.push_back(fmt::format("{} = {} changes nothing: {}", key, value(key), why));
    };
    if (by != "auto" && (alone || local))
      idle("parallel.all_reduce",
           alone ? "there is one rank" : "ranks that are threads add up in each other's memory");
    if (p.wire == "f32") return;
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

  void patience() {
    if (c_.parallel.hang_s > 0 && c_.parallel.hang_s < 1)
      add({"parallel.hang_s"},
          fmt::format("parallel.hang_s = {} is out of range", value("parallel.hang_s")),
          "choose at least 1 second, or 0 to wait for ever");
  }

  void compression() {
    if (c_.parallel.compress == "none" || refused("parallel.compress")) return;
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
      notes_.push_back(said + " compresses nothing: there is one data-parallel rank");
  }

  void layout() {
    LayoutOutcome out = resolve_layout(
        c_, [this](std::string_view key) { return given(key); }, now_.world);
    for (const Finding& problem : out.problems) add(problem);
    for (std::string& note : out.notes) notes_.push_back(std::move(note));
  }

  void pipeline() {
    LayoutOutcome out = resolve_pipeline(c_, [this](std::string_view key) { return given(key); });
    for (const Finding& problem : out.problems) add(problem);
    if (now_.purpose == Purpose::inference) return;
    for (std::string& note : out.notes) notes_.push_back(std::move(note));
  }

  void length() {
    if (trains() && c_.run.epochs == 0 && c_.run.steps == 0)
      add({"run.epochs", "run.steps"}, "nothing says how long to train",
          "give run.epochs or run.steps (--epochs 10)");
    for (const char* key : {"run.epochs", "run.steps", "batch.global", "data.source",
                            "data.train_size", "data.fraction"})
      if (refused(key)) return;
    const std::optional<std::int64_t> total = total_steps(c_);
    if (total && c_.lr.schedule == "ds_cosine" && c_.lr.steps > 0 && *total > c_.lr.steps + 1 &&
        trains())
      notes_.push_back(
          fmt::format("the run of {} steps is longer than lr.steps = {}: past it the rate rises "
                      "again, as DeepSpeed's does",
                      *total, c_.lr.steps));
    const bool own = !c_.lr.schedule.starts_with("ds_");  // DeepSpeed takes a warm-up of any length
    if (total && own && !c_.lr.warmup.is_percent && c_.lr.warmup.steps > *total)
      add({"lr.warmup", "run.steps", "run.epochs"},
          fmt::format("lr.warmup = {} is longer than the run of {} steps", c_.lr.warmup.steps,
                      *total),
          "choose fewer steps or a percentage such as \"5%\"");
  }

  void names() {
    Run& r = c_.run;
    const auto bad = [](char c) {
      return !(std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-' ||
               c == '+');
    };
    if (!r.name.empty() && (r.name.find('/') != r.name.npos || r.name == "." || r.name == ".."))
      add({"run.name"}, "run.name = " + value("run.name") + " is not a name of a folder",
          "use run.out for a path");
    if (r.name.empty() && r.out.empty()) {
      r.name = default_run_name({now_.stem, now_.deepspeed_stem, asked_, given_});
    } else if (r.name.empty()) {
      const std::filesystem::path out(r.out);
      r.name = (out.has_filename() ? out.filename() : out.parent_path().filename()).string();
      std::replace_if(r.name.begin(), r.name.end(), bad, '-');
      if (r.name.empty() || r.name == "." || r.name == "..") r.name = "run";
    }
    if (r.out.empty()) r.out = "runs/" + r.name;
  }

  Config& c_;
  const Config asked_;  // before anything was derived
  const Given& given_;
  std::set<std::string> refused_;
  const Situation& now_;
  std::vector<Problem> problems_;
  std::vector<std::string> notes_;
};

}  // namespace

Outcome resolve(Config& config, const Given& given, std::set<std::string> refused,
                const Situation& situation) {
  return Resolver(config, given, std::move(refused), situation).run();
}

bool comes_later(std::string_view key) {
  return std::any_of(std::begin(later), std::end(later),
                     [&](const Later& row) { return row.key == key && !row.partly; });
}

std::optional<std::int64_t> total_steps(const Config& c) {
  const Source source = parse_source(c.data.source);
  const std::int64_t samples = source.kind == "synthetic" ? c.data.train_size : source.train_size;
  std::optional<std::int64_t> total;
  if (c.run.steps > 0) total = c.run.steps;
  if (c.run.epochs > 0 && samples > 0) {
    const auto used =
        std::max<std::int64_t>(1, std::llround(static_cast<double>(samples) * c.data.fraction));
    const std::int64_t rest = c.data.drop_last ? 0 : c.batch.global - 1;
    const std::int64_t all =
        c.run.epochs *
        std::max<std::int64_t>(1, (used + rest) / c.batch.global);  // at most 1e9 x 1e9
    total = total ? std::min(*total, all) : all;
  } else if (c.run.epochs > 0) {
    return {};
  }
  return total;
}

}  // namespace tessera::config
