// The verdict on scaling: how far it goes, what stands in its way, and what no number of ranks
// would pass.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "page/scaling.h"
#include "page/tiles.h"
#include "page/verdict_parts.h"
#include "report/html.h"

namespace tessera::report {
namespace {

constexpr double scales_well = 0.75;  // efficiency from which on "scales to" is said
constexpr double exposed_from = 0.05, slowest_from = 0.03;
constexpr double attains_little = 0.9, longer_from = 0.05;  // of the ideal; of a rank's share

std::string at_words(const Scaling& s, const ScalingPoint& p) {
  return axis_words(s.axis, plain_number(p.ranks));
}

std::string speedup_words(const ScalingPoint& p) {
  std::string out = fmt::format("{}x", two(p.speedup));
  if (p.time.n <= 1 || !std::isfinite(p.low)) return out;
  const std::string low = two(p.low), high = two(p.high);
  return low == high ? fmt::format("{}, n = {}", out, p.time.n)
                     : fmt::format("{} ({}x to {}x, n = {})", out, low, high, p.time.n);
}

// How far it goes.
std::string reach(const Scaling& s) {
  const ScalingPoint& last = s.points.back();
  if (s.weak)
    return fmt::format("{}, {} reach {} efficiency{}{}",
                       s.axis == "run.np" ? "with the work of each rank kept the same"
                                          : "with work that grows alike",
                       at_words(s, last), two_percent(last.efficiency),
                       last.time.n > 1 ? fmt::format(" (n = {})", last.time.n) : "",
                       last.efficiency >= 0.9
                           ? ""
                           : fmt::format(": {} takes {} times as long as on {}", s.time.what,
                                         two(1 / last.efficiency), at_words(s, s.points.front())));
  if (last.speedup <= 1)
    return fmt::format("more {} bring nothing: {} on {} has a speed-up of {}", axis_label(s.axis),
                       s.time.what, at_words(s, last), speedup_words(last));
  if (last.efficiency >= scales_well)
    return fmt::format("scales to {} at {} efficiency, a speed-up of {}", at_words(s, last),
                       two_percent(last.efficiency), speedup_words(last));
  const ScalingPoint* good = nullptr;
  for (const ScalingPoint& p : s.points)
    if (p.ideal > 1 && p.efficiency >= scales_well) good = &p;
  if (good)
    return fmt::format("scales to {} at {} efficiency; {} reach {}, a speed-up of {}",
                       at_words(s, *good), two_percent(good->efficiency), at_words(s, last),
                       two_percent(last.efficiency), speedup_words(last));
  return fmt::format("scales poorly: {} reach {} efficiency, a speed-up of {}", at_words(s, last),
                     two_percent(last.efficiency), speedup_words(last));
}

// Where repeats of both ends leave open whether anything was won.
std::string undecided(const Scaling& s) {
  const ScalingPoint& last = s.points.back();
  const bool several = last.time.n > 1 && s.points.front().time.n > 1;
  return !s.weak && several && last.low <= 1 && last.high >= 1
             ? difference_words(Difference::within)
             : "";
}

// Amdahl's law through the points whose ranks have cores of their own; a limit only where no point
// is beyond it.
std::string law(const Scaling& s) {
  if (s.serial < 1e-4)
    return fmt::format("Amdahl's law sees no serial share in {} points.", s.fitted);
  std::string out = fmt::format("Amdahl's law, fitted to {} points, gives a serial share of {}",
                                s.fitted, two_percent(s.serial));
  if (std::none_of(s.points.begin(), s.points.end(),
                   [&](const ScalingPoint& p) { return p.speedup > 1 / s.serial; }))
    out += fmt::format(": no number of {} would pass {}x", axis_label(s.axis), two(1 / s.serial));
  return out + ".";
}

// Says which share of a step is lost, where the breakdown is known.
std::string lost(const Scaling& s) {
  const ScalingPoint& last = s.points.back();
  std::string out;
  const auto also = [&](const std::string& what) { out += "; " + what; };
  if (std::isfinite(last.exposed)) {
    const ScalingPoint* from = nullptr;
    for (const ScalingPoint& p : s.points)
      if (!from && p.ideal > 1 && p.exposed >= exposed_from) from = &p;
    if (from)
      also(from == &last
               ? fmt::format("communication is exposed at {} ({} of the step)", at_words(s, *from),
                             two_percent(from->exposed))
               : fmt::format("communication is exposed from {} on ({} of the step, {} at {})",
                             at_words(s, *from), two_percent(from->exposed),
                             two_percent(last.exposed), at_words(s, last)));
    else
      also(fmt::format("communication that is not hidden takes {} of the step",
                       two_percent(last.exposed)));
    if (last.attainable < attains_little * last.ideal && last.longer >= longer_from)
      also(
          fmt::format("each rank computes {} longer than its share of the work (they share caches "
                      "and memory, or cores)",
                      two_percent(last.longer)));
    if (last.wait >= exposed_from)
      also(fmt::format("waiting for other ranks takes {} of the step", two_percent(last.wait)));
    if (last.data >= exposed_from)
      also(fmt::format("waiting for data takes {}", two_percent(last.data)));
    if (last.slowest >= slowest_from)
      also(fmt::format("the slowest rank costs {}", two_percent(last.slowest)));
  }
  return out;
}

// The same work on more ranks ends in the same loss, as far as rounding lets it; "" where no losses
// are known.
std::string losses(const Scaling& s) {
  const ScalingPoint &base = s.points.front(), *whose = nullptr;
  double most = -1;
  for (const ScalingPoint& p : s.points)
    if (&p != &base)
      for (const double d : losses_apart(*p.point, *base.point))
        if (std::isfinite(d) && std::abs(d) > most) {
          most = std::abs(d);
          whose = &p;
        }
  return whose ? loss_sentence(*base.point, at_words(s, base), most, at_words(s, *whose)) : "";
}

}  // namespace

std::vector<std::string> scaling_verdict(const Part& part) {
  std::vector<std::string> out;
  for (const Scaling& s : scaling_of(part)) {
    const std::string whose = s.name.empty() ? "" : s.name + ": ";
    if (s.points.size() < 2) {
      out.push_back(whose + fmt::format("only {} measured, so there is no scaling to speak of.",
                                        at_words(s, s.points.front())));
      continue;
    }
    out.push_back(whose + reach(s) + undecided(s) + lost(s) + ".");
    for (const ScalingPoint& p : s.points)
      if (shares_cores(p)) {
        out.push_back(
            whose +
            fmt::format(
                "from {} on, {} share cores: this machine allows a speed-up of {}x at most there.",
                at_words(s, p), axis_label(s.axis), two(p.cores)));
        break;
      }
    const ScalingPoint& last = s.points.back();
    if (!s.weak && s.fitted > 1 && std::isfinite(s.serial) &&
        last.speedup > 1)  // through one point any law goes
      out.push_back(whose + law(s));
    if (const std::string apart = s.weak ? "" : losses(s); !apart.empty())
      out.push_back(whose + apart);
  }
  return out;
}

}  // namespace tessera::report
