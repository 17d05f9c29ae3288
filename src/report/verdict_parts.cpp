// What batch sizes, techniques, seeds and the parts of a model say.
#include "report/verdict_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/html.h"
#include "report/layers.h"

namespace tessera::report {
namespace {

struct Ranked {
  const Point* best = nullptr;
  Spread value;
  const Point* second = nullptr;
  Spread second_value;
  int known = 0;
};

Ranked rank_points(const std::vector<const Point*>& points, Measure measure, bool least) {
  Ranked out;
  const auto better = [&](const Spread& a, const Spread& b) { return least ? a.median < b.median : a.median > b.median; };
  for (const Point* p : points) {
    const Spread s = spread_of(*p, measure);
    if (!s.known()) continue;
    ++out.known;
    if (!out.best || better(s, out.value))
      out.second = out.best, out.second_value = out.value, out.best = p, out.value = s;
    else if (!out.second || better(s, out.second_value))
      out.second = p, out.second_value = s;
  }
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

// "images per second"...: the best and by how much it leads; "" when nothing is known.
std::string leads(const Part& part, Measure measure, bool least, const std::string& most, std::string (*words)(double)) {
  const Ranked r = rank_points(all_points(part), measure, least);
  if (!r.best || r.known < 2) return "";
  const Difference d = difference(r.value, r.second_value);
  const double ratio = least ? r.second_value.median / r.value.median : r.value.median / r.second_value.median;
  if (!std::isfinite(ratio)) return "";
  if (words(r.value.median) == words(r.second_value.median))  // as far as anybody reads
    return fmt::format("{} is shared by {} and {} ({}).", most, called(part, *r.best), called(part, *r.second), words(r.value.median));
  return fmt::format("{} is {} with {}; {} follows with {} ({}% {}){}.", most, called(part, *r.best), spread_words(r.value, words),
                     called(part, *r.second), spread_words(r.second_value, words), three(100 * (ratio - 1)), least ? "more" : "less",
                     difference_words(d));
}

void add_if(std::vector<std::string>& out, const std::string& sentence) {
  if (!sentence.empty()) out.push_back(sentence);
}

}  // namespace

std::vector<std::string> batch_verdict(const Part& part) {
  std::vector<std::string> out;
  const bool accumulation = part.kind == PartKind::accumulation;
  for (const PointSeries& s : series_of(part)) {
    const std::string whose = s.name.empty() ? "" : s.name + ": ";
    std::vector<const Point*> points;
    for (const auto& [x, p] : s.points) points.push_back(p);
    const Ranked speed = rank_points(points, measures::images_per_s, false);
    if (speed.known >= 2)
      out.push_back(whose + fmt::format("most images per second at {}: {}{}.",
                                        axis_words(part.axis, plain_number(axis_value(part, *speed.best))),
                                        spread_words(speed.value, three), difference_words(difference(speed.value, speed.second_value))));
    const auto exposed = [](const Point& p) {
      const Breakdown b = breakdown_of(p);
      return step_of(b) > 0 ? (b.comm_exposed + b.wait) / step_of(b) : kUnknown;
    };
    if (points.size() >= 2) {
      const double first = exposed(*points.front()), last = exposed(*points.back());
      if (std::isfinite(first) && std::isfinite(last) && std::max(first, last) >= 0.01)
        out.push_back(whose + fmt::format("synchronisation (exposed communication and waiting) takes {} of the step at {} and {} at {}.",
                                          percent(first), axis_words(part.axis, plain_number(axis_value(part, *points.front()))),
                                          percent(last), axis_words(part.axis, plain_number(axis_value(part, *points.back())))));
    }
    const Ranked top = rank_points(points, measures::top1, false);
    if (top.known >= 2 && !accumulation)
      out.push_back(whose + fmt::format("best accuracy at {}: {}{}.", axis_words(part.axis, plain_number(axis_value(part, *top.best))),
                                        spread_words(top.value, accuracy_text), difference_words(difference(top.value, top.second_value))));
  }
  if (out.empty()) out.push_back("one point is measured; there is nothing to compare it with.");
  return out;
}

std::vector<std::string> technique_verdict(const Part& part) {
  std::vector<std::string> out;
  const TimeMeasure time = time_of(part);
  add_if(out, leads(part, time.of, true, "the shortest time for " + time.what, seconds_text));
  add_if(out, leads(part, measures::measured, true, "the least memory on a rank", byte_text));
  const Ranked bytes = rank_points(
      [&] {
        std::vector<const Point*> several;  // one rank sends nothing, which is no merit
        for (const Point& p : part.points)
          if (ranks_of(p) > 1) several.push_back(&p);
        return several;
      }(),
      measures::comm_bytes, true);
  if (bytes.known >= 2)
    out.push_back(bytes.value.median == bytes.second_value.median
                      ? fmt::format("of those with several ranks {} and {} send the fewest bytes: {} a step and rank.",
                                    called(part, *bytes.best), called(part, *bytes.second), byte_text(bytes.value.median))
                      : fmt::format("of those with several ranks {} sends the fewest bytes: {} a step and rank, then {} with {}.",
                                    called(part, *bytes.best), byte_text(bytes.value.median), called(part, *bytes.second),
                                    byte_text(bytes.second_value.median)));
  // Techniques compute the same thing: how far the losses are apart.
  if (part.points.size() >= 2) {
    const Spread base = spread_of(part.points.front(), measures::loss);
    double most = -1;
    const Point* whose = nullptr;
    for (const Point& p : part.points) {
      const Spread s = spread_of(p, measures::loss);
      if (&p == &part.points.front() || !s.known() || !base.known()) continue;
      if (const double d = std::abs(s.median - base.median); d > most) most = d, whose = &p;
    }
    if (whose)
      out.push_back(fmt::format("the final loss differs from that of {} ({}) by at most {}{}.", called(part, part.points.front()),
                                three(base.median), three(most),
                                most == 0 ? ""
                                          : fmt::format(" ({}{})", called(part, *whose),
                                                        base.n > 1 && most <= base.wide() ? ", within the spread over seeds" : "")));
  }
  if (out.empty()) out.push_back("one technique is measured; there is nothing to compare it with.");
  return out;
}

std::vector<std::string> accuracy_verdict(const Part& part) {
  std::vector<std::string> out;
  const Ranked top = rank_points(all_points(part), measures::top1, false);
  if (!top.best) return {"no run measured an accuracy."};
  const auto words = [](const Spread& s) {
    return s.n > 1 ? fmt::format("{} in the mean of {} seeds ({} to {})", accuracy_text(s.mean), s.n, accuracy_text(s.low),
                                 accuracy_text(s.high))
                   : accuracy_text(s.median) + " with one seed";
  };
  if (top.known == 1) return {fmt::format("{}: {}.", called(part, *top.best), words(top.value))};
  out.push_back(fmt::format("best is {} with {}; {} has {}{}.", called(part, *top.best), words(top.value), called(part, *top.second),
                            words(top.second_value), difference_words(difference(top.value, top.second_value))));
  std::string beyond, within;
  const Spread base = spread_of(part.points.front(), measures::top1);
  for (const Point& p : part.points) {
    if (&p == &part.points.front() || !base.known()) continue;
    const Spread s = spread_of(p, measures::top1);
    const Difference d = difference(s, base);
    const std::string by =
        fmt::format("{} ({}{:.2f} points)", called(part, p), s.mean >= base.mean ? "+" : "−", 100 * std::abs(s.mean - base.mean));
    if (d == Difference::beyond) beyond += (beyond.empty() ? "" : ", ") + by;
    if (d == Difference::within) within += (within.empty() ? "" : ", ") + by;
  }
  if (!beyond.empty()) out.push_back(fmt::format("beyond the spread, against {}: {}.", called(part, part.points.front()), beyond));
  if (!within.empty()) out.push_back(fmt::format("within the spread, against {}: {}.", called(part, part.points.front()), within));
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
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first.median > b.first.median; });
    std::string out;
    for (std::size_t i = 0; i < all.size() && i < 3 && (i == 0 || all[i].first.median > 0.02); ++i) {
      const std::string low = percent(all[i].first.low), high = percent(all[i].first.high);
      out += fmt::format("{} {}", i == 0 ? of_what + " " + all[i].second + " takes" : ", " + all[i].second,
                         low == high ? low : low + " to " + high);
    }
    return out;
  };
  std::vector<std::string> out;
  for (const PointGroup& group : point_groups(part)) {
    std::string times;
    for (const Point* point : group.points)
      if (const Spread all = spread_of(*point, measures::parts_seconds); all.known() && group.points.size() <= 4) {
        const std::string named = point_name(part, *point, group.axis);
        times += fmt::format("{}{}{}", times.empty() ? "" : ", ", seconds_text(all.median), named.empty() ? "" : " with " + named);
      }
    const std::string shares = said([&](const std::string& family) {
      std::vector<double> v;
      for (const Point* point : group.points) v.push_back(layer_share(*point, family).median);
      return spread_of(v);
    });
    if (shares.empty()) continue;
    out.push_back((group.name.empty() ? "" : group.name + ": ") + shares + (times.empty() ? "" : "; the whole pass takes " + times) + ".");
    if (out.size() == 6) break;
  }
  const std::string theirs = said([&](const std::string& family) { return spread_of({published_share(part, family)}); });
  if (!out.empty() && !theirs.empty()) out.push_back("published: " + theirs + ".");
  return out;
}

}  // namespace tessera::report
