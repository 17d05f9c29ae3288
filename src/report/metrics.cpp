#include "report/metrics.h"

#include <algorithm>
#include <numeric>

namespace tessera::report {

using nlohmann::ordered_json;

ordered_json to_json(const Breakdown& b) {
  ordered_json out = {{"compute", b.compute},
                      {"comm_exposed", b.comm_exposed},
                      {"comm_hidden", b.comm_hidden},
                      {"wait", b.wait},
                      {"data", b.data},
                      {"host", b.host}};
  if (b.copy > 0) out["copy"] = b.copy;
  if (b.pipelined) out["bubble"] = b.bubble;
  return out;
}

ordered_json to_json(const StepMetrics& m) {
  ordered_json line = {{"kind", "step"},
                       {"step", m.step},
                       {"epoch", m.epoch},
                       {"loss", m.loss},
                       {"top1", m.top1},
                       {"lr", m.lr},
                       {"grad_norm", m.grad_norm},
                       {"step_ms", m.step_ms},
                       {"images_per_s", m.images_per_s},
                       {"mfu", m.mfu},
                       {"comm_bytes", m.comm_bytes}};
  if (m.loss_scale > 0) line["loss_scale"] = m.loss_scale;
  if (m.skipped) line["skipped"] = true;
  if (m.overflow) line["overflow"] = true;
  if (m.sampled) line["breakdown"] = to_json(m.breakdown);
  return line;
}

Quantiles quantiles(std::vector<double> v) {
  if (v.empty()) return {};
  std::sort(v.begin(), v.end());
  const auto at =
      [&](double q) {  // between two values in proportion, so that the median of two is their mean
        const double place = q * static_cast<double>(v.size() - 1);
        const std::size_t below = static_cast<std::size_t>(place),
                          above = std::min(below + 1, v.size() - 1);
        return v[below] + (place - static_cast<double>(below)) * (v[above] - v[below]);
      };
  return {.median = at(0.5),
          .p10 = at(0.1),
          .p90 = at(0.9),
          .min = v.front(),
          .max = v.back(),
          .mean = std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size())};
}

}  // namespace tessera::report
