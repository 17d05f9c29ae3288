#include "run/balance.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>

namespace tessera::run {
namespace {

constexpr int most_tries = 3;

double sum(const std::vector<double>& v) { return std::accumulate(v.begin(), v.end(), 0.0); }

}  // namespace

std::string rebalance(Session& session, Meter& meter, const Ranks& ranks, std::int64_t samples, const std::function<void()>& before) {
  const std::vector<double> now = session.config().parallel.weights.list;
  std::optional<std::vector<double>> next = meter.better_weights(now, samples);
  if (!next) return {};
  // Halfway where a larger part would not fit into a rank's memory.
  for (int tries = 0; ranks.any(!session.fits_with(*next, samples)); ++tries) {
    if (tries == most_tries) return {};
    const double old_sum = sum(now), new_sum = sum(*next);
    for (std::size_t i = 0; i < now.size(); ++i) (*next)[i] = (now[i] / old_sum + (*next)[i] / new_sum) / 2;
  }
  before();
  session.share_by(*next);
  ranks.together([&] { session.compiled(Goal::train, samples); });
  meter.shares_changed();
  return fmt::format("shares of the batch by measured speed: {} of {}", fmt::join(ir::split_by(samples, *next), " "), samples);
}

}  // namespace tessera::run
