// Output of a training while it runs: its lines on a terminal with a bar, and metrics.jsonl with
// its twins. Convention: every rank has one; only the first opens files and is not quiet.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "report/console.h"
#include "report/metrics.h"
#include "report/metrics_log.h"

namespace tessera::run {

// How far a process is with its steps and evaluations, and what they took.
struct Pace {
  std::int64_t first = 0, total = 0, step = 0;  // the steps of this process, and where it is
  std::int64_t evaluations = 0, images = 0;     // to come, of so many images each
  std::int64_t evaluated = 0;
  double evaluated_s = 0, under_way_s = 0, images_per_s = 0;

  // Seconds to go, so many after the first step began: steps at the rate of this process,
  // evaluations as long as those it has seen.
  double left(double seconds) const;
};

class TrainLog {
 public:
  report::Console& console() { return console_; }
  void note(const std::string& text) {  // "": nothing is said
    if (!text.empty()) console_.line("note: " + text);
  }
  void note(const std::vector<std::string>& texts) {
    for (const std::string& text : texts) note(text);
  }

  // Opens the files in the run folder `out`: lines beyond `bytes`, which have this hash, and of
  // `next_step` and later, go. The lines that an earlier process left.
  const std::vector<nlohmann::json>& open(const std::filesystem::path& out,
                                          const config::Config& config, std::int64_t bytes,
                                          const std::string& hash, std::int64_t next_step);
  // The steps of this process: from `first` to `total`, with so many evaluations of so many images
  // between them.
  void begin(std::int64_t first, std::int64_t total, std::int64_t evaluations, std::int64_t images);

  // A line of metrics.jsonl; where no file is open it is only counted.
  void append(const nlohmann::ordered_json& line);
  std::int64_t lines() const { return lines_; }
  std::int64_t bytes() const { return log_ ? log_->bytes() : 0; }
  std::string hash() const { return log_ ? log_->hash() : ""; }

  // The bar, and from time to time (or `always`) a line of the step.
  void show(const report::StepMetrics& m, bool always);
  // The same while an evaluation goes on: images it has seen, seconds it took; the last call of one
  // is with `done`.
  void evaluating(std::int64_t images, double seconds, bool done);

 private:
  report::Console console_;
  std::optional<report::MetricsLog> log_;
  double now() const;  // seconds since this process began
  void draw(const std::string& doing);

  Pace pace_;
  std::int64_t lines_ = 0;
  double began_ = 0, shown_ = -100;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace tessera::run
