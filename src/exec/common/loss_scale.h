// The rule of dynamic loss scaling, for the kernels of every executor (constexpr, so that device
// code may call it). Convention: a state of zeros is that of a run which has not begun.
#pragma once

#include "ir/attrs.h"

namespace tessera::exec {

struct ScaleState {
  double scale = 0;
  std::int64_t good = 0;       // steps in a row that were applied since the scale last changed
  std::int64_t overflows = 0;  // those that were tolerated since the scale last grew
  bool answered = false;       // the step overflowed, and the next one is tried differently
};

constexpr double scale_in_use(const ir::LossScale& rule, double stored) {
  return stored > 0 ? stored : rule.first;
}

// `ok`: the step was applied. `sound`: its loss was finite; where it was not, no scale would help.
constexpr ScaleState next_scale(const ir::LossScale& rule, double stored, std::int64_t good,
                                std::int64_t overflows, bool ok, bool sound) {
  const double scale = scale_in_use(rule, stored);
  ScaleState next{scale, good, overflows, false};
  if (rule.fixed) return next;
  if (ok) {
    if (++next.good < rule.window) return next;
    const double doubled = 2 * scale;
    return {doubled < rule.most ? doubled : scale > rule.most ? scale : rule.most, 0, 0, false};
  }
  if (!sound) return next;
  next.good = 0;
  if (overflows + 1 < rule.hysteresis) {
    ++next.overflows;
    next.answered = true;
  } else if (scale > rule.least) {
    next.scale = scale / 2 > rule.least ? scale / 2 : rule.least;
    next.answered = true;
  }
  return next;
}

}  // namespace tessera::exec
