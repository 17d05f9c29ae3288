// The page of one run: what came of it, its curves, its classes, some predictions, its
// configuration, and how to repeat it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "base/check.h"
#include "page/figures/figure.h"
#include "page/page.h"
#include "record/read_predictions.h"

namespace tessera::report {
namespace {

constexpr std::size_t most_class_bars = 24, most_matrix = 20, most_marks = 40;

// The table of results, a row each.
Table outcome_table(const RunRecord& r) {
  Table t{{{"", true}, {"value"}}, {}, ""};
  const auto row = [&](const char* name, double value, std::string (*words)(double)) {
    if (std::isfinite(value)) t.rows.push_back({{name}, {words(value)}});
  };
  row("top-1 after the last epoch", r.test_top1, accuracy_text);
  row("top-1 of the best epoch", r.best_top1, accuracy_text);
  row("test loss", r.test_loss, three);
  row("loss of the last step", r.loss, three);
  row("time of an epoch", r.epoch_seconds, seconds_text);
  row("time of a step, median", measures::step_seconds(r), seconds_text);
  row("time of a batch", measures::latency_seconds(r), seconds_text);
  row("images per second", r.images_per_s, three);
  row("sent a step and rank", r.comm_bytes, byte_text);
  return t;
}

void step_figure(PageBuilder& page, const RunRecord& r, const char* file, const char* title,
                 const char* y_label, double StepRecord::*value, bool from_zero) {
  LineFigure f;
  f.title = title;
  f.x_label = "step";
  f.y_label = y_label;
  f.from_zero = from_zero;
  Line line{.name = "", .marks = {}, .look = LineLook::plain};
  for (const StepRecord& s : r.thinned)
    if (std::isfinite(s.*value)) line.marks.push_back({static_cast<double>(s.step), s.*value});
  if (line.marks.size() < 2) return;
  f.caption = fmt::format("{} of {} steps.", line.marks.size(), r.steps);
  f.lines.push_back(std::move(line));
  page.figure(fmt::format("run-{}", file), line_figure(f), f.caption);
}

void train_and_test(PageBuilder& page, const RunRecord& r, const char* file, const char* title,
                    const char* y_label, double EpochRecord::*train, double EpochRecord::*test,
                    bool shares) {
  LineFigure f;
  f.title = title;
  f.x_label = "epoch";
  f.y_label = y_label;
  f.from_zero = false;
  f.percent_y = shares;
  f.marks_are_x = f.few_are_dots = true;
  for (const auto& [name, value] : {std::pair("train", train), std::pair("test", test)}) {
    Line line{.name = name, .marks = {}};
    for (std::size_t i = 0; i < r.epochs.size(); ++i)
      if (std::isfinite(r.epochs[i].*value))
        line.marks.push_back({static_cast<double>(i + 1), r.epochs[i].*value});
    if (line.marks.size() > most_marks) line.look = LineLook::plain;
    if (!line.marks.empty()) f.lines.push_back(std::move(line));
  }
  if (f.lines.empty() || f.lines.front().marks.size() < 2) return;
  f.caption =
      "Train: the mean over the steps of the epoch, while weights change and images are augmented. "
      "Test: after the epoch.";
  page.figure(fmt::format("run-{}", file), line_figure(f), f.caption);
}

std::string class_name(const Predictions& p, std::int64_t index) {
  return p.classes[static_cast<std::size_t>(index)];
}

// The share of each class that was right, the worst first.
void class_figure(PageBuilder& page, const Predictions& p) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < p.images.size() && i < p.correct.size(); ++i)
    if (p.images[i] > 0) order.push_back(i);
  const auto share = [&](std::size_t i) {
    return static_cast<double>(p.correct[i]) / static_cast<double>(p.images[i]);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return share(a) < share(b); });
  DotFigure f;
  f.title = "Accuracy by class";
  f.x_label = "share of the class that was right";
  f.percent = true;
  for (std::size_t i = 0; i < std::min(order.size(), most_class_bars); ++i) {
    DotRow row;
    row.name = p.classes[order[i]];
    row.mark = {.y = share(order[i])};
    row.value = fmt::format("{} of {}", p.correct[order[i]], p.images[order[i]]);
    f.rows.push_back(std::move(row));
  }
  if (f.rows.empty()) return;
  const std::int64_t right = std::accumulate(p.correct.begin(), p.correct.end(), std::int64_t{0}),
                     all = std::accumulate(p.images.begin(), p.images.end(), std::int64_t{0});
  f.reference = static_cast<double>(right) / static_cast<double>(std::max<std::int64_t>(1, all));
  f.reference_name = "all classes";
  f.caption = fmt::format(
      "Over the {} test images after the last step, the worst class first{}.", all,
      order.size() > most_class_bars
          ? fmt::format("; the other {} classes are better", order.size() - most_class_bars)
          : "");
  page.figure("run-classes", dot_figure(f), f.caption);
}

void confusion_figure(PageBuilder& page, const Predictions& p) {
  if (p.confusion.empty()) return;
  if (p.classes.size() <= most_matrix) {
    page.figure("run-confusion",
                matrix_figure({.title = "Confusion",
                               .caption = "",
                               .row_label = "the true class",
                               .column_label = "what was said",
                               .names = p.classes,
                               .counts = p.confusion}),
                "Test images by their true class and by what was said of them.");
    return;
  }
  // Many classes have no matrix: the pairs that are confused most are listed.
  std::vector<std::pair<std::int64_t, std::size_t>> pairs;
  const std::size_t n = p.classes.size();
  for (std::size_t i = 0; i < n * n; ++i)
    if (i / n != i % n && p.confusion[i] > 0) pairs.emplace_back(p.confusion[i], i);
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  Table t{{{"true class", true}, {"was said to be", true}, {"images"}},
          {},
          "The pairs that are confused most."};
  for (std::size_t i = 0; i < std::min<std::size_t>(pairs.size(), 15); ++i)
    t.rows.push_back({{p.classes[pairs[i].second / n]},
                      {p.classes[pairs[i].second % n]},
                      {std::to_string(pairs[i].first)}});
  page.table(t);
}

void sample_grid(PageBuilder& page, const Predictions& p) {
  if (p.samples.empty()) return;
  page.section("predictions", "Sample predictions");
  const auto right = std::count_if(p.samples.begin(), p.samples.end(),
                                   [](const SamplePrediction& s) { return s.label == s.said; });
  page.paragraph(
      fmt::format("{} test images at even distances, as the model gets them; {} of them are right.",
                  p.samples.size(), right));
  page.html("<ul class=\"samples\">");
  for (const SamplePrediction& s : p.samples) {
    const bool hit = s.label == s.said;
    page.html(fmt::format(
        "<li class=\"{}\"><img alt=\"{}\" src=\"data:image/png;base64,{}\"/><span>{} {} {}</span>{}"
        "</li>\n",
        hit ? "hit" : "miss", escape(s.name, 120), s.png, hit ? "✓" : "✗",
        escape(class_name(p, s.said), 60), percent(s.probability),
        hit ? "" : "<span class=\"soft\">is " + escape(class_name(p, s.label), 60) + "</span>"));
  }
  page.html("</ul>\n");
  Table t{{{"image", true}, {"is", true}, {"was said to be", true}, {"with"}}, {}, ""};
  for (const SamplePrediction& s : p.samples)
    t.rows.push_back(
        {{s.name}, {class_name(p, s.label)}, {class_name(p, s.said)}, {percent(s.probability)}});
  page.table(t, "The same as a table");
}

void configuration(PageBuilder& page, const Study& study, const RunRecord& r) {
  page.section("configuration", "Configuration");
  Table t{{{"key", true}, {"value", true}}, {}, ""};
  for (const auto& [key, value] : r.settings) t.rows.push_back({{key}, {value}});
  if (t.rows.empty())
    page.paragraph("The run recorded no settings.", "soft");
  else
    page.table(t, fmt::format("Every key of resolved.toml ({})", t.rows.size()));
  if (r.verb != "train" || study.file.empty()) return;
  page.paragraph("To repeat it, with the same seed:");
  page.code("tessera train " + study.file + "/resolved.toml --out NEW");
  page.paragraph(
      "The same build with the same layout and any number of threads gives the same losses to the "
      "last bit; another layout gives them to rounding.");
}

}  // namespace

void run_sections(PageBuilder& page, const Study& study, const std::string& runs_at) {
  const Part& part = study.parts[0];
  const std::vector<const RunRecord*> records = records_of(part.points.front());
  if (records.empty()) return part_section(page, part);
  const RunRecord& r = *records.front();
  page.section("part-" + slug(part.name), "Training");
  std::vector<std::string> sentences;
  for (const std::string& s : verdict(part)) sentences.push_back(without_title(part, s));
  page.list(sentences);
  step_figure(page, r, "loss", "Loss", "loss of the batch", &StepRecord::loss, false);
  train_and_test(page, r, "top1", "Train against test, top-1", "top-1", &EpochRecord::train_top1,
                 &EpochRecord::test_top1, true);
  train_and_test(page, r, "test-loss", "Train against test, loss", "loss", &EpochRecord::loss,
                 &EpochRecord::test_loss, false);
  step_figure(page, r, "lr", "Learning rate", "learning rate", &StepRecord::lr, true);
  step_figure(page, r, "grad-norm", "Gradient norm", "norm before clipping", &StepRecord::grad_norm,
              true);
  step_figure(page, r, "speed", "Images per second", "images per second", &StepRecord::images_per_s,
              true);
  breakdown_figure(page, part);
  page.close_figures();
  if (const Table t = outcome_table(r); !t.rows.empty()) page.table(t);
  memory_figure(page, part);
  if (part.kind == PartKind::layers) layers_figures(page, part);
  const std::string folder =
      (std::filesystem::path(runs_at) / part.points.front().repeats.front().folder).string();
  Predictions predictions;
  try {
    if (folder.find('\0') == folder.npos) predictions = read_predictions(folder);
  } catch (const Error& e) {
    page.paragraph("Its predictions could not be read: " + e.message, "soft");
  }
  if (!predictions.classes.empty()) {
    page.section("classes", "Classes");
    class_figure(page, predictions);
    confusion_figure(page, predictions);
    sample_grid(page, predictions);
  }
  configuration(page, study, r);
}

}  // namespace tessera::report
