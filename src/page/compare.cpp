#include "page/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "page/compare_facts.h"
#include "page/table.h"
#include "page/verdict.h"
#include "report/html.h"

namespace tessera::report {
namespace {

struct PairOfPoints {
  const Part* part = nullptr;  // of b
  const Part* before_part = nullptr;
  const Point* before = nullptr;
  const Point* after = nullptr;
  std::string named;
};

struct Matched {
  std::vector<PairOfPoints> pairs;
  std::vector<std::string> only_a, only_b;
};

std::string whole_name(const Part& part, const Point& point) {
  std::string out = part_title(part);
  if (!point.technique.empty()) out += ", " + point.technique;
  for (const auto& [key, value] : point.axes) out += ", " + axis_words(key, value);
  return out;
}

bool same_point(const Point& x, const Point& y) {
  const auto sorted = [](auto axes) {
    std::sort(axes.begin(), axes.end());
    return axes;
  };
  return x.technique == y.technique && sorted(x.axes) == sorted(y.axes);
}

Matched match(const Study& a, const Study& b) {
  Matched out;
  std::set<const Point*> found;
  for (const Part& part : b.parts)
    for (const Point& p : part.points) {
      const Point* before = nullptr;
      const Part* before_part = nullptr;
      for (const Part& q : a.parts)
        if (q.name == part.name)
          for (const Point& o : q.points)
            if (!before && !found.contains(&o) && same_point(o, p)) {
              before = &o;
              before_part = &q;
            }
      if (before) {
        found.insert(before);
        out.pairs.push_back({.part = &part,
                             .before_part = before_part,
                             .before = before,
                             .after = &p,
                             .named = whole_name(part, p)});
      } else {
        out.only_b.push_back(whole_name(part, p));
      }
    }
  for (const Part& part : a.parts)
    for (const Point& p : part.points)
      if (!found.contains(&p)) out.only_a.push_back(whole_name(part, p));
  return out;
}

// "3 points", "1 point".
std::string points_words(std::size_t n) { return fmt::format("{} point{}", n, n == 1 ? "" : "s"); }

// Labels that tell two studies apart, from the first of these that does: title (where asked for),
// name, file or folder, folder of a run.
std::pair<std::string, std::string> labels(const Study& a, const Study& b, bool titles) {
  const auto told = [&](const Study& s) {
    std::vector<std::string> out = {titles && !s.title.empty() ? s.title : s.name, s.name, s.file,
                                    ""};
    for (const Part& part : s.parts)
      for (const Point& p : part.points)
        for (const RunRecord* r : records_of(p))
          if (out.back().empty()) out.back() = r->folder;
    return out;
  };
  const std::vector<std::string> x = told(a), y = told(b);
  for (std::size_t i = 0; i < x.size(); ++i)
    if (x[i] != y[i] && !x[i].empty() && !y[i].empty()) return {x[i], y[i]};
  return {"the first", "the second"};
}

// Why nothing stands beside each other, and what helps; "" where something does.
std::string why_none(const Study& a, const Study& b, const Matched& m) {
  if (!m.pairs.empty()) return "";
  std::set<std::string> first, second;
  for (const Part& part : a.parts) first.insert(part.name);
  bool common = false;
  for (const Part& part : b.parts) {
    second.insert(part.name);
    common |= first.contains(part.name);
  }
  const auto listed_names = [](const std::set<std::string>& names) {
    std::string out;
    for (const std::string& n : names) out += (out.empty() ? "" : ", ") + shorten(n, 60);
    return out.empty() ? std::string("none") : shorten(out, 400);
  };
  return fmt::format(
      "No point is in both: {}. A point is the same where its part's name, its technique and its "
      "axes are; "
      "run both studies from files that name them alike, or compare two run folders.",
      common ? "parts of the same name have points of other techniques or axes"
             : fmt::format("no part has the same name (first: {}; second: {})", listed_names(first),
                           listed_names(second)));
}

enum class Change : std::uint8_t { ratio, points, difference };
struct Quantity {
  const char* name;
  Measure of;
  std::string (*words)(double);
  Change change;
};

// Times and memory of both sides in the same measure, whatever else one of them may know.
std::vector<Quantity> quantities(const PairOfPoints& p) {
  const auto both = [&](Measure m) {
    return spread_of(*p.before, m).known() && spread_of(*p.after, m).known();
  };
  Measure time = time_of(*p.part).of;
  const char* named = time == measures::epoch_seconds     ? "time of an epoch"
                      : time == measures::latency_seconds ? "time of a batch"
                                                          : "time of a step";
  if (!both(time)) {
    time = measures::step_seconds;
    named = "time of a step";
  }
  const bool measured = both(measures::measured);
  return {{named, time, seconds_text, Change::ratio},
          {"images/s", measures::images_per_s, three, Change::ratio},
          {"top-1", measures::top1, accuracy_text, Change::points},
          {"final loss", measures::loss, three, Change::difference},
          {measured ? "memory" : "planned memory",
           measured ? measures::measured : measures::planned, byte_text, Change::ratio},
          {"sent a step", measures::comm_bytes, byte_text, Change::ratio}};
}

std::string change_words(const Quantity& q, const Spread& a, const Spread& b) {
  if (!a.known() || !b.known()) return "–";
  if (a.median == b.median) return "same";
  const char* sign = b.median >= a.median ? "+" : "−";
  const double apart = std::abs(b.median - a.median);
  if (q.change == Change::points) return fmt::format("{}{:.2f} points", sign, 100 * apart);
  if (q.change == Change::difference) return sign + three(apart);
  if (a.median == 0) return "from 0";
  return fmt::format("{}{}%", sign, three(100 * std::abs(b.median / a.median - 1)));
}

const char* judged(Difference d) {
  return d == Difference::beyond   ? "beyond the spread"
         : d == Difference::within ? "within the spread"
         : d == Difference::single ? "one run, no spread"
                                   : "";
}

// Facts of both, with every other setting where both recorded their settings.
std::pair<Facts, Facts> facts_of(const RunRecord& a, const RunRecord& b) {
  std::pair<Facts, Facts> out = {facts_of(a), facts_of(b)};
  if (a.settings.empty() || b.settings.empty()) return out;
  for (const auto& [r, facts] : {std::pair(&a, &out.first), std::pair(&b, &out.second)})
    for (const auto& [key, value] : r->settings)
      if (!said_by_facts(*r, key, value)) facts->emplace_back(key, value);
  return out;
}

// "commit: x, now y (all points)": each change once, with where it holds.
std::vector<std::string> changes(const Matched& m) {
  std::map<std::string, std::vector<std::string>> where;
  std::vector<std::string> order;
  for (const PairOfPoints& p : m.pairs) {
    const std::vector<const RunRecord*> a = records_of(*p.before), b = records_of(*p.after);
    if (a.empty() || b.empty()) continue;
    const auto [before, after] = facts_of(*a.front(), *b.front());
    const auto value_in = [](const Facts& facts, const std::string& key) {
      const auto found =
          std::find_if(facts.begin(), facts.end(), [&](const auto& f) { return f.first == key; });
      return found == facts.end()    ? std::string("not recorded")
             : found->second.empty() ? "none"
                                     : found->second;
    };
    std::vector<std::string> keys;
    for (const Facts* facts : {&after, &before})
      for (const auto& [key, unused] : *facts)
        if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    for (const std::string& key : keys) {
      const std::string old = value_in(before, key), now = value_in(after, key);
      if (old == now) continue;
      const std::string change = fmt::format("{}: {}, now {}", key, old, now);
      if (!where.contains(change)) order.push_back(change);
      where[change].push_back(p.named);
    }
  }
  std::vector<std::string> out;
  for (const std::string& change : order) {
    const std::vector<std::string>& at = where[change];
    out.push_back(change + (at.size() == m.pairs.size() ? ""
                            : at.size() == 1            ? " (" + at.front() + ")"
                                                        : " (" + points_words(at.size()) + ")"));
  }
  return out;
}

}  // namespace

std::vector<std::string> comparison(const Study& a, const Study& b) {
  const Matched m = match(a, b);
  const auto [first, second] = labels(a, b, false);
  std::vector<std::string> out = {
      fmt::format("{} against {}: {} in both", second, first, points_words(m.pairs.size()))};
  if (const std::string why = why_none(a, b, m); !why.empty()) out.push_back(why);
  for (const std::string& c : changes(m)) out.push_back("changed: " + c);
  std::size_t same = 0;
  for (const PairOfPoints& p : m.pairs) {
    std::string line;
    bool any = false;
    for (const Quantity& q : quantities(p)) {
      const Spread x = spread_of(*p.before, q.of), y = spread_of(*p.after, q.of);
      any |= x.known() && y.known();
      if (!x.known() || !y.known() || x.median == y.median) continue;
      line +=
          fmt::format("{}{} {} -> {} ({}, {})", line.empty() ? "" : "; ", q.name, q.words(x.median),
                      q.words(y.median), change_words(q, x, y), judged(difference(x, y)));
    }
    if (any && line.empty())
      ++same;
    else
      out.push_back(p.named + ": " + (any ? line : "not measured in both"));
  }
  if (same > 0) out.push_back("the same to the last digit: " + points_words(same));
  for (const std::string& s : m.only_a) out.push_back(fmt::format("only in {}: {}", first, s));
  for (const std::string& s : m.only_b) out.push_back(fmt::format("only in {}: {}", second, s));
  return out;
}

std::string write_comparison(const Study& a, const Study& b, const std::string& folder) {
  const Matched m = match(a, b);
  const auto [first, second] = labels(a, b, true);
  std::string body = fmt::format(
      "<h1>Comparison</h1>\n<p class=\"lead\">{} <strong>against</strong> {}: {} in both.</p>\n",
      escape(second, 200), escape(first, 200), points_words(m.pairs.size()));
  const std::vector<std::string> changed = changes(m);
  body += "<h2 id=\"configuration\">Differences in the configuration</h2>\n";
  if (changed.empty()) body += "<p>Nothing that the records tell.</p>\n";
  body += changed.empty() ? "" : "<ul>";
  for (const std::string& c : changed) body += "<li>" + escape(c) + "</li>\n";
  body += changed.empty() ? "" : "</ul>\n";
  body += "<h2 id=\"results\">Results</h2>\n";
  Table t{{{"point", true},
           {"", true},
           {"before"},
           {"after"},
           {"change"},
           {"against the spread", true}},
          {},
          "Medians over repeats, below them the least and the greatest. A change is marked where "
          "the spreads do not meet."};
  Csv csv({"point", "quantity", "before", "before_low", "before_high", "before_runs", "after",
           "after_low", "after_high", "after_runs", "judged"});
  for (const PairOfPoints& p : m.pairs)
    for (const Quantity& q : quantities(p)) {
      const Spread x = spread_of(*p.before, q.of), y = spread_of(*p.after, q.of);
      if (!x.known() && !y.known()) continue;
      const Difference d = difference(x, y);
      const bool more_is_better = q.of == measures::images_per_s || q.of == measures::top1;
      const char* look = d != Difference::beyond                   ? ""
                         : (y.median > x.median) == more_is_better ? "good"
                                                                   : "bad";
      t.rows.push_back({{p.named},
                        {q.name},
                        spread_cell(x, q.words),
                        spread_cell(y, q.words),
                        {change_words(q, x, y), "", look},
                        {x.known() && y.known() && x.median == y.median ? "" : judged(d)}});
      csv.text(p.named)
          .text(q.name)
          .number(x.median)
          .number(x.low)
          .number(x.high)
          .whole(x.n)
          .number(y.median)
          .number(y.low)
          .number(y.high);
      csv.whole(y.n).text(judged(d)).end();
    }
  const std::string none = why_none(a, b, m);
  body += t.rows.empty()
              ? "<p>" + escape(none.empty() ? "No point is measured in both." : none) + "</p>\n"
              : html_table(t);
  const auto only = [&](const std::vector<std::string>& names, const std::string& whose,
                        const char* id) {
    if (names.empty()) return;
    body += fmt::format("<h2 id=\"{}\">Only in {}</h2>\n<ul>", id, escape(whose, 200));
    for (const std::string& s : names) body += "<li>" + escape(s) + "</li>\n";
    body += "</ul>\n";
  };
  only(m.only_a, first, "only-first");
  only(m.only_b, second, "only-second");
  const std::filesystem::path out = folder;
  write_whole((out / "data" / "comparison.csv").string(), csv.str());
  std::string path = (out / "comparison.html").string();
  write_whole(path, document({"Comparison: " + second + " against " + first,
                              false,
                              {{"configuration", "Configuration"}, {"results", "Results"}}},
                             body));
  return path;
}

}  // namespace tessera::report
