// Texts of a training: the lines at its start, the line of a step, and summary.json. Convention:
// pure text and JSON from numbers; nothing here changes the run.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/progress.h"
#include "measure/peak.h"
#include "report/metrics.h"
#include "session/session.h"
#include "train/score.h"

namespace tessera::run {

struct EpochRecord {
  double seconds = 0, loss = 0, train_top1 = 0, test_top1 = -1,
         test_top1_tta = -1;  // below 0: not evaluated
  double barrier_wait_s = 0;  // the longest that a rank waited at its end
};

// The data of the summary, gathered over all processes of the run.
struct TrainResults {
  std::vector<EpochRecord> epochs;
  std::vector<double> step_ms;
  nlohmann::ordered_json ranks;  // an object each
  nlohmann::ordered_json segments =
      nlohmann::ordered_json::array();  // of the run, an object each (segments.h)
  double last_loss = 0;
  Score final;
  std::int64_t planned_bytes = 0, measured_bytes = 0;  // of this rank
  comm::Traffic comm;                                  // of the last step, on the first rank

  // Lines of metrics.jsonl that an earlier process wrote count too.
  void recall(const std::vector<nlohmann::json>& lines);
};

// `memory`: of each rank's training step; that of the one with the most is shown. `planned`: the
// most that a rank needs in the whole run.
std::vector<std::string> introduction(const config::Config& config,
                                      const std::vector<plan::Memory>& memory, std::int64_t planned,
                                      std::int64_t train_samples, std::int64_t test_samples,
                                      const std::string& resumed);
// A note about a peak that may be wrong; "": there is none.
std::string doubt_of_peak(const Peak& peak);
std::string step_line(const report::StepMetrics& m, std::int64_t total);
std::string eval_line(std::int64_t epoch, const Score& score, const Progress& progress);
// The line of an epoch in metrics.jsonl, without its evaluation. `waits`: of each rank at the
// epoch's end.
nlohmann::ordered_json epoch_json(std::int64_t epoch, std::int64_t step, bool whole,
                                  const EpochRecord& record, const std::vector<double>& waits);
nlohmann::ordered_json summary_of(const config::Config& config, const Progress& progress,
                                  const TrainResults& results);

std::string done_line(const nlohmann::ordered_json& summary, const std::string& folder);

}  // namespace tessera::run
