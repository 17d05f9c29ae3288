// Steps of a training that were submitted and are not accounted for yet: their results come when
// they are done, which may be after the next one was submitted. Convention: Progress knows of a
// step when its result is there; every rank makes the same calls.
#pragma once

#include <deque>
#include <optional>

#include "checkpoint/progress.h"
#include "compile/plans.h"
#include "data/loader.h"
#include "measure/meter.h"
#include "report/metrics.h"
#include "session/session.h"

namespace tessera::run {

struct FinishedStep {
  data::Batch batch;
  StepResult result;
  Meter::Wanted wanted;
  comm::Traffic sent;
  std::int64_t began_ns = 0;  // of the steady clock; not before the step before it was finished
  double data_ms = 0, ran_ms = 0;
};

// The numbers of a step for metrics.jsonl; its learning rate and its MFU are the caller's.
report::StepMetrics metrics_of(const FinishedStep& step, const Measured& seen);

class StepsUnderWay {
 public:
  // `ahead`: how many may be submitted behind the one that is waited for; -1: as many as the
  // executor finds worth it.
  StepsUnderWay(Session& session, const RunExtent& extent, int ahead);

  bool empty() const { return steps_.empty(); }
  // Loads the next batch and starts its step.
  void submit(data::Loader& loader, const Progress& progress, const Meter& meter, int rank);
  // Whether one must be waited for before the next may be submitted. So it is where outcomes decide
  // what comes next (the end of an epoch or of the run, skipped steps), or where the state is saved
  // or shared out anew behind one of them.
  bool full(const Progress& progress) const;
  FinishedStep wait();  // for the oldest
  // The step with this number over this batch.
  StepInputs inputs_of(const data::Batch& batch, std::int64_t number) const;
  void give_back(data::Batch batch) {
    spare_ = std::move(batch);
  }  // its memory is for the next one

 private:
  struct Step {
    data::Batch batch;
    Meter::Wanted wanted;
    std::int64_t began_ns = 0;
    double data_ms = 0;
    comm::Traffic sent{};
    std::optional<PendingStep> pending{};
  };
  Session& session_;
  const RunExtent extent_;
  const std::int64_t ahead_;
  std::deque<Step> steps_;
  data::Batch spare_;
  std::int64_t finished_ns_ = 0;  // the last one
};

}  // namespace tessera::run
