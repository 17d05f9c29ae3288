#include "page/scaling.h"

#include <algorithm>
#include <cmath>

namespace tessera::report {
namespace {

// The speedup that the cores of all hosts allow, as env.json of the first rank tells them; ranks
// that are computed one after another cannot run at once.
double core_limit(const Point& point, double ideal) {
  for (const RunRecord* r : records_of(point)) {
    const auto found = r->env.is_object() ? r->env.find("cores") : r->env.end();
    if (!r->env.is_object() || found == r->env.end() || !found->is_number()) continue;
    const double cores = found->get<double>() * std::max(1, r->hosts),
                 threads = std::max(1, r->threads);
    if (cores > 0 && r->ranks > 0) return ideal * std::min(1.0, cores / threads / r->ranks);
  }
  return kUnknown;
}

}  // namespace

bool shares_cores(const ScalingPoint& p) {
  return std::isfinite(p.cores) && p.cores < p.ideal * 0.999;
}

double amdahl_speedup(double serial, double n) { return 1 / (serial + (1 - serial) / n); }

double amdahl(const std::vector<std::pair<double, double>>& points) {
  double above = 0, below = 0;
  for (const auto& [n, speedup] : points) {
    if (!(n > 1) || !(speedup > 0) || !std::isfinite(speedup)) continue;
    above += (1 / speedup - 1 / n) * (1 - 1 / n);
    below += (1 - 1 / n) * (1 - 1 / n);
  }
  return below > 0 ? std::clamp(above / below, 0.0, 1.0) : kUnknown;
}

std::vector<Scaling> scaling_of(const Part& part) {
  std::vector<Scaling> out;
  const TimeMeasure time = time_of(part);
  for (const PointSeries& series : series_of(part)) {
    Scaling s{.name = series.name,
              .axis = part.axis,
              .weak = part.kind == PartKind::weak,
              .time = time,
              .points = {}};
    for (const auto& [x, point] : series.points) {
      if (!(x > 0)) continue;
      ScalingPoint p;
      p.point = point;
      p.ranks = x;
      p.time = spread_of(*point, time.of);
      if (!p.time.known() || !(p.time.low > 0)) continue;
      s.points.push_back(p);
    }
    if (s.points.empty()) continue;
    const ScalingPoint base = s.points.front();
    const Breakdown base_parts = breakdown_of(*base.point);
    std::vector<std::pair<double, double>> fit;
    for (ScalingPoint& p : s.points) {
      p.ideal = p.ranks / base.ranks;
      const double work = s.weak ? p.ideal : 1;  // weak: so much more of it
      const bool first = &p == &s.points.front();
      p.speedup = work * base.time.median / p.time.median;
      p.low = first ? kUnknown : work * base.time.low / p.time.high;
      p.high = first ? kUnknown : work * base.time.high / p.time.low;
      p.efficiency = p.speedup / p.ideal;
      const Breakdown b = breakdown_of(*p.point);
      if (const double step = step_of(b); step > 0) {
        p.exposed = b.comm_exposed / step;
        p.wait = b.wait / step;
        p.data = b.data / step;
        p.host = b.host / step;
        const double slowest = slowest_compute(*p.point);
        p.slowest = std::max(0.0, (slowest - b.compute) / step);
        if (slowest > 0)
          p.attainable =
              first ? 1
                    : p.speedup *
                          std::max(1.0, step / slowest);  // were all else of its own step gone
        if (base_parts.compute > 0)
          p.longer = b.compute * p.ideal / (work * base_parts.compute) - 1;
      }
      p.cores = core_limit(*p.point, p.ideal);
      if (!first && !shares_cores(p)) fit.emplace_back(p.ideal, p.speedup);
    }
    if (!s.weak) {
      s.serial = amdahl(fit);
      s.fitted = static_cast<int>(fit.size());
    }
    out.push_back(std::move(s));
  }
  return out;
}

}  // namespace tessera::report
