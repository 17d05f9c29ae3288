#include "run/pace.h"

#include <algorithm>
#include <cmath>

namespace tessera::run {
namespace {

double median(std::vector<double> v) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return (v[(v.size() - 1) / 2] + v[v.size() / 2]) / 2;
}

template <class Part>
double median_of(const std::vector<Pace>& all, const Part& part) {
  std::vector<double> v;
  for (const Pace& p : all)
    if (p.samples > 0) v.push_back(part(p));
  return median(std::move(v));
}

// Of these times the one that exceeds the median of its peers the most.
Straggler describe(int rank, const Pace& pace, const std::vector<Pace>& peers, double speed) {
  Straggler out{rank, speed, "", 0, 0};
  double worst = -1;
  const auto look = [&](const char* what, double Pace::*part) {
    const double mine = pace.*part, others = median_of(peers, [&](const Pace&p) { return p.*part; });
    if (mine - others > worst) worst = mine - others, out.what = what, out.ms = mine, out.median_ms = others;
  };
  look("compute", &Pace::compute);
  look("data", &Pace::data);
  look("host", &Pace::host);
  return out;
}

}  // namespace

std::vector<Straggler> Paces::add(std::vector<Pace> step) {
  const auto speed = [](const Pace& p) { return p.busy() > 0 ? p.samples / p.busy() : 0; };
  const int pp = mesh_.find("pp");
  const auto stage = [&](std::size_t r) { return pp < 0 ? 0 : mesh_.coordinates(static_cast<int>(r))[static_cast<std::size_t>(pp)]; };
  std::vector<std::vector<Pace>> peers(pp < 0 ? 1 : static_cast<std::size_t>(mesh_.axes[static_cast<std::size_t>(pp)].size));
  for (std::size_t r = 0; r < step.size(); ++r) peers[static_cast<std::size_t>(stage(r))].push_back(step[r]);
  std::vector<Straggler> out;
  for (std::size_t r = 0; r < step.size(); ++r) {
    const std::vector<Pace>& same = peers[static_cast<std::size_t>(stage(r))];
    const double mine = speed(step[r]), usual = median_of(same, speed);
    if (step[r].samples == 0) continue;  // says nothing
    slow_for_[r] = mine < slow * usual ? slow_for_[r] + 1 : 0;
    if (slow_for_[r] == patience) out.push_back(describe(static_cast<int>(r), step[r], same, mine / usual));
  }
  steps_.push_back(std::move(step));
  if (steps_.size() > window) steps_.pop_front();
  return out;
}

ir::Shape shares_of(const std::vector<std::int64_t>& micro, const std::vector<double>& weights) {
  ir::Shape out(weights.size());
  for (const std::int64_t n : micro) {
    const ir::Shape parts = ir::split_by(n, weights);
    for (std::size_t i = 0; i < parts.size(); ++i) out[i] += parts[i];
  }
  return out;
}

std::optional<std::vector<double>> Paces::better_weights(const std::vector<double>& now, const std::vector<std::int64_t>& micro) const {
  const int dp = mesh_.find("dp");
  if (dp < 0 || steps_.size() < window) return std::nullopt;
  // A dp rank is as fast as the slowest of the ranks that share its samples.
  std::vector<double> speeds(now.size(), 1e300);
  for (int r = 0; r < mesh_.ranks(); ++r) {
    std::vector<double> seen;
    for (const std::vector<Pace>& step : steps_)
      if (const Pace& p = step[static_cast<std::size_t>(r)]; p.samples > 0 && p.compute + p.host > 0)
        seen.push_back(p.samples / (p.compute + p.host));
    double& speed = speeds[static_cast<std::size_t>(mesh_.coordinates(r)[static_cast<std::size_t>(dp)])];
    if (!seen.empty()) speed = std::min(speed, median(std::move(seen)));
  }
  double fastest = 0;
  for (const double s : speeds)
    if (s < 1e300) fastest = std::max(fastest, s);
  if (fastest <= 0) return std::nullopt;
  std::vector<double> out;
  bool unknown = false;
  for (double& s : speeds) {
    if (s >= 1e300) s = fastest / 20, unknown = true;  // had no sample: gets a few and shows what it can
    out.push_back(std::max(0.01, std::round(s / fastest * 1000) / 1000));
  }
  const auto longest = [&](const std::vector<double>& weights) {
    const ir::Shape parts = shares_of(micro, weights);
    double ms = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) ms = std::max(ms, static_cast<double>(parts[i]) / speeds[i]);
    return ms;
  };
  if (!unknown && longest(out) > 0.95 * longest(now)) return std::nullopt;
  return out;
}

}  // namespace tessera::run
