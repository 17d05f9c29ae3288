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

void TrainLog::begin(std::int64_t first, std::int64_t total, std::int64_t evaluations,
                     std::int64_t images) {
  first_ = step_ = first;
  total_ = total;
  evaluations_ = evaluations;
  images_ = images;
  began_ = now();
}

double TrainLog::now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

double TrainLog::left() const {
  const double stepping = now() - began_ - evaluated_s_ - under_way_s_;
  const auto steps = static_cast<double>(std::max<std::int64_t>(1, step_ - first_));
  // Until one was seen: images pass forward alone, about three times as fast as in training.
  const double guessed = images_per_s_ > 0 ? static_cast<double>(images_) / (3 * images_per_s_) : 0;
  const double each = evaluated_ > 0 ? evaluated_s_ / static_cast<double>(evaluated_) : guessed;
  return static_cast<double>(total_ - step_) * stepping / steps +
         std::max(0.0, each * static_cast<double>(evaluations_) - under_way_s_);
}

void TrainLog::append(const nlohmann::ordered_json& line) {
  ++lines_;
  if (log_) log_->append(line);
}

void TrainLog::show(const report::StepMetrics& m, bool always) {
  step_ = m.step;
  if (m.images_per_s > 0) images_per_s_ = m.images_per_s;
  always |= m.step == 1 || m.step == total_;
  if (always || now() - shown_ >= (console_.terminal() ? 2.0 : 10.0)) {
    shown_ = now();
    console_.line(step_line(m, total_));
  }
  draw("");
}

void TrainLog::evaluating(std::int64_t images, double seconds, bool done) {
  under_way_s_ = done ? 0 : seconds;
  if (done) {
    evaluations_ = std::max<std::int64_t>(0, evaluations_ - 1);
    ++evaluated_;
    evaluated_s_ += seconds;
  }
  draw(done ? ""
            : "eval " + std::to_string(100 * images / std::max<std::int64_t>(1, images_)) + "%");
}

void TrainLog::draw(const std::string& doing) {
  console_.bar(static_cast<double>(step_) / static_cast<double>(std::max<std::int64_t>(1, total_)),
               now(), left(), doing);
}

}  // namespace tessera::run
