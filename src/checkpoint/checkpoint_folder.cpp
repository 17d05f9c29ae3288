// Which checkpoints a run folder holds, which one is taken, and which ones go. Convention: a folder
// that cannot be looked at is Error(disk) and never one without checkpoints; nothing is removed
// that is newer than what the run stands at.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/check.h"
#include "checkpoint/checkpoint.h"
#include "files/disk.h"
#include "files/look.h"
#include "files/text.h"
#include "ranks/ranks.h"

namespace tessera::run {
namespace {

namespace fs = std::filesystem;

constexpr int most_looks = 50;  // at a folder whose checkpoints are replaced meanwhile
constexpr auto between_looks = std::chrono::milliseconds(10);

std::vector<CheckpointPath> steps_listed(const fs::path& run) {
  std::vector<CheckpointPath> out;
  for (const fs::path& path : files::entries_of(run / "ckpt")) {
    const std::string name = path.filename().string();
    if (name.starts_with("step-") && name.size() > 5 && name.size() < 20 &&
        name.find_first_not_of("0123456789", 5) == name.npos)
      out.push_back({std::stoll(name.substr(5)), path});
  }
  std::sort(out.begin(), out.end(),
            [](const CheckpointPath& a, const CheckpointPath& b) { return a.step > b.step; });
  return out;
}

fs::path mark_of(const fs::path& run) { return run / saved_mark; }

}  // namespace

std::vector<CheckpointPath> checkpoints_in(const fs::path& run) {
  // A listing that runs beside a rename may miss the old name and the new one.
  std::vector<CheckpointPath> out = steps_listed(run);
  for (int again = 0; again < 2 && out.empty(); ++again) out = steps_listed(run);
  return out;
}

std::shared_ptr<const files::Sharded> open_unless_replaced(const fs::path& path) {
  const files::Identity before = files::identity_of(path);
  try {
    return open_checkpoint(path);
  } catch (const Error&) {
    if (before && files::identity_of(path) == before)
      throw;  // it is what was looked at, and it is not sound
    return nullptr;
  }
}

std::shared_ptr<const files::Sharded> newest_checkpoint(const fs::path& run,
                                                        std::vector<std::string>& notes,
                                                        const std::string& hint) {
  std::optional<Error> newest;
  std::size_t count = 0;
  for (int look = 0; look < most_looks; ++look) {
    if (look > 0) std::this_thread::sleep_for(between_looks);
    const std::vector<CheckpointPath> all = checkpoints_in(run);
    std::vector<std::string> passed;
    bool replaced = false;
    newest.reset();
    count = all.size();
    for (const CheckpointPath& candidate : all) {
      try {
        if (auto found = open_unless_replaced(candidate.path)) {
          notes.insert(notes.end(), passed.begin(), passed.end());
          return found;
        }
        replaced = true;
      } catch (const Error& e) {
        if (e.kind != ErrorKind::weights) throw;
        passed.push_back("checkpoint " + candidate.path.string() + " passed over: " + e.message);
        if (!newest) newest.emplace(e).where = candidate.path.string();
      }
    }
    if (replaced) continue;
    if (!newest) return nullptr;
    notes.insert(notes.end(), passed.begin(), passed.end());
    break;
  }
  if (!newest)
    throw Error(ErrorKind::weights, "checkpoints are replaced faster than one can be opened",
                (run / "ckpt").string(),
                "give the command again, or ask the run for a larger checkpoint.keep");
  throw Error(
      ErrorKind::weights,
      fmt::format("none of the {} checkpoints can be used; the newest: {}", count, newest->message),
      newest->where, hint);
}

void mark_saved(const fs::path& run) {
  if (!files::is_there(mark_of(run)))
    files::write_atomically(
        mark_of(run),
        "This run has written checkpoints; without them it does not start over by itself.\n");
}

void expect_never_saved(const fs::path& run) {
  if (!files::is_there(mark_of(run))) return;
  throw Error(
      ErrorKind::weights, "the run has written checkpoints, but none of them is here any more",
      (run / "ckpt").string(),
      "mount their disk or bring them back; --fresh starts over in this folder, --out chooses "
      "another");
}

std::int64_t newest_step(const Ranks& ranks, const fs::path& run) {
  std::int64_t step = -1;
  ranks.together([&] {
    if (!ranks.first()) return;
    if (const auto all = checkpoints_in(run); !all.empty()) step = all.front().step;
  });
  return static_cast<std::int64_t>(ranks.most(static_cast<double>(step)));
}

void expect_same_step(const Ranks& ranks, const fs::path& run, std::int64_t step) {
  const auto mine = static_cast<double>(step);
  const std::vector<double> steps = ranks.gather({&mine, 1});
  const auto [oldest, newest] = std::minmax_element(steps.begin(), steps.end());
  if (*oldest == *newest) return;
  throw AgreedError(
      ErrorKind::weights,
      fmt::format("rank {} can use the checkpoint of step {}, rank {} cannot",
                  newest - steps.begin(), *newest, oldest - steps.begin()),
      (run / "ckpt").string(),
      "all ranks must be able to read the run folder; `tessera ckpt verify` on each machine looks");
}

void set_newer_aside(const fs::path& run, std::int64_t step, std::vector<std::string>& notes) {
  for (const CheckpointPath& newer : checkpoints_in(run)) {
    if (newer.step <= step) continue;
    fs::path aside = run / "ckpt" / ("aside-" + newer.path.filename().string());
    const std::string name = aside.filename().string();
    for (int i = 2; files::is_there(aside); ++i)
      aside.replace_filename(fmt::format("{}-{}", name, i));
    if (::rename(newer.path.c_str(), aside.c_str()) != 0)
      files::fail_disk(newer.path, "set the checkpoint aside", errno);
    notes.push_back(fmt::format(
        "{} is kept as {}: the run goes on from step {}; remove it when nobody needs it",
        newer.path.filename().string(), aside.string(), step));
  }
}

std::vector<StuckCheckpoint> remove_older(const fs::path& run, std::int64_t step,
                                          std::int64_t best_step, const Retention& retention) {
  std::vector<StuckCheckpoint> stuck;
  std::int64_t kept = 1;  // the one of `step`
  for (const CheckpointPath& other : checkpoints_in(run)) {
    if (other.step >= step) continue;
    const bool best = retention.keep_best && other.step == best_step;
    if (++kept <= retention.keep || best) continue;
    if (const std::string why = files::remove_folder(other.path); !why.empty())
      stuck.push_back({other.path, why});
  }
  return stuck;
}

}  // namespace tessera::run
