#include "page/tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "page/layers.h"
#include "page/scaling.h"
#include "page/verdict.h"
#include "report/console.h"
#include "report/html.h"

namespace tessera::report {
namespace {

constexpr std::size_t most_tiles = 4, most_ties = 3;

struct Held {
  const Point* point = nullptr;
  Spread value;
};

std::vector<Held> ranked(const std::vector<const Point*>& points, Measure of, bool least) {
  std::vector<Held> out;
  for (const Point* p : points)
    if (const Spread s = spread_of(*p, of); s.known()) out.push_back({p, s});
  std::stable_sort(out.begin(), out.end(), [&](const Held& a, const Held& b) {
    return least ? a.value.median < b.value.median : a.value.median > b.value.median;
  });
  return out;
}

std::string named(const Part& part, const Point& p) {
  const std::string name = point_name(part, p);
  return name.empty() ? "the run" : name;
}

std::string n_words(const Spread& s) { return fmt::format("n = {}", s.n); }

// "; ties with a, b": those that the spread does not tell from the first.
std::string ties(const Part& part, const std::vector<Held>& all) {
  std::vector<std::string> names;
  for (std::size_t i = 1; i < all.size(); ++i)
    if (all[i].value.median == all[0].value.median ||
        difference(all[i].value, all[0].value) == Difference::within)
      names.push_back(named(part, *all[i].point));
  return names.empty() ? "" : "; ties with " + listed(names, most_ties);
}

// The first point of one rank in the group that the others can be held against.
const Point* one_rank(const SameWork& group) {
  for (const Point* p : group.points)
    if (ranks_of(*p) == 1) return p;
  return nullptr;
}

Tile fastest(const Part& part, const SameWork& group) {
  const TimeMeasure time = time_of(part);
  const std::vector<Held> all = ranked(group.points, time.of, true);
  if (all.size() < 2) return {};
  const Point* base = one_rank(group);
  const Spread one = base ? spread_of(*base, time.of) : Spread{};
  const std::string who = named(part, *all[0].point);
  if (!one.known() || !(all[0].value.median > 0))
    return {"Fastest", two_seconds(all[0].value.median),
            fmt::format("{}, time of {}, {}{}", who, time.what, n_words(all[0].value),
                        ties(part, all))};
  if (all[0].point == base)
    return {"Fastest", "1x",
            fmt::format("{}: nothing here is faster ({}){}", who, n_words(one), ties(part, all))};
  return {"Fastest", two(one.median / all[0].value.median) + "x",
          fmt::format("{} against {}, {}{}", who, named(part, *base), n_words(all[0].value),
                      ties(part, all))};
}

Tile least_memory(const Part& part, const SameWork& group) {
  const MemoryMeasure memory = memory_of(part);
  const std::vector<Held> all = ranked(group.points, memory.of, true);
  if (all.size() < 2) return {};
  const Point* base = one_rank(group);
  const Spread one = base ? spread_of(*base, memory.of) : Spread{};
  const std::string bytes = two_bytes(all[0].value.median), who = named(part, *all[0].point),
                    planned = memory.planned ? " planned" : "";
  if (!one.known() || !(one.median > 0))
    return {"Least memory", bytes,
            fmt::format("{}{}, of the rank with most, {}{}", who, planned, n_words(all[0].value),
                        ties(part, all))};
  return {
      "Least memory", two(100 * all[0].value.median / one.median) + "%",
      fmt::format("{}: {}{} a rank; {} with {}, {}{}", who, bytes, planned, two_bytes(one.median),
                  named(part, *base), n_words(all[0].value), ties(part, all))};
}

Tile scaling(const Part& part) {
  const std::vector<Scaling> all = scaling_of(part);
  const Scaling* best = nullptr;
  double low = 1e300, high = 0;
  for (const Scaling& s : all) {
    if (s.points.size() < 2 || !std::isfinite(s.points.back().speedup)) continue;
    const double reached = s.points.back().speedup;
    low = std::min(low, reached);
    high = std::max(high, reached);
    if (!best || reached > best->points.back().speedup) best = &s;
  }
  if (!best) return {};
  const ScalingPoint& last = best->points.back();
  const std::string range =
      two(low) == two(high) ? two(high) + "x" : two(low) + "x to " + two(high) + "x";
  return {best->weak ? "Weak scaling" : "Strong scaling", range,
          fmt::format("{}: {} of ideal{}, n = {}", axis_words(best->axis, plain_number(last.ranks)),
                      two(100 * last.efficiency) + "%",
                      best->name.empty() ? "" : " at best, with " + best->name, last.time.n)};
}

// How far the losses of a part are from those of its first point with the same work and seed.
Tile same_loss(const Part& part) {
  double most = -1;
  const Point *whose = nullptr, *base = nullptr;
  std::size_t compared = 0;
  for (const SameWork& group : same_work(part))
    for (const Point* p : group.points) {
      const Point* first = baseline_of(part, *p);
      if (!first || first == p) continue;
      bool any = false;
      for (const double d : losses_apart(*p, *first))
        if (std::isfinite(d)) {
          any = true;
          if (std::abs(d) > most) {
            most = std::abs(d);
            whose = p;
            base = first;
          }
        }
      compared += any;
    }
  if (!whose) return {};
  const Spread loss = spread_of(*base, measures::loss);
  return {"Same loss", most == 0 ? "equal" : fmt::format("\u2264 {:.1e}", most),
          fmt::format("final losses of {} point{} from that of {} ({}), n = {}", compared,
                      compared == 1 ? "" : "s", named(part, *base), two(loss.median), loss.n)};
}

Tile best_accuracy(const Part& part) {
  std::vector<const Point*> points;
  for (const Point& p : part.points) points.push_back(&p);
  std::vector<Held> all = ranked(points, measures::top1, false);
  if (all.empty()) return {};
  std::stable_sort(all.begin(), all.end(),
                   [](const Held& a, const Held& b) { return a.value.mean > b.value.mean; });
  return {"Best top-1", one_decimal(all[0].value.mean),
          fmt::format("{}, mean, {}{}", named(part, *all[0].point), n_words(all[0].value),
                      ties(part, all))};
}

Tile most_images(const Part& part) {
  std::vector<const Point*> points;
  for (const Point& p : part.points) points.push_back(&p);
  const std::vector<Held> all = ranked(points, measures::images_per_s, false);
  if (all.size() < 2) return {};
  return {
      "Most images per second", two(all[0].value.median),
      fmt::format("{}, {}{}", named(part, *all[0].point), n_words(all[0].value), ties(part, all))};
}

Tile largest_part(const Part& part) {
  Spread most;
  std::string whose;
  for (const std::string& family : layer_families(part))
    for (const Point& p : part.points)
      if (const Spread share = layer_share(p, family); whose.empty() || share.median > most.median)
        if (share.known() && share.median > 0) {
          most = share;
          whose = family;
        }
  if (whose.empty()) return {};
  return {"Largest part", two(100 * most.median) + "%",
          fmt::format("{} of {}, at most, {}", whose, has_layers(part) ? "a layer" : "the time",
                      n_words(most))};
}

Tile claims(const Study& study) {
  const auto holds = std::count_if(study.claims.begin(), study.claims.end(),
                                   [](const ClaimResult& c) { return c.verdict == "holds"; });
  const auto fails =
      std::count_if(study.claims.begin(), study.claims.end(),
                    [](const ClaimResult& c) { return c.verdict == "does not hold"; });
  if (study.claims.empty()) return {};
  return {"Claims that hold", fmt::format("{} of {}", holds, study.claims.size()),
          fmt::format("{} {} not; the rest is untested here", fails, fails == 1 ? "does" : "do")};
}

std::vector<Tile> of_run(const RunRecord& r) {
  std::vector<Tile> out;
  const std::size_t epochs = r.epochs.size();
  if (std::isfinite(r.test_top1))
    out.push_back(
        {"Test top-1", one_decimal(r.test_top1),
         fmt::format("after {} epoch{}{}", epochs, epochs == 1 ? "" : "s",
                     r.best_top1 > r.test_top1 ? "; best " + one_decimal(r.best_top1) : "")});
  else if (std::isfinite(r.loss))
    out.push_back({"Loss", two(r.loss), fmt::format("of step {}", r.steps)});
  if (std::isfinite(r.images_per_s))
    out.push_back(
        {"Images per second", two(r.images_per_s),
         fmt::format("{} a step, median of {} steps", two_seconds(r.step_ms.median * 1e-3),
                     std::max<std::int64_t>(1, r.steps - r.warmup))});
  if (const auto bytes = r.measured > 0 ? r.measured : r.planned; bytes > 0)
    out.push_back({"Memory", two_bytes(static_cast<double>(bytes)),
                   fmt::format("{} {}", r.measured > 0 ? "measured peak" : "planned peak",
                               r.ranks > 1 ? "of the rank with most" : "of the only rank")});
  if (std::isfinite(r.wall))
    out.push_back({"Time", two_seconds(r.wall),
                   fmt::format("{} steps on {}", with_commas(r.steps), r.layout)});
  return out;
}

}  // namespace

std::string two(double v) {
  if (!std::isfinite(v)) return "–";
  if (v == 0) return "0";
  const double size = std::abs(v);
  if (size >= 1e15 || size < 1e-4) return fmt::format("{:.1e}", v);
  const double step = std::pow(10, std::floor(std::log10(size)) - 1);
  const double rounded = std::round(v / step) * step;
  if (std::abs(rounded) >= 9.95) return with_commas(std::llround(rounded));
  const int decimals = 1 - static_cast<int>(std::floor(std::log10(std::abs(rounded)) + 1e-9));
  return fmt::format("{:.{}f}", rounded, std::max(0, decimals));
}

std::string two_percent(double share) {
  if (std::abs(share) < 1e-9) share = 0;  // what is left of a difference of equal times
  if (!std::isfinite(share)) return "–";
  // Beyond 95% two digits would hide whether something is above or below the whole.
  return (share > 0.95 && share < 9.5 ? fmt::format("{:.0f}", 100 * share) : two(100 * share)) +
         "%";
}

std::string two_seconds(double s) {
  if (!std::isfinite(s)) return "–";
  if (std::abs(s) < 0.995e-3) return two(1e6 * s) + " µs";
  if (std::abs(s) < 0.995) return two(1e3 * s) + " ms";
  return std::abs(s) < 600 ? two(s) + " s" : duration(s);
}

std::string two_bytes(double bytes) {
  if (!std::isfinite(bytes)) return "–";
  static constexpr std::array<const char*, 5> units = {"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  while (std::abs(bytes) >= 995 && unit + 1 < units.size()) {
    bytes /= 1000;
    ++unit;
  }
  return two(bytes) + " " + units[unit];
}

std::string one_decimal(double share) {
  return std::isfinite(share) ? fmt::format("{:.1f}%", 100 * share) : "–";
}

std::vector<Tile> tiles(const Study& study) {
  std::vector<Tile> out;
  const auto add = [&](const Tile& tile) {
    const bool told =
        std::any_of(out.begin(), out.end(), [&](const Tile& t) { return t.label == tile.label; });
    if (!tile.value.empty() && !told && out.size() < most_tiles) out.push_back(tile);
  };
  const auto each = [&](std::initializer_list<PartKind> kinds, auto&& tile) {
    for (const PartKind kind : kinds)
      for (const Part& part : study.parts)
        if (part.kind == kind && tally(part).done > 0) add(tile(part));
  };
  if (study.parts.size() == 1 && is_one_run(study.parts[0])) {
    const std::vector<const RunRecord*> runs = records_of(study.parts[0].points.front());
    return runs.empty() ? out : of_run(*runs.front());
  }
  add(claims(study));
  each({PartKind::techniques}, [](const Part& p) { return fastest(p, same_work(p).front()); });
  each({PartKind::techniques}, [](const Part& p) { return least_memory(p, same_work(p).front()); });
  each({PartKind::strong, PartKind::weak}, scaling);
  each({PartKind::techniques}, same_loss);
  each({PartKind::accuracy}, best_accuracy);
  each({PartKind::batch, PartKind::accumulation}, most_images);
  each({PartKind::layers}, largest_part);
  return out;
}

}  // namespace tessera::report
