#include "session/session.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/check.h"
#include "comm/heartbeat.h"
#include "compile/pipeline.h"
#include "config/devices.h"
#include "models/weights.h"
#include "ranks/carrier.h"
#include "session/bytes.h"

namespace tessera::run {

using ir::DType;

namespace {

// Where nobody said it: the run folder, or where a verb makes none the nearest one above it.
std::string offload_folder(const config::Config& config) {
  if (const std::string& given = config.parallel.offload_folder; !given.empty()) return given;
  std::error_code error;
  std::filesystem::path at = std::filesystem::absolute(config.run.out, error);
  while (!std::filesystem::is_directory(at, error) && at.has_relative_path()) at = at.parent_path();
  return at.string();
}

}  // namespace

exec::Liberties liberties_of(const config::Config& config) {
  return {.tf32 = config.precision.tf32,
          .any_order = !config.run.deterministic,
          .winograd = config.precision.winograd,
          .threading = exec::threading_named(config.run.threading)};
}

Session::Session(config::Config config, transforms::RunOptions options, comm::Comm* world, Use use)
    : spec_(resolve(config)),
      options_(std::move(options)),
      world_(world),
      rank_(world ? world->rank() : 0) {
  CHECK(mesh_.ranks() == (world ? world->size() : 1), "a session has as many ranks as its layout");
  exec::Groups groups;
  for (int axis = 0; axis < static_cast<int>(mesh_.axes.size()); ++axis) {
    const std::string& name = mesh_.axes[static_cast<std::size_t>(axis)].name;
    const int first = mesh_.group(rank_, axis)[0];
    groups_[name] = world->split(first, mesh_.coordinates(rank_)[static_cast<std::size_t>(axis)]);
    groups_[name]->watch(comm::Heartbeat::here(), name, first);
    groups[name] = groups_[name].get();
    if (name == "pp") {
      reader_ = first_stage_rank(spec_);
      reads_images_ = groups_[name]->rank() == reader_;
    }
  }
  executor_ = exec::make_executor(
      config::device_of(config_, rank_), static_cast<int>(config_.run.threads), std::move(groups),
      agree_on_carrier(config_, world).by, offload_folder(config_), liberties_of(config_));
  target_ = executor_->target();
  target_.packs = use == Use::inference;
  spec_.infers = use == Use::inference;
}

comm::Traffic Session::traffic() const {
  comm::Traffic sum;
  for (const auto& [axis, group] : groups_) sum += group->traffic();
  return sum;
}

void Session::from_first_stage(comm::Bytes bytes) const {
  if (const auto stages = groups_.find("pp"); stages != groups_.end() && !bytes.empty())
    stages->second->broadcast(bytes, reader_);
}

ir::Range Session::share(std::int64_t samples) const {
  const int axis = mesh_.find("dp");
  if (axis < 0) return {0, samples};
  ir::Axis dp = mesh_.axes[static_cast<std::size_t>(axis)];
  if (const auto& shares = config_.parallel.shares.list; !shares.empty())
    dp.cuts = {ir::split_by(samples, shares)};
  return dp.part(samples, mesh_.coordinates(rank_)[static_cast<std::size_t>(axis)]);
}

bool Session::wants(Goal goal, std::int64_t i, std::int64_t samples) const {
  if (!reads_images_) return false;
  for (const std::int64_t n : micro_batches_for(config_, goal, samples)) {
    if (const ir::Range mine = share(n); i < n)
      return i >= mine.begin && i < mine.begin + mine.size;
    i -= n;
  }
  return false;
}

std::function<bool(std::int64_t, std::int64_t)> Session::own_samples_of(Goal goal) const {
  if (!world_) return {};
  return [this, goal](std::int64_t i, std::int64_t samples) { return wants(goal, i, samples); };
}

std::int64_t Session::own_samples(std::int64_t samples) const {
  std::int64_t sum = 0;
  for (const std::int64_t n : micro_batches(samples, config_.batch.accumulate))
    sum += share(n).size;
  return sum;
}

bool Session::fits_with(const std::vector<double>& shares,
                        const std::vector<PlanKey>& plans) const {
  StepSpec other = spec_;
  other.share_by(shares);
  return std::all_of(plans.begin(), plans.end(), [&](const PlanKey& key) {
    const auto micro = micro_batches_for(other.config, key.goal, key.samples);
    return executor_->fits(
        compile(other, key.goal, micro, target_, {}, key.weights, rank_, key.form).plan);
  });
}

void Session::share_by(const std::vector<double>& shares) {
  spec_.share_by(shares);
  plans_.clear();  // the buffers stay with the executor
}

std::size_t Session::pixels() const {
  return static_cast<std::size_t>(config_.model.image_h * config_.model.image_w *
                                  config_.model.channels);
}

Session::Ready& Session::known(const PlanKey& asked) {
  PlanKey key = asked;
  if (!key.form) key.form = image_form(config_, key.goal);
  std::unique_ptr<Ready>& slot = plans_[key];
  if (!slot) {
    slot = std::make_unique<Ready>(
        Ready{compile(spec_, key.goal, micro_batches_for(config_, key.goal, key.samples), target_,
                      options_, key.weights, rank_, key.form),
              nullptr});
    options_.dump_dir.clear();  // the first plan is the one that was asked for
  }
  return *slot;
}

Session::Ready& Session::ready(const PlanKey& key) {
  Ready& slot = known(key);
  if (slot.loaded) return slot;
  slot.loaded = executor_->load(slot.plan());
  for (const ir::Input& in : slot.compiled.program.inputs) {
    const auto found = histories_.find(in.name);
    if (found == histories_.end()) continue;
    std::vector<double> rows = found->second;
    rows.resize(static_cast<std::size_t>(slot.compiled.program.type(in.var).elements()));
    executor_->write_persistent(in.name, 0, encode(rows, DType::f32));
  }
  return slot;
}
Session::Home Session::home_of(const models::Param& param, Weights weights) const {
  const auto find = [&](ir::Role role, const std::string& of) {  // as any plan that holds it says
    for (const auto& [key, ready] : plans_)
      if (const ir::Input* in = ready->compiled.program.input(role, of))
        return std::pair(in->name, ready->compiled.program.type(in->var));
    throw Error(ErrorKind::internal, "no plan holds the " + std::string(name(role)) + " of " + of);
  };
  for (const transforms::Bucket& bucket : spec_.buckets)
    for (const transforms::Bucket::Entry& entry : bucket.entries)
      if (entry.param == param.name) {
        const auto [buffer, type] = find(role_of(weights), bucket.name);
        return {buffer, boxes_in_bucket(bucket, entry, type, mesh_, rank_),
                keeps(type, mesh_, rank_)};
      }
  const auto [buffer, type] = find(state_role(param, weights), param.name);
  return {buffer, boxes_of_whole(type, mesh_, rank_), keeps(type, mesh_, rank_)};
}

void Session::write_param(const models::Param& param, Weights weights,
                          const std::vector<double>& values) {
  const Home home = home_of(param, weights);
  const DType dtype = storage_dtype(config_);
  for (const ShardBox& box : home.boxes)
    executor_->write_persistent(home.buffer, box.offset * ir::size_of(dtype),
                                encode(cut_out(values, param.shape, box), dtype));
}

void Session::write_scales(const models::Param& param, const std::vector<double>& values,
                           const Quantised& scales) {
  const std::string& as = config_.precision.quantise;
  const auto write = [&](const std::string& name, const std::vector<double>& numbers) {
    executor_->write_persistent(name, 0, encode(numbers, DType::f32));
  };
  const auto given = scales.inputs.find(param.name);
  write(transforms::weight_scale_name(param.name),
        weight_scales(as, param, models::to_torch(param, values)));
  write(transforms::input_scale_name(param.name),
        {given == scales.inputs.end() ? 8.0 / largest_of(as) : given->second});
}

void Session::load(const ParamSource& source, const Quantised& scales) {
  std::vector<Weights> sets = {Weights::live};
  if (averages()) sets.push_back(Weights::average);
  for (const Weights set : sets) ready({Goal::predict, 1, set});  // makes the buffers
  for (const models::Param& param : models::parameters(config_.model)) {
    const std::vector<double> values = source(param);
    CHECK(static_cast<std::int64_t>(values.size()) == ir::elements(param.shape),
          param.name + " was given a wrong number of elements");
    for (const Weights set : sets) write_param(param, set, values);
    if (const std::string& as = config_.precision.quantise;
        as != "none" && models::is_quantisable(config_.model, param, as))
      write_scales(param, values, scales);
  }
}

// Every element from the rank that keeps it; the sum over ranks adds zeros.
std::vector<double> Session::read_param(const models::Param& param, Weights weights) const {
  const Home home = home_of(param, weights);
  const DType dtype = storage_dtype(config_);
  std::vector<double> out(static_cast<std::size_t>(ir::elements(param.shape)));
  for (const ShardBox& box : home.keeps ? home.boxes : std::vector<ShardBox>{}) {
    std::vector<std::byte> bytes(
        static_cast<std::size_t>(ir::elements(box.extent) * ir::size_of(dtype)));
    executor_->read_persistent(home.buffer, box.offset * ir::size_of(dtype), bytes);
    put_back(out, param.shape, box, decode(bytes, dtype));
  }
  if (world_) world_->all_reduce(std::as_writable_bytes(std::span(out)), DType::f64);
  return out;
}

std::vector<double> Session::parameter(const std::string& name, Weights weights) const {
  for (const models::Param& p : models::parameters(config_.model))
    if (p.name == name) return read_param(p, weights);
  throw Error(ErrorKind::internal, "there is no parameter " + name);
}

std::map<std::string, std::vector<double>> Session::parameters(Weights weights) const {
  std::map<std::string, std::vector<double>> out;
  for (const models::Param& p : models::parameters(config_.model))
    out[p.name] = read_param(p, weights);
  return out;
}

bool Session::has_statistics() const {
  const auto params = models::parameters(config_.model);
  return std::any_of(params.begin(), params.end(), [](const models::Param& p) { return p.buffer; });
}

void Session::write_scalar(Ready& ready, const std::string& input, double value) {
  if (ready.plan().input(input))
    ready.loaded->write(input, encode(std::span(&value, 1), storage_dtype(config_)));
}
std::vector<double> Session::read_real(Ready& ready, const std::string& output) {
  const plan::Binding* binding = ready.plan().output(output);
  CHECK(binding, "the plan has no output " + output);
  std::vector<std::byte> bytes(static_cast<std::size_t>(binding->slot.type.bytes()));
  ready.loaded->read(output, bytes);
  return decode(bytes, binding->slot.type.dtype);
}

// The logits of all micro-batches, one after the other.
std::vector<double> Session::read_logits(Ready& ready, std::size_t micro) {
  if (micro == 1) return read_real(ready, "logits");
  std::vector<double> all;
  for (std::size_t i = 0; i < micro; ++i) {
    const std::vector<double> part = read_real(ready, "logits." + std::to_string(i));
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

StepResult PendingStep::wait() {
  exec::Results found = ticket_.wait();
  const bool ok = found.scalar("ok") != 0;
  return {.loss = found.scalar("loss"),
          .correct = found.scalar("correct"),
          .grad_norm = found.scalar("grad_norm"),
          .ok = ok,
          .loss_scale = found.scalars.contains("scale") ? found.scalar("scale") : 0,
          .overflow = found.scalars.contains("overflow") && found.scalar("overflow") != 0,
          .step = static_cast<std::int64_t>(found.scalar("step")) + (ok ? 0 : 1),
          .timeline = std::move(found.timeline)};
}

void Session::set_step(std::int64_t applied) {
  executor_->write_persistent("step", 0, std::as_bytes(std::span<const std::int64_t>(&applied, 1)));
}

StepResult Session::train_step(const StepInputs& in) {
  ready({.goal = Goal::train,
         .samples = static_cast<std::int64_t>(in.labels.size()),
         .weights = Weights::live,
         .form = in.images.form()});
  set_step(in.step - 1);
  return submit(in).wait();
}

PendingStep Session::submit(const StepInputs& in, bool spans) {
  const auto samples = static_cast<std::int64_t>(in.labels.size());
  Ready& plan = ready({.goal = Goal::train,
                       .samples = samples,
                       .weights = Weights::live,
                       .form = in.images.form()});
  feed(plan, micro_batches_for(config_, Goal::train, samples), in);
  write_scalar(plan, "inv_count", 1.0 / static_cast<double>(samples));
  const std::array<double, transforms::rates_ahead> rates = {in.lr, in.next_lr};
  plan.loaded->write("rates", encode(rates, storage_dtype(config_)));
  const auto whole = [&](const char* input, std::int64_t value) {
    if (plan.plan().input(input))
      plan.loaded->write(input, std::as_bytes(std::span<const std::int64_t>(&value, 1)));
  };
  whole("first_rate", in.step);
  whole("seed", config_.run.seed);
  whole("position", in.position);
  return PendingStep(plan.loaded->submit({.observe = observer_, .spans = spans}));
}

EvalResult Session::evaluate(const Images& images, std::span<const std::int32_t> labels,
                             Weights weights) {
  const auto samples = static_cast<std::int64_t>(labels.size());
  Ready& plan = ready(
      {.goal = Goal::evaluate, .samples = samples, .weights = weights, .form = images.form()});
  const auto micro = micro_batches_for(config_, Goal::evaluate, samples);
  feed(plan, micro, {.images = images, .labels = labels});
  write_scalar(plan, "inv_count", 1.0);
  const exec::Results found = plan.loaded->run();
  return {.loss_sum = found.scalar("loss"),
          .correct = found.scalar("correct"),
          .correct5 = found.scalar("correct5"),
          .logits = read_logits(plan, micro.size())};
}

void Session::recalibrate(const Images& images) {
  const auto samples = static_cast<std::int64_t>(images.count(pixels()));
  Ready& plan = ready({.goal = Goal::recalibrate,
                       .samples = samples,
                       .weights = Weights::average,
                       .form = images.form()});
  feed(plan, {samples}, {.images = images, .labels = {}});
  const std::vector<models::Param> params = models::parameters(config_.model);
  // From zero, or the rounding of what was there before would show in the last bit, and a resumed
  // run would differ.
  for (const models::Param& p : params)
    if (p.buffer)
      write_param(p, Weights::average,
                  std::vector<double>(static_cast<std::size_t>(ir::elements(p.shape))));
  plan.loaded->run();
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
    write_param(p, Weights::average, mean);
  }
  statistics_.clear();
  recalibrated_ = 0;
}

std::vector<double> Session::predict(const Images& images, std::int64_t count,
                                     exec::Timeline* timeline, bool spans) {
  Ready& plan = ready(
      {.goal = Goal::predict, .samples = count, .weights = Weights::live, .form = images.form()});
  const auto micro = micro_batches_for(config_, Goal::predict, count);
  feed(plan, micro, {.images = images, .labels = {}});
  exec::Results found = plan.loaded->run({.observe = observer_, .spans = timeline && spans});
  if (timeline) *timeline = std::move(found.timeline);
  return read_logits(plan, micro.size());
}

}  // namespace tessera::run
