// metrics.jsonl: one JSON object per line, kind step or epoch (fields in cli.md, "Files").
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tessera::report {

struct Breakdown {  // ms
  double compute = 0, comm_exposed = 0, comm_hidden = 0, wait = 0, data = 0, host = 0;
};
nlohmann::ordered_json to_json(const Breakdown& b);

struct StepMetrics {
  std::int64_t step = 0, epoch = 0;
  double loss = 0, top1 = 0, lr = 0, grad_norm = 0, step_ms = 0, images_per_s = 0, mfu = 0;
  std::int64_t comm_bytes = 0;
  bool sampled = false;
  Breakdown breakdown;
};
nlohmann::ordered_json to_json(const StepMetrics& m);

// Appends lines, each flushed; a full disk is Error(disk).
class MetricsFile {
 public:
  // Drops lines of steps after `keep_through` (a resumed run repeats them) and lines that are not metrics.
  MetricsFile(std::string path, std::int64_t keep_through);
  void append(const nlohmann::ordered_json& line);
  const std::vector<nlohmann::json>& kept() const { return kept_; }  // what an earlier process of the run wrote

 private:
  std::string path_;
  std::vector<nlohmann::json> kept_;
};

struct Quantiles {
  double median = 0, p10 = 0, p90 = 0, min = 0, max = 0;
};
Quantiles quantiles(std::vector<double> values);

}  // namespace tessera::report
