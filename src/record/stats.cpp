#include "record/stats.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

namespace tessera::report {

Spread spread_of(std::vector<double> values) {
  std::erase_if(values, [](double v) { return !std::isfinite(v); });
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  double sum = 0;
  for (const double v : values) sum += v;
  const double median = n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
  return {.median = median,
          .mean = sum / static_cast<double>(n),
          .low = values.front(),
          .high = values.back(),
          .n = static_cast<int>(n)};
}

std::vector<const RunRecord*> records_of(const Point& point) {
  std::vector<const RunRecord*> out;
  for (const Repeat& r : point.repeats)
    if (r.outcome == Outcome::done && r.record) out.push_back(&*r.record);
  return out;
}

Spread spread_of(const Point& point, Measure measure) {
  std::vector<double> values;
  for (const RunRecord* r : records_of(point)) values.push_back(measure(*r));
  return spread_of(std::move(values));
}

Difference difference(const Spread& a, const Spread& b) {
  if (!a.known() || !b.known()) return Difference::unknown;
  if (a.n < 2 || b.n < 2) return Difference::single;
  return a.high < b.low || b.high < a.low ? Difference::beyond : Difference::within;
}

namespace measures {
double epoch_seconds(const RunRecord& r) { return r.epoch_seconds; }
double step_seconds(const RunRecord& r) {
  return r.step_ms.median > 0 ? r.step_ms.median * 1e-3 : kUnknown;
}
double latency_seconds(const RunRecord& r) { return r.latency_ms * 1e-3; }
double images_per_s(const RunRecord& r) { return r.images_per_s; }
double mfu(const RunRecord& r) { return r.mfu; }
double wall(const RunRecord& r) { return r.wall; }
double top1(const RunRecord& r) { return r.test_top1; }
double best_top1(const RunRecord& r) { return r.best_top1; }
double loss(const RunRecord& r) { return r.loss; }
double test_loss(const RunRecord& r) { return r.test_loss; }
double planned(const RunRecord& r) {
  return r.planned > 0 ? static_cast<double>(r.planned) : kUnknown;
}
double measured(const RunRecord& r) {
  return r.measured > 0 ? static_cast<double>(r.measured) : kUnknown;
}
double comm_bytes(const RunRecord& r) { return r.comm_bytes; }
double ring_bytes(const RunRecord& r) { return r.ring_bytes; }
double bubble(const RunRecord& r) { return r.bubble; }
double parts_seconds(const RunRecord& r) {
  double sum = 0;
  for (const PartRecord& p : r.parts)
    sum += std::isfinite(p.seconds) ? p.seconds * static_cast<double>(p.count) : 0;
  return sum > 0 ? sum : kUnknown;
}
}  // namespace measures

namespace {
// Every run that is done knows it, and there is one.
bool all_know(const Part& part, Measure m) {
  bool any = false;
  for (const Point& p : part.points)
    for (const RunRecord* r : records_of(p)) {
      if (!std::isfinite(m(*r))) return false;
      any = true;
    }
  return any;
}
}  // namespace

TimeMeasure time_of(const Part& part) {
  if (part.verb != "infer" && all_know(part, measures::epoch_seconds))
    return {measures::epoch_seconds, "an epoch", "seconds per epoch"};
  if (part.verb != "infer" && all_know(part, measures::step_seconds))
    return {measures::step_seconds, "a step", "seconds per step"};
  if (all_know(part, measures::latency_seconds))
    return {measures::latency_seconds, "a batch", "seconds per batch"};
  if (all_know(part, measures::parts_seconds))
    return {measures::parts_seconds, "all parts", "seconds"};
  return {part.verb == "infer" ? measures::latency_seconds : measures::step_seconds,
          part.verb == "infer" ? "a batch" : "a step",
          part.verb == "infer" ? "seconds per batch" : "seconds per step"};
}

MemoryMeasure memory_of(const Part& part) {
  if (all_know(part, measures::measured)) return {measures::measured, false};
  return {measures::planned, true};
}

const Point* baseline_of(const Part& part, const Point& point) {
  for (const Point& p : part.points)
    if (p.technique == part.points.front().technique && p.axes == point.axes) return &p;
  return nullptr;
}

std::vector<double> losses_apart(const Point& point, const Point& base) {
  std::vector<double> out;
  for (const Repeat& a : point.repeats)
    for (const Repeat& b : base.repeats)
      if (a.number == b.number && a.record && b.record && a.outcome == Outcome::done &&
          b.outcome == Outcome::done)
        out.push_back(a.record->loss - b.record->loss);
  return out;
}

bool is_one_run(const Part& part) {
  return part.points.size() == 1 && part.points.front().repeats.size() == 1;
}

WaitedFor waited_for(const RunRecord& run) {
  constexpr double worth_saying = 0.05;  // of a step
  WaitedFor out;
  for (std::size_t r = 0; r < run.by_rank.size(); ++r)
    if (const double ms = run.by_rank[r].others_waited; ms > out.ms)
      out = {static_cast<int>(r), ms};
  const double step = step_of(run.breakdown);
  return step > 0 && out.ms >= worth_saying * step ? out : WaitedFor{};
}

Breakdown breakdown_of(const Point& point) {
  Breakdown out;
  const std::vector<const RunRecord*> runs = records_of(point);
  for (const RunRecord* r : runs) {
    for (const auto part : breakdown_parts)
      if (std::isfinite(r->breakdown.*part))
        out.*part += r->breakdown.*part / static_cast<double>(runs.size());
    out.pipelined |= r->breakdown.pipelined;
  }
  return out;
}

double step_of(const Breakdown& b) { return b.compute + b.comm_exposed + b.wait + b.data + b.host; }

double slowest_compute(const Point& point) {
  std::vector<double> values;
  for (const RunRecord* r : records_of(point)) {
    double most = 0;
    for (const RankRecord& rank : r->by_rank) most = std::max(most, rank.breakdown.compute);
    values.push_back(most > 0 ? most : r->breakdown.compute > 0 ? r->breakdown.compute : kUnknown);
  }
  return spread_of(std::move(values)).mean;
}

int ranks_of(const Point& point) {
  const std::vector<const RunRecord*> runs = records_of(point);
  return runs.empty() ? 0 : runs.front()->ranks;
}

std::string axis_label(const std::string& key) {
  static const std::map<std::string, std::string> known = {
      {"run.np", "ranks"},
      {"batch.global", "global batch"},
      {"batch.accumulate", "micro-batches in a step"},
      {"batch.micro", "micro-batch"},
      {"launch.hosts", "hosts"},
      {"launch.per_host", "ranks per host"},
      {"run.threads", "threads"},
      {"data.fraction", "share of the data"}};
  const auto found = known.find(key);
  return found != known.end() ? found->second : key;
}

std::string axis_words(const std::string& key, const std::string& value) {
  std::string v = value;
  if (v.size() >= 2 && v.front() == '"' && v.back() == '"') v = v.substr(1, v.size() - 2);
  const auto counted = [&](const char* one, const char* many) {
    return v + " " + (v == "1" ? one : many);
  };
  if (key == "run.np") return counted("rank", "ranks");
  if (key == "batch.global") return "batch " + v;
  if (key == "batch.accumulate") return counted("micro-batch", "micro-batches");
  if (key == "run.threads") return counted("thread", "threads");
  if (key == "launch.hosts") return counted("host", "hosts");
  if (key == "launch.per_host") return v + " per host";
  if (key == "model.name" || key == "data.source" || key == "precision.dtype" ||
      key == "optim.name")
    return v;
  const std::size_t dot = key.rfind('.');
  return (dot == key.npos ? key : key.substr(dot + 1)) + " " + v;
}

std::string point_name(const Part& part, const Point& point, const std::string& without) {
  std::string out = point.technique;
  for (const auto& [key, value] : point.axes) {
    if (key == without) continue;
    std::set<std::string> values;
    for (const Point& p : part.points)
      for (const auto& [k, v] : p.axes)
        if (k == key) values.insert(v);
    if (values.size() > 1) out += (out.empty() ? "" : ", ") + axis_words(key, value);
  }
  return out;
}

double axis_value(const Part& part, const Point& point) {
  for (const auto* list : {&point.axes, &point.fixed})
    for (const auto& [key, value] : *list)
      if (key == part.axis) {
        double out = kUnknown;
        const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
        return error == std::errc() && end == value.data() + value.size() ? out : kUnknown;
      }
  return part.axis == "run.np" && ranks_of(point) > 0 ? ranks_of(point) : kUnknown;
}

std::vector<PointSeries> series_of(const Part& part) {
  std::vector<PointSeries> out;
  for (const Point& p : part.points) {
    const double x = axis_value(part, p);
    if (!std::isfinite(x)) continue;
    const std::string named = point_name(part, p, part.axis);
    auto found =
        std::find_if(out.begin(), out.end(), [&](const PointSeries& s) { return s.name == named; });
    if (found == out.end()) found = out.insert(out.end(), PointSeries{named, {}});
    found->points.emplace_back(x, &p);
  }
  for (PointSeries& s : out)
    std::stable_sort(s.points.begin(), s.points.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
  return out;
}

std::string_view name(PartKind kind) { return part_kinds[static_cast<std::size_t>(kind)]; }

}  // namespace tessera::report
