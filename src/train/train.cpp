// The training loop: feeds one plan per step, evaluates at the end of an epoch, saves beside the
// work, stops on request without losing anything. Convention: between two iterations `progress_`
// and the session say everything, so any of them may be the last one.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/say.h"
#include "checkpoint/saver.h"
#include "checkpoint/weights.h"
#include "checkpoint/weights_open.h"
#include "compile/plans.h"
#include "compile/stages.h"
#include "data/loader.h"
#include "files/disk.h"
#include "files/text.h"
#include "input/augment.h"
#include "input/dataset.h"
#include "measure/environment.h"
#include "measure/segments.h"
#include "ranks/ranks.h"
#include "ranks/stop.h"
#include "ranks/watchdog.h"
#include "report/console.h"
#include "report/document.h"
#include "report/metrics_log.h"
#include "session/init.h"
#include "session/room.h"
#include "train/balance.h"
#include "train/diagnose.h"
#include "train/learning_rate.h"
#include "train/run_folder.h"
#include "train/score.h"
#include "train/train.h"
#include "train/train_report.h"
#include "train/under_way.h"

namespace tessera::run {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr std::int64_t most_skipped_in_a_row = 10;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class Trainer {
 public:
  Trainer(const config::Config& config, const TrainOptions& options, comm::Comm* world)
      : config_(config),
        options_(options),
        ranks_(world),
        out_(config.run.out),
        asked_batch_(config.batch.global) {
    console_.set_quiet(options.quiet || !ranks_.first());
  }

  int run() {
    bool finished_before = false;
    ranks_.together([&] {
      if (ranks_.first()) lock_.take(out_);
      finished_before = ranks_.first() && !options_.fresh && holds_whole_run(out_, config_, notes_);
    });
    if (ranks_.any(finished_before)) {
      console_.line("run " + config_.run.name + " in " + out_.string() +
                    " is already finished; --fresh starts over");
      if (options_.json && ranks_.first())
        say_json(stdout, files::read_text(out_ / "summary.json"));
      return 0;
    }
    const StopOnSignal guard;
    ranks_.together([&] { comm::Pulse::doing("opening the data"), prepare(); });
    settle_stages(config_, ranks_.world());
    comm::Pulse::doing("compiling");
    session_ = std::make_unique<Session>(config_, transforms::RunOptions{}, ranks_.world());
    plans_ = plans_of_training(config_, extent_);
    results_.planned_bytes = reserve(*session_, plans_, ranks_).bytes();
    ranks_.together([&] { clean_run_folder(out_, lock_); });
    ranks_.together([&] { comm::Pulse::doing("loading the weights"), begin(); });
    expect_same_step(ranks_, out_, resumed_ ? progress_.step : -1);
    segment_ = begin_segment(ranks_, static_cast<int>(config_.run.threads), out_, progress_.step,
                             config_.run.device, config_.precision.dtype);
    ranks_.together([&] {
      if (!ranks_.first()) return;
      open_folder(out_, asked(), options_, lock_);
      segment_.write(out_);
      if (resumed_) set_newer_aside(out_, progress_.step, notes_);
    });
    if (Watchdog* watchdog = Watchdog::here()) watchdog->meet_in(out_ / pulses);
    if (ranks_.first()) console_.log_to((out_ / "log.txt").string());
    introduce();
    meter_.emplace(config_, ranks_, *session_, out_);
    under_way_.emplace(*session_, extent_, options_.ahead);
    saver_.emplace(out_, Retention{config_.checkpoint.keep, config_.checkpoint.keep_best}, ranks_,
                   config_.parallel.disk_s);
    const bool finished = loop();
    console_.finish();
    save();
    saver_->wait();
    ranks_.barrier();  // nobody leaves before the last shard is in place
    comm::Pulse::doing("finishing");
    if (!finished) {
      console_.line(
          fmt::format("stopped on request at step {} of {}; the same command{} goes on from here",
                      progress_.step, total_, options_.fresh ? " without --fresh" : ""));
      return static_cast<int>(ErrorKind::stopped);
    }
    finish();
    return 0;
  }

 private:
  // Everything that can be wrong is found before the folder is touched: an older run in it must
  // survive a mistake.
  void prepare() {
    train_ = open_data(config_, data::Split::train);
    test_ = open_data(config_, data::Split::test);
    for (const auto* set : {train_.get(), test_.get()}) note_links(*set, notes_);
    for (const auto* set : {train_.get(), test_.get()})
      set->bad().say = [this](const std::string& line) { console_.line("warning: " + line); };
    extent_ = extent_of(config_, used_samples(config_, *train_), test_->size());
    config_.batch.global = extent_.batch;
    if (config_.parallel.weights.word == "measured")
      config_.parallel.weights.list.assign(static_cast<std::size_t>(config_.parallel.dp), 1.0);
    samples_ = extent_.samples, epoch_samples_ = extent_.epoch_samples, total_ = extent_.steps;
  }

  // The configuration as a command has it, which does not know how many samples there are.
  config::Config asked() const {
    config::Config out = config_;
    out.batch.global = asked_batch_;
    return out;
  }

  // Weights: from the newest checkpoint, from --init, or drawn.
  void begin() {
    if (!options_.fresh) {
      const std::optional<Progress> found =
          load_newest_checkpoint(out_, *session_, epoch_samples_, notes_);
      if (found) progress_ = *found, resumed_ = true;
      if (const auto changes = changes_since(out_, asked()); resumed_ && !changes.empty())
        notes_.push_back("the run goes on with another configuration than before: " +
                         join(changes, ", "));
    }
    wall_before_ = progress_.wall_s;
    session_->set_step(progress_.step);
    if (resumed_) return;
    const auto seed = static_cast<std::uint64_t>(config_.run.seed);
    if (config_.init.empty())
      session_->load(initial_weights(seed));
    else
      session_->load(
          weights_from(std::make_shared<const files::Safetensors>(weight_file(config_.init)),
                       config_.model, Adapt{true, true, seed}, notes_));
  }

  void introduce() {
    const plan::Plan& plan = session_->compiled(Goal::train, config_.batch.global).plan;
    const std::vector<plan::Memory> memory = memory_of_ranks(ranks_, plan.memory);
    const std::string resumed =
        resumed_ ? fmt::format("  resumed from step {}", progress_.step) : "";
    const auto planned =
        static_cast<std::int64_t>(ranks_.most(static_cast<double>(results_.planned_bytes)));
    for (const std::string& line :
         introduction(config_, memory, planned, samples_, test_->size(), resumed))
      console_.line(line);
    for (const std::string& more : {missed_shares(config_), doubt_of_peak(segment_.peak)})
      if (!more.empty()) notes_.push_back(more);
    for (const std::string& more : session_->executor().notes()) notes_.push_back(more);
    for (const std::string& note : notes_) console_.line("note: " + note);
    flops_ = plan.cost.flops, peak_ = segment_.peak.gflops * 1e9, results_.segments = segment_.all;
  }

  // All batches of the epoch (or of the run) are done, its evaluation and its line are not.
  bool epoch_pending() const {
    return progress_.position >= epoch_samples_ ||
           (progress_.step >= total_ && progress_.epoch_images > 0);
  }
  bool last_epoch() const {
    const std::int64_t after = progress_.epoch + (progress_.position >= epoch_samples_ ? 1 : 0);
    return progress_.step >= total_ || (config_.run.epochs > 0 && after >= config_.run.epochs);
  }
  bool at_end() const { return progress_.reached || (last_epoch() && !epoch_pending()); }

  // One rank that is asked to stop stops all.
  bool stopping() const {
    comm::Pulse::doing("after step", progress_.step);
    return ranks_.any(stop_requested());
  }

  // True when the run reached its end, false when it was asked to stop.
  bool loop() {
    if (ranks_.first()) {
      log_.emplace(out_.string(),
                   report::LogOptions{resumed_ ? progress_.metrics_bytes : 0, progress_.step + 1,
                                      config_.run.csv, config_.run.tensorboard});
      for (const std::string& warning : log_->warnings()) console_.line("warning: " + warning);
      results_.recall(log_->kept());
    }
    if (resumed_) saved_lines_ = 0;
    data::LoaderOptions options = loader_options(config_, *train_, data::Split::train);
    options.first_epoch = progress_.epoch + (progress_.position >= epoch_samples_ ? 1 : 0);
    options.first_position = progress_.position >= epoch_samples_ ? 0 : progress_.position;
    options.wants = session_->own_samples_of(Goal::train);
    loader_.emplace(*train_, options);
    first_step_ = progress_.step;
    epoch_start_ = std::chrono::steady_clock::now();
    bool stop = stopping();
    while (!at_end()) {
      saver_->poll();
      if (stop) return false;
      const std::int64_t before = progress_.step;
      if (!epoch_pending()) stop = step();
      if (config_.parallel.weights.word == "measured" && !epoch_pending()) follow_speed(options);
      bool due = config_.checkpoint.every > 0 && progress_.step > before &&
                 progress_.step % config_.checkpoint.every == 0;
      if (epoch_pending()) {
        const std::int64_t best = progress_.best_step, epoch = progress_.epoch;
        if (!end_epoch()) return false;
        stop = stopping();
        due |= (config_.checkpoint.every == 0 && progress_.epoch > epoch) ||
               (config_.checkpoint.keep_best && progress_.best_step > best);
      }
      if (due && !stop) save();
    }
    if (results_.final.images == 0 && test_->size() > 0)
      results_.final = evaluate();  // resumed at its very end
    return !(stopping() && results_.final.images < test_->size());
  }

  // Starts a step and accounts for those that must be over before the next. True when some rank was
  // asked to stop.
  bool step() {
    under_way_->submit(*loader_, progress_, *meter_, ranks_.rank());
    bool stop = false;
    while (under_way_->full(progress_) || (stop && !under_way_->empty()))
      stop |= account(under_way_->wait());
    return stop;
  }

  bool account(FinishedStep step) {
    const data::Batch& batch = step.batch;
    const StepResult& r = step.result;
    results_.comm = step.sent;
    progress_.epoch = batch.epoch;
    progress_.position = batch.first_position + batch.count;
    progress_.add(r.ok, batch.count, r.loss, r.correct);
    const Measured seen = meter_->step(
        r.step, step.wanted, r.timeline, session_->compiled(Goal::train, batch.count).plan,
        batch.count, step.began_ns, step.data_ms, step.ran_ms, stop_requested());
    const double count = static_cast<double>(batch.count), ms = seen.step_ms,
                 lr = learning_rate(config_, r.step, total_);
    const double mfu =
        flops_ * count / static_cast<double>(config_.batch.global) / (ms * 1e-3) / peak_;
    const report::StepMetrics m{r.step,
                                batch.epoch,
                                r.loss,
                                r.correct / count,
                                lr,
                                r.grad_norm,
                                ms,
                                count / ms * 1e3,
                                mfu,
                                results_.comm.total().bytes,
                                !r.ok,
                                seen.sampled,
                                seen.breakdown};
    say(report::to_json(m));
    show(m);
    for (const std::string& remark : seen.remarks) console_.line("note: " + remark);
    if (r.ok) {
      results_.step_ms.push_back(ms);
      results_.last_loss = r.loss;
    } else if (progress_.skipped_in_a_row >= most_skipped_in_a_row) {
      give_up(r, under_way_->inputs_of(batch, r.step));
    }
    under_way_->give_back(std::move(step.batch));
    return seen.stop;
  }

  void follow_speed(data::LoaderOptions options) {
    // The loader has read ahead for the old shares.
    const std::string changed =
        rebalance(*session_, *meter_, ranks_, plans_, [&] { loader_.reset(); });
    if (changed.empty()) return;
    results_.planned_bytes =
        std::max(results_.planned_bytes, reserve(*session_, plans_, ranks_).bytes());
    options.first_epoch = progress_.epoch, options.first_position = progress_.position;
    loader_.emplace(*train_, options);
    console_.line("note: " + changed);
  }

  void say(const ordered_json& line) {
    ++lines_;
    if (log_) log_->append(line);
  }

  void give_up(const StepResult& r, const StepInputs& inputs) {
    console_.finish();
    progress_.skipped_in_a_row = 0;  // whoever goes on from here gets as many tries again
    save();
    saver_->wait();
    ranks_.together(
        [&] { throw not_finite(*session_, inputs, r, most_skipped_in_a_row, out_ / "ckpt"); });
  }

  // The moving average where one is kept, with statistics of its own: of the epoch that ends or has
  // just ended, because a process that resumes at the very end must find the same batches.
  Score evaluate() {
    const std::int64_t epoch =
        progress_.epoch - (progress_.position == 0 && progress_.epoch > 0 ? 1 : 0);
    if (session_->averages() && session_->has_statistics())
      recalibrate(*session_, config_, *train_, epoch);
    return score(*session_, config_, *test_, evaluation_batch(config_),
                 static_cast<int>(config_.data.workers), nullptr, [this] { return stopping(); });
  }

  // Evaluates, writes the epoch's line and begins the next one; false when a request to stop came
  // in between and the epoch is still pending.
  bool end_epoch() {
    const std::int64_t epoch = progress_.epoch + 1;
    const bool scored =
        test_->size() > 0 &&
        (last_epoch() || (config_.run.eval_every > 0 && epoch % config_.run.eval_every == 0));
    const double n = std::max(1.0, static_cast<double>(progress_.epoch_images));
    const std::vector<double> waits = meter_->barrier();
    EpochRecord record{progress_.epoch_seconds + seconds_since(epoch_start_),
                       progress_.epoch_loss / n, progress_.epoch_correct / n};
    record.barrier_wait_s = *std::max_element(waits.begin(), waits.end());
    ordered_json line =
        epoch_json(epoch, progress_.step, progress_.position >= epoch_samples_, record, waits);
    if (scored) {
      const Score s = evaluate();
      if (stopping() && s.images < test_->size()) return false;
      results_.final = s, record.test_top1 = s.top1;
      if (progress_.best_step == 0 || s.top1 > progress_.best_top1)
        progress_.best_top1 = s.top1, progress_.best_epoch = epoch,
        progress_.best_step = progress_.step;
      console_.line(eval_line(epoch, s, progress_));
      line.update({{"test_loss", s.loss}, {"test_top1", s.top1}, {"test_top5", s.top5}});
      if (s.top1_tta >= 0) line["test_top1_tta"] = record.test_top1_tta = s.top1_tta;
      check_target(s, epoch);
    }
    line["elapsed_s"] = wall_before_ + seconds_since(start_);
    say(line);
    results_.epochs.push_back(record);
    if (progress_.position >= epoch_samples_) ++progress_.epoch, progress_.position = 0;
    progress_.epoch_loss = progress_.epoch_correct = progress_.epoch_seconds = 0,
    progress_.epoch_images = 0;
    epoch_start_ = std::chrono::steady_clock::now();
    return true;
  }

  void check_target(const Score& s, std::int64_t epoch) {
    if (config_.run.until.empty()) return;
    const config::Target target = config::parse_until(config_.run.until);
    progress_.reached = target.metric == "loss"
                            ? s.loss <= target.value
                            : (target.metric == "top5" ? s.top5 : s.top1) >= target.value;
    if (!progress_.reached) return;
    progress_.time_to_target_s = wall_before_ + seconds_since(start_);
    progress_.epochs_to_target = epoch;
    console_.line(fmt::format("reached {} after {} ({} epochs, {} steps)", config_.run.until,
                              report::duration(progress_.time_to_target_s), epoch, progress_.step));
  }

  // Starts to save what the loop stands at, unless that was the last thing saved.
  void save() {
    if (saved_lines_ == lines_) return;  // every batch and every epoch adds a line
    saved_lines_ = lines_;
    if (log_) progress_.metrics_bytes = log_->bytes();
    progress_.epoch_seconds += seconds_since(epoch_start_);
    epoch_start_ = std::chrono::steady_clock::now();
    progress_.wall_s = wall_before_ + seconds_since(start_);
    saver_->save(*session_, progress_,
                 {{"samples", samples_},
                  {"lr", {{"step", progress_.step}, {"total", total_}}},
                  {"classes", train_->class_names()},
                  {"preprocess", preprocess_of(config_)}},
                 out_ / "metrics.jsonl");
  }

  void show(const report::StepMetrics& m) {
    const double now = seconds_since(start_);
    const bool always = m.step == 1 || m.step == total_ || epoch_pending() ||
                        (m.skipped && progress_.skipped_in_a_row == 1);
    if (always || now - shown_ >= (console_.terminal() ? 2.0 : 10.0))
      shown_ = now, console_.line(step_line(m, total_));
    console_.bar(static_cast<double>(m.step - first_step_) /
                     static_cast<double>(std::max<std::int64_t>(1, total_ - first_step_)),
                 now);
  }

  void finish() {
    const std::map<std::string, std::vector<double>> weights =
        session_->parameters(session_->averages() ? Weights::average : Weights::live);
    results_.measured_bytes = session_->executor().allocated_bytes();
    results_.ranks = meter_->ranks_json(results_.planned_bytes, results_.measured_bytes);
    if (!ranks_.first()) return;
    save_weights(
        out_ / "weights.safetensors", config_.model,
        [&](const std::string& name) { return weights.at(name); }, Naming::torchvision,
        storage_dtype(config_) == ir::DType::f64 ? "F64" : "F32", train_->class_names(),
        preprocess_of(config_).dump());
    progress_.wall_s = wall_before_ + seconds_since(start_);
    const ordered_json summary = summary_of(config_, progress_, results_);
    files::write_atomically(out_ / "summary.json", summary.dump(2) + "\n");
    console_.line(
        fmt::format("done in {}: top1 {:.2f}%, {} steps, {:.0f} img/s (median), results in {}",
                    report::duration(progress_.wall_s), results_.final.top1 * 100, progress_.step,
                    summary["images_per_s"].get<double>(), out_.string()));
    if (options_.json) report::print_document(summary);
  }

  config::Config config_;
  TrainOptions options_;
  Ranks ranks_;
  fs::path out_;
  const std::int64_t asked_batch_;
  report::Console console_;
  FolderLock lock_;
  std::unique_ptr<data::Dataset> train_, test_;
  std::unique_ptr<Session> session_;
  std::optional<report::MetricsLog> log_;
  std::optional<Meter> meter_;
  std::optional<data::Loader> loader_;
  std::optional<Saver> saver_;  // after the session: it waits for its thread first
  std::optional<StepsUnderWay> under_way_;
  Progress progress_;
  TrainResults results_;
  RunExtent extent_;
  Segment segment_;
  std::vector<PlanKey> plans_;
  std::vector<std::string> notes_;
  std::int64_t samples_ = 0, epoch_samples_ = 0, total_ = 0, first_step_ = 0, lines_ = 0,
               saved_lines_ = -1;
  double flops_ = 0, peak_ = 1, shown_ = -100, wall_before_ = 0;
  bool resumed_ = false;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point epoch_start_ = start_;
};

}  // namespace

int train(const config::Config& config, const TrainOptions& options, comm::Comm* world) {
  try {
    return Trainer(config, options, world).run();
  } catch (Error& error) {
    // Whichever small file met the full disk first: say how full it is.
    const bool told = error.message.find("are free") != error.message.npos;
    if (const auto room = files::free_bytes(config.run.out);
        error.kind == ErrorKind::disk && !told && room)
      error.and_also(fmt::format("{} bytes are free where the run folder lies", *room));
    throw;
  }
}

}  // namespace tessera::run
