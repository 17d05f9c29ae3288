#include "measure/meter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/process.h"
#include "compile/pipeline.h"
#include "compile/stages.h"
#include "config/devices.h"
#include "files/text.h"
#include "measure/pipeline_turns.h"

namespace tessera::run {
namespace {

constexpr std::int64_t sample_every = 10;  // steps
constexpr std::size_t most_early = 16;
// Ranks tell each other how they are after so many ms of steps, or on the next sampled one: a
// request to stop waits no longer than a person would notice, and short steps are not held up.
constexpr double tell_every_ms = 100;

std::string name_of(const plan::Plan& plan, const plan::Step& step) {
  std::string op(ir::name(step.op));
  if (step.move != plan::Move::none)
    return step.move == plan::Move::fetch ? "fetch state" : "stow state";
  if (step.eqn < 0) return op;
  const ir::Eqn& e = plan.program.eqns[static_cast<std::size_t>(step.eqn)];
  return e.scope.empty() ? op : op + " " + e.scope;
}

}  // namespace

std::vector<plan::Memory> memory_of_ranks(const Ranks& ranks, const plan::Memory& mine) {
  constexpr std::int64_t plan::Memory::*parts[] = {
      &plan::Memory::weights, &plan::Memory::gradients, &plan::Memory::optimizer,
      &plan::Memory::activations, &plan::Memory::workspace};
  std::vector<double> row;  // bytes are whole far beyond any machine's
  for (const auto part : parts) row.push_back(static_cast<double>(mine.*part));
  const std::vector<double> all = ranks.gather(row);
  std::vector<plan::Memory> out(all.size() / row.size());
  for (std::size_t i = 0; i < all.size(); ++i)
    out[i / row.size()].*parts[i % row.size()] = static_cast<std::int64_t>(all[i]);
  return out;
}

Meter::Meter(const config::Config& config, const Ranks& ranks, Session& session,
             std::filesystem::path out)
    : ranks_(ranks),
      session_(session),
      pipelined_(pipelined(config, Goal::train)),
      out_(std::move(out)),
      host_(host_name()),
      clock_(compare_clocks(ranks)),
      speeds_(session.mesh()),
      tells_always_(config.parallel.shares.word == "measured"),
      trace_left_(config.run.trace),
      waited_for_(static_cast<std::size_t>(ranks.size())) {}

int Meter::tell(Measured& out) {
  const double mine[] = {untold_.stop,    untold_.samples,
                         untold_.compute, untold_.data,
                         untold_.host,    static_cast<double>(steady_ns() + clock_.behind_ns)};
  const std::vector<double> all = ranks_.gather(mine);
  std::vector<RankStep> speeds;
  int last = 0;
  constexpr std::size_t each = std::size(mine), came = each - 1;
  for (std::size_t at = 0; at < all.size(); at += each) {
    if (all[at + came] > all[static_cast<std::size_t>(last) * each + came])
      last = static_cast<int>(speeds.size());
    speeds.push_back({.stop = all[at],
                      .samples = all[at + 1],
                      .compute = all[at + 2],
                      .data = all[at + 3],
                      .host = all[at + 4]});
    out.stop |= all[at] > 0;
  }
  // All come to the same number, since all have heard the same.
  double longest = 0;
  for (const RankStep& rank : speeds) longest = std::max(longest, rank.busy());
  const std::int64_t steps = std::exchange(untold_steps_, 0);
  untold_ = {};
  tell_every_ = tells_always_ || longest <= 0
                    ? 1
                    : static_cast<std::int64_t>(
                          std::clamp(tell_every_ms * static_cast<double>(steps) / longest, 1.0,
                                     static_cast<double>(sample_every)));
  const char* stage = session_.mesh().find("pp") < 0 ? "" : " of its stage";
  for (const Straggler& s : speeds_.add(std::move(speeds), steps))
    out.remarks.push_back(
        fmt::format("rank {} is slow: {:.0f}% of the median speed of the others{} over the last {} "
                    "steps, most of it in {} "
                    "({:.1f} ms a step where the others' median is {:.1f} ms)",
                    s.rank, s.speed * 100, stage, s.steps, s.what, s.ms, s.median_ms));
  return last;
}

Meter::Wanted Meter::wanted(std::int64_t number) const {
  const bool sampled = number % sample_every == 0 || number == 1 ||
                       number == 3;  // the third: so that a short run has one that is warm
  return {sampled, sampled || trace_left_ > 0};
}

Measured Meter::step(std::int64_t number, Wanted wanted, const exec::Timeline& timeline,
                     const plan::Plan& plan, std::int64_t samples, std::int64_t began_ns,
                     double data_ms, double ran_ms, bool stop) {
  const std::int64_t entered = steady_ns();
  Measured out;
  out.sampled = wanted.sampled;
  const bool several = ranks_.size() > 1, counts = out.sampled;
  report::Breakdown now;
  if (counts) {
    now = breakdown_of(timeline, {});
  } else {  // only who is how fast
    now.compute = timeline.wall_ms - timeline.messages_ms;
    now.comm_exposed = timeline.messages_ms;
  }
  now.data = data_ms;
  now.host = std::max(0.0, ran_ms - data_ms - now.compute - now.comm_exposed -
                               now.wait);  // also what lies between two steps of the plan
  untold_.stop = stop ? 1 : untold_.stop;
  untold_.samples += static_cast<double>(session_.own_samples(samples));
  untold_.compute += now.compute;
  untold_.data += now.data;
  untold_.host += now.host;
  const bool traced = steps_ > 0 && trace_left_ > 0 && wanted.spans;  // the first step warms up
  const bool tells = several && (++untold_steps_ >= tell_every_ || out.sampled || traced);
  out.stop = stop && !several;
  const std::int64_t told = steady_ns();
  const int last = tells ? tell(out) : ranks_.rank();
  // The step ends when the last rank has said how it was. What they tell each other beyond that
  // comes after, when all are there: waiting for a rank that is late is never taken for work of
  // this one.
  const std::int64_t met = steady_ns();
  const double waited_ms = static_cast<double>(met - told) * 1e-6;
  std::vector<double> waited_for(waited_for_.size());
  if (several && last != ranks_.rank()) waited_for[static_cast<std::size_t>(last)] += waited_ms;
  if (several && out.sampled) {
    const report::Breakdown seen = breakdown_of(
        timeline, arrivals(plan, timeline, session_.mesh(), ranks_, clock_), &waited_for);
    now.comm_exposed = seen.comm_exposed;
    now.comm_hidden = seen.comm_hidden;
    now.wait = seen.wait;
  }
  if (pipelined_ && counts) {
    now.pipelined = true;
    now.bubble = bubble(timeline, plan);
  }
  const std::int64_t done = steady_ns();
  out.step_ms = ran_ms + static_cast<double>(done - entered) * 1e-6;
  now.host += static_cast<double>(told - entered) * 1e-6;
  (several ? now.wait : now.host) += static_cast<double>(done - told) * 1e-6;
  if (counts) {
    if (steps_ > 0 && cold_) {  // the first step, which warms up, counts only where it is alone
      sum_ = {};
      sampled_ = 0;
      early_.clear();
      std::fill(waited_for_.begin(), waited_for_.end(), 0.0);
    }
    cold_ = steps_ == 0;
    sum_.pipelined = pipelined_;
    last_ = now;
    for (double report::Breakdown::*part : report::breakdown_parts) sum_.*part += now.*part;
    for (std::size_t r = 0; r < waited_for.size(); ++r) waited_for_[r] += waited_for[r];
    ++sampled_;
    if (several && early_.size() < most_early) early_.emplace_back(number, now);
  }
  out.breakdown = last_;
  ++steps_;
  if (traced) {
    trace(number, timeline, plan, began_ns, data_ms, ran_ms);
    const double left = static_cast<double>(told + clock_.behind_ns) * 1e-3;
    if (tells)
      doing_.push_back({.name = "wait for the other ranks",
                        .category = "wait",
                        .start_us = std::max(left, doing_.back().end_us),
                        .end_us = left + waited_ms * 1e3});
    if (--trace_left_ == 0) write_trace();
  }
  return out;
}

std::vector<double> Meter::barrier() {
  const std::int64_t before = steady_ns();
  ranks_.barrier();
  const double waited = static_cast<double>(steady_ns() - before) * 1e-9;
  barrier_s_ += waited;
  return ranks_.gather({&waited, 1});
}

// From the first turn of all ranks to the last one; every rank of the run makes the call.
double Meter::bubble(const exec::Timeline& timeline, const plan::Plan& plan) const {
  const double zero = static_cast<double>(timeline.began_ns + clock_.behind_ns) * 1e-6;
  double busy = 0,
         mine[] = {HUGE_VAL, -HUGE_VAL};  // no turn: a stage of frozen parameters may have none
  for (const TurnSpan& span : turn_spans(plan, timeline)) {
    if (span.turn.work == 'U') continue;
    busy += span.end - span.start;
    mine[0] = std::min(mine[0], zero + span.start);
    mine[1] = std::max(mine[1], zero + span.end);
  }
  const std::vector<double> all = ranks_.gather(mine);
  double first = all[0], last = all[1];
  for (std::size_t at = 0; at < all.size(); at += 2) {
    first = std::min(first, all[at]);
    last = std::max(last, all[at + 1]);
  }
  return last > first ? std::clamp(1 - busy / (last - first), 0.0, 1.0) : 0;
}

void Meter::trace(std::int64_t number, const exec::Timeline& timeline, const plan::Plan& plan,
                  std::int64_t began_ns, double data_ms, double step_ms) {
  static constexpr const char* kinds[] = {"compute", "post", "poll", "wait", "flight"};
  const auto us = [&](std::int64_t ns) {
    return static_cast<double>(ns + clock_.behind_ns) * 1e-3;
  };
  const double zero = us(timeline.began_ns), begin = us(began_ns);
  if (data_ms > 0)
    doing_.push_back({.name = "wait for data",
                      .category = "data",
                      .start_us = begin,
                      .end_us = begin + data_ms * 1e3});
  const double written =
      std::max(begin + data_ms * 1e3, doing_.empty() ? 0.0 : doing_.back().end_us);
  if (zero > written)
    doing_.push_back(
        {.name = "write inputs", .category = "host", .start_us = written, .end_us = zero});
  for (const exec::Timeline::Span& span : timeline.spans) {
    const std::string name = name_of(plan, plan.steps[static_cast<std::size_t>(span.step)]);
    auto& lane = span.stream == 1 ? under_way_ : doing_;
    lane.push_back({.name = span.kind == exec::Timeline::wait   ? "wait for " + name
                            : span.kind == exec::Timeline::poll ? "poll"
                            : span.kind == exec::Timeline::post ? "hand over " + name
                                                                : name,
                    .category = kinds[span.kind],
                    .start_us = zero + span.start * 1e3,
                    .end_us = zero + span.end * 1e3});
  }
  for (const TurnSpan& span : pipelined_ ? turn_spans(plan, timeline) : std::vector<TurnSpan>{})
    turns_.push_back({.rank = ranks_.rank(),
                      .stage = span.turn.stage,
                      .micro = span.turn.micro,
                      .work = span.turn.work,
                      .step = number,
                      .start_us = zero + span.start * 1e3,
                      .end_us = zero + span.end * 1e3});
  const double end = begin + step_ms * 1e3;
  if (const double ran = zero + timeline.wall_ms * 1e3; end > ran)
    doing_.push_back({.name = "read results", .category = "host", .start_us = ran, .end_us = end});
}

void Meter::write_trace() {
  double first = doing_.empty() ? 0 : doing_.front().start_us;
  for (const double start : ranks_.gather({&first, 1})) first = std::min(first, start);
  for (auto* lane : {&doing_, &under_way_})
    for (report::TraceEvent& e : *lane) {
      e.start_us -= first;
      e.end_us -= first;
    }
  for (report::TraceTurn& t : turns_) {
    t.start_us -= first;
    t.end_us -= first;
  }
  const std::vector<std::string> all =
      ranks_.gather_text(report::trace_events(ranks_.rank(), host_, doing_, under_way_, turns_));
  if (ranks_.first())
    files::write_atomically(out_ / "trace.json", report::trace_file(all, session_.spec().blocks));
  doing_.clear();
  under_way_.clear();
  turns_.clear();
}

nlohmann::ordered_json Meter::ranks_json(std::int64_t planned_bytes, std::int64_t measured_bytes) {
  if (trace_left_ > 0 && steps_ > 1)
    write_trace();  // of a run that ended before it had all it was asked for
  report::Breakdown mean = sum_;
  for (double report::Breakdown::*part : report::breakdown_parts)
    mean.*part /= static_cast<double>(std::max<std::int64_t>(1, sampled_));
  // The time that the others waited for this rank, as a mean of one of them.
  double waited = 0;
  const std::vector<double> all = ranks_.gather(waited_for_);
  for (std::size_t r = 0; r < waited_for_.size(); ++r)
    waited += all[r * waited_for_.size() + static_cast<std::size_t>(ranks_.rank())];
  waited /=
      static_cast<double>(std::max<std::int64_t>(1, sampled_) * std::max(1, ranks_.size() - 1));
  nlohmann::ordered_json mine = {
      {"host", host_},
      {"device", config::device_of(session_.config(), ranks_.rank())},
      {"peak_bytes", {{"planned", planned_bytes}, {"measured", measured_bytes}}},
      {"breakdown", report::to_json(mean)},
      {"barrier_wait_s", barrier_s_},
      {"clock_behind_ns", clock_.behind_ns}};
  // Memory that a device takes beside what is planned: of the host, and for graphs.
  if (const exec::Executor& executor = session_.executor(); executor.pinned_bytes() > 0) {
    mine["peak_bytes"]["pinned"] = executor.pinned_bytes();
    mine["peak_bytes"]["graphs"] = executor.graph_bytes();
  }
  for (const ir::Home home : {ir::Home::host, ir::Home::file})
    if (const std::int64_t bytes = session_.executor().away_bytes(home); bytes > 0)
      mine["peak_bytes"][ir::name(home)] = bytes;
  if (ranks_.size() > 1) {
    mine["others_waited_ms"] = waited;
    mine["sampled"] = {{"steps", sampled_}, {"early", nlohmann::ordered_json::array()}};
  }
  for (const auto& [step, breakdown] : early_)
    mine["sampled"]["early"].push_back({{"step", step}, {"breakdown", report::to_json(breakdown)}});
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const std::string& text : ranks_.gather_text(mine.dump()))
    out.push_back(nlohmann::ordered_json::parse(text));
  return out;
}

}  // namespace tessera::run
