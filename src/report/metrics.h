// Lines of metrics.jsonl: one JSON object each, kind step or epoch; and quantiles of what they
// hold.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tessera::report {

struct Breakdown {  // ms
  double compute = 0, comm_exposed = 0, comm_hidden = 0, wait = 0, data = 0, host = 0;
  double bubble = 0;  // no part of it: of the turns of a pipeline, the share of time in which this
                      // rank had none
  double copy = 0;    // nor this: batches on their way to a device, beside the step before
  bool pipelined = false;
};
// The parts that are added up over steps.
inline constexpr double Breakdown::*breakdown_parts[] = {
    &Breakdown::compute, &Breakdown::comm_exposed, &Breakdown::comm_hidden, &Breakdown::wait,
    &Breakdown::data,    &Breakdown::host,         &Breakdown::bubble,      &Breakdown::copy};
nlohmann::ordered_json to_json(const Breakdown& b);

struct StepMetrics {
  std::int64_t step = 0, epoch = 0;
  double loss = 0, top1 = 0, lr = 0, grad_norm = 0, step_ms = 0, images_per_s = 0, mfu = 0;
  std::int64_t comm_bytes = 0;
  bool skipped = false;   // not finite: nothing was changed
  double loss_scale = 0;  // f16; 0: the loss is not scaled
  bool overflow = false;  // skipped, and the loss scale answers it
  bool sampled = false;
  Breakdown breakdown;
};
nlohmann::ordered_json to_json(const StepMetrics& m);

struct Quantiles {
  double median = 0, p10 = 0, p90 = 0, min = 0, max = 0, mean = 0;
};
Quantiles quantiles(std::vector<double> values);

}  // namespace tessera::report
