#include "checkpoint/weights_compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "base/check.h"
#include "checkpoint/quantised.h"
#include "config/reader.h"
#include "files/safetensors_header.h"  // in_quotes

namespace tessera::run {
namespace {

using files::in_quotes;
using models::Grid;

constexpr std::size_t most_problems = 12, most_names = 6;

std::string text(Grid grid) { return fmt::format("{}x{}", grid.h, grid.w); }
std::string text(const ir::Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

// "3 parameters are missing: a, b, c", cut after a few names.
std::string some_of(const std::vector<std::string>& names) {
  const std::size_t shown = std::min(names.size(), most_names);
  const std::string list = fmt::format(
      "{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  return shown == names.size() ? list : fmt::format("{} and {} more", list, names.size() - shown);
}

class FileComparison : public FittedFile {
 public:
  FileComparison(const files::Safetensors& file, const models::ModelConfig& model,
                 const Adapt& adapt, const std::string& prefix)
      : file_(file), model_(model), adapt_(adapt), prefix_(prefix) {
    if (file.metadata().contains("tessera.model")) stored_ = model_of(file);
    index_names();
    compare_layers();
    compare_class_token();
    compare_heads();
    compare_parameters();
    compare_head();
    report_names();
    if (count_ > 0) raise();
  }

 private:
  // `cure`: what alone would mend it, for the hint; empty when nothing but another model would.
  void problem(std::string line, const std::string& cure = "") {
    if (++count_ <= most_problems) problems_.push_back(std::move(line));
    if (cure.empty())
      curable_ = false;
    else
      cures_.push_back(cure);
  }
  Grid grid() const { return {model_.image_h / model_.patch, model_.image_w / model_.patch}; }
  bool has_class_token() const { return family_.has("pool") && model_.pool == "class"; }

  void index_names() {
    for (const auto& [name, view] : file_.tensors()) {
      if (!name.starts_with(prefix_)) continue;
      const std::string_view bare = std::string_view(name).substr(prefix_.size());
      if (models::is_ignored(model_.family, bare) || is_scale(file_, name)) continue;
      const auto found = models::name_part(model_.family, bare);
      if (!found) {
        unknown_.push_back(name);
        continue;
      }
      auto& names = parts[found->canonical];
      names.resize(std::max<std::size_t>(names.size(), static_cast<std::size_t>(found->parts)));
      std::string& place = names[static_cast<std::size_t>(found->part)];
      if (place.empty() && found->parts == static_cast<int>(names.size()))
        place = name;
      else
        problem(fmt::format("{} and {} are the same parameter; expected it once",
                            in_quotes(place.empty() ? names[0] : place), in_quotes(name)));
    }
    settle_parts();
    models::settle_names(model_.family, tensors);
  }

  // A parameter in parts is there when all of them are, and alike.
  void settle_parts() {
    for (const auto& [canonical, names] : parts) {
      const auto there = std::find_if(names.begin(), names.end(),
                                      [](const std::string& name) { return !name.empty(); });
      const files::TensorPlace& first = file_.at(*there);
      for (const std::string& name : names) {
        if (name.empty())
          problem(fmt::format("{} is one of {} parts of a parameter; another one is missing",
                              in_quotes(*there), names.size()));
        else if (file_.at(name).shape != first.shape || file_.at(name).dtype != first.dtype ||
                 (names.size() > 1 && first.shape.empty()))
          problem(
              fmt::format("{} and {} are parts of one parameter, but not of one shape and dtype",
                          in_quotes(*there), in_quotes(name)));
      }
      tensors.emplace(canonical, *there);
    }
    std::erase_if(parts, [](const auto& entry) { return entry.second.size() == 1; });
  }
  // The tensor of a parameter, of all its parts together.
  ir::Shape shape_of(const std::string& canonical, const std::string& name) const {
    ir::Shape shape = file_.at(name).shape;
    if (const auto found = parts.find(canonical); found != parts.end() && !shape.empty())
      shape[0] *= static_cast<std::int64_t>(found->second.size());
    return shape;
  }

  // A wrong depth is one problem, not twelve per layer: layers beyond the smaller depth are not
  // compared.
  void compare_layers() {
    std::map<std::int64_t, std::set<std::int64_t>> found;  // by stage
    for (const auto& [canonical, name] : tensors)
      if (const auto layer = models::layer_of(model_.family, canonical))
        found[layer->stage].insert(layer->number);
    depths_ = models::depths_of(model_);
    if (found.empty()) return;  // all of them will be missing
    std::set<std::int64_t> stages;
    for (const auto& [stage, layers] : found) stages.insert(stage);
    for (std::size_t stage = 0; stage < depths_.size(); ++stage)
      stages.insert(static_cast<std::int64_t>(stage));
    for (const std::int64_t stage : stages) compare_stage(stage, found[stage]);
    std::erase_if(tensors, [&](const auto& entry) {
      return is_beyond(entry.first, models::depths_of(model_));
    });
  }

  void compare_stage(std::int64_t stage, const std::set<std::int64_t>& layers) {
    const auto at = static_cast<std::size_t>(stage);
    const std::int64_t depth = static_cast<std::int64_t>(layers.size()),
                       expected = at < depths_.size() ? depths_[at] : 0;
    const bool staged = family_.staged();
    const std::string of = staged ? fmt::format("stage {} of the file", stage) : "the file";
    const char* what = staged ? "blocks" : "encoder layers";
    const std::string key =
        fmt::format("model.{} = {}", family_.depth_key,
                    staged ? text(models::depths_of(model_)) : std::to_string(expected));
    if (at < depths_.size()) depths_[at] = std::min(depth, expected);
    if (depth != expected) return problem(fmt::format("{} has {} {}, {}", of, depth, what, key));
    if (*layers.rbegin() >= expected)
      problem(fmt::format("{}'s {} go up to {}; expected 0 to {}", of, what, *layers.rbegin(),
                          expected - 1));
  }
  bool is_beyond(const std::string& canonical, const std::vector<std::int64_t>& depths) const {
    const auto layer = models::layer_of(model_.family, canonical);
    if (!layer) return false;
    const auto stage = static_cast<std::size_t>(layer->stage);
    return stage >= depths.size() || layer->number >= depths[stage];
  }

  void compare_class_token() {
    const bool stored = tensors.contains(std::string(models::class_token_name));
    same_pool_ = stored == has_class_token() || tensors.empty();
    if (same_pool_) return;
    problem(stored
                ? fmt::format("the file has a class token ({}), but model.pool = \"mean\" has none",
                              in_quotes(tensors.at("class_token")))
                : "the file has no class token, but model.pool = \"class\" needs one",
            fmt::format("loading cannot change the pooling: set model.pool = \"{}\"",
                        stored ? "class" : "mean"));
    if (stored) tensors.erase(std::string(models::class_token_name));
  }

  // A ViT's tensors have the same shapes whatever the number of heads; only the file's own words
  // can tell.
  void compare_heads() {
    if (!stored_ || family_.heads_in_shapes || stored_->family != model_.family ||
        stored_->heads == model_.heads)
      return;
    problem(fmt::format("the file's attention has {} heads, model.heads = {}", stored_->heads,
                        model_.heads),
            fmt::format("loading cannot change the number of heads: set model.heads = {}",
                        stored_->heads));
  }

  void compare_parameters() {
    std::set<std::string> known;
    for (const models::Param& param : models::parameters(model_)) {
      compare(param);
      known.insert(param.name);
    }
    for (const auto& [canonical, name] : tensors)  // such as a merging that the model lacks
      if (!known.contains(canonical)) unknown_.push_back(name);
  }

  void compare(const models::Param& param) {
    const auto found = tensors.find(param.name);
    if (found == tensors.end()) {
      const bool counted =
          (param.name == models::class_token_name && !same_pool_) || is_beyond(param.name, depths_);
      if (!counted) missing_.push_back(param.name);
      return;
    }
    const files::TensorPlace& view = file_.at(found->second);
    if (!is_weight_type(file_, found->second))
      problem(fmt::format("{}: expected dtype F64, F32, BF16 or F16, found {}",
                          in_quotes(found->second), view.dtype));
    if (models::is_head(model_.family, param.name))
      head_.push_back({param, found->second});
    else if (param.name == models::positions_name)
      compare_positions(param, found->second, view.shape);
    else if (param.name.ends_with(models::bias_table_ending) &&
             (view.shape != param.torch_shape || another_window(view.shape)))
      compare_table(param, found->second, view.shape);
    else if (shape_of(param.name, found->second) != param.torch_shape)
      wrong_shape(param, found->second);
  }

  void wrong_shape(const models::Param& param, const std::string& name) {
    problem(fmt::format("{}: expected shape {}, found {}{}", in_quotes(name),
                        text(param.torch_shape), text(shape_of(param.name, name)),
                        parts.contains(param.name) ? " with its other parts" : ""));
  }

  static std::int64_t rows_of(Grid window) { return (2 * window.h - 1) * (2 * window.w - 1); }
  // A window of 3x5 has as many biases as one of 5x3; only the file's own words can tell.
  bool another_window(const ir::Shape& table) const {
    if (!stored_ || stored_->family != model_.family) return false;
    const Grid said{stored_->window_h, stored_->window_w};
    return rows_of(said) == table[0] && !(said == Grid{model_.window_h, model_.window_w});
  }

  // Where the stored positions lie: as the file says, else on a square. Without interpolation the
  // model is what the file is said to hold: then its own grid comes first.
  std::optional<Grid> stored_grid(std::int64_t patches) const {
    if (stored_ && stored_->family == model_.family) {
      const Grid said{stored_->image_h / stored_->patch, stored_->image_w / stored_->patch};
      if (said.h * said.w == patches) return said;
    }
    const bool fits = patches == grid().h * grid().w;
    if (fits && !adapt_.interpolate_positions) return grid();
    const auto side =
        static_cast<std::int64_t>(std::llround(std::sqrt(static_cast<double>(patches))));
    if (side * side == patches) return Grid{side, side};
    return fits ? std::optional(grid()) : std::nullopt;
  }

  void compare_positions(const models::Param& param, const std::string& name,
                         const ir::Shape& shape) {
    if (!same_pool_) return;  // already told; the number of positions follows from it
    if (shape.size() != 3 || shape[0] != 1 || shape[2] != model_.dim)
      return wrong_shape(param, name);
    const std::int64_t patches = shape[1] - (has_class_token() ? 1 : 0);
    if (patches < 1) return wrong_shape(param, name);
    const auto from = stored_grid(patches);
    if (from == grid()) return;
    if (!from)
      return problem(
          fmt::format("{}: expected {} patch positions, found {}, which are not a square grid and "
                      "the file does not say which",
                      in_quotes(name), text(grid()), patches));
    if (adapt_.interpolate_positions) {
      resized[param.name] = *from;
      notes.push_back(
          fmt::format("position embeddings interpolated {} -> {}", text(*from), text(grid())));
      return;
    }
    problem(fmt::format("{}: expected the positions of {} patches, found {} patches",
                        in_quotes(name), text(grid()), text(*from)),
            "start a training from these weights with --init: position embeddings are then "
            "interpolated");
  }

  // A table of another window, whose sides the file says, or which is a square.
  void compare_table(const models::Param& param, const std::string& name, const ir::Shape& shape) {
    if (shape.size() != 2 || shape[1] != param.torch_shape[1] || shape[0] < 1)
      return wrong_shape(param, name);
    const auto side =
        static_cast<std::int64_t>(std::llround((std::sqrt(static_cast<double>(shape[0])) + 1) / 2));
    Grid from{side, side};
    if (stored_ && stored_->family == model_.family &&
        rows_of({stored_->window_h, stored_->window_w}) == shape[0])
      from = {stored_->window_h, stored_->window_w};
    if (rows_of(from) != shape[0]) return wrong_shape(param, name);
    const Grid to{model_.window_h, model_.window_w};
    const bool told = !resized.empty();  // one line for all tables
    resized[param.name] = from;
    if (told) return;
    if (adapt_.interpolate_positions)
      notes.push_back(
          fmt::format("bias tables interpolated from {} to {} windows", text(from), text(to)));
    else
      problem(fmt::format("{}: expected the biases of {} windows, found {} windows",
                          in_quotes(name), text(to), text(from)),
              "start a training from these weights with --init: bias tables are then interpolated");
  }

  void compare_head() {
    if (head_.empty() && adapt_.replace_head && !tensors.empty()) {
      new_head = true;
      std::erase_if(missing_,
                    [&](const std::string& name) { return models::is_head(model_.family, name); });
      notes.push_back(fmt::format("head replaced: none -> {} classes", model_.classes));
      return;
    }
    // The stored head is sound when both of its tensors agree on a number of classes; then only
    // that number may differ.
    std::set<std::int64_t> classes;
    for (const auto& [param, name] : head_) {
      const ir::Shape& shape = file_.at(name).shape;
      ir::Shape expected = param.torch_shape;
      if (shape.size() == expected.size()) expected[0] = shape[0];
      if (shape != expected || shape[0] < 1)
        wrong_shape(param, name);
      else
        classes.insert(shape[0]);
    }
    if (classes.size() > 1)
      problem(fmt::format("the head's weight and bias disagree on the number of classes: {}",
                          fmt::join(classes, " and ")));
    if (classes.size() != 1 || *classes.begin() == model_.classes) return;
    if (adapt_.replace_head) {
      new_head = true;
      notes.push_back(
          fmt::format("head replaced: {} -> {} classes", *classes.begin(), model_.classes));
      return;
    }
    problem(fmt::format("the head has {} classes, model.classes = {}", *classes.begin(),
                        model_.classes),
            "start a training from these weights with --init: the head is then replaced");
  }

  void report_names() {
    if (tensors.empty()) {
      problem(fmt::format(
          "none of the {} tensors{} is a {} parameter under torchvision's, timm's or Hugging "
          "Face's "
          "name",
          unknown_.size(), prefix_.empty() ? "" : " under " + in_quotes(prefix_), model_.family));
      return;
    }
    if (!missing_.empty())
      problem(fmt::format("{} missing: {}",
                          missing_.size() == 1 ? "a parameter is"
                                               : fmt::format("{} parameters are", missing_.size()),
                          some_of(missing_)));
    std::vector<std::string> wanted;
    for (const std::string& name : missing_) {
      wanted.push_back(name);
      wanted.push_back(models::timm_name(model_.family, name));
    }
    for (const std::string& name : unknown_) {
      // Only a name that is shown is compared with the missing ones: hostile files have thousands.
      const bool look = count_ < most_problems && name.size() <= 128 && wanted.size() <= 4096;
      const std::string bare = name.substr(prefix_.size()),
                        near = look ? nearest(bare, wanted) : "";
      std::string line = fmt::format("{} is not a parameter of the model", in_quotes(name));
      if (bare.find("fc_norm.") != bare.npos)
        line += " (timm's norm after mean pooling; ours comes before it)";
      else if (!near.empty())
        line += fmt::format("; did you mean {}?", in_quotes(near));
      problem(std::move(line));
    }
  }

  std::string hint() const {
    if (curable_) return join(cures_, "; ");
    if (stored_ && !(*stored_ == model_))
      return "choose what the file says that it holds: " + config::model_to_json(*stored_);
    return "choose the model that the file holds with --model NAME and --set model.KEY=VALUE";
  }

  [[noreturn]] void raise() const {
    Error error(ErrorKind::weights, problems_.front(), file_.path().string(), hint());
    for (std::size_t i = 1; i < problems_.size(); ++i) error.and_also(problems_[i]);
    if (count_ > problems_.size())
      error.and_also(fmt::format("{} more problems", count_ - problems_.size()));
    throw error;
  }

  struct HeadTensor {
    models::Param param;
    std::string name;
  };
  const files::Safetensors& file_;
  const models::ModelConfig& model_;
  const models::Family& family_ = models::family_of(model_);
  const Adapt& adapt_;
  const std::string& prefix_;
  std::optional<models::ModelConfig> stored_;
  std::vector<std::string> unknown_, missing_, problems_, cures_;
  std::vector<HeadTensor> head_;
  std::size_t count_ = 0;
  std::vector<std::int64_t> depths_;  // layers that are compared, by stage
  bool same_pool_ = true, curable_ = true;
};

}  // namespace

FittedFile compare_weights(const files::Safetensors& file, const models::ModelConfig& model,
                           const Adapt& adapt, const std::string& prefix) {
  return FileComparison(file, model, adapt, prefix);
}

}  // namespace tessera::run
