// The chart for a terminal, and what both charts are made of: shares of time and a time axis.
#include "report/pipeline_chart.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/check.h"

namespace tessera::report {
namespace {

char fill(char kind) { return kind == 'F' ? '>' : kind == 'B' ? '<' : kind == 'W' ? 'w' : 'u'; }

bool too_narrow(const PipelineBar& bar, std::size_t width) {
  return bar.kind != 'U' && std::to_string(bar.micro).size() >= width;
}

// The text of a bar in `width` cells: its label where that leaves room for the sign of its kind,
// else only the sign.
std::string cells(const PipelineBar& bar, std::size_t width, bool several_stages) {
  std::string text;
  if (bar.kind != 'U') {
    text = several_stages ? fmt::format("{}.{}", bar.stage, bar.micro) : std::to_string(bar.micro);
    if (text.size() >= width) text = std::to_string(bar.micro);
    if (too_narrow(bar, width)) text.clear();
  }
  return text + std::string(width - text.size(), fill(bar.kind));
}

}  // namespace

PipelineUse pipeline_use(const std::vector<PipelineBar>& bars, int ranks) {
  CHECK(ranks >= 1, "a chart of no ranks");
  PipelineUse use;
  use.idle.assign(static_cast<std::size_t>(ranks), 0);
  std::vector<double> busy(use.idle.size(), 0);
  std::vector<int> stage(use.idle.size(), -1);
  double last = 0;
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const PipelineBar& b = bars[i];
    CHECK(b.rank >= 0 && b.rank < ranks,
          "a bar of rank " + std::to_string(b.rank) + " of " + std::to_string(ranks));
    CHECK(std::isfinite(b.start_ms) && std::isfinite(b.end_ms) && b.end_ms >= b.start_ms,
          "a bar that ends before it starts");
    use.start_ms = i == 0 ? b.start_ms : std::min(use.start_ms, b.start_ms);
    last = i == 0 ? b.end_ms : std::max(last, b.end_ms);
    const auto rank = static_cast<std::size_t>(b.rank);
    busy[rank] += b.end_ms - b.start_ms;
    if (b.kind == 'U') continue;  // of all stages
    use.several_stages = use.several_stages || (stage[rank] >= 0 && stage[rank] != b.stage);
    stage[rank] = b.stage;
  }
  use.span_ms = bars.empty() ? 0 : last - use.start_ms;
  for (std::size_t r = 0; r < busy.size(); ++r) {
    use.idle[r] = use.span_ms > 0 ? std::clamp(1 - busy[r] / use.span_ms, 0.0, 1.0) : 0;
    use.bubble += use.idle[r] / ranks;
  }
  return use;
}

PipelineUse chart_use(const std::vector<PipelineBar>& bars, int ranks, const ChartRows& rows) {
  PipelineUse use = pipeline_use(bars, ranks);
  if (!rows.of_all) return use;
  const bool several = use.several_stages;
  use = *rows.of_all;
  use.several_stages = several;
  for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r)
    use.idle[r] = use.idle.at(r * static_cast<std::size_t>(rows.peers));
  use.idle.resize(static_cast<std::size_t>(ranks));
  return use;
}

int chart_columns() {
  const char* told = std::getenv("COLUMNS");
  int columns = told ? std::atoi(told) : 0;
  winsize size{};
  if (columns <= 0 && ::isatty(STDOUT_FILENO) && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0)
    columns = size.ws_col;
  return std::clamp(columns, 100, 200);
}

std::string TimeAxis::label(double ms) const {
  return fmt::format("{:.{}f}", ms / unit_ms, decimals);
}

std::string TimeAxis::value(double ms) const {
  const double v = ms / unit_ms;
  return fmt::format("{:.{}f} {}", v, v >= 100 ? 0 : v >= 10 ? 1 : 2, unit);
}

TimeAxis time_axis(double span_ms, int most, Scale scale) {
  TimeAxis axis;
  const bool work = scale == Scale::work;
  if (work) axis.unit = "GFLOP";
  if (!(span_ms > 0)) return axis;
  if (span_ms >= 10000) {
    axis.unit_ms = 1000;
    axis.unit = work ? "TFLOP" : "s";
  } else if (span_ms < 0.1) {
    axis.unit_ms = 0.001;
    axis.unit = work ? "MFLOP" : "us";
  }
  const double least = span_ms / axis.unit_ms / std::max(1, most);
  const double power = std::pow(10, std::floor(std::log10(least)));
  double step = 10 * power;
  for (const double s : {5.0, 2.0, 1.0})
    if (s * power >= least) step = s * power;
  axis.step_ms = step * axis.unit_ms;
  axis.decimals = std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
  return axis;
}

std::string text_chart(const std::vector<PipelineBar>& bars, int ranks, int columns, Scale scale,
                       const ChartRows& shown) {
  const PipelineUse use = chart_use(bars, ranks, shown);
  if (!(use.span_ms > 0))
    return scale == Scale::work ? "no work was done\n" : "no time was spent\n";
  std::vector<std::string> names = shown.names;
  for (int r = 0; shown.names.empty() && r < ranks; ++r)
    names.push_back(fmt::format("rank {:>{}}", r, std::to_string(ranks - 1).size()));
  std::size_t longest = 0;
  for (const std::string& name : names) longest = std::max(longest, name.size());
  const std::string indent(longest, ' ');
  const int width =
      std::max(20, columns - static_cast<int>(indent.size()) - 15);  // then " |", "| 12.3% idle"
  const auto column = [&](double ms) {
    return static_cast<std::size_t>(std::clamp(
        std::lround((ms - use.start_ms) / use.span_ms * width), 0L, static_cast<long>(width)));
  };

  std::vector<std::string> rows(static_cast<std::size_t>(ranks),
                                std::string(static_cast<std::size_t>(width), '.'));
  bool narrow = false;
  for (const PipelineBar& b : bars) {
    const std::size_t begin = column(b.start_ms), end = column(b.end_ms);
    narrow |= b.end_ms > b.start_ms && too_narrow(b, end - begin);
    if (end > begin)
      rows[static_cast<std::size_t>(b.rank)].replace(begin, end - begin,
                                                     cells(b, end - begin, use.several_stages));
  }
  std::string out;
  for (std::size_t r = 0; r < rows.size(); ++r)
    out +=
        fmt::format("{:{}} |{}| {:5.1f}% idle\n", names.at(r), longest, rows[r], 100 * use.idle[r]);

  const TimeAxis axis = time_axis(use.span_ms, width / 7, scale);
  std::string line(static_cast<std::size_t>(width), '-'), marks;
  for (int i = 0; i * axis.step_ms <= use.span_ms * (1 + 1e-9); ++i) {
    const std::size_t at = column(use.start_ms + i * axis.step_ms);
    if (at < line.size()) line[at] = '+';
    marks.resize(std::max(marks.size(), at), ' ');
    marks += axis.label(i * axis.step_ms);
  }
  out += indent + " +" + line + "+\n" + indent + "  " + marks + " " + axis.unit + "\n";

  const auto used = [&](char kind) {
    return std::any_of(bars.begin(), bars.end(),
                       [&](const PipelineBar& b) { return b.kind == kind; });
  };
  for (const auto& [kind, what] : {std::pair('F', "> forward, "),
                                   {'B', "< backward, "},
                                   {'W', "w weight gradients, "},
                                   {'U', "u update, "}})
    if (used(kind)) out += what;
  out += use.several_stages
             ? ". idle; before the sign stage.micro-batch, in narrow cells the micro-batch\n"
             : ". idle; before the sign the micro-batch\n";
  if (narrow) out += "turns too narrow for their numbers: --schedule-svg FILE draws them\n";
  const std::size_t all = rows.size() * static_cast<std::size_t>(shown.peers);
  out += fmt::format("bubble {:.1f}% of {} x {}", 100 * use.bubble,
                     all == 1 ? "1 rank" : fmt::format("{} ranks", all), axis.value(use.span_ms));
  return out +
         (all > rows.size()
              ? fmt::format("; shown are the first of every {} that do the same\n", shown.peers)
              : "\n");
}

}  // namespace tessera::report
