#include "page/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "page/tiles.h"
#include "page/verdict_parts.h"
#include "report/html.h"

namespace tessera::report {

std::string part_title(const Part& part) { return part.title.empty() ? part.name : part.title; }

std::string without_title(const Part& part, const std::string& sentence) {
  const std::string head = part_title(part) + ": ";
  std::string out = sentence.starts_with(head) ? sentence.substr(head.size()) : sentence;
  if (!out.empty() && out[0] >= 'a' && out[0] <= 'z')
    out[0] = static_cast<char>(out[0] - 'a' + 'A');
  return out;
}

std::string spread_words(const Spread& s, std::string (*words)(double)) {
  if (!s.known()) return "not measured";
  const std::string low = words(s.low), high = words(s.high);
  if (s.n <= 1) return words(s.median);
  return low == high ? fmt::format("{}, n = {}", words(s.median), s.n)
                     : fmt::format("{} ({} to {}, n = {})", words(s.median), low, high, s.n);
}

std::string difference_words(Difference d) {
  switch (d) {
    case Difference::within:
      return "; a tie within the spread";
    case Difference::single:
      return "; measured once, so chance is not ruled out";
    default:
      return "";
  }
}

Tally tally(const Part& part) {
  Tally t;
  for (const Point& p : part.points) {
    int done = 0;
    for (const Repeat& r : p.repeats) {
      ++t.runs;
      if (r.outcome == Outcome::done && r.record) {
        ++t.done;
        ++done;
      } else if (r.outcome == Outcome::failed) {
        ++t.failed;
      } else if (!part.missing.empty() && r.outcome == Outcome::waiting) {
        ++t.not_run;
      } else {
        ++t.open;
      }
    }
    t.most_repeats = std::max(t.most_repeats, done);
  }
  return t;
}

Tally tally(const Study& study) {
  Tally t;
  for (const Part& part : study.parts) {
    const Tally p = tally(part);
    t.runs += p.runs;
    t.done += p.done;
    t.failed += p.failed;
    t.open += p.open;
    t.not_run += p.not_run;
    t.most_repeats = std::max(t.most_repeats, p.most_repeats);
  }
  return t;
}

std::string listed(const std::vector<std::string>& names, std::size_t most) {
  std::string out;
  for (std::size_t i = 0; i < std::min(names.size(), most); ++i)
    out += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return names.size() > most ? fmt::format("{} and {} more", out, names.size() - most) : out;
}

std::vector<SameWork> same_work(const Part& part) {
  std::vector<SameWork> out;
  for (const Point& p : part.points) {
    auto found = std::find_if(out.begin(), out.end(),
                              [&](const SameWork& g) { return g.points.front()->axes == p.axes; });
    if (found == out.end())
      found = out.insert(
          out.end(),
          SameWork{
              point_name(part, Point{.technique = "", .axes = p.axes, .fixed = {}, .repeats = {}}),
              {}});
    found->points.push_back(&p);
  }
  return out;
}

namespace {

constexpr double much_longer = 1.25;  // the mean step over the median one
constexpr std::size_t most_named_points = 3;

// Images per second are those of the median step: what some steps wait is not in them.
std::string uneven_steps(const Part& part) {
  const Measure uneven = [](const RunRecord& r) {
    return r.step_ms.median > 0 ? r.step_ms.mean / r.step_ms.median : kUnknown;
  };
  std::vector<std::pair<double, std::string>> found;
  for (const Point& p : part.points)
    if (const double ratio = spread_of(p, uneven).median; ratio > much_longer)
      found.emplace_back(ratio, point_name(part, p));
  if (found.empty()) return "";
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> names;
  for (const auto& [ratio, name] : found)
    names.push_back(fmt::format("{} times{}{}", two(ratio), names.empty() ? " the median" : "",
                                name.empty() ? "" : " with " + name));
  return fmt::format(
      "the mean step takes {}: some steps take much longer than most, which images per second do "
      "not show.",
      listed(names, most_named_points));
}

std::string only_warmup(const Part& part) {
  std::vector<std::string> names;
  for (const Point& p : part.points) {
    const std::vector<const RunRecord*> runs = records_of(p);
    if (std::any_of(runs.begin(), runs.end(),
                    [](const RunRecord* r) { return r->steps > 0 && r->steps <= r->warmup; }))
      names.push_back(point_name(part, p));
  }
  if (names.empty()) return "";
  const std::string named = listed(names, most_named_points);  // "": a single one without a name
  return fmt::format(
      "{}a run has no more steps than the warm-up, so its speed is that of steps that warm up.",
      named.empty() ? "" : "with " + named + " ");
}

}  // namespace

std::vector<std::string> verdict(const Part& part) {
  const Tally t = tally(part);
  std::vector<std::string> out;
  if (t.done == 0) {
    if (t.runs > 0 && t.failed == t.runs)
      out.push_back(part_title(part) + ": all its runs failed, so it says nothing.");
    else if (t.not_run > 0 && t.open == 0)
      out.push_back(part_title(part) + ": not run: " + part.missing + ".");
    return out;
  }
  switch (part.kind) {
    case PartKind::strong:
    case PartKind::weak:
      out = scaling_verdict(part);
      break;
    case PartKind::batch:
    case PartKind::accumulation:
      out = batch_verdict(part);
      break;
    case PartKind::techniques:
      out = technique_verdict(part);
      break;
    case PartKind::accuracy:
      out = accuracy_verdict(part);
      break;
    case PartKind::layers:
      out = layers_verdict(part);
      break;
  }
  if (t.not_run > 0)
    out.push_back(
        fmt::format("{} of its {} runs were not run: {}.", t.not_run, t.runs, part.missing));
  for (const std::string& s : {uneven_steps(part), only_warmup(part)})
    if (!s.empty()) out.push_back(s);
  for (std::string& s : out) s = part_title(part) + ": " + s;
  return out;
}

namespace {

std::string claims_sentence(const std::vector<ClaimResult>& claims) {
  const auto of = [&](const char* said) {
    return std::count_if(claims.begin(), claims.end(),
                         [&](const ClaimResult& c) { return c.verdict == said; });
  };
  const auto holds = of("holds"), fails = of("does not hold"), waiting = of("not run"),
             empty = of("no number");
  const auto untested =
      static_cast<std::ptrdiff_t>(claims.size()) - holds - fails - waiting - empty;
  std::string out = fmt::format("Of {} claim{}, {} {} here, {} {} not", claims.size(),
                                claims.size() == 1 ? "" : "s", holds, holds == 1 ? "holds" : "hold",
                                fails, fails == 1 ? "does" : "do");
  if (untested > 0) out += fmt::format(", {} cannot be tested here", untested);
  if (waiting > 0)
    out += fmt::format(", {} {}", waiting,
                       waiting == 1 ? "waits for its runs" : "wait for their runs");
  if (empty > 0) out += fmt::format(", {} {} no number", empty, empty == 1 ? "has" : "have");
  return out + ".";
}

}  // namespace

std::vector<std::string> verdict(const Study& study) {
  const Tally t = tally(study);
  if (t.runs == 0) return {"Nothing has been run yet."};
  std::vector<std::string> out;
  if (t.done == 0 && t.failed == t.runs)
    out.push_back((t.runs == 1 ? "The only run" : fmt::format("All {} runs", t.runs)) +
                  " failed: there is nothing to say.");
  else if (t.done == 0 && t.not_run == t.runs)
    out.push_back(fmt::format("None of {} runs was made.", t.runs));
  else if (t.done == 0)
    out.push_back(fmt::format("No run of {} is finished yet.", t.runs));
  for (const Part& part : study.parts)
    for (std::string& s : verdict(part)) out.push_back(std::move(s));
  if (!study.claims.empty()) out.push_back(claims_sentence(study.claims));
  if (t.done > 0 && t.most_repeats == 1 && t.runs > 1)
    out.push_back(
        "Every point was measured once: there is no spread, and small differences may be chance.");
  // Every failed run by name, as many as one reads.
  int named = 0;
  std::string failed;
  for (const Part& part : study.parts)
    for (const Point& p : part.points)
      for (const Repeat& r : p.repeats)
        if (r.outcome == Outcome::failed && ++named <= 5) {
          const std::string of = point_name(part, p);
          failed += fmt::format("{}{}{} (repeat {}: {})", failed.empty() ? "" : "; ",
                                part_title(part), of.empty() ? "" : ", " + of, r.number + 1,
                                shorten(r.reason.empty() ? "no reason recorded" : r.reason, 160));
        }
  if (named > 5) failed += fmt::format("; and {} more", named - 5);
  if (named > 0) out.push_back(fmt::format("{} of {} runs failed: {}.", t.failed, t.runs, failed));
  if (t.open > 0 && t.done > 0)
    out.push_back(fmt::format("{} of {} runs are still to come: what is said here may change.",
                              t.open, t.runs));
  return out;
}

}  // namespace tessera::report
