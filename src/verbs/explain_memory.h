// The memory of a whole training, which is more than that of a training step where evaluation, the
// recalibration of batch norm or the last batch of an epoch need more. Convention: the plans are
// those that a run reserves before it starts (plans.h).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "compile/plans.h"

namespace tessera::run {

struct RunMemory {
  struct Row {
    PlanKey plan;
    std::int64_t arena_bytes = 0;
  };
  std::vector<Row> plans;  // of the rank that is explained
  std::int64_t bytes = 0, least = 0,
               most = 0;  // all plans together: of that rank, and over all ranks
  // Pinned memory of the host, for a device that is not its cores, through which batches and
  // results of all plans pass; the part of `bytes` that the largest plan has for them on the
  // device.
  std::int64_t pinned = 0, fed = 0;
  std::int64_t host = 0, file = 0;  // what rests there, beside `bytes`
  std::string assumed;              // why the sizes of the data are not known; "": they are

  nlohmann::ordered_json json() const;
  std::string text(bool several_ranks) const;
};

// config.data.held as a training would have it, where the data can be opened.
void settle_pictures(config::Config& config);

// Lines about what rests away from the device and what of it comes and goes in one run; "": nothing
// does.
std::string away_text(const plan::Plan& plan);
nlohmann::ordered_json away_json(const plan::Plan& plan);

// `others`: further ranks that may differ.
RunMemory memory_of_run(const config::Config& config, int rank, const std::vector<int>& others,
                        const plan::Target& target, const transforms::RunOptions& options);

}  // namespace tessera::run
