// What scaling says: how far it goes, what stands in its way, and what no number of ranks would pass.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/html.h"
#include "report/scaling.h"
#include "report/verdict_parts.h"

namespace tessera::report {
namespace {

constexpr double scales_well = 0.75;  // efficiency from which on "scales to" is said
constexpr double exposed_from = 0.05, slowest_from = 0.03;

std::string ranks_words(double n) { return fmt::format("{:.0f} rank{}", n, n == 1 ? "" : "s"); }

std::string speedup_words(const ScalingPoint& p) {
  std::string out = fmt::format("{}x", three(p.speedup));
  if (p.time.n > 1 && std::isfinite(p.low)) out += fmt::format(" ({}x to {}x)", three(p.low), three(p.high));
  return out;
}

// How far it goes.
std::string reach(const Scaling& s) {
  const ScalingPoint& last = s.points.back();
  if (s.weak)
    return fmt::format("with the work of each rank kept the same, {} reach {} efficiency{}", ranks_words(last.ranks),
                       percent(last.efficiency),
                       last.efficiency >= 0.9 ? ""
                                              : fmt::format(": {} takes {} times as long as on {}", s.time.what, three(1 / last.efficiency),
                                                            ranks_words(s.points.front().ranks)));
  if (last.speedup <= 1)
    return fmt::format("more ranks bring nothing: {} on {} has a speed-up of {}", s.time.what, ranks_words(last.ranks),
                       speedup_words(last));
  if (last.efficiency >= scales_well)
    return fmt::format("scales to {} at {} efficiency (speed-up {})", ranks_words(last.ranks), percent(last.efficiency),
                       speedup_words(last));
  const ScalingPoint* good = nullptr;
  for (const ScalingPoint& p : s.points)
    if (p.ideal > 1 && p.efficiency >= scales_well) good = &p;
  if (good)
    return fmt::format("scales to {} at {} efficiency; {} reach {} (speed-up {})", ranks_words(good->ranks), percent(good->efficiency),
                       ranks_words(last.ranks), percent(last.efficiency), speedup_words(last));
  return fmt::format("scales poorly: {} reach {} efficiency (speed-up {})", ranks_words(last.ranks), percent(last.efficiency),
                     speedup_words(last));
}

// What of a step is lost, where the breakdown is known.
std::string lost(const Scaling& s) {
  const ScalingPoint& last = s.points.back();
  std::string out;
  const auto also = [&](const std::string& what) { out += "; " + what; };
  if (std::isfinite(last.exposed)) {
    const ScalingPoint* from = nullptr;
    for (const ScalingPoint& p : s.points)
      if (!from && p.ideal > 1 && p.exposed >= exposed_from) from = &p;
    if (from)
      also(from == &last ? fmt::format("communication is exposed at {} ({} of the step)", ranks_words(from->ranks), percent(from->exposed))
                         : fmt::format("communication is exposed from {} on ({} of the step, {} at {})", ranks_words(from->ranks),
                                       percent(from->exposed), percent(last.exposed), ranks_words(last.ranks)));
    else
      also(fmt::format("communication that is not hidden takes {} of the step", percent(last.exposed)));
    if (last.wait >= exposed_from) also(fmt::format("waiting for other ranks takes {} of it", percent(last.wait)));
    if (last.data >= exposed_from) also(fmt::format("waiting for data takes {}", percent(last.data)));
    if (last.slowest >= slowest_from) also(fmt::format("the slowest rank costs {}", percent(last.slowest)));
  }
  return out;
}

}  // namespace

std::vector<std::string> scaling_verdict(const Part& part) {
  std::vector<std::string> out;
  for (const Scaling& s : scaling_of(part)) {
    const std::string whose = s.name.empty() ? "" : s.name + ": ";
    if (s.points.size() < 2) {
      out.push_back(whose + fmt::format("only {} measured, so there is no scaling to speak of.", ranks_words(s.points.front().ranks)));
      continue;
    }
    out.push_back(whose + reach(s) + lost(s) + ".");
    for (const ScalingPoint& p : s.points)
      if (std::isfinite(p.cores) && p.cores < p.ideal * 0.999) {
        out.push_back(whose + fmt::format("from {} on, ranks share cores: this machine allows a speed-up of {}x at most there.",
                                          ranks_words(p.ranks), three(p.cores)));
        break;
      }
    const ScalingPoint& last = s.points.back();
    if (!s.weak && s.fitted > 1 && std::isfinite(s.serial) && last.speedup > 1)  // through one point any law goes
      out.push_back(whose + (s.serial < 1e-4 ? fmt::format("Amdahl's law sees no serial share in {} points.", s.fitted)
                                             : fmt::format("Amdahl's law, fitted to {} points, gives a serial share of {}: no number of "
                                                           "ranks would pass {}x.",
                                                           s.fitted, percent(s.serial), three(1 / s.serial))));
  }
  return out;
}

}  // namespace tessera::report
