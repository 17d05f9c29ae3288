// The pipeline chart: cells, axis and shares of the text one by one, an SVG that needs nothing
// else; and docs/pipeline.md shows what the code prints. Convention: as in docs/parallelism.md
// TESSERA_UPDATE_GOLDENS=1 writes what stands between `<!-- begin NAME -->` and
// `<!-- end NAME -->` anew.
#include "report/pipeline_chart.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/check.h"
#include "models/model.h"
#include "transforms/schedules.h"
#include "verbs/explain_pipeline.h"

namespace tessera::report::pipeline_chart_test {
namespace {

using namespace transforms;

// F = 1 ms, B = 2 ms (1 and 1 where it is split).
std::vector<PipelineBar> bars_of(const Schedule& s, double scale = 1) {
  std::vector<PipelineBar> bars;
  const bool splits = s.splits();
  for (const Timed& t : simulate(s, [&](const Turn& turn) {
         return turn.work == Work::backward && !splits ? 2 * scale : scale;
       }))
    bars.push_back({t.rank, t.turn.stage, t.turn.micro, name(t.turn)[0], t.start, t.end});
  return bars;
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + what.size()))
    ++n;
  return n;
}

TEST(PipelineChart, Text) {
  EXPECT_EQ(text_chart(bars_of(one_f_one_b(2, 2)), 2, 57),
            "rank 0 |0>>>1>>>........0<<<<<<<....1<<<<<<<|  33.3% idle\n"
            "rank 1 |....0>>>0<<<<<<<1>>>1<<<<<<<........|  33.3% idle\n"
            "       ++-------+-------+-------+-------+---+\n"
            "        0       2       4       6       8 ms\n"
            "> forward, < backward, . idle; before the sign the micro-batch\n"
            "bubble 33.3% of 2 ranks x 9.00 ms\n");
}

TEST(PipelineChart, EveryKindAndNarrowCells) {
  // Micro-batch 12 has no room for itself and its sign; stage 1 has none for "1.2"; time begins
  // with the first bar.
  const std::vector<PipelineBar> bars = {{0, 0, 3, 'F', 100, 110},
                                         {0, 0, 12, 'F', 110, 112},
                                         {0, 1, 2, 'B', 112, 115},
                                         {0, 0, 3, 'W', 115, 120},
                                         {0, 0, 0, 'U', 120, 136}};
  const std::string chart = text_chart(bars, 2, 57);
  EXPECT_NE(chart.find("rank 0 |0.3>>>>>>>>>2<<0.3wwuuuu"), std::string::npos) << chart;
  EXPECT_NE(chart.find("rank 1 |....................................| 100.0% idle"),
            std::string::npos)
      << chart;
  EXPECT_NE(chart.find("> forward, < backward, w weight gradients, u update, . idle; before the "
                       "sign stage.micro-batch"),
            std::string::npos)
      << chart;
  EXPECT_NE(chart.find("bubble 50.0% of 2 ranks x 36.0 ms"), std::string::npos) << chart;
  EXPECT_NE(chart.find("turns too narrow for their numbers: --schedule-svg FILE draws them\n"),
            std::string::npos)
      << chart;
  EXPECT_EQ(text_chart({}, 3), "no time was spent\n");
}

TEST(PipelineChart, RowsOfManyRanks) {
  const PipelineUse all{0, 20, 0.4, {0.5, 0.6, 0.2, 0.3}, false};
  const std::vector<PipelineBar> bars = {{0, 0, 0, 'F', 0, 10}, {1, 1, 0, 'F', 2, 18}};
  const ChartRows rows{{"stage 0 (rank 0)", "stage 1 (rank 2)"}, 2, &all};
  const std::string chart = text_chart(bars, 2, 57, Scale::time, rows);
  EXPECT_NE(chart.find("stage 0 (rank 0) |0>>>>>>>>>>>>.............|  50.0% idle\n"),
            std::string::npos)
      << chart;
  EXPECT_NE(chart.find("stage 1 (rank 2) |"), std::string::npos) << chart;
  EXPECT_NE(chart.find("|  20.0% idle\n"), std::string::npos) << chart;
  EXPECT_NE(
      chart.find(
          "bubble 40.0% of 4 ranks x 20.0 ms; shown are the first of every 2 that do the same\n"),
      std::string::npos)
      << chart;
  EXPECT_EQ(chart.find("too narrow"), std::string::npos) << chart;
  const std::string svg = svg_charts(bars, bars, "t", "s", rows);
  EXPECT_EQ(count(svg, ">stage 1 (rank 2)<"), 2u);
  EXPECT_NE(svg.find("measured: 20.0 ms, bubble 40.0% of all 4 ranks"), std::string::npos) << svg;
}

TEST(PipelineChart, TextKeepsItsWidth) {
  for (const int columns : {60, 100, 200})
    for (const double scale : {1e-6, 0.01, 1.0, 77.7, 12345.6}) {
      std::istringstream lines(text_chart(bars_of(one_f_one_b(12, 20), scale), 12, columns));
      std::string line;
      for (int i = 0; i < 14 && std::getline(lines, line); ++i)
        EXPECT_LE(line.size(), static_cast<std::size_t>(columns)) << line;
    }
}

TEST(PipelineChart, SharesOfTime) {
  const PipelineUse use = pipeline_use(bars_of(zb_h1(4, 8)), 4);
  EXPECT_NEAR(use.bubble, zb_h1_bubble(4, 8), 1e-12);
  EXPECT_FALSE(use.several_stages);
  EXPECT_TRUE(pipeline_use(bars_of(gpipe(2, 4, 2)), 2).several_stages);
  EXPECT_THROW(pipeline_use({{2, 0, 0, 'F', 0, 1}}, 2), Error);
  EXPECT_THROW(pipeline_use({{0, 0, 0, 'F', 1, 0}}, 2), Error);
}

TEST(PipelineChart, TimeAxis) {
  struct Row {
    double span;
    int most;
    std::string first, unit;
  };
  for (const Row& row : {Row{9, 5, "2", "ms"},
                         {100, 10, "10", "ms"},
                         {101, 10, "20", "ms"},
                         {0.7, 10, "0.1", "ms"},
                         {25000, 10, "5", "s"},
                         {0.004, 10, "0.5", "us"},
                         {0, 10, "1", "ms"}}) {
    const TimeAxis axis = time_axis(row.span, row.most);
    EXPECT_EQ(axis.label(axis.step_ms), row.first) << row.span;
    EXPECT_EQ(axis.unit, row.unit) << row.span;
    EXPECT_LE(row.span / axis.step_ms, row.most + 1e-9) << row.span;
  }
}

// Elements open and close in order, so that a browser reads it as XML.
void expect_well_formed(const std::string& svg) {
  std::vector<std::string> open;
  for (std::size_t at = svg.find('<'); at != svg.npos; at = svg.find('<', at)) {
    const std::size_t end = svg.find('>', at);
    ASSERT_NE(end, svg.npos);
    const std::string tag = svg.substr(at + 1, end - at - 1);
    at = end;
    if (tag.starts_with("/")) {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ("/" + open.back(), tag);
      open.pop_back();
    } else if (!tag.ends_with("/")) {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
  }
  EXPECT_TRUE(open.empty());
}

TEST(PipelineChart, SvgStandsAlone) {
  std::vector<PipelineBar> bars = bars_of(zb_h1(3, 5));
  bars.push_back({0, 0, 0, 'U', 17, 18});
  const std::string svg = svg_chart(bars, "a <b> & \"c\"", "of 3 ranks");
  expect_well_formed(svg);
  EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_EQ(count(svg, "http"), 1u);  // the name of the format
  EXPECT_EQ(count(svg, "href") + count(svg, "url(") + count(svg, "@import") + count(svg, "<script"),
            0u);
  EXPECT_NE(svg.find("<title>a &lt;b&gt; &amp; &quot;c&quot;</title>"), svg.npos);
  EXPECT_NE(svg.find("prefers-color-scheme:dark"), svg.npos);
  EXPECT_EQ(count(svg, "class=\"pc-bar"), bars.size());
  EXPECT_EQ(count(svg, "<g><title>"), bars.size());
  EXPECT_NE(svg.find("rank 1: forward, stage 1, micro-batch 0; 1.00 ms (from 1.00 ms to 2.00 ms)"),
            svg.npos);
  EXPECT_NE(svg.find("rank 0: update; 1.00 ms (from 17.0 ms to 18.0 ms)"), svg.npos);
  EXPECT_NE(svg.find("W weight gradients"), svg.npos);
  EXPECT_EQ(count(svg, "nan") + count(svg, "inf"), 0u);
  expect_well_formed(svg_chart({}, "", ""));
  // A long subtitle takes two lines, cut between its parts, or between words, or anywhere.
  const std::string part(100, 'a'), word(80, 'b');
  for (const std::string& subtitle : {part + "; " + part, part + " " + part, word + word + word})
    EXPECT_EQ(count(svg_chart(bars, "", subtitle), "class=\"pc-soft\" x=\"16.0\""), 2u) << subtitle;
  EXPECT_NE(svg_chart(bars, "", part + "; b " + part).find(">" + part + ";<"), std::string::npos);
}

TEST(PipelineChart, PredictedAboveMeasured) {
  const std::vector<PipelineBar> predicted = bars_of(interleaved(2, 2, 4)),
                                 measured = bars_of(interleaved(2, 2, 4), 1.5);
  const std::string svg = svg_charts(predicted, measured, "t", "s");
  expect_well_formed(svg);
  EXPECT_EQ(count(svg, "class=\"pc-bar"), predicted.size() + measured.size());
  EXPECT_LT(svg.find("predicted: 27.0 ms, bubble 11.1%"),
            svg.find("measured: 40.5 ms, bubble 11.1%"));
  EXPECT_NE(svg.find("measured: 40.5 ms"), svg.npos);
  EXPECT_NE(svg.find("pc-F1"), svg.npos);  // a rank's second stage
  EXPECT_EQ(svg_charts(predicted, {}, "t", "s").find("nan"), std::string::npos);
}

// Gives what `explain` prints of a pipeline, without its memory: that depends on the machine's
// kernels.
std::string explained() {
  config::Config c;
  c.model = models::preset("vit_micro");
  c.model.depth = 6;
  c.batch = {32, 4, 8};
  c.parallel.pp = 4;
  run::PipelineView view(run::resolve(c), run::Goal::train, 8);
  const plan::Target target;
  const ir::Program program =
      run::compile(c, run::Goal::train, std::vector<std::int64_t>(8, 4), target).program;
  for (int rank = 0; rank < 4; ++rank) view.add(plan::lower(program, rank, target));
  const std::string text = view.text();
  return text.substr(1, text.find("\nmemory") - 1) + text.substr(text.find("\npredicted"));
}

std::string fenced(const std::string& text) { return "\n```\n" + text + "```\n"; }

TEST(PipelineChart, DocsShowWhatIsPrinted) {
  const std::string path = std::string(TESSERA_SOURCE_DIR) + "/docs/pipeline.md";
  std::stringstream file;
  file << std::ifstream(path).rdbuf();
  const std::string now = file.str();
  std::string fresh = now;
  const auto put = [&](const std::string& part, const std::string& text) {
    const std::string begin = "<!-- begin " + part + " -->", end = "<!-- end " + part + " -->";
    const std::size_t from = fresh.find(begin), to = fresh.find(end);
    ASSERT_TRUE(from != fresh.npos && to != fresh.npos && from < to)
        << "docs/pipeline.md needs a line " << begin << " and a line " << end;
    fresh.replace(from + begin.size(), to - from - begin.size(), text);
  };
  std::string table = "\n| schedule | bubble | in flight on rank 0, 1, 2, 3 |\n|---|---|---|\n";
  for (const auto& [call, s] : {std::pair("gpipe(4, 4, 8)", gpipe(4, 4, 8)),
                                {"one_f_one_b(4, 8)", one_f_one_b(4, 8)},
                                {"interleaved(4, 2, 8)", interleaved(4, 2, 8)},
                                {"zb_h1(4, 8)", zb_h1(4, 8)}}) {
    std::vector<std::string> flying;
    for (int r = 0; r < 4; ++r) flying.push_back(std::to_string(in_flight(s, r)));
    table += fmt::format("| `{}` | {:.1f}% | {} |\n", call,
                         100 * pipeline_use(bars_of(s), 4).bubble, join(flying, ", "));
  }
  put("text", fenced(print(zb_h1(2, 3))));
  put("table", table);
  put("gpipe", fenced(text_chart(bars_of(gpipe(4, 4, 8)), 4)));
  put("zb_h1", fenced(text_chart(bars_of(zb_h1(4, 8)), 4)));
  put("explain", fenced(explained()));
  if (fresh == now) return;
  if (std::getenv("TESSERA_UPDATE_GOLDENS")) {
    std::ofstream(path) << fresh;
    GTEST_SKIP() << "rewrote the generated parts of docs/pipeline.md";
  }
  FAIL() << "docs/pipeline.md is stale; TESSERA_UPDATE_GOLDENS=1 build/tests/run_test "
            "--gtest_filter='PipelineChart.*' rewrites it";
}

}  // namespace
}  // namespace tessera::report::pipeline_chart_test
