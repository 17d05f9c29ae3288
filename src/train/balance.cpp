#include "train/balance.h"
#include "compile/pipeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>

namespace tessera::run {
namespace {

constexpr int most_tries = 3;

double sum(const std::vector<double>& v) { return std::accumulate(v.begin(), v.end(), 0.0); }

}  // namespace

std::string rebalance(Session& session, Meter& meter, const Ranks& ranks,
                      const std::vector<PlanKey>& plans, const std::function<void()>& before) {
  const std::int64_t samples = plans.at(0).samples;
  const std::vector<double> now = session.config().parallel.shares.list;
  const std::vector<std::int64_t> micro = micro_batches(samples, session.config().batch.accumulate);
  std::optional<std::vector<double>> next = meter.better_shares(now, micro);
  if (!next) return {};
  // Halfway where a larger part would not fit into a rank's memory.
  for (int tries = 0; ranks.any(!session.fits_with(*next, plans)); ++tries) {
    if (tries == most_tries) return {};
    const double old_sum = sum(now), new_sum = sum(*next);
    for (std::size_t i = 0; i < now.size(); ++i)
      (*next)[i] = (now[i] / old_sum + (*next)[i] / new_sum) / 2;
  }
  before();
  session.share_by(*next);
  meter.shares_changed();
  return fmt::format("shares of the batch by measured speed: {} of {}",
                     fmt::join(shares_of(micro, *next), " "), samples);
}

std::string missed_shares(const config::Config& config) {
  const std::vector<double>& shares = config.parallel.shares.list;
  if (shares.empty() || config.parallel.shares.word == "measured") return {};
  const std::vector<std::int64_t> micro =
      micro_batches(config.batch.global, config.batch.accumulate);
  const ir::Shape asked = ir::split_by(config.batch.global, shares),
                  real = shares_of(micro, shares);
  bool missed = false;
  for (std::size_t i = 0; i < asked.size(); ++i)
    missed |= std::abs(real[i] - asked[i]) > std::max<std::int64_t>(1, asked[i] / 10);
  if (!missed) return {};
  return fmt::format(
      "parallel.weights: each of the {} micro-batches of {} samples is shared out by itself, so of "
      "{} samples ranks get {} where {} were "
      "asked "
      "for; fewer and larger micro-batches (batch.accumulate) come closer",
      micro.size(), micro.front(), config.batch.global, fmt::join(real, " "),
      fmt::join(asked, " "));
}

}  // namespace tessera::run
