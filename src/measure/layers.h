// Where the time of a forward pass goes, by the parts of a layer: which row each step of a plan
// counts towards, and the rows measured. Convention: a kernel is never shared out among rows; one
// that does the work of several has a row that names them ("residual_1+ln_2"). Parts that repeat in
// every layer are one row, and `count` says in how many layers.
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "config/config.h"
#include "measure/thread_watch.h"
#include "plan/plan.h"
#include "report/metrics.h"
#include "session/session.h"

namespace tessera::run {

// The row of an equation, and the layer that it stands in ("blocks.3"; "": outside of all layers).
// `other` where no rule fits.
struct LayerPart {
  std::string row, place;
};
LayerPart layer_part(const ir::Program& program, const ir::Eqn& eqn);

inline constexpr const char *other_part = "other", *rest_part = "rest";

struct LayerRow {
  std::string name;
  std::int64_t count = 1;         // layers that have it
  double flops = 0;               // of all of them
  report::Quantiles all = {};     // seconds of all of them, over the runs
  std::vector<double> busy = {};  // the share of that in which each thread computed; of cores
  double seconds() const {
    return all.median / static_cast<double>(count);
  }  // of one layer, as the mean of them
  double mean_busy() const {
    return std::accumulate(busy.begin(), busy.end(), 0.0) / static_cast<double>(busy.size());
  }
  bool attention() const { return name.starts_with("msa."); }
};

// The rows of a plan in the order of its steps, without times, and the row of each step. What the
// plan added to the equations, copies of results to where they are read, is the rest.
struct LayerRows {
  static constexpr std::size_t rest = static_cast<std::size_t>(-1);
  std::vector<LayerRow> rows;
  std::vector<std::size_t> of_step;
};
LayerRows layer_rows(const plan::Plan& plan);

struct LayerTimes {
  std::vector<LayerRow> rows;  // the last one is the rest: from the images handed over to the
                               // logits, what is in no step
  std::int64_t layers = 0, runs = 0;
  double flops = 0, total_s = 0;  // the sum of the rows
  report::Quantiles whole_s;      // the same pass in runs of its own, timed from outside only
  // The share of these runs in which each thread computed; the one that hands work out is the first
  // (thread_watch.h).
  std::vector<double> busy = {};
  double share(const LayerRow& row) const { return row.all.median / total_s; }
};

// A forward pass of `batch` images on one rank; repeats 0: two seconds' worth, at least five.
LayerTimes measure_layers(const config::Config& config, std::int64_t batch, std::int64_t repeats);

// A model whose forward passes on one rank are measured, for as many turns as one likes.
class LayerMeter {
 public:
  // The images of a batch, of random pixels.
  LayerMeter(const config::Config& config, std::int64_t batch, std::vector<std::uint8_t> images);
  // A pass that is timed from outside alone, then one whose steps are timed.
  void turn();
  std::int64_t turns() const { return static_cast<std::int64_t>(whole_.size()); }
  LayerTimes times() const;

 private:
  ThreadWatch watch_;  // before the session starts its threads
  Session session_;
  std::vector<std::uint8_t> images_;
  std::int64_t batch_;
  const plan::Plan& plan_;
  LayerRows parts_;
  std::vector<std::vector<double>> seconds_;  // of a row, by turn
  std::vector<std::vector<double>> cpu_;      // CPU seconds of a row, by thread
  std::vector<double> whole_;

  void time_steps();
};
// Turns of all of them, one after the other, so that they meet the same neighbours on the machine;
// repeats 0: two seconds' worth of each, at least five.
std::vector<LayerTimes> measure_in_turns(std::vector<std::unique_ptr<LayerMeter>> meters,
                                         std::int64_t repeats);

}  // namespace tessera::run
