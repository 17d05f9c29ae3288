// The pipeline chart as SVG. Convention: sizes are pixels of a picture that is 960 wide and scales;
// everything that a style sheet of the page around it could meet has a name that begins with pc-.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "report/html.h"
#include "report/pipeline_chart.h"

namespace tessera::report {
namespace {

constexpr double wide = 960, right = 880;  // the picture, and where time ends in it
constexpr double letter = 6.6;             // width of a character of a label

// Colours of Okabe and Ito, told apart by every kind of sight; a rank's second, fourth, ... stage
// is lighter. Print stays light.
constexpr const char* style = R"(<style>
.pc-page{fill:#fff}.pc-row{fill:#f1f1f1}.pc-grid{stroke:#c8c8c8;stroke-width:1}
.pc-text{fill:#1a1a1a}.pc-soft{fill:#555}
.pc{font-family:system-ui,-apple-system,'Segoe UI','Helvetica Neue',Arial,sans-serif;font-size:12px;print-color-adjust:exact;-webkit-print-color-adjust:exact}
.pc-title{font-size:17px;font-weight:600}.pc-head{font-weight:600}
.pc-label{font-size:11px;text-anchor:middle;pointer-events:none}
.pc-bar{stroke:#fff;stroke-width:.6}.pc-bar:hover{stroke:#000;stroke-width:1.5}
.pc-F0{fill:#0072b2}.pc-F1{fill:#56b4e9}.pc-B0{fill:#e69f00}.pc-B1{fill:#f4cf80}.pc-W0{fill:#009e73}.pc-W1{fill:#7acdb5}.pc-U0,.pc-U1{fill:#cc79a7}
.pc-onF0{fill:#fff}.pc-onF1,.pc-onB0,.pc-onB1,.pc-onW0,.pc-onW1,.pc-onU0,.pc-onU1{fill:#000}
@media screen and (prefers-color-scheme:dark){.pc-page{fill:#161616}.pc-row{fill:#242424}.pc-grid{stroke:#4a4a4a}.pc-text{fill:#f0f0f0}.pc-soft{fill:#b4b4b4}
.pc-bar{stroke:#161616}.pc-bar:hover{stroke:#fff}}
</style>
)";

const char* work(char kind) {
  return kind == 'F'   ? "forward"
         : kind == 'B' ? "backward"
         : kind == 'W' ? "weight gradients"
                       : "update";
}

struct Panel {
  const char* heading;  // may be empty
  const std::vector<PipelineBar>* bars;
  PipelineUse use;
  std::string of = "";  // whose bubble, where not only that of the rows
};

class Picture {
 public:
  Picture(std::vector<Panel> panels, int ranks, Scale scale, const ChartRows& rows)
      : panels_(std::move(panels)), names_(rows.names), ranks_(ranks) {
    for (int r = 0; rows.names.empty() && r < ranks; ++r)
      names_.push_back(fmt::format("rank {}", r));
    for (const std::string& name : names_)
      left_ = std::max(left_, 24 + letter * static_cast<double>(name.size()));
    for (const Panel& p : panels_) span_ = std::max(span_, p.use.span_ms);
    axis_ = time_axis(span_, 10, scale);
    row_ = std::clamp(std::floor(640.0 / ranks), 6.0, 28.0);
  }

  std::string draw(const std::string& title, const std::string& subtitle) {
    text(16, 28, "pc-text pc-title", title);
    y_ = 42;
    for (const std::string& line : lines(subtitle)) {
      text(16, y_ + 6, "pc-soft", line);
      y_ += 18;
    }
    legend();
    for (const Panel& p : panels_) panel(p);
    times();
    const double high = y_ + 12;
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"pc\" role=\"img\" viewBox=\"0 0 "
               "{0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
               "height=\"{1:.0f}\">\n"
               "<title>{2}</title>\n{3}<rect class=\"pc-page\" width=\"{0:.0f}\" "
               "height=\"{1:.0f}\"/>\n",
               wide, high, escape(title), style) +
           out_ + "</svg>\n";
  }

 private:
  void text(double x, double y, const char* classes, const std::string& what,
            const char* anchor = "start") {
    out_ +=
        fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n",
                    classes, x, y, anchor, escape(what));
  }
  // As much as fits beside each other, whole parts ("a; b") before whole words.
  static std::vector<std::string> lines(const std::string& text) {
    constexpr auto most = static_cast<std::size_t>((wide - 32) / letter);
    std::vector<std::string> out;
    for (std::size_t begin = 0; begin < text.size();) {
      std::size_t end = text.size() - begin <= most ? text.size() : text.rfind(' ', begin + most);
      if (const std::size_t part = text.rfind("; ", begin + most);
          end < text.size() && part != text.npos && part > begin + most / 2)
        end = part + 1;
      if (end == text.npos || end <= begin) end = std::min(text.size(), begin + most);
      out.push_back(text.substr(begin, end - begin));
      begin = end + (end < text.size() && text[end] == ' ' ? 1 : 0);
    }
    return out;
  }
  double x(double ms) const { return left_ + (span_ > 0 ? ms / span_ : 0) * (right - left_); }

  // Only what is in the picture.
  void legend() {
    std::set<char> kinds;
    bool several = false;
    for (const Panel& p : panels_) {
      several = several || p.use.several_stages;
      for (const PipelineBar& b : *p.bars) kinds.insert(b.kind);
    }
    double at = left_;
    const auto entry = [&](const std::string& classes, const std::string& what) {
      out_ +=
          fmt::format("<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"12\"/>\n",
                      classes, at, y_ + 2);
      text(at + 17, y_ + 12, "pc-text", what);
      at += 36 + letter * static_cast<double>(what.size());
    };
    for (const char kind : {'F', 'B', 'W', 'U'})
      if (kinds.contains(kind))
        entry(fmt::format("pc-{}0", kind), fmt::format("{} {}", kind, work(kind)));
    entry("pc-row", "idle");
    if (!several) text(at, y_ + 12, "pc-soft", "in a cell: the micro-batch");
    if (several) {
      y_ += 18;
      text(left_, y_ + 12, "pc-soft",
           "in a cell: stage.micro-batch, where narrow the micro-batch; lighter: a "
           "rank's second, fourth, ... stage");
    }
    y_ += 20;
  }

  void panel(const Panel& p) {
    y_ += 14;
    const std::string sum =
        fmt::format("{}, bubble {:.1f}%{}", axis_.value(p.use.span_ms), 100 * p.use.bubble, p.of);
    text(left_, y_ + 10, "pc-text pc-head",
         *p.heading ? fmt::format("{}: {}", p.heading, sum) : sum);
    text(right + 8, y_ + 10, "pc-soft", "idle");
    y_ += 18;
    const double top = y_;
    for (int r = 0; r < ranks_; ++r) {
      const double y = top + r * row_;
      out_ += fmt::format(
          "<rect class=\"pc-row\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>\n",
          left_, y + 1, x(p.use.span_ms) - left_, row_ - 2);
      if (row_ < 11 && r % 4 != 0) continue;  // no room for every number
      const double base = y + row_ / 2 + 4;
      text(left_ - 8, base, "pc-text", names_.at(static_cast<std::size_t>(r)), "end");
      text(right + 8, base, "pc-text",
           fmt::format("{:.1f}%", 100 * p.use.idle[static_cast<std::size_t>(r)]));
    }
    y_ += ranks_ * row_;
    grid(top);
    std::vector<std::set<int>> stages(
        static_cast<std::size_t>(ranks_));  // which of its stages is lighter
    for (const PipelineBar& b : *p.bars) stages[static_cast<std::size_t>(b.rank)].insert(b.stage);
    for (const PipelineBar& b : *p.bars) {
      const std::set<int>& all = stages[static_cast<std::size_t>(b.rank)];
      bar(b, p.use, top,
          b.kind == 'U' ? 0 : static_cast<int>(std::distance(all.begin(), all.find(b.stage)) % 2));
    }
  }

  void bar(const PipelineBar& b, const PipelineUse& use, double top, int shade) {
    const double begin = x(b.start_ms - use.start_ms), width = x(b.end_ms - use.start_ms) - begin,
                 y = top + b.rank * row_ + 1;
    std::string what =
        fmt::format("{}: {}", escape(names_.at(static_cast<std::size_t>(b.rank))), work(b.kind));
    if (b.kind != 'U') what += fmt::format(", stage {}, micro-batch {}", b.stage, b.micro);
    what +=
        fmt::format("; {} (from {} to {})", axis_.value(b.end_ms - b.start_ms),
                    axis_.value(b.start_ms - use.start_ms), axis_.value(b.end_ms - use.start_ms));
    out_ += fmt::format(
        "<g><title>{}</title><rect class=\"pc-bar pc-{}{}\" x=\"{:.2f}\" y=\"{:.1f}\" "
        "width=\"{:.2f}\" height=\"{:.1f}\"/>",
        what, b.kind, shade, begin, y, std::max(width, 0.3), row_ - 2);
    if (row_ >= 14)
      for (const std::string& said : labels(b, use.several_stages))
        if (letter * static_cast<double>(said.size()) + 2 <= width) {
          out_ +=
              fmt::format("<text class=\"pc-label pc-on{}{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>",
                          b.kind, shade, begin + width / 2, y + row_ / 2 + 3, said);
          break;
        }
    out_ += "</g>\n";
  }

  // From the longest on: the first that fits is taken.
  static std::vector<std::string> labels(const PipelineBar& b, bool several) {
    if (b.kind == 'U') return {"update", "U"};
    const std::string micro = std::to_string(b.micro),
                      both = fmt::format("{}.{}", b.stage, b.micro);
    if (several) return {b.kind + both, both, micro};
    return {b.kind + micro, micro};
  }

  void grid(double top) {
    for (int i = 0; i * axis_.step_ms <= span_ * (1 + 1e-9) && span_ > 0; ++i)
      out_ += fmt::format(
          "<line class=\"pc-grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>\n",
          x(i * axis_.step_ms), top, y_ + 4);
  }

  // Below the last panel.
  void times() {
    y_ += 18;
    for (int i = 0; i * axis_.step_ms <= span_ * (1 + 1e-9) && span_ > 0; ++i)
      text(x(i * axis_.step_ms), y_, "pc-soft", axis_.label(i * axis_.step_ms), "middle");
    text(right + 8, y_, "pc-soft", axis_.unit);
  }

  std::vector<Panel> panels_;
  std::vector<std::string> names_;  // of the rows
  int ranks_;
  double left_ = 84;  // where time begins
  double span_ = 0, row_ = 28,
         y_ = 0;  // the longest step; the height of a row; how far down the picture is filled
  TimeAxis axis_;
  std::string out_;
};

int ranks_of(const std::vector<PipelineBar>& bars) {
  int most = 0;
  for (const PipelineBar& b : bars) most = std::max(most, b.rank);
  return most + 1;
}

}  // namespace

std::string svg_chart(const std::vector<PipelineBar>& bars, const std::string& title,
                      const std::string& subtitle, Scale scale, const ChartRows& rows) {
  const int ranks = ranks_of(bars);
  return Picture({{"", &bars, chart_use(bars, ranks, rows)}}, ranks, scale, rows)
      .draw(title, subtitle);
}

std::string svg_charts(const std::vector<PipelineBar>& predicted,
                       const std::vector<PipelineBar>& measured, const std::string& title,
                       const std::string& subtitle, const ChartRows& rows) {
  const int ranks = std::max(ranks_of(predicted), ranks_of(measured));
  const std::string of =
      rows.peers == 1 || !rows.of_all
          ? ""
          : fmt::format(" of all {} ranks; shown are the first of every {} that do the same",
                        rows.of_all->idle.size(), rows.peers);
  return Picture({{"predicted", &predicted, pipeline_use(predicted, ranks)},
                  {.heading = "measured",
                   .bars = &measured,
                   .use = chart_use(measured, ranks, rows),
                   .of = of}},
                 ranks, Scale::time, rows)
      .draw(title, subtitle);
}

}  // namespace tessera::report
