#include "page/compare_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "page/compare_facts.h"
#include "page/figures/figure.h"

namespace tessera::report {
namespace {

struct NamedRun {
  std::string name;
  const RunRecord* record = nullptr;
};

// The last part of each folder's path where that tells them apart, else the whole path.
std::vector<NamedRun> named_runs(const std::vector<Study>& runs) {
  std::vector<NamedRun> out;
  for (const Study& s : runs) out.push_back({s.name, records_of(s.parts.at(0).points.at(0)).at(0)});
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto same = std::count_if(runs.begin(), runs.end(),
                                    [&](const Study& s) { return s.name == runs[i].name; });
    if (same > 1) out[i].name = runs[i].file;
  }
  return out;
}

enum class Apart : std::uint8_t { ratio, points, difference };
struct RunQuantity {
  const char* name;
  Measure of;
  std::string (*words)(double);
  Apart apart;
};
constexpr RunQuantity run_quantities[] = {
    {"top-1 after the last epoch", measures::top1, accuracy_text, Apart::points},
    {"top-1 of the best epoch", measures::best_top1, accuracy_text, Apart::points},
    {"test loss", measures::test_loss, three, Apart::difference},
    {"loss of the last step", measures::loss, three, Apart::difference},
    {"time of a step, median", measures::step_seconds, seconds_text, Apart::ratio},
    {"time of an epoch", measures::epoch_seconds, seconds_text, Apart::ratio},
    {"images per second", measures::images_per_s, three, Apart::ratio},
    {"memory of the rank with most", measures::measured, byte_text, Apart::ratio},
    {"sent a step and rank", measures::comm_bytes, byte_text, Apart::ratio},
    {"whole time", measures::wall, seconds_text, Apart::ratio}};

std::string apart_from(const RunQuantity& q, double first, double value) {
  if (!std::isfinite(first) || !std::isfinite(value)) return "";
  if (first == value) return "same";
  const char* sign = value > first ? "+" : "−";
  const double by = std::abs(value - first);
  if (q.apart == Apart::points) return fmt::format("{}{:.2f} points", sign, 100 * by);
  if (q.apart == Apart::difference) return sign + three(by);
  return first == 0 ? "from 0" : fmt::format("{}{}%", sign, three(100 * by / std::abs(first)));
}

// Every fact and setting of which two runs have different values: (name, a value for each run).
std::vector<std::pair<std::string, std::vector<std::string>>> differing(
    const std::vector<NamedRun>& runs) {
  std::vector<Facts> all;
  std::vector<std::string> keys;
  for (const NamedRun& run : runs) {
    Facts facts = facts_of(*run.record);
    facts.emplace_back("seed", std::to_string(run.record->seed));
    for (const auto& [key, value] : run.record->settings)
      if (!said_by_facts(*run.record, key, value)) facts.emplace_back(key, value);
    for (const auto& [key, value] : facts)
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    all.push_back(std::move(facts));
  }
  std::vector<std::pair<std::string, std::vector<std::string>>> out;
  for (const std::string& key : keys) {
    std::vector<std::string> values;
    for (const Facts& facts : all) {
      const auto found =
          std::find_if(facts.begin(), facts.end(), [&](const auto& f) { return f.first == key; });
      values.push_back(found == facts.end() ? "–" : found->second.empty() ? "none" : found->second);
    }
    if (std::any_of(values.begin(), values.end(),
                    [&](const std::string& v) { return v != values.front(); }))
      out.emplace_back(key, std::move(values));
  }
  return out;
}

// Facts about the training that are the same in all runs.
Facts in_common(const std::vector<NamedRun>& runs) {
  Facts out;
  for (const auto& fact : facts_of(*runs.front().record)) {
    const bool shown = fact.first == "model" || fact.first == "data" || fact.first == "dtype" ||
                       fact.first == "layout" || fact.first == "global batch" ||
                       fact.first == "steps" || fact.first == "cpu";
    if (shown && !fact.second.empty() &&
        std::all_of(runs.begin(), runs.end(), [&](const NamedRun& run) {
          const Facts theirs = facts_of(*run.record);
          return std::find(theirs.begin(), theirs.end(), fact) != theirs.end();
        }))
      out.push_back(fact);
  }
  return out;
}

void overlay(PageBuilder& page, const std::vector<NamedRun>& runs, const char* file,
             LineFigure figure, const std::string& caption, const auto& marks) {
  std::vector<std::string> left_out;
  for (const NamedRun& run : runs) {
    Line line{.name = run.name, .marks = marks(*run.record), .look = LineLook::plain};
    std::erase_if(line.marks,
                  [](const Mark& m) { return !std::isfinite(m.x) || !std::isfinite(m.y); });
    if (line.marks.empty()) continue;
    if (figure.lines.size() == kColours)
      left_out.push_back(run.name);
    else
      figure.lines.push_back(std::move(line));
  }
  std::size_t longest = 0;
  for (const Line& line : figure.lines) longest = std::max(longest, line.marks.size());
  if (longest < 2) return;
  figure.caption = caption;
  if (!left_out.empty()) figure.caption += " Not drawn: " + listed(left_out, left_out.size()) + ".";
  page.figure(std::string("compare-") + file, line_figure(figure), figure.caption);
}

LineFigure axes(const char* title, const char* x, const char* y, bool from_zero) {
  LineFigure f;
  f.title = title;
  f.x_label = x;
  f.y_label = y;
  f.from_zero = from_zero;
  return f;
}

void overlays(PageBuilder& page, const std::vector<NamedRun>& runs) {
  const auto by_step = [](double StepRecord::*value) {
    return [value](const RunRecord& r) {
      std::vector<Mark> out;
      for (const StepRecord& s : r.thinned) out.push_back({static_cast<double>(s.step), s.*value});
      return out;
    };
  };
  const auto by_epoch = [](double EpochRecord::*value, bool by_time) {
    return [value, by_time](const RunRecord& r) {
      std::vector<Mark> out;
      for (std::size_t i = 0; i < r.epochs.size(); ++i)
        out.push_back(
            {by_time ? r.epochs[i].elapsed : static_cast<double>(i + 1), r.epochs[i].*value});
      return out;
    };
  };
  overlay(page, runs, "loss", axes("Training loss", "step", "loss of the batch", false),
          "Each run as it was measured.", by_step(&StepRecord::loss));
  LineFigure top = axes("Test top-1 by epoch", "epoch", "test top-1", false);
  top.percent_y = top.marks_are_x = top.few_are_dots = true;
  overlay(page, runs, "top1", top, "After each epoch.", by_epoch(&EpochRecord::test_top1, false));
  LineFigure timed = axes("Test top-1 by time", "seconds, with evaluations", "test top-1", false);
  timed.percent_y = timed.from_zero_x = true;
  overlay(page, runs, "top1-time", timed, "Since the start of each run.",
          by_epoch(&EpochRecord::test_top1, true));
  overlay(page, runs, "speed", axes("Images per second", "step", "images per second", true),
          "Of each step.", by_step(&StepRecord::images_per_s));
  overlay(page, runs, "lr", axes("Learning rate", "step", "learning rate", true), "Of each step.",
          by_step(&StepRecord::lr));
  overlay(page, runs, "grad-norm", axes("Gradient norm", "step", "norm before clipping", true),
          "Of each step.", by_step(&StepRecord::grad_norm));
  page.close_figures();
}

Table results_table(const std::vector<NamedRun>& runs) {
  Table t{{{"", true}},
          {},
          "Below each number: its difference from the first run. Each run was "
          "measured once, so small differences may be chance."};
  for (const NamedRun& run : runs) t.columns.push_back({run.name});
  for (const RunQuantity& q : run_quantities) {
    std::vector<Cell> row = {{q.name}};
    bool any = false;
    for (const NamedRun& run : runs) {
      const double value = q.of(*run.record), first = q.of(*runs.front().record);
      any |= std::isfinite(value);
      row.push_back({std::isfinite(value) ? q.words(value) : "–",
                     &run == &runs.front() ? "" : apart_from(q, first, value)});
    }
    if (any) t.rows.push_back(std::move(row));
  }
  return t;
}

}  // namespace

std::vector<std::string> runs_beside(const std::vector<Study>& studies) {
  const std::vector<NamedRun> runs = named_runs(studies);
  std::vector<std::string> out;
  for (const auto& [key, values] : differing(runs)) {
    std::string line = "differs: " + key + ":";
    for (std::size_t i = 0; i < values.size(); ++i) line += (i > 0 ? " | " : " ") + values[i];
    out.push_back(line);
  }
  for (const RunQuantity& q : run_quantities) {
    std::string line;
    for (const NamedRun& run : runs) {
      const double value = q.of(*run.record);
      line += (line.empty() ? "" : " | ") + (std::isfinite(value) ? q.words(value) : "–");
    }
    if (line.find_first_not_of("–| ") != line.npos) out.push_back(q.name + (": " + line));
  }
  return out;
}

std::string write_runs_beside(const std::vector<Study>& studies, const std::string& folder,
                              PageFormat format) {
  const std::vector<NamedRun> runs = named_runs(studies);
  PageBuilder page;
  const std::string title = fmt::format("{} runs beside each other", runs.size());
  page.html("<h1>" + title + "</h1>\n");
  page.markdown_ += "# " + title + "\n\n";
  page.facts(in_common(runs));
  page.section("results", "Results");
  const Table results = results_table(runs);
  page.table(results);
  page.section("configuration", "Differences in the configuration", "Configuration");
  Table t{{{"key", true}}, {}, "Every setting and fact that is not the same in all of them."};
  for (const NamedRun& run : runs) t.columns.push_back({run.name, true});
  for (const auto& [key, values] : differing(runs)) {
    std::vector<Cell> row = {{key}};
    for (const std::string& v : values) row.push_back({v});
    t.rows.push_back(std::move(row));
  }
  if (t.rows.empty())
    page.paragraph("The records tell of none.");
  else
    page.table(t);
  page.section("curves", "Curves");
  overlays(page, runs);
  Csv csv({"run", "folder", "quantity", "value"});
  for (std::size_t i = 0; i < runs.size(); ++i)
    for (const RunQuantity& q : run_quantities)
      csv.text(runs[i].name).text(studies[i].file).text(q.name).number(q.of(*runs[i].record)).end();
  const std::vector<std::pair<std::string, std::string>> csvs = {{"comparison.csv", csv.str()}};
  data_section(page, csvs);
  return finish_page(page, csvs, {title, false, {}}, folder, "comparison", format);
}

}  // namespace tessera::report
