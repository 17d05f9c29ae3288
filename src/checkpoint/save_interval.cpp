#include "checkpoint/save_interval.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tessera::run {

std::int64_t steps_between(double cost_s, double step_s, double mtbf_s) {
  const double interval_s = std::sqrt(2 * std::max(cost_s, 1e-4) * mtbf_s);
  return std::max<std::int64_t>(1,
                                std::llround(std::min(interval_s / std::max(step_s, 1e-6), 1e12)));
}

bool SaveInterval::due(std::int64_t step) {
  if (!adapts()) return every_ > 0 && step % every_ == 0;
  if (next_ < 0) next_ = step - 1 + first_steps;
  return step >= next_ && step % multiple == 0;
}

void SaveInterval::saved(std::int64_t step, double cost_s, double step_s) {
  if (!adapts()) return;
  // One that met a busy disk does not count for ever, nor does one that was lucky.
  cost_s_ = cost_s_ == 0 ? cost_s : 0.5 * (cost_s_ + cost_s);
  step_s_ = step_s;
  between_ = steps_between(cost_s_, step_s, mtbf_s_);
  next_ = step + between_;
}

void SaveInterval::again(std::int64_t step) { next_ = step + first_steps; }

std::string SaveInterval::remark() {
  if (between_ == 0 || (told_ > 0 && between_ < 2 * told_ && 2 * between_ > told_)) return "";
  told_ = between_;
  return fmt::format(
      "a checkpoint every {} steps ({:.0f} s): it holds the run up for {:.1f} ms, and a failure is "
      "expected every {:.3g} h",
      between_, static_cast<double>(between_) * step_s_, 1e3 * cost_s_, mtbf_s_ / 3600);
}

}  // namespace tessera::run
