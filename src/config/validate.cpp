#include "config/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "config/batch.h"
#include "config/checks.h"
#include "config/fields.h"
#include "config/later.h"
#include "config/layout.h"
#include "config/outside.h"
#include "config/pipeline.h"
#include "config/run_name.h"
#include "data/class_folders.h"
#include "ir/optimizers.h"

namespace tessera::config {
namespace {

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
    take(augmentation_findings(c_));
    layout();
    batch();  // a rank's part follows from the number of dp ranks
    pipeline();
    take(optimizer_findings(c_, now_.purpose != Purpose::inference));
    texts();
    take(communication_findings(c_, !refused("parallel.compress")));
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

  void take(CheckOutcome found) {
    for (const Finding& problem : found.problems) add(problem);
    for (std::string& note : found.notes) notes_.push_back(std::move(note));
  }

  std::string value(std::string_view name) const { return value_text(c_, name); }

  void refuse_later() {
    for (const Later& row : later_in_use(c_)) {
      add({row.key}, fmt::format("{} = {}: {}", row.key, value(row.key), row.reason));
      refused_.insert(row.key);
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
    if (read && source.has_class_folders())
      source.classes = static_cast<std::int64_t>(data::class_folders(source.dir).names.size());
    if (read) {
      follow("model.channels", source.channels, c_.model.channels);
      follow("model.classes", source.classes, c_.model.classes);
      if (source.h > 0 && !given("model.image")) {
        c_.model.image_h = source.h;
        c_.model.image_w = source.w;
      }
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

  void follow(const std::string& key, std::int64_t stated, std::int64_t& model) {
    if (stated == 0) return;
    if (!given(key)) model = stated;
    if (model != stated)
      add({key, "data.source"},
          fmt::format("{} = {} but data.source = {} has {}", key, model, value("data.source"),
                      stated),
          "leave " + key + " out and it follows the data");
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
      r.name = default_run_name({.stem = now_.stem,
                                 .deepspeed_stem = now_.deepspeed_stem,
                                 .asked = asked_,
                                 .given = given_});
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
