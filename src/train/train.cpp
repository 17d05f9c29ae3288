// The training loop: feeds one plan per step, evaluates at the end of an epoch, saves beside the
// work, stops on request without losing anything. Convention: between two iterations
// `state_.progress` and the session say everything, so any of them may be the last one.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/say.h"
#include "checkpoint/checkpoint_room.h"
#include "checkpoint/memory_level.h"
#include "checkpoint/saver.h"
#include "checkpoint/weights_open.h"
#include "compile/plans.h"
#include "compile/stages.h"
#include "config/devices.h"
#include "config/shrink.h"
#include "data/loader.h"
#include "files/disk.h"
#include "files/text.h"
#include "input/augment.h"
#include "input/dataset.h"
#include "input/resident.h"
#include "measure/environment.h"
#include "measure/segments.h"
#include "ranks/ranks.h"
#include "ranks/stop.h"
#include "report/document.h"
#include "session/init.h"
#include "session/room.h"
#include "train/algorithms.h"
#include "train/balance.h"
#include "train/batches.h"
#include "train/diagnose.h"
#include "train/epoch.h"
#include "train/learning_rate.h"
#include "train/results.h"
#include "train/run_folder.h"
#include "train/score.h"
#include "train/train.h"
#include "train/train_log.h"
#include "train/train_report.h"
#include "train/under_way.h"

namespace tessera::run {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
constexpr std::int64_t most_skipped_in_a_row = 10;

class Trainer {
 public:
  Trainer(const config::Config& config, const TrainOptions& options, comm::Comm* world)
      : options_(options),
        out_(config.run.out),
        asked_batch_(config.batch.global),
        state_(config, world) {
    log_.console().set_quiet(options.quiet || !state_.ranks.first());
  }

  int run() {
    bool finished_before = false;
    state_.ranks.together([&] {
      if (state_.ranks.first()) lock_.take(out_);
      finished_before =
          state_.ranks.first() && !options_.fresh && holds_whole_run(out_, asked(), notes_);
    });
    if (state_.ranks.any(finished_before)) {
      log_.console().line("run " + state_.config.run.name + " in " + out_.string() +
                          " is already finished; --fresh starts over");
      if (options_.json && state_.ranks.first())
        say_json(stdout, files::read_text(out_ / "summary.json"));
      return 0;
    }
    const StopOnSignal guard;
    state_.ranks.together([&] {
      comm::Heartbeat::doing("opening the data");
      prepare();
    });
    settle_stages(state_.config, state_.ranks.world());
    measure_cards(state_.config, state_.ranks);
    comm::Heartbeat::doing("compiling");
    state_.session =
        std::make_unique<Session>(state_.config, transforms::RunOptions{}, state_.ranks.world());
    plans_ = plans_of_training(state_.config, extent_);
    state_.results.planned_bytes = reserve(*state_.session, plans_, state_.ranks).bytes();
    state_.ranks.together([&] { clean_run_folder(out_, lock_, notes_); });
    memory_.emplace(state_.ranks, state_.config.checkpoint.memory_every, out_);
    in_memory_ = memory_->newest(newest_step(state_.ranks, out_), notes_);
    state_.ranks.together([&] {
      comm::Heartbeat::doing("bringing the pictures to the device");
      hold_pictures(*state_.session, *state_.train);
      comm::Heartbeat::doing("loading the weights");
      begin();
    });
    expect_same_step(state_.ranks, out_, resumed_ ? state_.progress.step : -1);
    memory_->loaded();
    segment_ = begin_segment(state_.ranks, static_cast<int>(state_.config.run.threads), out_,
                             state_.progress.step, config::in_short(state_.config),
                             state_.config.precision.dtype);
    state_.ranks.together([&] {
      if (!state_.ranks.first()) return;
      open_folder(out_, asked(), options_, lock_);
      segment_.write(out_);
      if (resumed_) set_newer_aside(out_, state_.progress.step, notes_);
      if (resumed_) fs::remove(out_ / "summary.json");  // of the run as it was shorter
    });
    record_algorithms(resumed_, notes_);
    watch_ranks(state_.ranks, out_, notes_);
    if (state_.ranks.first()) log_.console().log_to((out_ / "log.txt").string());
    require_room_for_checkpoint(*state_.session, state_.ranks, out_);
    introduce();
    meter_.emplace(state_.config, state_.ranks, *state_.session, out_);
    under_way_.emplace(*state_.session, extent_, steps_ahead());
    saver_.emplace(
        out_, Retention{state_.config.checkpoint.keep, state_.config.checkpoint.keep_best},
        state_.ranks, state_.config.parallel.disk_s,
        SaveInterval(state_.config.checkpoint.every, 3600 * state_.config.checkpoint.mtbf_h));
    const bool finished = loop();
    log_.console().finish();
    save();
    saver_->wait();
    log_.note(saver_->remarks());
    memory_->end();          // all of it is on the disk now
    state_.ranks.barrier();  // nobody leaves before the last shard is in place
    comm::Heartbeat::doing("finishing");
    if (!finished) {
      log_.console().line(fmt::format(
          "stopped on request at step {} of {}; the same command{} goes on from here",
          state_.progress.step, state_.total, options_.fresh ? " without --fresh" : ""));
      return static_cast<int>(ErrorKind::stopped);
    }
    finish();
    return 0;
  }

 private:
  // All that can be wrong is found before the folder is touched: an older run survives a mistake.
  void prepare() {
    state_.train = open_data(state_.config, data::Split::train);
    state_.test = open_data(state_.config, data::Split::test);
    for (const auto* set : {state_.train.get(), state_.test.get()}) note_links(*set, notes_);
    for (const auto* set : {state_.train.get(), state_.test.get()})
      set->bad().say = [this](const std::string& line) { log_.console().line("warning: " + line); };
    extent_ =
        extent_of(state_.config, used_samples(state_.config, *state_.train), state_.test->size());
    state_.config.batch.global = extent_.batch;
    settle_resident(state_.config, *state_.train);
    if (state_.config.parallel.shares.word == "measured")
      state_.config.parallel.shares.list.assign(static_cast<std::size_t>(state_.config.parallel.dp),
                                                1.0);
    samples_ = extent_.samples;
    state_.epoch_samples = extent_.epoch_samples;
    state_.total = extent_.steps;
  }

  // The configuration as a command has it: of all ranks, before the samples were counted.
  config::Config asked() const {
    config::Config out = config::as_asked(state_.config);
    out.batch.global = asked_batch_;
    return out;
  }

  // From the newest checkpoint, from --init, or drawn.
  void begin() {
    if (!options_.fresh) {
      const std::optional<Progress> found =
          in_memory_.empty()
              ? load_newest_checkpoint(out_, *state_.session, state_.epoch_samples, notes_)
              : load_checkpoint(in_memory_, *state_.session, state_.epoch_samples, notes_);
      if (found) {
        state_.progress = *found;
        resumed_ = true;
      }
      if (const auto changes = changes_since(out_, asked()); resumed_ && !changes.empty())
        notes_.push_back("the run goes on with another configuration than before: " +
                         join(changes, ", "));
    }
    state_.wall_before = state_.progress.wall_s;
    state_.session->set_step(state_.progress.step);
    if (resumed_) return;
    const auto seed = static_cast<std::uint64_t>(state_.config.run.seed);
    if (state_.config.init.empty())
      state_.session->load(initial_weights(seed));
    else
      state_.session->load(weights_to_start_from(state_.config, notes_));
  }

  // As many as all ranks find worth it: who submits a step ahead of another rank would wait in it.
  int steps_ahead() const {
    const int mine = options_.ahead >= 0 ? options_.ahead : state_.session->executor().runs_ahead();
    return -static_cast<int>(state_.ranks.most(-static_cast<double>(mine)));
  }

  void record_algorithms(bool resumed, std::vector<std::string>& notes) {
    settle_algorithms(
        state_.session->executor().choices(), [&] { state_.session->choose(plans_); }, state_.ranks,
        out_, resumed, notes);
  }

  void introduce() {
    const plan::Plan& plan = state_.session->compiled(Goal::train, state_.config.batch.global).plan;
    const std::vector<plan::Memory> memory = memory_of_ranks(state_.ranks, plan.memory);
    const std::string resumed =
        resumed_ ? fmt::format("  resumed from step {}", state_.progress.step) : "";
    const double planned = state_.ranks.most(static_cast<double>(state_.results.planned_bytes));
    for (const std::string& line :
         introduction(state_.config, memory, static_cast<std::int64_t>(planned), samples_,
                      state_.test->size(), resumed))
      log_.console().line(line);
    for (const std::string& more :
         {missed_shares(state_.config), doubt_of_peak(segment_.peak), segment_.other_kernels,
          segment_.lost, config::shrink_text(state_.config)})
      if (!more.empty()) notes_.push_back(more);
    for (const std::string& more : state_.session->executor().notes()) notes_.push_back(more);
    for (const std::string& note : notes_) log_.console().line("note: " + note);
    flops_ = plan.cost.flops;
    peak_ = segment_.peak.gflops * 1e9;
    state_.results.segments = segment_.all;
  }

  bool at_end() const {
    return state_.progress.reached || (state_.last_epoch() && !state_.epoch_pending());
  }

  // True when the run reached its end, false when it was asked to stop.
  bool loop() {
    if (state_.ranks.first())
      state_.results.recall(log_.open(out_, state_.config,
                                      resumed_ ? state_.progress.metrics_bytes : 0,
                                      state_.progress.metrics_hash, state_.progress.step + 1));
    if (resumed_) saved_lines_ = 0;
    data::LoaderOptions options = loader_options(state_.config, *state_.train, data::Split::train);
    options.first_epoch =
        state_.progress.epoch + (state_.progress.position >= state_.epoch_samples ? 1 : 0);
    options.first_position =
        state_.progress.position >= state_.epoch_samples ? 0 : state_.progress.position;
    options.wants = state_.session->own_samples_of(Goal::train);
    loader_.emplace(*state_.train, options);
    log_.begin(state_.progress.step, state_.total, evaluations_left(state_), state_.test->size());
    state_.epoch_start = std::chrono::steady_clock::now();
    bool stop = state_.stopping();
    while (!at_end()) {
      saver_->poll();
      if (stop) return false;
      const std::int64_t before = state_.progress.step;
      if (!state_.epoch_pending()) stop = step();
      if (state_.config.parallel.shares.word == "measured" && !state_.epoch_pending())
        follow_speed(options);
      bool due = state_.progress.step > before && saver_->due(state_.progress.step);
      if (state_.epoch_pending()) {
        const std::int64_t best = state_.progress.best_step, epoch = state_.progress.epoch;
        if (!end_epoch(state_, log_, *meter_)) return false;
        stop = state_.stopping();
        due |= (state_.config.checkpoint.every == 0 && state_.progress.epoch > epoch) ||
               (state_.config.checkpoint.keep_best && state_.progress.best_step > best);
      }
      if (due && !stop) save();
      if (!due && !stop && state_.progress.step > before && memory_->due(state_.progress.step))
        save_in_memory();
      log_.note(saver_->remarks());
    }
    if (state_.results.final.images == 0 && state_.test->size() > 0)
      state_.results.final = evaluate(state_, log_);  // resumed at its very end
    return !(state_.stopping() && state_.results.final.images < state_.test->size());
  }

  // Starts a step, accounts for what must be over before the next. True: a rank was asked to stop.
  bool step() {
    under_way_->submit(*loader_, state_.progress, *meter_, state_.ranks.rank());
    bool stop = false;
    while (under_way_->full(state_.progress) || (stop && !under_way_->empty()))
      stop |= account(under_way_->wait());
    return stop;
  }

  bool account(FinishedStep step) {
    const data::Batch& batch = step.batch;
    const StepResult& r = step.result;
    state_.results.comm = step.sent;
    state_.progress.epoch = batch.epoch;
    state_.progress.position = batch.first_position + batch.count;
    state_.progress.add(r.ok, batch.count, r.loss, r.correct, r.overflow);
    const Measured seen = meter_->step(
        r.step, step.wanted, r.timeline, state_.session->compiled(Goal::train, batch.count).plan,
        batch.count, step.began_ns, step.data_ms, step.ran_ms, stop_requested());
    report::StepMetrics m = metrics_of(step, seen);
    m.lr = learning_rate(state_.config, r.step, state_.total);
    m.mfu = flops_ * static_cast<double>(batch.count) /
            static_cast<double>(state_.config.batch.global) / (m.step_ms * 1e-3) / peak_;
    log_.append(report::to_json(m));
    const bool first_of_row = m.overflow || state_.progress.skipped_in_a_row == 1;
    log_.show(m, state_.epoch_pending() || (m.skipped && first_of_row));
    for (const std::string& remark : seen.remarks) log_.console().line("note: " + remark);
    if (r.ok) {
      state_.results.step_ms.push_back(m.step_ms);
      state_.results.last_loss = r.loss;
    } else if (state_.progress.skipped_in_a_row >= most_skipped_in_a_row) {
      give_up(r, under_way_->inputs_of(batch, r.step));
    }
    under_way_->give_back(std::move(step.batch));
    return seen.stop;
  }

  void follow_speed(data::LoaderOptions options) {
    // The loader has read ahead for the old shares.
    const std::string changed =
        rebalance(*state_.session, *meter_, state_.ranks, plans_, [&] { loader_.reset(); });
    if (changed.empty()) return;
    state_.results.planned_bytes = std::max(state_.results.planned_bytes,
                                            reserve(*state_.session, plans_, state_.ranks).bytes());
    std::vector<std::string> remarks;  // none: what the run took so far is in the folder
    record_algorithms(true, remarks);
    options.first_epoch = state_.progress.epoch;
    options.first_position = state_.progress.position;
    loader_.emplace(*state_.train, options);
    log_.console().line("note: " + changed);
  }

  void give_up(const StepResult& r, const StepInputs& inputs) {
    log_.console().finish();
    state_.progress.skipped_in_a_row = 0;  // whoever goes on from here gets as many tries again
    save();
    saver_->wait();
    log_.note(saver_->remarks());
    state_.ranks.together([&] {
      throw not_finite(*state_.session, inputs, r, most_skipped_in_a_row, out_ / "ckpt");
    });
  }

  // Starts to save what the loop stands at, unless that was the last thing saved.
  void save() {
    if (saved_lines_ == log_.lines()) return;  // every batch and every epoch adds a line
    saved_lines_ = log_.lines();
    state_.note_progress(log_);
    saver_->save(*state_.session, state_.progress, manifest_notes(state_, samples_),
                 out_ / "metrics.jsonl");
  }

  void save_in_memory() {
    state_.note_progress(log_);
    log_.note(memory_->save(*state_.session, state_.progress, manifest_notes(state_, samples_),
                            out_ / "metrics.jsonl"));
  }

  void finish() {
    const std::map<std::string, std::vector<double>> weights =
        state_.session->parameters(state_.session->averages() ? Weights::average : Weights::live);
    state_.results.measured_bytes = state_.session->executor().allocated_bytes();
    state_.results.ranks =
        meter_->ranks_json(state_.results.planned_bytes, state_.results.measured_bytes);
    if (!state_.ranks.first()) return;
    state_.progress.wall_s = state_.wall();
    const ordered_json summary = write_results(out_, state_, weights);
    log_.console().line(done_line(summary, out_.string()));
    if (options_.json) report::print_document(summary);
  }

  TrainOptions options_;
  fs::path out_;
  const std::int64_t asked_batch_;
  FolderLock lock_;
  TrainLog log_;
  TrainState state_;
  std::optional<Meter> meter_;
  std::optional<data::Loader> loader_;
  std::optional<MemoryLevel> memory_;
  fs::path in_memory_;          // the checkpoint in memory that the run goes on from; empty: none
  std::optional<Saver> saver_;  // after the session: it waits for its thread first
  std::optional<StepsUnderWay> under_way_;
  RunExtent extent_;
  Segment segment_;
  std::vector<PlanKey> plans_;
  std::vector<std::string> notes_;
  std::int64_t samples_ = 0, saved_lines_ = -1;
  double flops_ = 0, peak_ = 1;
  bool resumed_ = false;
};

}  // namespace

int train(const config::Config& config, const TrainOptions& options, comm::Comm* world) {
  try {
    return Trainer(config, options, world).run();
  } catch (Error& error) {
    // Whichever small file met the full disk first: say how full it is. Where there is room, it was
    // not the disk.
    const bool told = error.message.find("are free") != error.message.npos;
    if (const auto room = files::free_bytes(config.run.out);
        error.kind == ErrorKind::disk && !told && room && *room < 100'000'000)
      error.and_also(fmt::format("{} MB are free at the run folder", *room / 1'000'000));
    throw;
  }
}

}  // namespace tessera::run
