// The verdicts on batch sizes, techniques, seeds and the parts of a model.
#include "page/verdict_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "page/layers.h"
#include "page/tiles.h"
#include "report/html.h"

namespace tessera::report {
namespace {

struct Ranked {
  const Point* point = nullptr;
  Spread value;
};

// Points that know it, the best first.
std::vector<Ranked> rank_points(const std::vector<const Point*>& points, Measure measure,
                                bool least, double Spread::*by = &Spread::median) {
  std::vector<Ranked> out;
  for (const Point* p : points)
    if (const Spread s = spread_of(*p, measure); s.known()) out.push_back({p, s});
  std::stable_sort(out.begin(), out.end(), [&](const Ranked& a, const Ranked& b) {
    return least ? a.value.*by < b.value.*by : a.value.*by > b.value.*by;
  });
  return out;
}

std::vector<const Point*> all_points(const Part& part) {
  std::vector<const Point*> out;
  for (const Point& p : part.points) out.push_back(&p);
  return out;
}

std::string called(const Part& part, const Point& point) {
  const std::string named = point_name(part, point);
  return named.empty() ? "the only point" : named;
}

constexpr std::size_t most_named = 4;
constexpr std::size_t most_told =
    3;  // groups of the same work with sentences of their own; of more it is counted who leads

// Among points with equal axes.
std::string technique_of(const Ranked& r) {
  return r.point->technique.empty() ? "the run" : r.point->technique;
}

std::string first_techniques(const std::vector<Ranked>& ranked, std::size_t count) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i) names.push_back(technique_of(ranked[i]));
  return listed(names, most_named);
}

// How many share the best value, to the digits of the tables.
std::size_t sharing(const std::vector<Ranked>& ranked) {
  std::size_t n = 1;
  while (n < ranked.size() && three(ranked[n].value.median) == three(ranked[0].value.median)) ++n;
  return n;
}

// The least of a measure and by how much it leads; "" when there is nothing to compare. Exact: it
// would be the same in every run.
std::string leads(const SameWork& group, Measure measure, const std::string& what,
                  std::string (*words)(double), bool exact) {
  const std::vector<Ranked> all = rank_points(group.points, measure, true);
  if (all.size() < 2) return "";
  if (const std::size_t n = sharing(all); n > 1)
    return fmt::format("{} is shared by {} ({}).", what, first_techniques(all, n),
                       words(all[0].value.median));
  const double ratio = all[1].value.median / all[0].value.median;
  if (!std::isfinite(ratio)) return "";
  const Difference d = difference(all[0].value, all[1].value);
  return fmt::format("{} is {} with {}; {} follows with {} ({}% more){}.", what,
                     technique_of(all[0]), spread_words(all[0].value, words), technique_of(all[1]),
                     spread_words(all[1].value, words), two(100 * (ratio - 1)),
                     exact && d == Difference::single ? "" : difference_words(d));
}

// How often each technique leads, where there are too many groups to tell of each.
std::string counted(const std::vector<SameWork>& groups, Measure measure, const std::string& what,
                    bool exact) {
  std::vector<std::pair<std::string, int>> leaders;
  int compared = 0, shared = 0, within = 0, once = 0;
  for (const SameWork& group : groups) {
    const std::vector<Ranked> all = rank_points(group.points, measure, true);
    if (all.size() < 2) continue;
    ++compared;
    const std::size_t n = sharing(all);
    for (std::size_t i = 0; i < n; ++i) {
      const std::string name = technique_of(all[i]);
      auto found = std::find_if(leaders.begin(), leaders.end(),
                                [&](const auto& l) { return l.first == name; });
      if (found == leaders.end()) found = leaders.insert(leaders.end(), {name, 0});
      ++found->second;
    }
    const Difference d = difference(all[0].value, all[1].value);
    shared += n > 1;
    within += n == 1 && d == Difference::within;
    once += n == 1 && d == Difference::single && !exact;
  }
  if (compared == 0) return "";
  std::stable_sort(leaders.begin(), leaders.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string out = what;
  for (std::size_t i = 0; i < std::min(leaders.size(), most_named); ++i)
    out += fmt::format(
        "{} {} at {}{}", i == 0 ? "" : ",", leaders[i].first, leaders[i].second,
        i == 0 ? fmt::format(" of {} setting{} of the grid", compared, compared == 1 ? "" : "s")
               : "");
  if (leaders.size() > most_named) out += fmt::format(" and {} more", leaders.size() - most_named);
  if (shared > 0) out += fmt::format("; at {} of these several share it", shared);
  if (within > 0) out += fmt::format("; at {} the spread does not tell it from the next", within);
  return out + (once > 0 ? difference_words(Difference::single) : "") + ".";
}

void add_if(std::vector<std::string>& out, const std::string& sentence,
            const std::string& whose = "") {
  if (!sentence.empty()) out.push_back(whose + sentence);
}

}  // namespace

std::vector<std::string> batch_verdict(const Part& part) {
  std::vector<std::string> out;
  const bool accumulation = part.kind == PartKind::accumulation;
  for (const PointSeries& s : series_of(part)) {
    const std::string whose = s.name.empty() ? "" : s.name + ": ";
    std::vector<const Point*> points;
    for (const auto& [x, p] : s.points) points.push_back(p);
    const std::vector<Ranked> speed = rank_points(points, measures::images_per_s, false);
    if (speed.size() >= 2)
      out.push_back(
          whose +
          fmt::format("most images per second at {}: {}{}.",
                      axis_words(part.axis, plain_number(axis_value(part, *speed[0].point))),
                      spread_words(speed[0].value, two),
                      difference_words(difference(speed[0].value, speed[1].value))));
    const auto exposed = [](const Point& p) {
      const Breakdown b = breakdown_of(p);
      return step_of(b) > 0 ? (b.comm_exposed + b.wait) / step_of(b) : kUnknown;
    };
    if (points.size() >= 2) {
      const double first = exposed(*points.front()), last = exposed(*points.back());
      if (std::isfinite(first) && std::isfinite(last) && std::max(first, last) >= 0.01)
        out.push_back(
            whose +
            fmt::format("synchronisation (exposed communication and waiting) takes {} of the step "
                        "at {} and {} at {}.",
                        two_percent(first),
                        axis_words(part.axis, plain_number(axis_value(part, *points.front()))),
                        two_percent(last),
                        axis_words(part.axis, plain_number(axis_value(part, *points.back())))));
    }
    const std::vector<Ranked> top = rank_points(points, measures::top1, false);
    if (top.size() >= 2 && !accumulation)
      out.push_back(
          whose + fmt::format("best accuracy at {}: {}{}.",
                              axis_words(part.axis, plain_number(axis_value(part, *top[0].point))),
                              spread_words(top[0].value, one_decimal),
                              difference_words(difference(top[0].value, top[1].value))));
  }
  if (out.empty()) out.push_back("one point is measured; there is nothing to compare it with.");
  return out;
}

namespace {

// Groups of several ranks (one rank sends nothing, which is no merit).
std::vector<SameWork> with_several_ranks(std::vector<SameWork> groups) {
  for (SameWork& group : groups)
    std::erase_if(group.points, [](const Point* p) { return ranks_of(*p) <= 1; });
  return groups;
}

std::string fewest_bytes(const SameWork& group) {
  const std::vector<Ranked> all = rank_points(group.points, measures::comm_bytes, true);
  if (all.size() < 2) return "";
  const std::size_t n = sharing(all);
  const std::string least = two_bytes(all[0].value.median);
  if (n > 1)
    return fmt::format("of those with several ranks {} send the fewest bytes: {} a step and rank.",
                       first_techniques(all, n), least);
  return fmt::format(
      "of those with several ranks {} sends the fewest bytes: {} a step and rank, then {} with {}.",
      technique_of(all[0]), least, technique_of(all[1]), two_bytes(all[1].value.median));
}

// Techniques compute the same thing: how far their losses are apart, each from the first
// technique's with the same axes and seed.
std::string losses_differ(const Part& part) {
  double most = -1;
  const Point *whose = nullptr, *base = nullptr;
  for (const Point& p : part.points) {
    const Point* first = baseline_of(part, p);
    if (!first || first == &p) continue;
    for (const double d : losses_apart(p, *first))
      if (std::isfinite(d) && std::abs(d) > most) {
        most = std::abs(d);
        whose = &p;
        base = first;
      }
  }
  if (!whose) return "";
  return loss_sentence(*base, called(part, *base), most, called(part, *whose));
}

}  // namespace

std::string loss_sentence(const Point& base, const std::string& base_name, double most,
                          const std::string& whose) {
  const Spread loss = spread_of(base, measures::loss);
  const std::string seeds =
      loss.n > 1 && loss.wide() > 0 ? "; seeds alone move it by " + two(loss.wide()) : "";
  if (most == 0)
    return fmt::format("the final loss is that of {} ({}) to the last bit, n = {}.", base_name,
                       two(loss.median), loss.n);
  return fmt::format("the final loss differs from that of {} ({}){} by at most {}{}.", base_name,
                     two(loss.median), loss.n > 1 ? ", seed by seed," : "", two(most),
                     " (" + whose + seeds + ")");
}

std::vector<std::string> technique_verdict(const Part& part) {
  std::vector<std::string> out;
  const TimeMeasure time = time_of(part);
  const MemoryMeasure memory = memory_of(part);
  const std::string shortest = "the shortest time for " + time.what,
                    least = memory.planned ? "the least planned memory on a rank"
                                           : "the least memory on a rank";
  const std::vector<SameWork> groups = same_work(part), several = with_several_ranks(groups);
  for (std::size_t i = 0; i < groups.size() && groups.size() <= most_told; ++i) {
    const std::string whose = groups[i].name.empty() ? "" : groups[i].name + ": ";
    add_if(out, leads(groups[i], time.of, shortest, two_seconds, false), whose);
    add_if(out, leads(groups[i], memory.of, least, two_bytes, true), whose);
    add_if(out, fewest_bytes(several[i]), whose);
  }
  if (groups.size() > most_told) {
    add_if(out, counted(groups, time.of, shortest + " is", false));
    add_if(out, counted(groups, memory.of, least + " is", true));
    add_if(out, counted(several, measures::comm_bytes,
                        "of those with several ranks the fewest bytes come from", true));
  }
  add_if(out, losses_differ(part));
  if (out.empty()) out.push_back("one technique is measured; there is nothing to compare it with.");
  return out;
}

std::vector<std::string> accuracy_verdict(const Part& part) {
  if (is_one_run(part)) return run_verdict(*records_of(part.points.front()).front());
  std::vector<std::string> out;
  const std::vector<Ranked> top =
      rank_points(all_points(part), measures::top1, false, &Spread::mean);  // which is what is said
  if (top.empty()) return {"no run measured an accuracy."};
  const auto words = [](const Spread& s) {
    return s.n > 1 ? fmt::format("{} in the mean of {} seeds ({} to {})", one_decimal(s.mean), s.n,
                                 one_decimal(s.low), one_decimal(s.high))
                   : one_decimal(s.median) + " with one seed";
  };
  if (top.size() == 1)
    return {fmt::format("{}: {}.", called(part, *top[0].point), words(top[0].value))};
  out.push_back(fmt::format("best is {} with {}; {} has {}{}.", called(part, *top[0].point),
                            words(top[0].value), called(part, *top[1].point), words(top[1].value),
                            difference_words(difference(top[0].value, top[1].value))));
  std::string beyond, within;
  const Spread base = spread_of(part.points.front(), measures::top1);
  for (const Point& p : part.points) {
    if (&p == &part.points.front() || !base.known()) continue;
    const Spread s = spread_of(p, measures::top1);
    const Difference d = difference(s, base);
    const std::string by =
        fmt::format("{} ({}{:.1f} points)", called(part, p), s.mean >= base.mean ? "+" : "−",
                    100 * std::abs(s.mean - base.mean));
    if (d == Difference::beyond) beyond += (beyond.empty() ? "" : ", ") + by;
    if (d == Difference::within) within += (within.empty() ? "" : ", ") + by;
  }
  if (!beyond.empty())
    out.push_back(fmt::format("beyond the spread, against {}: {}.",
                              called(part, part.points.front()), beyond));
  if (!within.empty())
    out.push_back(fmt::format("within the spread, against {}: {}.",
                              called(part, part.points.front()), within));
  return out;
}

std::vector<std::string> layers_verdict(const Part& part) {
  const std::vector<std::string> families = layer_families(part);
  const std::string of_what = has_layers(part) ? "of a layer" : "of the time";
  // "of a layer mlp takes 61.0% to 62.3%, msa 36.6% to 38.1%": the largest ones.
  const auto said = [&](const auto& share) {
    std::vector<std::pair<Spread, std::string>> all;
    for (const std::string& family : families)
      if (const Spread s = share(family); s.known()) all.emplace_back(s, family);
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.first.median > b.first.median; });
    std::string out;
    for (std::size_t i = 0; i < all.size() && i < 3 && (i == 0 || all[i].first.median > 0.02);
         ++i) {
      const std::string low = two_percent(all[i].first.low), high = two_percent(all[i].first.high);
      out += fmt::format("{} {}",
                         i == 0 ? of_what + " " + all[i].second + " takes" : ", " + all[i].second,
                         low == high ? low : low + " to " + high);
    }
    return out;
  };
  std::vector<std::string> out;
  for (const PointGroup& group : point_groups(part)) {
    std::string times;
    for (const Point* point : group.points)
      if (const Spread all = spread_of(*point, measures::parts_seconds);
          all.known() && group.points.size() <= 4) {
        const std::string named = point_name(part, *point, group.axis);
        times += fmt::format("{}{}{}", times.empty() ? "" : ", ", two_seconds(all.median),
                             named.empty() ? "" : " with " + named);
      }
    const std::string shares = said([&](const std::string& family) {
      std::vector<double> v;
      for (const Point* point : group.points) v.push_back(layer_share(*point, family).median);
      return spread_of(v);
    });
    if (shares.empty()) continue;
    out.push_back((group.name.empty() ? "" : group.name + ": ") + shares +
                  (times.empty() ? "" : "; the whole pass takes " + times) + ".");
  }
  constexpr std::size_t most_groups = 6;
  if (out.size() > most_groups) {
    const std::size_t more = out.size() - most_groups;
    out.resize(most_groups);
    out.push_back(
        fmt::format("{} more setting{} in the table.", more, more == 1 ? " is" : "s are"));
  }
  const std::string theirs =
      said([&](const std::string& family) { return spread_of({published_share(part, family)}); });
  if (!out.empty() && !theirs.empty()) out.push_back("published: " + theirs + ".");
  return out;
}

}  // namespace tessera::report
