// `tessera ckpt ls`, `verify` and `diff`: what lies in a run folder, whether every byte of it is
// sound, and how two of them differ.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/check.h"
#include "base/say.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/weights_open.h"
#include "files/look.h"
#include "files/safetensors.h"
#include "report/document.h"
#include "verbs/verbs.h"

namespace tessera::run {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

struct Entry {
  CheckpointPath at;
  Progress progress;
  std::uint64_t bytes = 0;
  std::int64_t time = 0;  // seconds since 1970; 0: not said
  std::string problem;    // empty: valid
};

std::uint64_t bytes_on_disk(const fs::path& folder) {
  std::uint64_t sum = 0;
  std::error_code gone;
  for (const fs::path& file : files::entries_of(folder)) {
    const std::uintmax_t bytes = fs::file_size(file, gone);
    if (!gone) sum += bytes;
    if (gone && gone != std::errc::no_such_file_or_directory)  // which a run may have removed
      throw Error(ErrorKind::disk, "cannot look at the file: " + gone.message(), file.string());
  }
  return sum;
}

// Every checkpoint of a run folder, or the one that the path names; each proved byte by byte.
// A run may go on meanwhile: what it removed is left out, and when that was all, the folder is
// looked at again.
std::vector<Entry> look_at(const fs::path& path, int more_looks = 50) {
  const bool one = files::is_there(path / files::manifest_name);
  const std::vector<CheckpointPath> found =
      one ? std::vector<CheckpointPath>{{-1, path}} : checkpoints_in(path);
  if (found.empty())
    throw Error(ErrorKind::weights, "there is no checkpoint here", path.string(),
                "expected a run folder with ckpt/step-N, or such a folder");
  std::vector<Entry> out;
  for (const CheckpointPath& at : found) {
    Entry entry;
    entry.at = at;
    entry.bytes = bytes_on_disk(at.path);
    try {
      const auto checkpoint = one ? open_checkpoint(at.path) : open_unless_replaced(at.path);
      if (!checkpoint) continue;
      entry.progress = progress_of(*checkpoint);
      if (const json time = checkpoint->manifest().state.value("time", json());
          time.is_number_integer())
        entry.time = time;
      if (at.step >= 0 && at.step != entry.progress.step)
        entry.problem = fmt::format("the manifest is of step {}", entry.progress.step);
      entry.at.step = entry.progress.step;
    } catch (const Error& e) {
      if (e.kind != ErrorKind::weights) throw;
      entry.problem = e.message;
    }
    out.push_back(std::move(entry));
  }
  if (!out.empty()) return out;
  if (more_looks == 0)
    throw Error(ErrorKind::weights, "checkpoints are replaced faster than they can be opened",
                path.string(), "give the command again");
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return look_at(path, more_looks - 1);
}

struct WeightEntry {
  fs::path path;
  bool hashed = false;
  std::string problem;  // empty: valid
};

// The weight file that the path is, or that a finished run has.
std::vector<WeightEntry> weights_at(const fs::path& path) {
  std::error_code error;
  const fs::path file = fs::is_directory(path, error) ? path / "weights.safetensors" : path;
  const bool finished = files::is_there(path / "summary.json"), there = files::is_there(file);
  if (!there && !finished) return {};
  WeightEntry entry{
      file, false,
      there ? "" : "it is gone, and the run is finished: `tessera train` makes it anew"};
  if (!there) return {entry};
  try {
    entry.hashed = files::Safetensors(file).metadata().contains(files::hash_key);
  } catch (const Error& e) {
    if (e.kind != ErrorKind::weights) throw;
    entry.problem = e.message;
  }
  return {entry};
}

std::string when(std::int64_t time) {
  // Years that a calendar has; a hostile manifest may say anything.
  if (time <= 0 || time > 253402300799) return "-";
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(static_cast<std::time_t>(time)));
}

// The best one is what the newest valid manifest says it is.
std::int64_t best_step(const std::vector<Entry>& entries) {
  for (const Entry& e : entries)
    if (e.problem.empty()) return e.progress.best_step;
  return 0;
}

ordered_json to_json(const Entry& e, std::int64_t best) {
  ordered_json out = {{"path", e.at.path.string()},
                      {"step", e.at.step},
                      {"bytes", e.bytes},
                      {"valid", e.problem.empty()}};
  if (e.problem.empty())
    out.update({{"epoch", e.progress.epoch},
                {"position", e.progress.position},
                {"skipped", e.progress.skipped},
                {"time", e.time},
                {"best", best > 0 && e.at.step == best},
                {"best_top1", e.progress.best_top1}});
  else
    out["problem"] = e.problem;
  return out;
}

void print_table(const std::vector<Entry>& entries, std::int64_t best) {
  say(stdout, "{:>8} {:>6} {:>10} {:>9}  {:19}  {}\n", "step", "epoch", "position", "MB", "when",
      "valid");
  for (const Entry& e : entries) {
    if (e.problem.empty())
      say(stdout, "{:>8} {:>6} {:>10} {:>9.2f}  {:19}  yes{}\n", e.at.step, e.progress.epoch,
          e.progress.position, static_cast<double>(e.bytes) * 1e-6, when(e.time),
          best > 0 && e.at.step == best
              ? fmt::format("  best: top1 {:.2f}%", e.progress.best_top1 * 100)
              : "");
    else
      say(stdout, "{:>8} {:>6} {:>10} {:>9.2f}  {:19}  NO: {}\n", e.at.step, "-", "-",
          static_cast<double>(e.bytes) * 1e-6, "-", e.problem);
  }
}

// Named tensors of one side of a diff: everything in a checkpoint or in a file, or a model's
// parameters by their canonical names.
struct DiffSide {
  std::set<std::string> names;
  std::function<std::string(const std::string&)> type;              // "F32 [2,3]"
  std::function<std::vector<double>(const std::string&)> numbers;   // of one tensor
  std::function<std::vector<std::byte>(const std::string&)> bytes;  // of one tensor
};

std::shared_ptr<const files::Sharded> as_checkpoint(const fs::path& path) {
  std::error_code error;
  if (files::is_there(path / files::manifest_name)) return open_checkpoint(path);
  std::vector<std::string> notes;
  if (!files::is_there(path) || !fs::is_directory(path, error) ||
      files::is_there(path / "model.safetensors"))
    return nullptr;
  return newest_checkpoint(path, notes);
}

DiffSide tensors_of(std::shared_ptr<const files::Sharded> c) {
  DiffSide out;
  for (const auto& [name, tensor] : c->manifest().tensors) out.names.insert(name);
  out.type = [c](const std::string& name) {
    return c->at(name).dtype + " " + ir::to_string(c->at(name).shape);
  };
  out.bytes = [c](const std::string& name) { return c->read(name); };
  out.numbers = [c](const std::string& name) {
    const std::vector<std::byte> bytes = c->read(name);
    return files::to_doubles({c->at(name).dtype, c->at(name).shape, bytes}, name);
  };
  return out;
}

DiffSide tensors_of(std::shared_ptr<const files::Safetensors> f) {
  DiffSide out;
  for (const auto& [name, tensor] : f->tensors()) out.names.insert(name);
  out.type = [f](const std::string& name) {
    return f->at(name).dtype + " " + ir::to_string(f->at(name).shape);
  };
  out.bytes = [f](const std::string& name) { return f->read(name).bytes; };
  out.numbers = [f](const std::string& name) { return files::to_doubles(f->read(name), name); };
  return out;
}

DiffSide parameters_of(const fs::path& path) {
  auto w = std::make_shared<const OpenedWeights>(open_weights(path));
  auto params = std::make_shared<std::map<std::string, models::Param>>();
  DiffSide out;
  for (models::Param& p : models::parameters(w->model)) {
    out.names.insert(p.name);
    params->emplace(p.name, p);
  }
  out.type = [params](const std::string& name) { return ir::to_string(params->at(name).shape); };
  out.numbers = [w, params](const std::string& name) { return w->source(params->at(name)); };
  out.bytes = [numbers = out.numbers](const std::string& name) {
    const std::vector<double> values = numbers(name);
    const auto raw = std::as_bytes(std::span(values));
    return std::vector<std::byte>(raw.begin(), raw.end());
  };
  return out;
}

ordered_json compare(const DiffSide& a, const DiffSide& b, const std::string& name) {
  ordered_json out = {{"name", name}};
  auto status = [&](const char* word) {
    out["status"] = word;
    return out;
  };
  if (!a.names.contains(name)) return status("missing in A");
  if (!b.names.contains(name)) return status("missing in B");
  if (a.type(name) != b.type(name)) {
    out["a"] = a.type(name);
    out["b"] = b.type(name);
    return status("other type or shape");
  }
  if (a.bytes(name) == b.bytes(name)) return status("equal");
  const std::vector<double> x = a.numbers(name), y = b.numbers(name);
  double most = 0;
  std::int64_t differ = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double d = std::abs(x[i] - y[i]);
    differ += !(d == 0);
    if (std::isnan(d) || d > most) most = std::isnan(most) ? most : d;
  }
  out["max_abs"] = std::isfinite(most) ? ordered_json(most) : ordered_json(nullptr);
  out["elements"] = differ;
  return status("different");
}

}  // namespace

int ckpt_list(const CkptOptions& options) {
  const std::vector<Entry> entries = look_at(options.path);
  const std::int64_t best = best_step(entries);
  if (!options.json) {
    print_table(entries, best);
    return 0;
  }
  ordered_json all = ordered_json::array();
  for (const Entry& e : entries) all.push_back(to_json(e, best));
  report::print_document(all);
  return 0;
}

int ckpt_verify(const CkptOptions& options) {
  const std::vector<WeightEntry> weights = weights_at(options.path);
  std::error_code error;
  const std::vector<Entry> entries =
      fs::is_regular_file(options.path, error) ? std::vector<Entry>() : look_at(options.path);
  bool ok = true;
  ordered_json all = ordered_json::array();
  for (const Entry& e : entries) {
    ok &= e.problem.empty();
    all.push_back(to_json(e, best_step(entries)));
    if (!options.json)
      say(stdout, "{}: {}\n", e.at.path.string(),
          e.problem.empty() ? "every hash fits" : "BAD: " + e.problem);
  }
  ordered_json files = ordered_json::array();
  for (const WeightEntry& w : weights) {
    ok &= w.problem.empty();
    files.push_back(
        {{"path", w.path.string()}, {"valid", w.problem.empty()}, {"hashed", w.hashed}});
    if (!w.problem.empty()) files.back()["problem"] = w.problem;
    const char* sound =
        w.hashed ? "its hash fits" : "sound as far as can be seen: it carries no hash";
    if (!options.json)
      say(stdout, "{}: {}\n", w.path.string(), w.problem.empty() ? sound : "BAD: " + w.problem);
  }
  if (options.json) report::print_document({{"ok", ok}, {"checkpoints", all}, {"weights", files}});
  return ok ? 0 : static_cast<int>(ErrorKind::weights);
}

int ckpt_diff(const CkptOptions& options) {
  const auto ca = as_checkpoint(options.path), cb = as_checkpoint(options.other);
  // Tensors as they are stored; but a checkpoint and a file, or two naming schemes, only meet in
  // the model's parameters.
  bool stored = !ca == !cb;
  std::shared_ptr<const files::Safetensors> fa, fb;
  if (!ca && !cb) {
    fa = std::make_shared<const files::Safetensors>(weight_file(options.path));
    fb = std::make_shared<const files::Safetensors>(weight_file(options.other));
    const bool named =
        fa->metadata().contains("tessera.model") && fb->metadata().contains("tessera.model");
    stored = !named || tensors_of(fa).names == tensors_of(fb).names;
  }
  const DiffSide a = !stored ? parameters_of(options.path) : ca ? tensors_of(ca) : tensors_of(fa);
  const DiffSide b = !stored ? parameters_of(options.other) : cb ? tensors_of(cb) : tensors_of(fb);
  std::set<std::string> names = a.names;
  names.insert(b.names.begin(), b.names.end());
  ordered_json all = ordered_json::array();
  std::size_t equal = 0;
  for (const std::string& name : names) {
    all.push_back(compare(a, b, name));
    equal += all.back()["status"] == "equal";
    if (options.json || all.back()["status"] == "equal") continue;
    const ordered_json& d = all.back();
    std::string detail;
    if (d.contains("a"))
      detail = fmt::format(": {} and {}", d["a"].get<std::string>(), d["b"].get<std::string>());
    if (d.contains("elements"))
      detail = fmt::format(": {} elements, at most by {}", d["elements"].get<std::int64_t>(),
                           d["max_abs"].is_null() ? "NaN or Inf" : d["max_abs"].dump());
    say(stdout, "{}: {}{}\n", name, d["status"].get<std::string>(), detail);
  }
  const bool same = equal == names.size();
  if (options.json)
    report::print_document({{"equal", same}, {"tensors", all}});
  else
    say(stdout, "{} of {} tensors are equal\n", equal, names.size());
  return same ? 0 : 1;
}

}  // namespace tessera::run
