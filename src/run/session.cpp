#include "run/session.h"

#include <algorithm>

#include "base/check.h"
#include "run/bytes.h"

namespace tessera::run {

using ir::DType;

Session::Session(config::Config config, transforms::RunOptions options)
    : config_(std::move(config)),
      options_(std::move(options)),
      executor_(exec::make_cpu_executor(static_cast<int>(config_.run.threads))),
      buckets_(model_buckets(config_)) {}

std::size_t Session::pixels() const {
  return static_cast<std::size_t>(config_.model.image_h * config_.model.image_w * config_.model.channels);
}

std::vector<std::int64_t> Session::micro_batches(std::int64_t samples, std::int64_t accumulate) {
  std::vector<std::int64_t> out;
  for (int i = 0; i < accumulate; ++i)
    if (const std::int64_t n = ir::split(samples, static_cast<int>(accumulate), i).size; n > 0) out.push_back(n);
  return out;
}

const Compiled& Session::compiled(Goal goal, std::int64_t samples, Weights weights) {
  std::unique_ptr<Compiled>& slot = plans_[{goal, samples, weights}];
  if (!slot) {
    const auto micro = goal == Goal::train ? micro_batches(samples, config_.batch.accumulate) : std::vector<std::int64_t>{samples};
    slot = std::make_unique<Compiled>(compile(config_, goal, micro, executor_->workspace_rule(), options_, weights));
    options_.dump_dir.clear();  // the first plan is the one that was asked for
    executor_->prepare(slot->plan);
  }
  return *slot;
}

Session::Home Session::home_of(const models::Param& param, Weights weights) const {
  for (const transforms::Bucket& bucket : buckets_)
    for (const transforms::Bucket::Entry& entry : bucket.entries)
      if (entry.param == param.name)
        return {(weights == Weights::live ? "weights." : "ema.") + bucket.name, entry.offset * ir::size_of(storage_dtype(config_))};
  return {state_name(param, weights), 0};
}

void Session::load(const ParamSource& source) {
  std::vector<Weights> sets = {Weights::live};
  if (averages()) sets.push_back(Weights::average);
  for (const Weights set : sets) compiled(Goal::predict, 1, set);  // makes the buffers
  for (const models::Param& param : models::parameters(config_.model)) {
    const std::vector<double> values = source(param);
    CHECK(static_cast<std::int64_t>(values.size()) == ir::elements(param.shape), param.name + " was given a wrong number of elements");
    for (const Weights set : sets) {
      const Home home = home_of(param, set);
      executor_->write_persistent(home.buffer, home.offset, encode(values, storage_dtype(config_)));
    }
  }
}

std::vector<double> Session::read_param(const models::Param& param, Weights weights) const {
  const Home home = home_of(param, weights);
  const DType dtype = storage_dtype(config_);
  std::vector<std::byte> bytes(static_cast<std::size_t>(ir::elements(param.shape) * ir::size_of(dtype)));
  executor_->read_persistent(home.buffer, home.offset, bytes);
  return decode(bytes, dtype);
}

std::vector<double> Session::parameter(const std::string& name, Weights weights) const {
  for (const models::Param& p : models::parameters(config_.model))
    if (p.name == name) return read_param(p, weights);
  throw Error(ErrorKind::internal, "there is no parameter " + name);
}

bool Session::has_statistics() const {
  const auto params = models::parameters(config_.model);
  return std::any_of(params.begin(), params.end(), [](const models::Param& p) { return p.buffer; });
}

void Session::write_real(const plan::Plan& plan, const std::string& input, std::span<const float> values) {
  if (storage_dtype(config_) == DType::f32)
    executor_->write(plan, input, std::as_bytes(values));
  else
    executor_->write(plan, input, encode(std::vector<double>(values.begin(), values.end()), DType::f64));
}
void Session::write_scalar(const plan::Plan& plan, const std::string& input, double value) {
  if (plan.input(input)) executor_->write(plan, input, encode(std::span(&value, 1), storage_dtype(config_)));
}
std::vector<double> Session::read_real(const plan::Plan& plan, const std::string& output) {
  const plan::Binding* binding = plan.output(output);
  CHECK(binding, "the plan has no output " + output);
  std::vector<std::byte> bytes(static_cast<std::size_t>(binding->slot.type.bytes()));
  executor_->read(plan, output, bytes);
  return decode(bytes, binding->slot.type.dtype);
}
double Session::read_scalar(const plan::Plan& plan, const std::string& output) { return read_real(plan, output).at(0); }

StepResult Session::train_step(const StepInputs& in) {
  const auto samples = static_cast<std::int64_t>(in.labels.size());
  const plan::Plan& plan = compiled(Goal::train, samples).plan;
  const auto micro = micro_batches(samples, config_.batch.accumulate);
  const auto classes = static_cast<std::size_t>(config_.model.classes);
  std::size_t at = 0;
  for (std::size_t i = 0; i < micro.size(); ++i) {
    const std::string tag = micro.size() > 1 ? "." + std::to_string(i) : "";
    const auto n = static_cast<std::size_t>(micro[i]);
    write_real(plan, "images" + tag, in.images.subspan(at * pixels(), n * pixels()));
    executor_->write(plan, "labels" + tag, std::as_bytes(in.labels.subspan(at, n)));
    if (plan.input("targets" + tag)) write_real(plan, "targets" + tag, in.targets.subspan(at * classes, n * classes));
    if (plan.input("weights" + tag)) write_real(plan, "weights" + tag, in.weights.subspan(at, n));
    at += n;
  }
  write_scalar(plan, "inv_count", 1.0 / static_cast<double>(samples));
  write_scalar(plan, "lr", in.lr);
  if (plan.input("step")) executor_->write(plan, "step", std::as_bytes(std::span<const std::int64_t>(&in.step, 1)));
  const std::int64_t rng[3] = {config_.run.seed, in.step, in.position};
  if (plan.input("rng")) executor_->write(plan, "rng", std::as_bytes(std::span<const std::int64_t>(rng)));
  StepResult result;
  result.timeline = executor_->run(plan, observer_);
  result.loss = read_scalar(plan, "loss");
  result.correct = read_scalar(plan, "correct");
  result.grad_norm = read_scalar(plan, "grad_norm");
  result.ok = read_scalar(plan, "ok") != 0;
  return result;
}

EvalResult Session::evaluate(std::span<const float> images, std::span<const std::int32_t> labels, Weights weights) {
  const plan::Plan& plan = compiled(Goal::evaluate, static_cast<std::int64_t>(labels.size()), weights).plan;
  write_real(plan, "images", images);
  executor_->write(plan, "labels", std::as_bytes(labels));
  write_scalar(plan, "inv_count", 1.0);
  executor_->run(plan);
  return {read_scalar(plan, "loss"), read_scalar(plan, "correct"), read_scalar(plan, "correct5"), read_real(plan, "logits")};
}

void Session::recalibrate(std::span<const float> images) {
  const auto samples = static_cast<std::int64_t>(images.size() / pixels());
  const plan::Plan& plan = compiled(Goal::recalibrate, samples, Weights::average).plan;
  write_real(plan, "images", images);
  const std::vector<models::Param> params = models::parameters(config_.model);
  // From zero, or the rounding of what was there before would show in the last bit, and a resumed run would differ.
  for (const models::Param& p : params)
    if (p.buffer)
      executor_->write_persistent(
          home_of(p, Weights::average).buffer, 0,
          std::vector<std::byte>(static_cast<std::size_t>(ir::elements(p.shape) * ir::size_of(storage_dtype(config_)))));
  executor_->run(plan);
  for (const models::Param& p : params) {
    if (!p.buffer) continue;
    std::vector<double>& sum = statistics_[p.name];
    const std::vector<double> now = read_param(p, Weights::average);
    sum.resize(now.size());
    for (std::size_t i = 0; i < now.size(); ++i) sum[i] += now[i];
  }
  ++recalibrated_;
}

void Session::finish_recalibration() {
  for (const models::Param& p : models::parameters(config_.model)) {
    if (!p.buffer || recalibrated_ == 0) continue;
    std::vector<double>& mean = statistics_[p.name];
    for (double& value : mean) value /= static_cast<double>(recalibrated_);
    executor_->write_persistent(home_of(p, Weights::average).buffer, 0, encode(mean, storage_dtype(config_)));
  }
  statistics_.clear();
  recalibrated_ = 0;
}

std::vector<double> Session::predict(std::span<const float> images, std::int64_t count, exec::Timeline* timeline) {
  const plan::Plan& plan = compiled(Goal::predict, count).plan;
  write_real(plan, "images", images);
  const exec::Timeline ran = executor_->run(plan);
  if (timeline) *timeline = ran;
  return read_real(plan, "logits");
}

}  // namespace tessera::run
