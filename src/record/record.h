// One run as its folder tells it: what was asked for, what it cost, what came out. Read from
// env.json, resolved.toml's facts in summary.json, metrics.jsonl and summary.json; kept by a study
// as JSON, so that a page can be drawn after run folders are gone. Convention: times are seconds
// unless a name says ms; a number that the run did not write is NaN (JSON null), never 0.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "report/metrics.h"

namespace tessera::report {

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

struct EpochRecord {
  double seconds = kUnknown,
         elapsed = kUnknown;  // of its training steps; since the run began, with evaluations
  double loss = kUnknown, train_top1 = kUnknown, test_loss = kUnknown, test_top1 = kUnknown;
  double barrier_wait = kUnknown;
  bool whole = true;  // false: the run ended in the middle of it
};

struct RankRecord {
  std::string host, device;
  Breakdown breakdown;      // mean of the sampled steps, without the warm-up
  double barrier_wait = 0;  // mean of an epoch
  double others_waited =
      kUnknown;  // ms of a step, mean of the other ranks: they waited for this one
  std::int64_t planned = 0, measured = 0;  // peak bytes
};

// A row of `tessera bench layers`, or of any table of parts whose times add up.
struct PartRecord {
  std::string name;
  double seconds = kUnknown;  // of one, on average
  double share = kUnknown;    // of all of them, in the whole
  std::int64_t count = 1;
  double busy = kUnknown;  // the share of its time in which the least busy thread computed
};

// A step as metrics.jsonl has it.
struct StepRecord {
  std::int64_t step = 0;
  double loss = kUnknown, lr = kUnknown, grad_norm = kUnknown, images_per_s = kUnknown;
};

struct RunRecord {
  std::string verb = "train";                      // train | infer | layers
  std::string folder, model, data, dtype, layout;  // layout in words: "dp2 x tp2", "one rank"
  int ranks = 1, hosts = 1, threads = 0;
  std::int64_t global_batch = 0, accumulate = 1, steps = 0, seed = 0;
  std::int64_t skipped = 0;  // steps that were not finite
  std::int64_t warmup = 0;   // steps that count for no speed
  std::int64_t params = 0;   // of the model; 0: not known
  std::string date;          // when it was finished, UTC: "2026-11-17T04:05:06Z"

  // Speed, warm-up dropped. Of training: images_per_s = global batch / median step.
  double images_per_s = kUnknown, mfu = kUnknown, wall = kUnknown;
  Quantiles step_ms;
  double epoch_seconds =
      kUnknown;                  // mean over the whole epochs but the first (of the ViT study: 5)
  double latency_ms = kUnknown;  // infer: of a batch
  Breakdown breakdown;           // mean over ranks
  double comm_bytes = kUnknown;  // a step, a rank
  double ring_bytes = kUnknown;  // of these, what rings sent, as it travelled
  std::int64_t planned = 0, measured = 0;  // peak bytes of the largest rank
  double bubble = kUnknown;                // of a pipeline

  double loss = kUnknown, test_loss = kUnknown, test_top1 = kUnknown,
         best_top1 = kUnknown;  // last epoch; best of all
  std::vector<EpochRecord> epochs;
  std::vector<std::pair<std::int64_t, double>>
      losses;  // (step, loss), at most 200 of them, the first and the last among them
  std::vector<StepRecord> thinned;  // the same steps in full; not kept by a study
  std::vector<RankRecord> by_rank;
  std::vector<PartRecord> parts;
  nlohmann::ordered_json env;  // env.json as it is
  // resolved.toml without name, folder and seed: ("optim.lr", "0.001"); at most 512, empty where a
  // run writes none (infer, layers).
  std::vector<std::pair<std::string, std::string>> settings;
};

// Reads a run folder back. `warmup` drops the first so many steps from speed. The first epoch's
// time is dropped when there are more than one; alone it counts where it is long beside the
// warm-up.
RunRecord read_run(const std::string& folder, std::int64_t warmup = 2);
nlohmann::ordered_json to_json(const RunRecord& run);
RunRecord run_from_json(const nlohmann::json& json, const std::string& where);

inline constexpr std::size_t kMostSettings = 512, kLongestSetting = 400;  // characters

}  // namespace tessera::report
