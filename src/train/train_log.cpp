#include "train/train_log.h"

#include <algorithm>

#include "train/train_report.h"

namespace tessera::run {

const std::vector<nlohmann::json>& TrainLog::open(const std::filesystem::path& out,
                                                  const config::Config& config, std::int64_t bytes,
                                                  const std::string& hash, std::int64_t next_step) {
  log_.emplace(out.string(), report::LogOptions{.keep_bytes = bytes,
                                                .first_step = next_step,
                                                .csv = config.run.csv,
                                                .tensorboard = config.run.tensorboard,
                                                .keep_hash = hash});
  for (const std::string& warning : log_->warnings()) console_.line("warning: " + warning);
  return log_->kept();
}

void TrainLog::begin(std::int64_t first, std::int64_t total, std::int64_t evaluations,
                     std::int64_t images) {
  pace_ = {
      .first = first, .total = total, .step = first, .evaluations = evaluations, .images = images};
  began_ = now();
}

double TrainLog::now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

double Pace::left(double seconds) const {
  const double stepping = seconds - evaluated_s - under_way_s;
  const auto steps = static_cast<double>(std::max<std::int64_t>(1, step - first));
  // Until one was seen: images pass forward alone, about three times as fast as in training.
  const double guessed = images_per_s > 0 ? static_cast<double>(images) / (3 * images_per_s) : 0;
  const double each = evaluated > 0 ? evaluated_s / static_cast<double>(evaluated) : guessed;
  return static_cast<double>(total - step) * stepping / steps +
         std::max(0.0, each * static_cast<double>(evaluations) - under_way_s);
}

void TrainLog::append(const nlohmann::ordered_json& line) {
  ++lines_;
  if (log_) log_->append(line);
}

void TrainLog::show(const report::StepMetrics& m, bool always) {
  pace_.step = m.step;
  if (m.images_per_s > 0) pace_.images_per_s = m.images_per_s;
  always |= m.step == 1 || m.step == pace_.total;
  if (always || now() - shown_ >= (console_.terminal() ? 2.0 : 10.0)) {
    shown_ = now();
    console_.line(step_line(m, pace_.total));
  }
  draw("");
}

void TrainLog::evaluating(std::int64_t images, double seconds, bool done) {
  pace_.under_way_s = done ? 0 : seconds;
  if (done) {
    pace_.evaluations = std::max<std::int64_t>(0, pace_.evaluations - 1);
    ++pace_.evaluated;
    pace_.evaluated_s += seconds;
  }
  draw(done ? ""
            : "eval " + std::to_string(100 * images / std::max<std::int64_t>(1, pace_.images)) +
                  "%");
}

void TrainLog::draw(const std::string& doing) {
  console_.bar(
      static_cast<double>(pace_.step) / static_cast<double>(std::max<std::int64_t>(1, pace_.total)),
      now(), pace_.left(now() - began_), doing);
}

}  // namespace tessera::run
