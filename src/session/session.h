// A model in an executor: weights and state live here, plans are made per shape and kept, so the
// ragged last batch is just another plan. Convention: batches are always global ones; a session of
// several ranks takes its own samples out of them, and whatever it returns is of the whole batch
// and the same on every rank. All ranks make the same calls.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/comm.h"
#include "compile/compile.h"
#include "compile/plans.h"
#include "config/config.h"
#include "exec/executor.h"
#include "models/model.h"
#include "session/images.h"
#include "session/scales.h"
#include "session/shard_boxes.h"

namespace tessera::run {

// The elements of a parameter in our layout.
using ParamSource = std::function<std::vector<double>(const models::Param&)>;

// The inputs of one update. Targets are [n, classes] where batches are mixed, weights [n] where
// samples are weighted.
struct StepInputs {
  Images images;
  std::span<const std::int32_t> labels;
  double lr = 0;
  std::int64_t step = 0,
               position = 0;  // applied updates counted from 1; of the first sample in the run
  std::span<const float> targets = {}, weights = {};
  double next_lr = 0;  // of update step + 1, which this one is where it is submitted behind another
                       // that is applied
};
struct StepResult {
  double loss = 0, correct = 0, grad_norm = 0;
  bool ok = true;  // false: something was not finite and nothing was changed
  // f16: the scale of the loss in this step, and whether the step was skipped because a gradient
  // overflowed and the next one is tried with a smaller scale (or the overflow was tolerated).
  double loss_scale = 0;  // 0: the loss is not scaled
  bool overflow = false;
  std::int64_t step = 0;  // the update that was tried: the first that had not been applied
  exec::Timeline timeline;
};
// A step that was submitted.
class PendingStep {
 public:
  explicit PendingStep(exec::Ticket ticket) : ticket_(std::move(ticket)) {}
  StepResult wait();  // once

 private:
  exec::Ticket ticket_;
};
struct EvalResult {
  double loss_sum = 0, correct = 0, correct5 = 0;
  std::vector<double> logits;  // [n, classes]
};

// The purpose of a session. One for inference never trains, so that its executor may keep the
// weights in a second form that it reads faster.
enum class Use { training, inference };

// Liberties that the executor of a configuration may take.
exec::Liberties liberties_of(const config::Config& config);

class Session {
 public:
  // `world`: the ranks of the configuration's layout; null for one rank. It must outlive the
  // session.
  explicit Session(config::Config config, transforms::RunOptions options = {},
                   comm::Comm* world = nullptr, Use use = Use::training);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Parameters and buffers; a moving average begins as the weights themselves. Where the
  // configuration quantises, the scales of weights follow from them, and those of what they are
  // multiplied with are given; a layer that has none takes numbers up to 8.
  void load(const ParamSource& source, const Quantised& scales = {});
  // Ranges that a training in eight bits has measured, by the names of its buffers: plans that are
  // made from now on take their scales from it. Rows behind those of a plan (other micro-batches)
  // are left out.
  using Histories = std::map<std::string, std::vector<double>>;
  void set_histories(Histories histories) { histories_ = std::move(histories); }
  std::vector<double> parameter(const std::string& name, Weights weights = Weights::live) const;
  std::map<std::string, std::vector<double>> parameters(
      Weights weights) const;  // all of them, by name

  // Pictures of the training set from this one on, where the configuration says that the device
  // holds them; a plan that reads them was reserved or loaded before. They are no part of a
  // checkpoint.
  bool holds_pictures() const { return reads_images_ && config_.data.held > 0; }  // this rank
  void hold(std::int64_t first, std::span<const std::uint8_t> pictures);

  // One update over a global batch; rng is keyed by (seed, step, position). The program counts
  // applied updates: set_step says how many there are, train_step(inputs) is set_step(inputs.step -
  // 1), submit and wait. A step may be submitted while the one before is under way: then it is
  // update inputs.step or the one after it, as that one was applied or not.
  PendingStep submit(const StepInputs& inputs, bool spans = true);
  void set_step(std::int64_t applied);
  StepResult train_step(const StepInputs& inputs);
  StepResult train_step(const Images& images, std::span<const std::int32_t> labels, double lr,
                        std::int64_t step, std::int64_t position) {
    return train_step(
        {.images = images, .labels = labels, .lr = lr, .step = step, .position = position});
  }
  // Called after each step of the plan of further train_step()s and predict()s; {} ends it.
  void observe(exec::Observer observer) { observer_ = std::move(observer); }
  EvalResult evaluate(const Images& images, std::span<const std::int32_t> labels,
                      Weights weights = Weights::live);
  // Running statistics for the averaged weights: the mean of the batches' own. Called with each
  // batch, then without one.
  void recalibrate(const Images& images);
  void finish_recalibration();
  bool averages() const { return config_.ema.decay > 0; }
  bool has_statistics() const;  // batch norm
  std::vector<double> predict(const Images& images, std::int64_t count,
                              exec::Timeline* timeline = nullptr, bool spans = true);

  // Other shares of a batch per dp rank: whether these plans would fit into this rank's memory;
  // from now on. Whoever changes them reserves the plans of the run next, on all ranks.
  bool fits_with(const std::vector<double>& shares, const std::vector<PlanKey>& plans) const;
  void share_by(const std::vector<double>& shares);

  // A plan in the executor, with the room that it needs; planned(): not yet in the executor, so it
  // cannot run. Which form of images a plan reads follows from what it is fed with; where that is
  // not said, from the configuration.
  const Compiled& compiled(const PlanKey& key) { return ready(key).compiled; }
  const Compiled& compiled(Goal goal, std::int64_t samples, Weights weights = Weights::live) {
    return ready({goal, samples, weights}).compiled;
  }
  const Compiled& planned(const PlanKey& key) { return known(key).compiled; }
  // Fills the executor's table of choices with what these plans would choose when they run.
  void choose(const std::vector<PlanKey>& plans) {
    for (const PlanKey& key : plans) ready(key).loaded->choose();
  }
  exec::Executor& executor() { return *executor_; }
  const config::Config& config() const { return config_; }
  const StepSpec& spec() const { return spec_; }
  const std::vector<transforms::Bucket>& buckets() const { return spec_.buckets; }
  int rank() const { return rank_; }
  const ir::Mesh& mesh() const { return mesh_; }
  comm::Comm* world() const { return world_; }
  // Whether this rank reads sample `i` of a global batch of so many.
  bool wants(Goal goal, std::int64_t i, std::int64_t samples) const;
  std::function<bool(std::int64_t i, std::int64_t samples)> own_samples_of(
      Goal goal) const;                                  // the same for a loader; none: all of them
  std::int64_t own_samples(std::int64_t samples) const;  // how many of a training batch
  comm::Traffic traffic() const;                         // of all groups, since the session began
  // The bytes of the rank that reads this rank's images, on all stages; each calls it.
  void from_first_stage(comm::Bytes bytes) const;

  // The boxes of a tensor that this rank holds, the buffer they lie in, and whether it is the one
  // that keeps them.
  struct Home {
    std::string buffer;
    std::vector<ShardBox> boxes;
    bool keeps = true;
  };
  Home home_of(const models::Param& param, Weights weights) const;

 private:
  struct Ready {  // a plan, and the same in the executor
    Compiled compiled;
    std::unique_ptr<exec::Loaded> loaded;
    const plan::Plan& plan() const { return compiled.plan; }
  };
  Ready& ready(const PlanKey& key);
  Ready& known(const PlanKey& key);             // compiled; perhaps not loaded
  ir::Range share(std::int64_t samples) const;  // of a micro-batch
  // Feeds a run of a plan, one micro-batch after the other; a rank writes what its stage reads.
  void feed(Ready& ready, const std::vector<std::int64_t>& micro, const StepInputs& inputs);
  void feed_images(Ready& ready, const Images& images, std::size_t first, std::size_t n,
                   const std::string& tag);
  void write_real(Ready& ready, const std::string& input, std::span<const float> values);
  void write_scalar(Ready& ready, const std::string& input, double value);
  std::vector<double> read_real(Ready& ready, const std::string& output);
  std::vector<double> read_logits(Ready& ready, std::size_t micro);
  std::size_t pixels() const;
  std::vector<double> read_param(const models::Param& param, Weights weights) const;
  void write_param(const models::Param& param, Weights weights, const std::vector<double>& values);
  void write_scales(const models::Param& param, const std::vector<double>& values,
                    const Quantised& scales);

  StepSpec spec_;
  const config::Config& config_ = spec_.config;
  transforms::RunOptions options_;
  comm::Comm* world_;
  int rank_ = 0;
  const ir::Mesh& mesh_ = spec_.mesh;
  bool reads_images_ = true;                                   // its stage is the first
  int reader_ = 0;                                             // the pp rank whose stage is
  std::map<std::string, std::unique_ptr<comm::Comm>> groups_;  // by axis
  std::unique_ptr<exec::Executor> executor_;
  plan::Target target_;
  exec::Observer observer_;
  Histories histories_;
  std::map<PlanKey, std::unique_ptr<Ready>> plans_;
  std::map<std::string, std::vector<double>>
      statistics_;  // sums over the batches of a recalibration
  std::int64_t recalibrated_ = 0;
};

}  // namespace tessera::run
