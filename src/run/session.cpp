#include "run/session.h"

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

const Compiled& Session::compiled(Goal goal, std::int64_t samples) {
  std::unique_ptr<Compiled>& slot = plans_[{goal, samples}];
  if (!slot) {
    const auto micro = goal == Goal::train ? micro_batches(samples, config_.batch.accumulate) : std::vector<std::int64_t>{samples};
    slot = std::make_unique<Compiled>(compile(config_, goal, micro, executor_->workspace_rule(), options_));
    options_.dump_dir.clear();  // the first plan is the one that was asked for
    executor_->prepare(slot->plan);
  }
  return *slot;
}

void Session::load(const ParamSource& source) {
  const DType dtype = storage_dtype(config_);
  std::map<std::string, models::Param> params;
  for (models::Param& p : models::parameters(config_.model)) params.emplace(p.name, std::move(p));
  compiled(Goal::predict, 1);  // makes the buffers
  for (const transforms::Bucket& bucket : buckets_)
    for (const transforms::Bucket::Entry& entry : bucket.entries) {
      const std::vector<double> values = source(params.at(entry.param));
      CHECK(static_cast<std::int64_t>(values.size()) == ir::elements(entry.shape), entry.param + " was given a wrong number of elements");
      executor_->write_persistent("weights." + bucket.name, entry.offset * ir::size_of(dtype), encode(values, dtype));
    }
}

std::vector<double> Session::parameter(const std::string& name) const {
  const DType dtype = storage_dtype(config_);
  for (const transforms::Bucket& bucket : buckets_)
    for (const transforms::Bucket::Entry& entry : bucket.entries)
      if (entry.param == name) {
        std::vector<std::byte> bytes(static_cast<std::size_t>(ir::elements(entry.shape) * ir::size_of(dtype)));
        executor_->read_persistent("weights." + bucket.name, entry.offset * ir::size_of(dtype), bytes);
        return decode(bytes, dtype);
      }
  throw Error(ErrorKind::internal, "there is no parameter " + name);
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

StepResult Session::train_step(std::span<const float> images, std::span<const std::int32_t> labels, double lr, std::int64_t step,
                               std::int64_t position) {
  const auto samples = static_cast<std::int64_t>(labels.size());
  const plan::Plan& plan = compiled(Goal::train, samples).plan;
  const auto micro = micro_batches(samples, config_.batch.accumulate);
  std::size_t at = 0;
  for (std::size_t i = 0; i < micro.size(); ++i) {
    const std::string tag = micro.size() > 1 ? "." + std::to_string(i) : "";
    const auto n = static_cast<std::size_t>(micro[i]);
    write_real(plan, "images" + tag, images.subspan(at * pixels(), n * pixels()));
    executor_->write(plan, "labels" + tag, std::as_bytes(labels.subspan(at, n)));
    at += n;
  }
  write_scalar(plan, "inv_count", 1.0 / static_cast<double>(samples));
  write_scalar(plan, "lr", lr);
  if (plan.input("step")) executor_->write(plan, "step", std::as_bytes(std::span<const std::int64_t>(&step, 1)));
  const std::int64_t rng[3] = {config_.run.seed, step, position};
  if (plan.input("rng")) executor_->write(plan, "rng", std::as_bytes(std::span<const std::int64_t>(rng)));
  StepResult result;
  result.timeline = executor_->run(plan, observer_);
  result.loss = read_scalar(plan, "loss");
  result.correct = read_scalar(plan, "correct");
  result.grad_norm = read_scalar(plan, "grad_norm");
  result.ok = read_scalar(plan, "ok") != 0;
  return result;
}

EvalResult Session::evaluate(std::span<const float> images, std::span<const std::int32_t> labels) {
  const plan::Plan& plan = compiled(Goal::evaluate, static_cast<std::int64_t>(labels.size())).plan;
  write_real(plan, "images", images);
  executor_->write(plan, "labels", std::as_bytes(labels));
  write_scalar(plan, "inv_count", 1.0);
  executor_->run(plan);
  return {read_scalar(plan, "loss"), read_scalar(plan, "correct"), read_scalar(plan, "correct5"), read_real(plan, "logits")};
}

std::vector<double> Session::predict(std::span<const float> images, std::int64_t count, exec::Timeline* timeline) {
  const plan::Plan& plan = compiled(Goal::predict, count).plan;
  write_real(plan, "images", images);
  const exec::Timeline ran = executor_->run(plan);
  if (timeline) *timeline = ran;
  return read_real(plan, "logits");
}

}  // namespace tessera::run
