// How fast each rank is, from what they tell each other every few steps in one small message, which
// also carries the request to stop. Convention: all ranks see the same numbers, so all come
// to the same conclusions without asking again. Stages of a pipeline have different work: a rank is
// compared with those of its own stage.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "ir/type.h"

namespace tessera::run {

// The times of a rank in a step, or in several together.
struct RankStep {
  double stop = 0, samples = 0;            // asked to stop; of this rank's part of the batch
  double compute = 0, data = 0, host = 0;  // ms
  double busy() const { return compute + data + host; }
};

// A rank that was slow over the last steps, and what it is slow at.
struct Straggler {
  int rank = 0;
  std::int64_t steps = 0;        // that were looked at
  double speed = 0;              // of the median of the others of its stage
  std::string what;              // compute | data | host
  double ms = 0, median_ms = 0;  // a step: its own, the others' median
};

// Samples of a batch per dp rank: every micro-batch is shared out by itself.
ir::Shape shares_of(const std::vector<std::int64_t>& micro, const std::vector<double>& shares);

class RankSpeeds {
 public:
  static constexpr double slow = 0.7;       // of the median speed of the others
  static constexpr double recovered = 0.8;  // may be named again after that
  static constexpr int blocks =
      5;  // of consecutive steps, which the search for stragglers looks back at
  static constexpr int block_steps = 6;  // a block has at least so many, and
  static constexpr double block_ms =
      200;  // takes at least so long: a rank that is stopped and goes on in turns shows its mean
  static constexpr int patience = blocks * block_steps;
  static constexpr int window = 16;  // steps that shares by speed look back at

  explicit RankSpeeds(ir::Mesh mesh);

  // The sums of all ranks over their last steps. Answers who has just been found slow; again only
  // after it has recovered.
  // A rank's speed is that of the median of its blocks' means: one block that something disturbed
  // changes nothing, and neither does one good step in a slow block.
  std::vector<Straggler> add(std::vector<RankStep> sums, std::int64_t steps = 1);
  // Shares of the dp ranks that would make a step of these micro-batches shorter by a twentieth or
  // more; none: leave them as they are.
  std::optional<std::vector<double>> better_shares(const std::vector<double>& now,
                                                   const std::vector<std::int64_t>& micro) const;
  void forget() { recent_.clear(); }  // after the shares changed

 private:
  // The sums of consecutive steps, per rank.
  struct Block {
    std::vector<RankStep> sums;
    std::int64_t steps = 0;
    double ms = 0;  // of the rank that took the longest
  };
  std::vector<Straggler> find_stragglers();
  RankStep usual(std::size_t rank) const;  // the median block, a step; samples 0: it had none

  std::int64_t recent_steps() const;

  ir::Mesh mesh_;
  struct Steps {
    std::vector<RankStep> sums;
    std::int64_t count = 0;
  };
  std::deque<Steps> recent_;  // no more than `window` steps need
  Block now_;
  std::deque<Block> blocks_;
  std::vector<bool> named_;  // per rank
};

}  // namespace tessera::run
