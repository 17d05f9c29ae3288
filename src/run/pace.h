// How fast each rank is, from what they tell each other after every step in one small message, which also carries the request to stop.
// Convention: all ranks see the same numbers, so all come to the same conclusions without asking again. Stages of a pipeline have different
// work: a rank is compared with those of its own stage.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "ir/type.h"

namespace tessera::run {

struct Pace {
  double stop = 0, samples = 0;            // asked to stop; of this rank's part of the batch
  double compute = 0, data = 0, host = 0;  // ms
  double busy() const { return compute + data + host; }
};

// A rank that was slow for many steps in a row, and what it is slow at.
struct Straggler {
  int rank = 0;
  double speed = 0;  // of the median of its stage
  std::string what;  // compute | data | host
  double ms = 0, median_ms = 0;
};

// Samples of a batch per dp rank: every micro-batch is shared out by itself.
ir::Shape shares_of(const std::vector<std::int64_t>& micro, const std::vector<double>& weights);

class Paces {
 public:
  static constexpr double slow = 0.7;  // of the median speed of a stage
  static constexpr int patience = 30;  // steps in a row
  static constexpr int window = 16;    // steps that a measurement looks back

  explicit Paces(ir::Mesh mesh) : mesh_(std::move(mesh)), slow_for_(static_cast<std::size_t>(mesh_.ranks())) {}

  // One step of all ranks. Answers who has just been slow for `patience` steps; again only after it has recovered.
  std::vector<Straggler> add(std::vector<Pace> step);
  // Weights of the dp ranks that would make a step of these micro-batches shorter by a twentieth or more; none: leave them as they are.
  std::optional<std::vector<double>> better_weights(const std::vector<double>& now, const std::vector<std::int64_t>& micro) const;
  void forget() { steps_.clear(); }  // after the shares changed

 private:
  ir::Mesh mesh_;
  std::deque<std::vector<Pace>> steps_;
  std::vector<int> slow_for_;  // steps, per rank
};

}  // namespace tessera::run
