#include "verbs/explain_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/check.h"
#include "compile/pipeline.h"
#include "compile/plans.h"
#include "exec/common/host_room.h"
#include "input/dataset.h"
#include "input/resident.h"
#include "plan/staging.h"
#include "plan/traffic.h"
#include "report/console.h"
#include "train/score.h"

namespace tessera::run {
namespace {

// As the data say; where they cannot be opened, as if all batches were whole. A length that is not
// given is an epoch.
RunExtent extent_for(config::Config config, std::string* assumed) {
  if (config.run.steps == 0 && config.run.epochs == 0) config.run.epochs = 1;
  try {
    const auto train = open_data(config, data::Split::train),
               test = open_data(config, data::Split::test);
    return extent_of(config, used_samples(config, *train), test->size());
  } catch (const Error& error) {
    *assumed = error.message;
    return extent_of(config, config.batch.global, evaluation_batch(config));
  }
}

}  // namespace

void settle_pictures(config::Config& config) {
  if (config.data.resident == "no" ||
      (config.data.resident == "auto" && config.run.device == "cpu"))
    return;  // whatever the data are
  std::unique_ptr<data::Dataset> train;
  try {
    train = open_data(config, data::Split::train);
  } catch (const Error&) {
    return;  // memory_of_run() says why they cannot be opened
  }
  settle_resident(config, *train);
}

nlohmann::ordered_json RunMemory::json() const {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Row& row : plans)
    rows.push_back({{"plan", name_of(row.plan)}, {"arena_bytes", row.arena_bytes}});
  nlohmann::ordered_json out = {
      {"peak_bytes", bytes}, {"ranks", {{"least", least}, {"most", most}}}, {"plans", rows}};
  if (pinned > 0) {
    out["pinned_bytes"] = pinned;
    out["feed_bytes"] = fed;
  }
  if (host > 0) out["host_bytes"] = host;
  if (file > 0) out["file_bytes"] = file;
  if (!assumed.empty()) out["assumed"] = assumed;
  return out;
}

std::string RunMemory::text(bool several_ranks) const {
  const auto largest = std::max_element(plans.begin(), plans.end(), [](const Row& a, const Row& b) {
    return a.arena_bytes < b.arena_bytes;
  });
  std::string out =
      fmt::format("\nmemory of the whole training: {} bytes", report::with_commas(bytes));
  if (several_ranks && least != most)
    out += fmt::format(" (ranks have {} to {})", report::with_commas(least),
                       report::with_commas(most));
  if (host > 0) out += fmt::format(", and {} on the host", report::with_commas(host));
  if (file > 0) out += fmt::format(", and {} in a file", report::with_commas(file));
  std::string names;
  for (const Row& row : plans) names += (names.empty() ? "" : ", ") + name_of(row.plan);
  out +=
      fmt::format("\n  plans by samples: {}; the largest is {}\n", names, name_of(largest->plan));
  if (pinned > 0)
    out += fmt::format(
        "  of it batches and results that are under way: {} bytes; beside it, of the host, pinned: "
        "{} bytes, and what ranks hand to each other\n",
        report::with_commas(fed), report::with_commas(pinned));
  if (!assumed.empty())
    out += fmt::format(
        "  the data cannot be opened ({}): the last, smaller batch of an epoch and "
        "pictures that stay on the device are not counted\n",
        assumed);
  return out;
}

RunMemory memory_of_run(const config::Config& given, int rank, const std::vector<int>& others,
                        const plan::Target& target, const transforms::RunOptions& options) {
  RunMemory out;
  config::Config config = given;
  settle_pictures(config);
  const RunExtent extent = extent_for(config, &out.assumed);
  config.batch.global = extent.batch;
  if (config.parallel.shares.word == "measured")
    config.parallel.shares.list.assign(static_cast<std::size_t>(config.parallel.dp), 1.0);
  const StepSpec spec = resolve(config);
  std::map<int, plan::Footprint> rooms;
  for (const PlanKey& key : plans_of_training(config, extent)) {
    const Compiled compiled =
        compile(spec, key.goal, micro_batches_for(config, key.goal, key.samples), target, options,
                key.weights, rank);
    rooms[rank].add(compiled.plan);
    out.plans.push_back({key, compiled.plan.arena_bytes});
    if (target.device != "cpu") {
      out.pinned += compiled.plan.copies * exec::host_room(compiled.plan).bytes() +
                    plan::file_staging(compiled.plan).total();
      out.fed = std::max(out.fed, compiled.plan.outside_bytes());
    }
    for (const int other : others)
      if (other != rank)
        rooms[other].add(plan::lower(compiled.program, other, target, config.parallel.overlap));
  }
  out.bytes = out.least = out.most = rooms[rank].bytes();
  out.host = rooms[rank].bytes_on(ir::Home::host);
  out.file = rooms[rank].bytes_on(ir::Home::file);
  for (const auto& [other, room] : rooms) {
    out.least = std::min(out.least, room.bytes());
    out.most = std::max(out.most, room.bytes());
  }
  return out;
}

static std::int64_t weights_on(const plan::Plan& plan, ir::Home home) {
  std::int64_t bytes = 0;
  for (const plan::Buffer& b : plan.persistent)
    if (b.home == home && (b.kind == ir::Input::param || b.aside)) bytes += b.bytes;
  return bytes;
}

std::string away_text(const plan::Plan& plan) {
  std::string out;
  for (const ir::Home home : {ir::Home::host, ir::Home::file}) {
    const std::int64_t bytes = plan.bytes_on(home), weights = weights_on(plan, home);
    if (bytes == 0) continue;
    std::string what;
    if (weights > 0) what = report::with_commas(weights) + " bytes of weights";
    if (bytes > weights)
      what += (what.empty() ? "" : " and ") + report::with_commas(bytes - weights) +
              " bytes of optimizer state";
    const plan::AwayTraffic moved = plan::away_traffic(plan, home);
    out += fmt::format("  beside it, {}: {}; ",
                       home == ir::Home::host ? "on the host" : "in a file", what);
    out += moved.fetched + moved.stowed == 0
               ? "read once, before the first step\n"
               : fmt::format("a step fetches {} and stows {}\n", report::with_commas(moved.fetched),
                             report::with_commas(moved.stowed));
  }
  return out;
}

nlohmann::ordered_json away_json(const plan::Plan& plan) {
  const plan::AwayTraffic moved = plan::away_traffic(plan);
  return {{"host_bytes", plan.bytes_on(ir::Home::host)},
          {"file_bytes", plan.bytes_on(ir::Home::file)},
          {"weights_bytes", weights_on(plan, ir::Home::host) + weights_on(plan, ir::Home::file)},
          {"fetched", moved.fetched},
          {"stowed", moved.stowed}};
}

}  // namespace tessera::run
