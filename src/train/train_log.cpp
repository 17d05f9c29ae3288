#include "train/train_log.h"

#include <algorithm>

#include "train/train_report.h"

namespace tessera::run {

const std::vector<nlohmann::json>& TrainLog::open(const std::filesystem::path& out,
                                                  const config::Config& config, std::int64_t bytes,
                                                  const std::string& hash, std::int64_t next_step) {
  log_.emplace(out.string(),
               report::LogOptions{bytes, next_step, config.run.csv, config.run.tensorboard, hash});
  for (const std::string& warning : log_->warnings()) console_.line("warning: " + warning);
  return log_->kept();
}

void TrainLog::begin(std::int64_t first, std::int64_t total) {
  first_ = first;
  total_ = total;
}

void TrainLog::append(const nlohmann::ordered_json& line) {
  ++lines_;
  if (log_) log_->append(line);
}

void TrainLog::show(const report::StepMetrics& m, bool always) {
  const double now =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  always |= m.step == 1 || m.step == total_;
  if (always || now - shown_ >= (console_.terminal() ? 2.0 : 10.0)) {
    shown_ = now;
    console_.line(step_line(m, total_));
  }
  console_.bar(static_cast<double>(m.step - first_) /
                   static_cast<double>(std::max<std::int64_t>(1, total_ - first_)),
               now);
}

}  // namespace tessera::run
