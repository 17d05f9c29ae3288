// A model in an executor: weights and state live here, plans are made per shape and kept, so the ragged last batch is just another plan.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "config/config.h"
#include "exec/executor.h"
#include "models/model.h"
#include "run/compile.h"

namespace tessera::run {

// The elements of a parameter in our layout.
using ParamSource = std::function<std::vector<double>(const models::Param&)>;

struct StepResult {
  double loss = 0, correct = 0, grad_norm = 0;
  bool ok = true;  // false: something was not finite and nothing was changed
  exec::Timeline timeline;
};
struct EvalResult {
  double loss_sum = 0, correct = 0, correct5 = 0;
  std::vector<double> logits;  // [n, classes]
};

class Session {
 public:
  explicit Session(config::Config config, transforms::RunOptions options = {});

  void load(const ParamSource& source);
  std::vector<double> parameter(const std::string& name) const;

  // One update over a global batch; images are NHWC f32. `step` counts applied updates from 1; rng is keyed by (seed, step, position).
  StepResult train_step(std::span<const float> images, std::span<const std::int32_t> labels, double lr, std::int64_t step,
                        std::int64_t position);
  // Called after each step of the plan of further train_step()s; {} ends it.
  void observe(exec::Observer observer) { observer_ = std::move(observer); }
  EvalResult evaluate(std::span<const float> images, std::span<const std::int32_t> labels);
  std::vector<double> predict(std::span<const float> images, std::int64_t count, exec::Timeline* timeline = nullptr);

  const Compiled& compiled(Goal goal, std::int64_t samples);
  exec::Executor& executor() { return *executor_; }
  const config::Config& config() const { return config_; }
  const std::vector<transforms::Bucket>& buckets() const { return buckets_; }

  // Samples of each micro-batch of a global batch: contiguous, sizes differ by at most one.
  static std::vector<std::int64_t> micro_batches(std::int64_t samples, std::int64_t accumulate);

 private:
  void write_real(const plan::Plan& plan, const std::string& input, std::span<const float> values);
  void write_scalar(const plan::Plan& plan, const std::string& input, double value);
  double read_scalar(const plan::Plan& plan, const std::string& output);
  std::vector<double> read_real(const plan::Plan& plan, const std::string& output);
  std::size_t pixels() const;

  config::Config config_;
  transforms::RunOptions options_;
  std::unique_ptr<exec::Executor> executor_;
  exec::Observer observer_;
  std::vector<transforms::Bucket> buckets_;
  std::map<std::pair<Goal, std::int64_t>, std::unique_ptr<Compiled>> plans_;
};

}  // namespace tessera::run
