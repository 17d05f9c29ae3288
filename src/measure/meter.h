// Measurements of a run after each step: how fast each rank is, where the time went, and what
// trace.json shows. Convention: every rank calls step() after every step. On sampled steps, and so
// often between them that a request to stop is not kept waiting, one small message goes around; on
// sampled steps a second one.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "measure/breakdown.h"
#include "measure/rank_speed.h"
#include "ranks/ranks.h"
#include "report/metrics.h"
#include "report/trace.h"
#include "session/session.h"

namespace tessera::run {

struct Measured {
  bool stop = false;     // some rank was asked to
  bool sampled = false;  // `breakdown` is this step's, else that of the last sampled one
  double step_ms = 0;    // until the last rank had ended it, too
  report::Breakdown breakdown;
  std::vector<std::string> remarks;  // for the reader: slow ranks
};

// Memory of each rank's plan; every rank makes the call.
std::vector<plan::Memory> memory_of_ranks(const Ranks& ranks, const plan::Memory& mine);

class Meter {
 public:
  Meter(const config::Config& config, const Ranks& ranks, Session& session,
        std::filesystem::path out);

  // The purpose of a step that is about to start: a sample of where time goes, which all ranks look
  // at together; and whether its timeline is wanted with spans, for a sample or for trace.json.
  struct Wanted {
    bool sampled = false, spans = false;
  };
  Wanted wanted(std::int64_t number) const;
  // `began_ns`: of the steady clock, when the step began; data_ms of the ran_ms since were spent on
  // waiting for the batch.
  Measured step(std::int64_t number, Wanted wanted, const exec::Timeline& timeline,
                const plan::Plan& plan, std::int64_t samples, std::int64_t began_ns, double data_ms,
                double ran_ms, bool stop);
  std::optional<std::vector<double>> better_shares(const std::vector<double>& now,
                                                   const std::vector<std::int64_t>& micro) const {
    return speeds_.better_shares(now, micro);
  }
  void shares_changed() {
    speeds_.forget();
    untold_ = {};
    untold_steps_ = 0;
  }
  // Seconds that each rank waits for the last one, here and now.
  std::vector<double> barrier();
  // One object per rank: host, device, memory, mean breakdown of the sampled steps but the first,
  // waits at the end of epochs; of several ranks also the first of these steps, so that a reader
  // may take more of them for warm-up, and how long the others waited for it.
  nlohmann::ordered_json ranks_json(std::int64_t planned_bytes, std::int64_t measured_bytes);

 private:
  void trace(std::int64_t number, const exec::Timeline& timeline, const plan::Plan& plan,
             std::int64_t began_ns, double data_ms, double step_ms);
  // All ranks tell each other how the steps since the last time were: requests to stop, slow ranks,
  // and who came last. Answers the last one.
  int tell(Measured& out);
  double bubble(const exec::Timeline& timeline, const plan::Plan& plan) const;
  void write_trace();

  const Ranks& ranks_;
  Session& session_;
  const bool pipelined_;
  std::filesystem::path out_;
  std::string host_;
  Clock clock_;
  RankSpeeds speeds_;
  const bool tells_always_;  // whoever shares batches out by speed looks at every step
  RankStep untold_;          // of this rank, since ranks last told each other
  std::int64_t untold_steps_ = 0, tell_every_ = 1;
  std::int64_t trace_left_, first_ns_ = 0;
  std::vector<report::TraceEvent> doing_, under_way_;
  std::vector<report::TraceTurn> turns_;
  report::Breakdown last_, sum_;
  std::vector<std::pair<std::int64_t, report::Breakdown>>
      early_;  // (step, of it): the first that are in the sum
  std::vector<double>
      waited_for_;  // ms of the steps that are in the sum, by the rank that came last
  std::int64_t sampled_ = 0, steps_ = 0;
  bool cold_ = false;  // all that was added up is the first step
  double barrier_s_ = 0;
};

}  // namespace tessera::run
