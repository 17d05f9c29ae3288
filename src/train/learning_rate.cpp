#include "train/learning_rate.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "config/batch.h"

namespace tessera::run {
namespace {

// DeepSpeed's schedules as a fraction of the peak. They are stepped after an update: the second one
// is at position 0, and the first comes before any position.
double deepspeed_fraction(const config::Lr& s, std::int64_t step, std::int64_t total) {
  const auto warmup = static_cast<double>(std::max<std::int64_t>(2, s.warmup.of(total)));
  const auto length = static_cast<double>(s.steps > 0 ? s.steps : total),
             at = static_cast<double>(step - 2);
  const bool cosine = s.schedule == "ds_cosine";
  if (at < 0) return cosine ? 0.0 : s.start;
  if (at < warmup)
    return s.start +
           (1.0 - s.start) * (s.rise == "log" ? std::log(at + 1) / std::log(warmup) : at / warmup);
  if (cosine) {
    // The cosine is not cut off: past its planned length the rate rises again, as DeepSpeed's does.
    // A planned length equal to the warm-up, where DeepSpeed divides by zero, leaves the final
    // rate.
    const double turn = length == warmup ? 1.0 : (at - warmup + 1) / (length - warmup);
    return std::max(0.0,
                    s.final + (1.0 - s.final) * 0.5 * (1.0 + std::cos(3.141592653589793 * turn)));
  }
  const double rest = std::max(1.0, length - warmup);
  return s.schedule == "ds_decay" ? s.start + (1.0 - s.start) * std::max(0.0, (length - at) / rest)
                                  : 1.0;
}

}  // namespace

double learning_rate(const config::Config& config, std::int64_t step, std::int64_t total) {
  const config::Lr& s = config.lr;
  const double peak = config::peak_rate(config);
  if (s.schedule.starts_with("ds_")) return peak * deepspeed_fraction(s, step, total);
  const std::int64_t warmup = std::min(s.warmup.of(total), total);
  // The first step already moves: at step k of w warm-up steps the rate is k/w of the way from
  // start to peak.
  if (step <= warmup)
    return peak *
           (s.start + (1.0 - s.start) * static_cast<double>(step) / static_cast<double>(warmup));
  const double rest = static_cast<double>(std::max<std::int64_t>(1, total - warmup));
  const double progress =
      std::clamp(static_cast<double>(step - warmup - 1) / rest, 0.0, 1.0);  // 0 right after warm-up
  if (s.schedule == "constant") return peak;
  if (s.schedule == "step")
    return peak *
           std::pow(s.step_gamma, static_cast<double>((step - 1) / std::max<std::int64_t>(
                                                                       1, s.step_every.of(total))));
  if (s.schedule == "cosine")
    return peak *
           (s.final + (1.0 - s.final) * 0.5 * (1.0 + std::cos(3.141592653589793 * progress)));
  CHECK(s.schedule == "onecycle", "unknown learning-rate schedule " + s.schedule);
  return peak *
         (s.final + (1.0 - s.final) *
                        (1.0 - progress));  // linear to the end, as one-cycle recipes on CIFAR do
}

}  // namespace tessera::run
