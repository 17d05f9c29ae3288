#include "config/shrink.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/index.h"
#include "config/batch.h"

namespace tessera::config {

std::int64_t ranks_of_a_copy(const Config& config) {
  return config.parallel.tp * config.parallel.pp * config.parallel.sp;
}

std::int64_t fitting_ranks(const Config& config, std::int64_t slots) {
  const std::int64_t copy = ranks_of_a_copy(config),
                     ranks = std::min(slots, as_asked(config).run.np) / copy * copy;
  return ranks < std::max(copy, config.run.np_min) ? 0 : ranks;
}

Config shrink(const Config& config, std::int64_t ranks) {
  Config out = as_asked(config);
  if (ranks == out.run.np) return out;
  CHECK(ranks > 0 && ranks % ranks_of_a_copy(out) == 0 && ranks < out.run.np,
        fmt::format("{} ranks of {}", ranks, out.run.np));
  if (out.run.device.find(',') != out.run.device.npos)
    throw Error(ErrorKind::usage,
                fmt::format("run.device = {} names a device for each of {} ranks, but {} are left",
                            out.run.device, out.run.np, ranks),
                "", "name one device for all ranks where some may be lost");
  Parallel& p = out.parallel;
  out.whole = {.dp = p.dp,
               .np = out.run.np,
               .micro = out.batch.micro,
               .accumulate = out.batch.accumulate,
               .shares = p.shares.list};
  out.run.np = ranks;
  p.dp = ranks / ranks_of_a_copy(out);
  p.shares.list.clear();  // one number for each copy: nobody says which of them are left
  // A schedule that is read from a file says how many micro-batches there are.
  if (!p.schedule.starts_with("file:"))
    out.batch.accumulate = std::min(
        {ceil_div(out.whole.accumulate * out.whole.dp, p.dp), most_accumulate, out.batch.global});
  out.batch.micro = largest_micro(out.batch.global, out.batch.accumulate, p.dp);
  return out;
}

Config as_asked(const Config& config) {
  Config out = config;
  if (config.whole.dp == 0) return out;
  out.parallel.dp = config.whole.dp;
  out.run.np = config.whole.np;
  out.batch.micro = config.whole.micro;
  out.batch.accumulate = config.whole.accumulate;
  out.parallel.shares.list = config.whole.shares;
  out.whole = {};
  return out;
}

std::string shrink_text(const Config& config) {
  const Whole& whole = config.whole;
  if (whole.dp == 0) return "";
  std::string out = fmt::format("dp {} instead of {}", config.parallel.dp, whole.dp);
  if (config.batch.accumulate != whole.accumulate)
    out +=
        fmt::format(", {} micro-batches instead of {}", config.batch.accumulate, whole.accumulate);
  return out + fmt::format(", {} samples an update as before", config.batch.global);
}

}  // namespace tessera::config
