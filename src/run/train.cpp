// The training loop: feeds one plan per step, writes the run folder, evaluates, stops on request without losing anything.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/check.h"
#include "config/print.h"
#include "config/validate.h"
#include "data/loader.h"
#include "files/text.h"
#include "report/console.h"
#include "report/metrics.h"
#include "run/checkpoint.h"
#include "run/dataset.h"
#include "run/environment.h"
#include "run/init.h"
#include "run/run.h"
#include "run/schedule.h"
#include "run/score.h"
#include "run/weights.h"

namespace tessera::run {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

volatile std::sig_atomic_t stop_requested = 0;
void request_stop(int) { stop_requested = 1; }

// While it lives, the first SIGINT or SIGTERM asks the loop to stop; a second one ends the process as usual.
class StopOnSignal {
 public:
  StopOnSignal() {
    stop_requested = 0;
    struct sigaction action = {};
    action.sa_handler = request_stop;
    action.sa_flags = SA_RESETHAND;
    sigaction(SIGINT, &action, &interrupt_);
    sigaction(SIGTERM, &action, &terminate_);
  }
  ~StopOnSignal() {
    sigaction(SIGINT, &interrupt_, nullptr);
    sigaction(SIGTERM, &terminate_, nullptr);
  }

 private:
  struct sigaction interrupt_ = {}, terminate_ = {};
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct EpochRecord {
  double seconds = 0, loss = 0, train_top1 = 0, test_top1 = 0;
};

class Trainer {
 public:
  Trainer(const config::Config& config, const TrainOptions& options) : config_(config), options_(options), out_(config.run.out) {
    console_.set_quiet(options.quiet);
  }

  int run() {
    if (!options_.fresh && already_finished()) return 0;
    // Everything that can be wrong is found before the folder is touched: an older run in it must survive a mistake.
    train_ = open_data(config_, data::Split::train);
    test_ = open_data(config_, data::Split::test);
    for (const auto* set : {train_.get(), test_.get()})
      set->bad().say = [this](const std::string& line) { console_.line("warning: " + line); };
    samples_ = used_samples(config_, *train_);
    config_.batch.global = std::min(config_.batch.global, samples_);
    const std::int64_t rest = config_.data.drop_last ? 0 : config_.batch.global - 1, per_epoch = (samples_ + rest) / config_.batch.global;
    total_ = config_.run.steps > 0 ? config_.run.steps : config_.run.epochs * per_epoch;
    if (config_.run.steps > 0 && config_.run.epochs > 0) total_ = std::min(config_.run.steps, config_.run.epochs * per_epoch);
    session_ = std::make_unique<Session>(config_);
    begin();
    open_folder();
    introduce();
    const StopOnSignal guard;
    const bool finished = loop();
    save_weights(
        out_ / "weights.safetensors", config_.model, [&](const std::string& name) { return session_->parameter(name); },
        Naming::torchvision, storage_dtype(config_) == ir::DType::f64 ? "F64" : "F32", train_->class_names());
    save();
    if (!finished) {
      console_.line(fmt::format("stopped on request at step {} of {}; the same command goes on from here", progress_.step, total_));
      return static_cast<int>(ErrorKind::stopped);
    }
    finish();
    return 0;
  }

 private:
  // A finished run of the same configuration is left alone; of another one it is refused.
  bool already_finished() {
    std::error_code error;
    if (!fs::exists(out_ / "summary.json", error)) return false;
    auto meaning = [](const std::string& toml) {  // what changes results: not where or with how many threads it runs
      std::set<std::string> lines;
      std::istringstream text(toml);
      for (std::string line; std::getline(text, line);)
        if (!line.starts_with("threads") && !line.starts_with("workers") && !line.starts_with("out ") && !line.starts_with("name "))
          lines.insert(line);
      return lines;
    };
    const std::set<std::string> before = meaning(files::read_text(out_ / "resolved.toml", 1 << 20)),
                                now = meaning(config::to_toml(config_));
    std::vector<std::string> differ;
    std::set_difference(now.begin(), now.end(), before.begin(), before.end(), std::back_inserter(differ));
    if (!differ.empty())
      throw Error(ErrorKind::usage, "the folder holds a finished run of another configuration; now asked: " + join(differ, ", "),
                  out_.string(), "--fresh starts over in it, --out chooses another folder");
    console_.line("run " + config_.run.name + " in " + out_.string() + " is already finished; --fresh starts over");
    if (options_.json) fmt::print("{}", files::read_text(out_ / "summary.json"));
    return true;
  }

  void save() {
    progress_.wall_s = wall_before_ + seconds_since(start_);
    save_checkpoint(out_.string(), *session_, progress_, config_.checkpoint.keep);
  }

  void open_folder() {
    std::error_code error;
    if (options_.fresh) {
      // Only what a run writes; never the whole folder.
      for (const char* name :
           {"ckpt", "metrics.jsonl", "summary.json", "log.txt", "weights.safetensors", "config.toml", "resolved.toml", "env.json"})
        fs::remove_all(out_ / name, error);
    }
    fs::create_directories(out_, error);
    if (error)
      throw Error(ErrorKind::disk, "cannot make the run folder: " + error.message(), out_.string(), "choose another folder with --out");
    console_.log_to((out_ / "log.txt").string());
    if (!options_.given.empty()) files::write_atomically(out_ / "config.toml", files::read_text(options_.given));
    files::write_atomically(out_ / "resolved.toml", config::to_toml(config_));
    files::write_atomically(out_ / "env.json", environment(static_cast<int>(config_.run.threads)).dump(2) + "\n");
  }

  // Weights: from the newest checkpoint, from --init, or drawn.
  void begin() {
    session_->compiled(Goal::train, config_.batch.global);
    if (!options_.fresh) {
      const std::optional<Progress> found = load_newest_checkpoint(out_.string(), *session_, samples_, notes_);
      if (found) progress_ = *found, resumed_ = true;
    }
    wall_before_ = progress_.wall_s;
    if (resumed_) return;
    const auto seed = static_cast<std::uint64_t>(config_.run.seed);
    if (config_.init.empty())
      session_->load(initial_weights(seed));
    else
      session_->load(
          weights_from(std::make_shared<const files::Safetensors>(config_.init), config_.model, Adapt{true, true, seed}, notes_));
  }

  void introduce() {
    const plan::Plan& plan = session_->compiled(Goal::train, config_.batch.global).plan;
    std::int64_t params = 0;
    for (const models::Param& p : models::parameters(config_.model)) params += ir::elements(p.shape);
    const plan::Memory& m = plan.memory;
    auto mib = [](std::int64_t bytes) {
      return fmt::format("{:.{}f}", static_cast<double>(bytes) / (1 << 20), bytes < (10 << 20) ? 1 : 0);
    };
    console_.line(fmt::format("tessera {}  run {}  seed {}{}", TESSERA_VERSION, config_.run.name, config_.run.seed,
                              resumed_ ? fmt::format("  resumed from step {}", progress_.step) : ""));
    console_.line(fmt::format("model {}  {} params   data {} {} / {}   layout dp1 {}   1 x cpu ({} thread{})",
                              config_.model.name.empty() ? config_.model.family : config_.model.name, report::millions(params),
                              config_.data.source, report::with_commas(samples_), report::with_commas(test_->size()),
                              config_.precision.dtype, config_.run.threads, config_.run.threads == 1 ? "" : "s"));
    console_.line(fmt::format("memory/rank  weights {}  grads {}  optim {}  activations {}  buffers {}  = {} MiB", mib(m.weights),
                              mib(m.gradients), mib(m.optimizer), mib(m.activations), mib(m.workspace), mib(m.total())));
    for (const std::string& note : notes_) console_.line("note: " + note);
    flops_ = plan.cost.flops;
    peak_ = peak_gflops(static_cast<int>(config_.run.threads)) * 1e9;
    planned_bytes_ = plan.peak_bytes();
  }

  // What an earlier process of this run measured counts in the summary too.
  void recall(const report::MetricsFile& metrics) {
    for (const nlohmann::json& line : metrics.kept()) {
      if (line["kind"] == "step") {
        step_ms_.push_back(line.value("step_ms", 0.0));
        last_loss_ = line.value("loss", 0.0);
      } else if (line["kind"] == "epoch") {
        epochs_.push_back(
            {line.value("seconds", 0.0), line.value("loss", 0.0), line.value("train_top1", 0.0), line.value("test_top1", -1.0)});
      }
    }
  }

  // True when the run reached its end, false when it was asked to stop.
  bool loop() {
    report::MetricsFile metrics((out_ / "metrics.jsonl").string(), resumed_ ? progress_.step : -1);
    recall(metrics);
    data::LoaderOptions options = loader_options(config_, *train_, data::Split::train);
    options.first_epoch = progress_.epoch;
    options.first_position = progress_.position;
    data::Loader loader(*train_, options);
    data::Batch batch;
    const std::int64_t first_step = progress_.step;
    auto epoch_start = std::chrono::steady_clock::now();
    while (progress_.step < total_ && !reached_) {
      const auto step_start = std::chrono::steady_clock::now();
      loader.next(batch);
      const double data_ms = seconds_since(step_start) * 1e3;
      const std::int64_t step = progress_.step + 1;
      const double lr = learning_rate(config_, step, total_);
      const StepResult r = session_->train_step(batch.images, batch.labels, lr, step, batch.epoch * samples_ + batch.first_position);
      const double ms = seconds_since(step_start) * 1e3;
      if (!r.ok) {
        console_.finish();
        save();
        throw Error(
            ErrorKind::nonfinite,
            fmt::format("loss {} and gradient norm {} at step {} are not finite; the step was not applied and the last good state is in {}",
                        r.loss, r.grad_norm, step, (out_ / "ckpt").string()),
            config_.run.name, "lower optim.lr, set optim.clip = 1.0, lengthen lr.warmup, or use --dtype f32");
      }
      progress_.step = step;
      progress_.epoch = batch.epoch;
      progress_.position = batch.first_position + batch.count;
      const bool epoch_end = progress_.position >= loader.epoch_samples();
      if (epoch_end) ++progress_.epoch, progress_.position = 0;
      progress_.epoch_loss += r.loss * static_cast<double>(batch.count);
      progress_.epoch_correct += r.correct;
      progress_.epoch_images += batch.count;

      report::StepMetrics m{step,
                            batch.epoch,
                            r.loss,
                            r.correct / static_cast<double>(batch.count),
                            lr,
                            r.grad_norm,
                            ms,
                            static_cast<double>(batch.count) / ms * 1e3,
                            0,
                            0,
                            step % 10 == 0 || step == 1,
                            {}};
      m.mfu = flops_ * static_cast<double>(batch.count) / static_cast<double>(config_.batch.global) / (ms * 1e-3) / peak_;
      for (const exec::Timeline::Span& span : r.timeline.spans) m.breakdown.compute += span.end - span.start;
      m.breakdown.data = data_ms;
      m.breakdown.host = std::max(0.0, ms - data_ms - m.breakdown.compute);
      metrics.append(report::to_json(m));
      step_ms_.push_back(ms);
      breakdown_.compute += m.breakdown.compute, breakdown_.data += m.breakdown.data, breakdown_.host += m.breakdown.host;
      last_loss_ = r.loss;
      show(m, epoch_end);
      console_.bar(static_cast<double>(step - first_step) / static_cast<double>(total_ - first_step), seconds_since(start_));

      if (epoch_end || step == total_) {
        const double n = static_cast<double>(progress_.epoch_images);
        end_epoch(metrics, batch.epoch + 1,
                  {progress_.epoch_seconds + seconds_since(epoch_start), progress_.epoch_loss / n, progress_.epoch_correct / n, -1},
                  step == total_);
        progress_.epoch_loss = progress_.epoch_correct = progress_.epoch_seconds = 0, progress_.epoch_images = 0;
        epoch_start = std::chrono::steady_clock::now();
      }
      const bool due = config_.checkpoint.every > 0 ? step % config_.checkpoint.every == 0 : epoch_end;
      if (due || stop_requested) {
        progress_.epoch_seconds += seconds_since(epoch_start);
        epoch_start = std::chrono::steady_clock::now();
      }
      if (stop_requested && step < total_ && !reached_) {
        console_.finish();
        return false;
      }
      if (due) save();
    }
    if (final_.images == 0 && test_->size() > 0) final_ = score_now();  // resumed at its very end
    console_.finish();
    return true;
  }

  Score score_now() {
    return score(*session_, *test_, std::clamp<std::int64_t>(config_.batch.micro, 1, 256), static_cast<int>(config_.data.workers));
  }

  void end_epoch(report::MetricsFile& metrics, std::int64_t epoch, EpochRecord record, bool last) {
    const bool evaluate = test_->size() > 0 && (last || (config_.run.eval_every > 0 && epoch % config_.run.eval_every == 0));
    ordered_json line = {
        {"kind", "epoch"},          {"epoch", epoch}, {"step", progress_.step}, {"loss", record.loss}, {"train_top1", record.train_top1},
        {"seconds", record.seconds}};
    if (evaluate) {
      final_ = score_now();
      record.test_top1 = final_.top1;
      if (final_.top1 >= progress_.best_top1) progress_.best_top1 = final_.top1, progress_.best_epoch = epoch;
      console_.line(fmt::format("eval  epoch {}  top1 {:.2f}%  top5 {:.2f}%  loss {:.3f}  ({} images, {:.1f} s)   best {:.2f}% @ epoch {}",
                                epoch, final_.top1 * 100, final_.top5 * 100, final_.loss, report::with_commas(final_.images),
                                final_.seconds, progress_.best_top1 * 100, progress_.best_epoch));
      line.update({{"test_loss", final_.loss}, {"test_top1", final_.top1}, {"test_top5", final_.top5}});
      if (!config_.run.until.empty()) {
        const config::Target target = config::parse_until(config_.run.until);
        reached_ =
            target.metric == "loss" ? final_.loss <= target.value : (target.metric == "top5" ? final_.top5 : final_.top1) >= target.value;
        if (reached_)
          console_.line(
              fmt::format("reached {} after {} ({} steps)", config_.run.until, report::duration(seconds_since(start_)), progress_.step));
      }
    }
    metrics.append(line);
    epochs_.push_back(record);
  }

  void show(const report::StepMetrics& m, bool epoch_end) {
    const double now = seconds_since(start_);
    if (m.step != 1 && m.step != total_ && !epoch_end && now - shown_ < (console_.terminal() ? 2.0 : 10.0)) return;
    shown_ = now;
    const double all = std::max(1e-9, m.step_ms);
    console_.line(
        fmt::format("step {:>6}/{} | loss {:.3f} | top1 {:.1f}% | gnorm {:.2f} | lr {:.1e} | {:.1f} ms | {:.0f} img/s | {:.0f}% of peak | "
                    "comp {:.0f} comm 0 wait 0 data {:.0f} %",
                    m.step, total_, m.loss, m.top1 * 100, m.grad_norm, m.lr, m.step_ms, m.images_per_s, m.mfu * 100,
                    m.breakdown.compute / all * 100, m.breakdown.data / all * 100));
  }

  void finish() {
    const double wall = wall_before_ + seconds_since(start_);
    const report::Quantiles q = report::quantiles(step_ms_);
    ordered_json epochs = ordered_json::array();
    for (const EpochRecord& e : epochs_) {
      epochs.push_back({{"seconds", e.seconds}, {"barrier_wait_s", 0.0}, {"loss", e.loss}, {"train_top1", e.train_top1}});
      epochs.back()["test_top1"] = e.test_top1 < 0 ? ordered_json(nullptr) : ordered_json(e.test_top1);
    }
    const ordered_json env = environment(static_cast<int>(config_.run.threads));
    const std::int64_t measured = session_->executor().allocated_bytes();
    const ordered_json summary = {{"images_per_s", q.median > 0 ? static_cast<double>(config_.batch.global) / q.median * 1e3 : 0.0},
                                  {"step_ms", {{"median", q.median}, {"p10", q.p10}, {"p90", q.p90}}},
                                  {"peak_bytes", {{"planned", planned_bytes_}, {"measured", measured}}},
                                  {"final",
                                   {{"loss", last_loss_},
                                    {"train_top1", epochs_.empty() ? 0.0 : epochs_.back().train_top1},
                                    {"test_top1", final_.top1},
                                    {"test_top5", final_.top5},
                                    {"test_loss", final_.loss}}},
                                  {"best", {{"test_top1", progress_.best_top1}, {"epoch", progress_.best_epoch}}},
                                  {"epochs", epochs},
                                  {"ranks", {{{"host", env["host"]}, {"device", "cpu"}, {"breakdown", report::to_json(breakdown_)}}}},
                                  {"comm", ordered_json::object()},
                                  {"layout", {{"dp", 1}, {"tp", 1}, {"pp", 1}, {"sp", 1}, {"zero", 0}}},
                                  {"model", config_.model.name.empty() ? config_.model.family : config_.model.name},
                                  {"dtype", config_.precision.dtype},
                                  {"world", 1},
                                  {"steps", progress_.step},
                                  {"reached", reached_},
                                  {"wall_s", wall}};
    files::write_atomically(out_ / "summary.json", summary.dump(2) + "\n");
    console_.line(fmt::format("done in {}: top1 {:.2f}%, {} steps, {:.0f} img/s (median), results in {}", report::duration(wall),
                              final_.top1 * 100, progress_.step, summary["images_per_s"].get<double>(), out_.string()));
    if (options_.json) fmt::print("{}\n", summary.dump(2));
  }

  config::Config config_;
  TrainOptions options_;
  fs::path out_;
  report::Console console_;
  std::unique_ptr<data::Dataset> train_, test_;
  std::unique_ptr<Session> session_;
  Progress progress_;
  Score final_;
  std::vector<EpochRecord> epochs_;
  std::vector<double> step_ms_;
  report::Breakdown breakdown_;
  std::vector<std::string> notes_;
  std::int64_t samples_ = 0, total_ = 0, planned_bytes_ = 0;
  double flops_ = 0, peak_ = 1, shown_ = -100, last_loss_ = 0;
  double wall_before_ = 0;
  bool reached_ = false, resumed_ = false;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

int train(const config::Config& config, const TrainOptions& options) { return Trainer(config, options).run(); }

}  // namespace tessera::run
