// A pipeline's step as a chart: a row per rank, time from left to right, in each cell the
// micro-batch that a stage works on. Convention: a bar is one turn of a rank; bars of one rank do
// not overlap. Time counts from the first bar's start; a rank is idle whenever it has no bar until
// the last one of all ranks has ended, and the bubble is the idle share of all ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::report {

struct PipelineBar {
  int rank = 0, stage = 0, micro = 0;
  char kind = 'F';                  // F forward, B backward, W gradients of weights, U update
  double start_ms = 0, end_ms = 0;  // or GFLOP, where a chart is asked for work instead of time
};
// The unit of the chart's axis.
enum class Scale : std::uint8_t { time, work };

// How busy ranks are; shares are from 0 to 1.
struct PipelineUse {
  double start_ms = 0, span_ms = 0;  // the first start; from there to the last end
  double bubble = 0;
  std::vector<double> idle;     // of each rank its own share
  bool several_stages = false;  // on some rank
};
PipelineUse pipeline_use(const std::vector<PipelineBar>& bars, int ranks);

// The rows of a chart, where they do not stand for all there is.
struct ChartRows {
  std::vector<std::string> names;  // none: "rank 0", ...
  int peers = 1;                   // each row is the first of so many ranks that do the same
  const PipelineUse* of_all =
      nullptr;  // of all of them: a chart then has their span, and says their bubble
};

// The use of a chart's ranks: idle shares are of its rows, the rest of all ranks if `rows` has it.
PipelineUse chart_use(const std::vector<PipelineBar>& bars, int ranks, const ChartRows& rows);

// For a terminal, at most `columns` wide, without colour: 3>>> is forward, 3<<< backward, 3www
// weights, uuu update, ... idle.
std::string text_chart(const std::vector<PipelineBar>& bars, int ranks, int columns = 100,
                       Scale scale = Scale::time, const ChartRows& rows = {});
// The width of a chart on standard output: the terminal's where it is wider than 100, up to 200.
int chart_columns();

// A picture that needs no other file: colours that colour-blind readers can tell apart (and
// letters), dark where the reader's screen is, every value in a tooltip. The number of ranks is
// that of the bars.
std::string svg_chart(const std::vector<PipelineBar>& bars, const std::string& title,
                      const std::string& subtitle, Scale scale = Scale::time,
                      const ChartRows& rows = {});
// Predicted above measured, on one time axis; `of_all` is of the measured one.
std::string svg_charts(const std::vector<PipelineBar>& predicted,
                       const std::vector<PipelineBar>& measured, const std::string& title,
                       const std::string& subtitle, const ChartRows& rows = {});

// The marks of a time axis of both charts: every `step_ms`, at most `most` of them, written as
// label(t): "12", and the unit.
struct TimeAxis {
  double step_ms = 1;
  double unit_ms = 1;  // 1000: seconds, 0.001: microseconds; of work: TFLOP, MFLOP
  std::string unit = "ms";
  int decimals = 0;  // of a mark
  std::string label(double ms) const;
  std::string value(double ms) const;  // three digits or more, with its unit: "12.3 ms"
};
TimeAxis time_axis(double span_ms, int most, Scale scale = Scale::time);

}  // namespace tessera::report
