#include "checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/build_info.h"
#include "base/check.h"
#include "checkpoint/checkpoint_parts.h"
#include "compile/stages.h"
#include "config/reader.h"
#include "files/atomic_folder.h"
#include "files/disk.h"
#include "files/text.h"

namespace tessera::run {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

fs::path place(const fs::path& run, std::int64_t step) {
  return run / "ckpt" / fmt::format("step-{}", step);
}

// The values that must agree between a checkpoint and the run that takes it up.
json identity(const config::Config& c) {
  return {{"model", json::parse(config::model_to_json(c.model))},
          {"dtype", c.precision.dtype},
          {"optimizer", c.optim.name},
          {"seed", c.run.seed}};
}

void check_same_run(const files::Sharded& checkpoint, const Progress& p,
                    const config::Config& config, std::int64_t samples) {
  const char* hint = "--fresh starts over in this folder, --out chooses another";
  const json mine = identity(config),
             theirs = checkpoint.manifest().state.value("identity", json::object());
  std::vector<std::string> differ;
  for (const auto& [key, value] : mine.items()) {
    bool same = theirs.contains(key) && theirs.at(key) == value;
    if (!same && key == "model" && theirs.contains(key)) {
      // A model section that an older version wrote may lack keys that have since been added;
      // defaults fill them.
      try {
        same = config::model_from_json(theirs.at(key).dump()) == config.model;
      } catch (const Error&) {
      }
    }
    if (!same) differ.push_back(key);
  }
  if (!differ.empty())
    throw Error(ErrorKind::weights,
                "the checkpoint belongs to another run; it differs in " + join(differ, ", "),
                checkpoint.path().string(), hint);
  if (p.position > samples)
    throw Error(
        ErrorKind::weights,
        fmt::format("the checkpoint stands at sample {} of epoch {}, but an epoch has {} samples",
                    p.position, p.epoch, samples),
        checkpoint.path().string(), hint);
}

// The layout that each rank's own tensors belong to.
json layout(const config::Config& c) {
  json out = {{"dp", c.parallel.dp},
              {"sp", c.parallel.sp},
              {"tp", c.parallel.tp},
              {"zero", c.parallel.zero}};
  // Which layers a bucket holds is in no name; ZeRO 2 cuts by blocks of layers.
  if (c.parallel.zero < 2) out["bucket_mb"] = c.parallel.bucket_mb;
  if (c.parallel.pp > 1) out["stages"] = blocks_per_stage(c);
  return out;
}

// The keys in which a checkpoint's layout is another one.
std::vector<std::string> layout_differences(const files::Sharded& checkpoint,
                                            const config::Config& config) {
  const json mine = layout(config),
             theirs = checkpoint.manifest().state.value("layout", json::object());
  std::vector<std::string> out;
  for (const char* key : {"dp", "sp", "tp", "zero", "bucket_mb", "stages"}) {
    const bool counts = mine.contains(key) ||
                        std::string_view(key) == "stages";  // older versions wrote bucket_mb always
    if (counts &&
        mine.value(key, json()) != (theirs.is_object() ? theirs.value(key, json()) : json()))
      out.push_back(key);
  }
  return out;
}

// Sending two bytes a number leaves no residual.
bool keeps_nothing(const std::string& kind) { return kind == "fp16" || kind == "bf16"; }

// Why the residuals that this run asks for are not there; `had`: some were written.
std::string why_no_residuals(const files::Sharded& checkpoint, const config::Config& config,
                             bool had) {
  const json said = checkpoint.manifest().state.value("compress", json());
  const std::string kind =
      said.is_string() ? said.get<std::string>() : "";  // older versions did not say
  if (!had)
    return keeps_nothing(kind)
               ? fmt::format("with parallel.compress = \"{}\", which keeps nothing", kind)
               : "without compression";
  if (const auto differ = layout_differences(checkpoint, config); !differ.empty())
    return "by another layout (" + join(differ, ", ") + ")";
  if (kind.empty()) return "with another kind of compression, or with other buckets";
  // It leaves out the buckets in which nothing is a matrix.
  if (kind.starts_with("powersgd") && kind != config.parallel.compress)
    return "with another kind of compression, " + kind;
  return "with other buckets: optim.layer_decay or optim.decay_all has changed";
}

// Loads the state of compression where this layout wrote it; else it starts over, which costs what
// was not sent yet and nothing else.
void load_own(const files::Sharded& checkpoint, Session& session,
              const std::vector<StateTensor>& tensors, std::vector<std::string>& notes) {
  const auto& stored = checkpoint.manifest().tensors;
  const bool had = std::any_of(stored.begin(), stored.end(), [](const auto& tensor) {
    return tensor.first.starts_with("rank-");
  });
  const bool same = layout_differences(checkpoint, session.config()).empty();
  bool wanted = false, missing = false;
  for (const StateTensor& t : tensors) {
    if (!t.own) continue;
    const auto found = stored.find(t.name);
    const bool fits = same && found != stored.end() && found->second.shape == t.shape &&
                      found->second.dtype == stored_name(t.dtype);
    session.executor().write_persistent(
        t.buffer, t.offset,
        fits ? checkpoint.read(t.name)
             : std::vector<std::byte>(static_cast<std::size_t>(t.bytes())));
    wanted = true;
    missing |= !fits && t.role == ir::Role::residual;
  }
  const std::string& kind = session.config().parallel.compress;
  if (missing)
    notes.push_back(
        "what compressed gradients had not sent yet starts at zero: the checkpoint was written " +
        why_no_residuals(checkpoint, session.config(), had));
  else if (had && !wanted)
    notes.push_back((keeps_nothing(kind)
                         ? fmt::format("parallel.compress = \"{}\" keeps nothing", kind)
                         : std::string("gradients are not compressed any more")) +
                    ": what the checkpoint had not sent yet is dropped");
}

// The largest numbers of the last steps, by which a training in eight bits scales: a row for each
// factor in each micro-batch.
bool is_history(const StateTensor& t) { return t.name.starts_with("buffer.amax."); }

bool fits(const files::Sharded& checkpoint, const StateTensor& t) {
  const auto found = checkpoint.manifest().tensors.find(t.name);
  return found != checkpoint.manifest().tensors.end() && found->second.shape == t.shape &&
         found->second.dtype == stored_name(t.dtype);
}

// Histories of other micro-batches start anew: scales are then those of a first step.
void load_histories(const files::Sharded& checkpoint, Session& session,
                    const std::vector<StateTensor>& tensors, std::vector<std::string>& notes) {
  bool anew = false;
  for (const StateTensor& t : tensors) {
    if (!is_history(t) || fits(checkpoint, t)) continue;
    anew = true;
    session.executor().write_persistent(
        t.buffer, t.offset, std::vector<std::byte>(static_cast<std::size_t>(t.bytes())));
  }
  if (anew)
    notes.push_back(
        "the scales of precision.dtype = \"fp8\" start anew: the checkpoint was written with other "
        "micro-batches (batch.accumulate)");
}

// A tensor that a run of the same model lacks: which key has changed since.
void check_same_tensors(const files::Sharded& checkpoint, const std::vector<StateTensor>& tensors) {
  const auto has = [&](const std::string& name) {
    return checkpoint.manifest().tensors.contains(name);
  };
  const auto changed = [&](const std::string& what) {
    return Error(ErrorKind::weights, what, checkpoint.path().string(),
                 "set it as it was; or --fresh starts over in this folder, --out chooses another");
  };
  for (const StateTensor& t : tensors) {
    if (t.own || has(t.name)) continue;
    const std::string name = t.name.substr(t.name.find('.') + 1);
    if (t.name.starts_with("buffer.") && has("param." + name))
      throw changed("optim.freeze has changed: " + name +
                    " is frozen now, and was trained when the checkpoint was written");
    if (t.name.starts_with("param.") && has("buffer." + name))
      throw changed("optim.freeze has changed: " + name +
                    " is trained now, and was frozen when the checkpoint was written");
    if (t.name.starts_with("ema.") && checkpoint.manifest().state.value("ema", json()) == false)
      throw changed("ema.decay has changed: the checkpoint was written without a moving average");
  }
}

// Everything is compared before the first byte of the session changes.
void load(const files::Sharded& checkpoint, Session& session, std::vector<std::string>& notes) {
  const std::vector<StateTensor> tensors = state_tensors(session);
  check_same_tensors(checkpoint, tensors);
  for (const StateTensor& t : tensors) {
    if (t.own || is_history(t)) continue;
    const files::GlobalTensor& stored = checkpoint.at(t.name);
    if (stored.shape != t.shape || stored.dtype != stored_name(t.dtype))
      throw Error(
          ErrorKind::weights,
          fmt::format("{} is {} {} in the checkpoint; the run needs {} {}", t.name, stored.dtype,
                      ir::to_string(stored.shape), stored_name(t.dtype), ir::to_string(t.shape)),
          checkpoint.path().string());
  }
  for (const StateTensor& t : tensors)
    if (!t.own && (!is_history(t) || fits(checkpoint, t)))
      session.executor().write_persistent(t.buffer, t.offset,
                                          checkpoint.read(t.name, t.begin, t.extent));
  load_histories(checkpoint, session, tensors, notes);
  load_own(checkpoint, session, tensors, notes);
}

}  // namespace

void take_snapshot(Session& session, const Progress& progress, const json& notes, Snapshot& into) {
  into.tensors = state_tensors(session);
  for (const plan::Buffer& b :
       session.compiled(Goal::train, session.config().batch.global).plan.persistent) {
    std::vector<std::byte>& copy = into.buffers[b.name];
    copy.resize(static_cast<std::size_t>(b.bytes));
    session.executor().read_persistent(b.name, 0, copy);
  }
  into.progress = progress;
  into.state = notes;
  into.state["identity"] = identity(session.config());
  into.state["layout"] = layout(session.config());
  into.state["compress"] =
      session.config().parallel.dp > 1 ? session.config().parallel.compress : "none";
  into.state["progress"] = to_json(progress);
  into.state["ema"] = session.config().ema.decay > 0;
  into.state["tessera"] = version();
  into.state["time"] = std::chrono::duration_cast<std::chrono::seconds>(
                           std::chrono::system_clock::now().time_since_epoch())
                           .count();
}

CheckpointWrite::CheckpointWrite(const fs::path& run, std::int64_t step)
    : run_(run), step_(step), folder_(place(run, step)) {}

fs::path CheckpointWrite::part(const fs::path& run, std::int64_t step) {
  return files::AtomicFolder::part_of(place(run, step));
}

void CheckpointWrite::finish(const Snapshot& snapshot, const Retention& retention, int ranks,
                             SaveState& state) {
  files::Manifest manifest;
  manifest.tensors = write_own_shards(folder_.path(), 0, snapshot);
  if (!join_parts(folder_.path(), ranks, manifest.tensors, state)) return;
  manifest.state = snapshot.state;
  if (!snapshot.flush.empty()) files::sync_file(snapshot.flush);
  files::write_atomically(folder_.path() / files::manifest_name, print(manifest));
  files::sync_folder(run_);  // the names of ckpt/ and of the metrics
  folder_.commit();
  mark_saved(run_);
  // From here it is known to be on the disk; only now may others go.
  for (const StuckCheckpoint& old :
       remove_older(run_, step_, snapshot.progress.best_step, retention))
    if (state.stuck.insert(old.path).second)
      state.notes.push_back(fmt::format(
          "the old checkpoint {} cannot be removed: {}; it takes room on the disk until you make "
          "it writable for this user or remove it yourself",
          old.path.string(), old.why));
}

void write_checkpoint(const fs::path& run, const Snapshot& snapshot, const Retention& retention) {
  SaveState state;
  CheckpointWrite(run, snapshot.progress.step).finish(snapshot, retention, 1, state);
}

std::shared_ptr<const files::Sharded> open_checkpoint(const fs::path& path) {
  auto checkpoint = std::make_shared<const files::Sharded>(path);
  checkpoint->verify();
  progress_of(*checkpoint);
  return checkpoint;
}

Progress progress_of(const files::Sharded& checkpoint) {
  return progress_from(checkpoint.manifest().state.value("progress", json()),
                       checkpoint.path().string());
}

Progress load_checkpoint(const fs::path& path, Session& session, std::int64_t samples,
                         std::vector<std::string>& notes) {
  const auto checkpoint = open_checkpoint(path);
  Progress progress = progress_of(*checkpoint);
  check_same_run(*checkpoint, progress, session.config(), samples);
  load(*checkpoint, session, notes);
  return progress;
}

std::optional<Progress> load_newest_checkpoint(const fs::path& run, Session& session,
                                               std::int64_t samples,
                                               std::vector<std::string>& notes) {
  const auto checkpoint = newest_checkpoint(
      run, notes,
      "`tessera ckpt verify` says what is wrong with each; --fresh starts over in this folder");
  if (!checkpoint) {
    expect_never_saved(run);
    return std::nullopt;
  }
  Progress progress = progress_of(*checkpoint);
  check_same_run(*checkpoint, progress, session.config(), samples);
  load(*checkpoint, session, notes);
  return progress;
}

}  // namespace tessera::run
