#include "study/claim_metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/check.h"
#include "config/problem.h"

namespace tessera::study {
namespace {

using report::Breakdown;
using report::kUnknown;
using report::Point;
using report::RunRecord;

struct Metric {
  const char* name;
  double (*of)(const RunRecord&);
};
double bytes(std::int64_t number) { return number > 0 ? static_cast<double>(number) : kUnknown; }
const Metric kMetrics[] = {
    {"epoch_seconds", [](const RunRecord& r) { return r.epoch_seconds; }},
    {"images_per_s", [](const RunRecord& r) { return r.images_per_s; }},
    {"step_ms",
     [](const RunRecord& r) { return r.step_ms.median > 0 ? r.step_ms.median : kUnknown; }},
    {"mfu", [](const RunRecord& r) { return r.mfu; }},
    {"wall", [](const RunRecord& r) { return r.wall; }},
    {"latency_ms", [](const RunRecord& r) { return r.latency_ms; }},
    {"loss", [](const RunRecord& r) { return r.loss; }},
    {"test_loss", [](const RunRecord& r) { return r.test_loss; }},
    {"test_top1", [](const RunRecord& r) { return r.test_top1; }},
    {"best_top1", [](const RunRecord& r) { return r.best_top1; }},
    {"peak_bytes",
     [](const RunRecord& r) { return bytes(r.measured > 0 ? r.measured : r.planned); }},
    {"comm_bytes", [](const RunRecord& r) { return r.comm_bytes; }},
    {"bubble", [](const RunRecord& r) { return r.bubble; }},
};

// Parts of a step's time; hidden communication and copies to a device are beside them. With a row:
// of that rank.
struct Share {
  const char* name;
  double Breakdown::*part;
};
const Share kShares[] = {
    {"compute_share", &Breakdown::compute}, {"exposed_share", &Breakdown::comm_exposed},
    {"wait_share", &Breakdown::wait},       {"data_share", &Breakdown::data},
    {"host_share", &Breakdown::host},       {"hidden_share", &Breakdown::comm_hidden},
    {"copy_share", &Breakdown::copy}};
double share_of(const Breakdown& b, double Breakdown::*part) {
  const double whole = b.compute + b.comm_exposed + b.wait + b.data + b.host;
  return whole > 0 ? b.*part / whole : kUnknown;
}

// With a row: of that epoch, from 1.
struct Epoch {
  const char* name;
  double report::EpochRecord::*value;
};
const Epoch kEpochs[] = {{"epoch_seconds", &report::EpochRecord::seconds},
                         {"loss", &report::EpochRecord::loss},
                         {"test_loss", &report::EpochRecord::test_loss},
                         {"test_top1", &report::EpochRecord::test_top1}};

bool is_table(const std::string& metric) {
  return metric == "share" || metric == "seconds" || metric == "busy";
}

// Rows of a name are added up, and so are the parts of one: msa is msa.qkv, msa.scores and so on.
// How busy threads were is their mean, each for its time.
double row_of(const RunRecord& run, const std::string& metric, const std::string& row) {
  double sum = 0, seconds = 0;
  bool found = false;
  for (const report::PartRecord& part : run.parts) {
    if (part.name != row && !part.name.starts_with(row + ".")) continue;
    found = true;
    seconds += part.seconds;
    sum += metric == "share"  ? part.share
           : metric == "busy" ? part.busy * part.seconds
                              : part.seconds;
  }
  if (metric == "busy" && found) return seconds > 0 ? sum / seconds : kUnknown;
  return found ? sum : kUnknown;
}

std::optional<int> whole(const std::string& text) {
  int value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

double value_of(const Quantity& q, const RunRecord& run) {
  if (is_table(q.metric)) return row_of(run, q.metric, q.row);
  for (const Epoch& e : kEpochs)
    if (q.metric == e.name && !q.row.empty()) {
      const auto epoch = whole(q.row);
      return epoch && *epoch >= 1 && static_cast<std::size_t>(*epoch) <= run.epochs.size()
                 ? run.epochs[static_cast<std::size_t>(*epoch) - 1].*e.value
                 : kUnknown;
    }
  for (const Metric& m : kMetrics)
    if (q.metric == m.name) return m.of(run);
  for (const Share& s : kShares) {
    if (q.metric != s.name) continue;
    if (q.row.empty()) return share_of(run.breakdown, s.part);
    const auto rank = whole(q.row);
    return rank && static_cast<std::size_t>(*rank) < run.by_rank.size()
               ? share_of(run.by_rank[static_cast<std::size_t>(*rank)].breakdown, s.part)
               : kUnknown;
  }
  return kUnknown;
}

std::string metric_problem(const Quantity& q) {
  std::vector<std::string> names = {"share", "seconds", "busy"};
  bool share = false, known = is_table(q.metric);
  for (const Metric& m : kMetrics) {
    names.emplace_back(m.name);
    known |= q.metric == m.name;
  }
  for (const Share& s : kShares) {
    names.emplace_back(s.name);
    share |= q.metric == s.name;
  }
  if (!known && !share) {
    const std::string near = nearest(q.metric, names);
    return "there is no metric " + config::clean(q.metric) +
           (near.empty() ? "; there are " + join(names, ", ") : "; did you mean " + near + "?");
  }
  if (is_table(q.metric))
    return q.row.empty() ? q.metric + " needs a row: " + q.metric + "[msa](...)" : "";
  if (q.row.empty()) return "";
  const bool epoch = std::any_of(std::begin(kEpochs), std::end(kEpochs),
                                 [&](const Epoch& e) { return q.metric == e.name; });
  if (!share && !epoch) return q.metric + " has no rows";
  if (!whole(q.row))
    return q.metric + (share ? "[RANK]" : "[EPOCH]") + ": expected a number, found " +
           config::clean(q.row);
  return "";
}

// As written, or the same number written otherwise.
bool same_value(const std::string& a, const std::string& b) {
  if (a == b) return true;
  double x = 0, y = 0;
  const auto [end_a, error_a] = std::from_chars(a.data(), a.data() + a.size(), x);
  const auto [end_b, error_b] = std::from_chars(b.data(), b.data() + b.size(), y);
  return error_a == std::errc() && error_b == std::errc() && end_a == a.data() + a.size() &&
         end_b == b.data() + b.size() && x == y;
}

const std::string* axis_of(const Point& point, const std::string& key) {
  if (key == "technique") return point.technique.empty() ? nullptr : &point.technique;
  for (const auto* list : {&point.axes, &point.fixed})
    for (const auto& [k, v] : *list)
      if (k == key) return &v;
  return nullptr;
}

// "run.np (1, 2) or batch.global (16, 64)": what tells these points apart.
std::string differences(const std::vector<const Point*>& points) {
  std::vector<std::string> keys = {"technique"}, said;
  for (const auto& [key, value] : points.front()->axes) keys.push_back(key);
  for (const std::string& key : keys) {
    std::vector<std::string> values;
    for (const Point* p : points)
      if (const std::string* v = axis_of(*p, key);
          v && std::find(values.begin(), values.end(), *v) == values.end())
        values.push_back(*v);
    if (values.size() > 1) said.push_back(key + " (" + join(values, ", ") + ")");
  }
  return join(said, " and ");
}

}  // namespace

std::string find_point(const Quantity& q, const report::Study& study, const Point** point) {
  if (std::string wrong = metric_problem(q); !wrong.empty()) return wrong;
  std::vector<std::string> names;
  const report::Part* part = nullptr;
  for (const report::Part& p : study.parts) {
    names.push_back(p.name);
    if (p.name == q.part) part = &p;
  }
  if (!part)
    return "there is no part " + config::clean(q.part) +
           (names.empty() ? "" : "; there are " + join(names, ", "));
  std::vector<const Point*> left;
  for (const Point& p : part->points) left.push_back(&p);
  for (const auto& [key, value] : q.where) {
    std::vector<const Point*> fit;
    std::vector<std::string> values;
    for (const Point* p : left)
      if (const std::string* v = axis_of(*p, key)) {
        if (same_value(*v, value)) fit.push_back(p);
        if (std::find(values.begin(), values.end(), *v) == values.end()) values.push_back(*v);
      }
    if (values.empty()) return "part " + q.part + " has no " + config::clean(key) + " in its grid";
    if (fit.empty())
      return "part " + q.part + " has no " + config::clean(key) + " = " + config::clean(value) +
             "; there are " + join(values, ", ");
    left = fit;
  }
  if (left.empty()) return "part " + q.part + " has no points";
  if (left.size() > 1)
    return std::to_string(left.size()) + " points of " + q.part + " fit: say " + differences(left);
  *point = left.front();
  return "";
}

std::vector<std::pair<int, double>> values_of(const Quantity& q, const Point& point) {
  std::vector<std::pair<int, double>> values;
  for (const report::Repeat& r : point.repeats)
    if (r.outcome == report::Outcome::done && r.record)
      if (const double v = value_of(q, *r.record); std::isfinite(v))
        values.emplace_back(r.number, v);
  return values;
}

}  // namespace tessera::study
