#include "measure/rank_speed.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tessera::run {
namespace {

double median(std::vector<double> v) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return (v[(v.size() - 1) / 2] + v[v.size() / 2]) / 2;
}

double speed_of(const RankStep& p) { return p.busy() > 0 ? p.samples / p.busy() : 0; }

template <class Part>
double median_of(const std::vector<RankStep>& all, const Part& part) {
  std::vector<double> v;
  for (const RankStep& p : all) v.push_back(part(p));
  return median(std::move(v));
}

// Names the part of a step whose time exceeds the median of the others the most.
void describe(Straggler& out, const RankStep& speed, const std::vector<RankStep>& others) {
  double worst = -HUGE_VAL;
  const auto look = [&](const char* what, double RankStep::*part) {
    const double mine = speed.*part,
                 theirs = median_of(others, [&](const RankStep&p) { return p.*part; });
    if (mine - theirs > worst) {
      worst = mine - theirs;
      out.what = what;
      out.ms = mine;
      out.median_ms = theirs;
    }
  };
  look("compute", &RankStep::compute);
  look("data", &RankStep::data);
  look("host", &RankStep::host);
}

}  // namespace

RankSpeeds::RankSpeeds(ir::Mesh mesh)
    : mesh_(std::move(mesh)), named_(static_cast<std::size_t>(mesh_.ranks())) {}

std::int64_t RankSpeeds::recent_steps() const {
  std::int64_t sum = 0;
  for (const Steps& steps : recent_) sum += steps.count;
  return sum;
}

std::vector<Straggler> RankSpeeds::add(std::vector<RankStep> sums, std::int64_t steps) {
  now_.sums.resize(sums.size());
  double longest = 0;
  for (std::size_t r = 0; r < sums.size(); ++r) {
    for (double RankStep::*part :
         {&RankStep::samples, &RankStep::compute, &RankStep::data, &RankStep::host})
      now_.sums[r].*part += sums[r].*part;
    longest = std::max(longest, sums[r].busy());
  }
  now_.ms += longest;
  now_.steps += steps;
  recent_.push_back({std::move(sums), steps});
  while (recent_steps() - recent_.front().count >= window) recent_.pop_front();
  if (now_.steps < block_steps || now_.ms < block_ms) return {};
  blocks_.push_back(std::exchange(now_, {}));
  if (blocks_.size() > blocks) blocks_.pop_front();
  return blocks_.size() == blocks ? find_stragglers() : std::vector<Straggler>{};
}

RankStep RankSpeeds::usual(std::size_t rank) const {
  std::vector<RankStep> each;
  for (const Block& block : blocks_) {
    RankStep mean = block.sums[rank];
    for (double RankStep::*part :
         {&RankStep::samples, &RankStep::compute, &RankStep::data, &RankStep::host})
      mean.*part /= static_cast<double>(block.steps);
    if (mean.samples > 0) each.push_back(mean);  // others say nothing
  }
  if (each.empty()) return {};
  const auto middle = each.begin() + static_cast<std::ptrdiff_t>(each.size() / 2);
  std::nth_element(each.begin(), middle, each.end(),
                   [](const RankStep& a, const RankStep& b) { return speed_of(a) < speed_of(b); });
  return *middle;
}

std::vector<Straggler> RankSpeeds::find_stragglers() {
  const int pp = mesh_.find("pp");
  const auto stage = [&](std::size_t r) {
    return pp < 0 ? 0 : mesh_.coordinates(static_cast<int>(r))[static_cast<std::size_t>(pp)];
  };
  std::int64_t steps = 0;
  for (const Block& block : blocks_) steps += block.steps;
  std::vector<RankStep> speeds;
  for (std::size_t r = 0; r < named_.size(); ++r) speeds.push_back(usual(r));
  std::vector<Straggler> out;
  for (std::size_t r = 0; r < speeds.size(); ++r) {
    std::vector<RankStep> others;
    for (std::size_t other = 0; other < speeds.size(); ++other)
      if (other != r && stage(other) == stage(r) && speeds[other].samples > 0)
        others.push_back(speeds[other]);
    if (speeds[r].samples == 0 || others.empty()) continue;
    const double speed = speed_of(speeds[r]) / std::max(1e-300, median_of(others, speed_of));
    if (speed >= recovered) named_[r] = false;
    if (speed >= slow || named_[r]) continue;
    named_[r] = true;
    out.push_back({.rank = static_cast<int>(r), .steps = steps, .speed = speed, .what = {}});
    describe(out.back(), speeds[r], others);
  }
  return out;
}

ir::Shape shares_of(const std::vector<std::int64_t>& micro, const std::vector<double>& shares) {
  ir::Shape out(shares.size());
  for (const std::int64_t n : micro) {
    const ir::Shape parts = ir::split_by(n, shares);
    for (std::size_t i = 0; i < parts.size(); ++i) out[i] += parts[i];
  }
  return out;
}

std::optional<std::vector<double>> RankSpeeds::better_shares(
    const std::vector<double>& now, const std::vector<std::int64_t>& micro) const {
  const int dp = mesh_.find("dp");
  if (dp < 0 || recent_steps() < window) return std::nullopt;
  // A dp rank is as fast as the slowest of the ranks that share its samples.
  std::vector<double> speeds(now.size(), 1e300);
  for (int r = 0; r < mesh_.ranks(); ++r) {
    std::vector<double> seen;
    for (const Steps& steps : recent_)
      if (const RankStep& p = steps.sums[static_cast<std::size_t>(r)];
          p.samples > 0 && p.compute + p.host > 0)
        seen.push_back(p.samples / (p.compute + p.host));
    double& speed =
        speeds[static_cast<std::size_t>(mesh_.coordinates(r)[static_cast<std::size_t>(dp)])];
    if (!seen.empty()) speed = std::min(speed, median(std::move(seen)));
  }
  double fastest = 0;
  for (const double s : speeds)
    if (s < 1e300) fastest = std::max(fastest, s);
  if (fastest <= 0) return std::nullopt;
  std::vector<double> out;
  bool unknown = false;
  for (double& s : speeds) {
    if (s >= 1e300) {  // had no sample: gets a few and shows what it can
      s = fastest / 20;
      unknown = true;
    }
    out.push_back(std::max(0.01, std::round(s / fastest * 1000) / 1000));
  }
  const auto longest = [&](const std::vector<double>& shares) {
    const ir::Shape parts = shares_of(micro, shares);
    double ms = 0;
    for (std::size_t i = 0; i < parts.size(); ++i)
      ms = std::max(ms, static_cast<double>(parts[i]) / speeds[i]);
    return ms;
  };
  if (!unknown && longest(out) > 0.95 * longest(now)) return std::nullopt;
  return out;
}

}  // namespace tessera::run
