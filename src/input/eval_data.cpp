#include "input/eval_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/check.h"
#include "config/reader.h"
#include "data/class_folders.h"
#include "files/look.h"

namespace tessera::run {
namespace {

namespace fs = std::filesystem;

// RUN/resolved.toml of RUN/weights.safetensors and of RUN/ckpt/step-N; empty: the weights lie in no
// run folder.
fs::path configuration_beside(const fs::path& weights) {
  fs::path path = fs::absolute(weights).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "step-8/"
  const fs::path folder = path.parent_path();
  const fs::path run = folder.filename() == "ckpt"                ? folder.parent_path()
                       : path.filename() == "weights.safetensors" ? folder
                                                                  : "";
  return !run.empty() && files::is_there(run / "resolved.toml") ? run / "resolved.toml"
                                                                : fs::path();
}

// The configuration of the run that the weights lie in; nothing when they lie in none, or nobody
// can read it.
std::optional<config::Config> run_of(const fs::path& weights, std::vector<std::string>& notes) {
  const fs::path file = configuration_beside(weights);
  if (file.empty()) return std::nullopt;
  try {
    return config::load(file.string(), {}, config::Purpose::other);
  } catch (const Error& error) {
    notes.push_back(fmt::format("the configuration of the run cannot be read: {}: {}",
                                file.string(), error.message));
    return std::nullopt;
  }
}

bool same_source(const std::string& a, const std::string& b) {
  const config::Source x = config::parse_source(a), y = config::parse_source(b);
  std::error_code error;
  return a == b ||
         (x.kind == y.kind && (x.kind == "synthetic" || fs::equivalent(x.dir, y.dir, error)));
}

// Labels by another numbering of the same classes.
class Relabelled : public data::Dataset {
 public:
  Relabelled(std::unique_ptr<data::Dataset> inner, std::vector<std::string> names,
             std::vector<std::int32_t> to)
      : inner_(std::move(inner)), names_(std::move(names)), to_(std::move(to)) {}

  std::int64_t size() const override { return inner_->size(); }
  const std::vector<std::string>& class_names() const override { return names_; }
  int channels() const override { return inner_->channels(); }
  int height() const override { return inner_->height(); }
  int width() const override { return inner_->width(); }
  std::int32_t label(std::int64_t index) const override {
    return to_[static_cast<std::size_t>(inner_->label(index))];
  }
  void get(std::int64_t index, const data::Wants& wants, data::Image& image) const override {
    inner_->get(index, wants, image);
  }
  std::string sample_name(std::int64_t index) const override { return inner_->sample_name(index); }

 private:
  std::unique_ptr<data::Dataset> inner_;
  std::vector<std::string> names_;
  std::vector<std::int32_t> to_;
};

// "a, b, c, ...": enough to see what kind of names they are.
std::string first_names(std::vector<std::string> names) {
  constexpr std::size_t most = 3;
  const bool more = names.size() > most;
  names.resize(std::min(names.size(), most));
  return join(names, ", ") + (more ? ", ..." : "");
}

}  // namespace

void follow_run(const fs::path& weights, const config::Given& given, config::Config& config,
                std::vector<std::string>& notes) {
  const config::Source source = config::parse_source(config.data.source);
  const bool drawn = source.kind == "synthetic",
             cut = source.has_class_folders() && data::class_folders(source.dir).test.empty();
  if (!drawn && !cut) return;  // its test images are what they are
  const std::optional<config::Config> run = run_of(weights, notes);
  if (!run) {
    if (cut && !(given.contains("run.seed") && given.contains("data.val_fraction")))
      notes.push_back(fmt::format(
          "which images these weights were trained on is not known: scored is the part of the "
          "folder that a run with "
          "run.seed = {} and data.val_fraction = {} keeps for testing (--seed, --val-fraction)",
          config.run.seed, config.data.val_fraction));
    return;
  }
  if (!same_source(config.data.source, run->data.source)) return;
  std::vector<std::string> others;
  const auto take = [&](const char* key, const auto& theirs, auto& ours) {
    if (given.contains(key) && ours != theirs)
      others.push_back(fmt::format("{} is {}, the run had {}", key, ours, theirs));
    else
      ours = theirs;
  };
  take("run.seed", run->run.seed, config.run.seed);
  if (cut) take("data.val_fraction", run->data.val_fraction, config.data.val_fraction);
  if (drawn) take("data.test_size", run->data.test_size, config.data.test_size);
  if (!others.empty())
    notes.push_back(fmt::format("the images are not those that the run was tested on{}: {}",
                                cut ? ", some may be ones it was trained on" : "",
                                join(others, "; ")));
}

std::unique_ptr<data::Dataset> labelled_by(const std::vector<std::string>& classes,
                                           std::unique_ptr<data::Dataset> dataset,
                                           const std::string& where) {
  bool numbers_only = true;
  for (std::size_t i = 0; i < classes.size(); ++i)
    numbers_only = numbers_only && classes[i] == std::to_string(i);
  const std::vector<std::string>& names = dataset->class_names();
  if (numbers_only || names == classes) return dataset;
  std::map<std::string, std::int32_t> place;
  for (std::size_t i = 0; i < classes.size(); ++i)
    place.emplace(classes[i], static_cast<std::int32_t>(i));
  std::vector<std::int32_t> to;
  std::vector<std::string> foreign, missing;
  for (const std::string& name : names) {
    const auto found = place.find(name);
    found == place.end() ? foreign.push_back(name) : to.push_back(found->second);
  }
  const std::set<std::int32_t> met(to.begin(), to.end());
  for (const auto& [name, label] : place)
    if (!met.contains(label)) missing.push_back(name);
  if (!foreign.empty())
    throw Error(ErrorKind::data,
                fmt::format("the classes of the data are not those of the weights: only the data "
                            "has {}; only the weights have {}",
                            first_names(foreign), first_names(missing)),
                where, "give data whose classes have the names that the weights were trained with");
  return std::make_unique<Relabelled>(std::move(dataset), classes, std::move(to));
}

}  // namespace tessera::run
