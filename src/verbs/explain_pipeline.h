// The pipeline of a configuration for people and scripts: its stages, what each of its ranks holds,
// and the picture of its schedule, predicted from the plans and, where a run is given, as it was
// measured. Convention: a rank here is one of the pipeline, and what is said of it is of the first
// of its peers (those that differ on other axes). Predicted turns take as long as their FLOPs,
// transfers no time.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "compile/compile.h"
#include "measure/measured_pipeline.h"
#include "measure/pipeline_turns.h"
#include "plan/plan.h"
#include "report/pipeline_chart.h"

namespace tessera::run {

class PipelineView {
 public:
  PipelineView(const StepSpec& spec, Goal goal, int micros);

  void add(const plan::Plan&
               plan);  // of every rank that can differ; others than the first peers are left out
  void measure(const RunTrace& run);
  std::string text(int columns = 100) const;  // tables, bubbles and charts of that width
  std::string svg(const std::string& of)
      const;  // one chart, or predicted above measured; `of`: what the pipeline is made of
  nlohmann::ordered_json json() const;

 private:
  struct Rank {
    plan::Memory memory;
    std::int64_t peak_bytes = 0, sent_bytes = 0;
    std::map<PipelineTurn, double> flops;
  };
  struct Stage {
    int rank = 0;
    std::string first, last;  // blocks
    std::int64_t blocks = 0, params = 0;
  };
  double flops(int stage) const;
  std::string heading() const;
  std::string ranks_text(int rank) const;  // of the run: "1", "2-3" with peers
  report::ChartRows rows() const;
  std::vector<transforms::Timed> simulated() const;                // in GFLOP
  std::vector<report::PipelineBar> predicted(double scale) const;  // `scale`: ms of a GFLOP
  std::vector<report::PipelineBar> measured() const;               // of the first peers
  double bubble_measured() const { return measured_->use.bubble; }
  double bubble_of_turns()
      const;  // by the schedule, with turns as long as they were and transfers that take no time
  double gflops() const;  // while a rank has a turn

  struct Measured {
    MeasuredStep step;
    report::PipelineUse use;  // of all ranks of the run
  };
  transforms::Schedule schedule_;
  int peers_ = 1;
  std::string balanced_;  // by what
  std::optional<double> formula_;
  std::vector<Stage> stages_;
  std::vector<Rank> ranks_;
  std::optional<Measured> measured_;
};

}  // namespace tessera::run
