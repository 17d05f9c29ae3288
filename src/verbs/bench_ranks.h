// Facts about the ranks that a benchmark ran on: their layout, the memory, the work and the
// messages of each, and how far their logits are from those of one rank. Convention: every rank
// makes the same calls; bytes are those of one batch or step.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "comm/comm.h"
#include "config/config.h"
#include "ranks/ranks.h"
#include "session/session.h"

namespace tessera::run {

struct RankUse {
  std::int64_t peak_bytes = 0;  // planned
  double flops = 0;
  comm::Traffic traffic;
};
std::vector<RankUse> gather_use(const Ranks& ranks, const RankUse& mine);  // one per rank

struct RankUses {
  double flops = 0;             // of all ranks
  std::int64_t peak_bytes = 0;  // the most of a rank
  comm::Traffic traffic;        // of the rank that hands over the most
};
RankUses sum_up(const std::vector<RankUse>& ranks);

// "2 threads", "dp2 x tp2, 4 ranks x 1 thread": the axes of one rank are left out.
std::string layout_heading(const config::Config& config);
nlohmann::ordered_json layout_json(const config::Config& config);
nlohmann::ordered_json traffic_json(
    const comm::Traffic& traffic);  // {total, and each verb that was used}
nlohmann::ordered_json ranks_json(const std::vector<RankUse>& ranks);
// "a rank hands over 1.20 MB per batch (all_reduce 1.20 MB); planned memory per rank 61.20 MB
// to 64.00 MB"
std::string use_line(const std::vector<RankUse>& ranks, const std::string& per);

// Input of benchmarks: `count` images of random pixels.
std::vector<std::uint8_t> random_pixels(const models::ModelConfig& model, std::int64_t count);

// The largest difference of `logits` from those that one rank computes with the same initial
// weights, over the largest of these; NaN where one is. The rank that calls it is that one.
double difference_from_one_rank(const config::Config& config, std::span<const std::uint8_t> images,
                                const std::vector<double>& logits);

}  // namespace tessera::run
