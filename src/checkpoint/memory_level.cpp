#include "checkpoint/memory_level.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/check.h"
#include "checkpoint/checkpoint_parts.h"
#include "comm/heartbeat.h"
#include "files/disk.h"
#include "files/json.h"
#include "files/text.h"
#include "ranks/memory_place.h"

namespace tessera::run {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::int64_t kept_in_memory = 2;  // a host may be one behind another when the job fails
constexpr std::size_t no_limit = SIZE_MAX / 4;         // of a file in memory
constexpr const char* writers_key = "memory_writers";  // of a manifest's state

fs::path shard_file(const fs::path& folder, int rank) {
  return folder / fmt::format("rank-{}.safetensors", rank);
}

// The checkpoints that a host holds in memory, for the others: [step, writers, [ranks ...]].
json inventory(const fs::path& folder) {
  json out = json::array();
  for (const CheckpointPath& found : checkpoints_in(folder)) {
    std::error_code ignored;
    json files = json::array();
    int writers = 0;
    try {
      const files::Manifest manifest = files::parse_manifest(
          files::read_text(found.path / files::manifest_name, no_limit), found.path.string());
      writers = manifest.state.value(writers_key, 0);
    } catch (const Error&) {
      continue;  // it was torn, or was not written by this version
    }
    for (int rank = 0; rank < writers; ++rank)
      if (fs::is_regular_file(shard_file(found.path, rank), ignored)) files.push_back(rank);
    out.push_back({found.step, writers, files});
  }
  return out;
}

// The newest step of which every file lies on some host, and which ranks reach each of them.
struct HeldStep {
  std::int64_t step = -1;
  std::vector<std::vector<int>> holders;  // by file
};
HeldStep newest_of(const std::vector<std::string>& inventories) {
  std::map<std::int64_t, std::vector<std::vector<int>>> steps;
  for (std::size_t rank = 0; rank < inventories.size(); ++rank)
    for (const json& entry : json::parse(inventories[rank])) {
      auto& holders = steps[entry.at(0)];
      holders.resize(std::max(holders.size(), entry.at(1).get<std::size_t>()));
      for (const json& file : entry.at(2)) holders.at(file).push_back(static_cast<int>(rank));
    }
  for (auto at = steps.rbegin(); at != steps.rend(); ++at)
    if (std::none_of(at->second.begin(), at->second.end(),
                     [](const std::vector<int>& ranks) { return ranks.empty(); }))
      return {at->first, at->second};
  return {};
}

}  // namespace

int peer_of(int rank, const std::vector<std::string>& hosts) {
  std::vector<std::vector<int>> ranks;
  std::map<std::string, std::size_t> place;
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    const auto [found, is_new] = place.try_emplace(hosts[r], ranks.size());
    if (is_new) ranks.emplace_back();
    ranks[found->second].push_back(static_cast<int>(r));
  }
  if (ranks.size() < 2) return -1;
  const std::size_t here = place.at(hosts[static_cast<std::size_t>(rank)]);
  const auto own = std::find(ranks[here].begin(), ranks[here].end(), rank) - ranks[here].begin();
  const std::vector<int>& next = ranks[(here + 1) % ranks.size()];
  return next[static_cast<std::size_t>(own) % next.size()];
}

MemoryLevel::MemoryLevel(Ranks ranks, std::int64_t every, fs::path run, const std::string& host)
    : ranks_(ranks), run_(std::move(run)), folder_(every > 0 ? memory_folder(host) : fs::path()) {
  // All ranks are started alike; one that is not would be waited for in vain.
  if (ranks_.any(folder_.empty())) folder_.clear();
  if (folder_.empty()) return;
  every_ = memory_is_last() ? 0 : every;
  hosts_ = ranks_.gather_text(host);
}

bool MemoryLevel::leads() const {
  const auto mine = hosts_[static_cast<std::size_t>(ranks_.rank())];
  return std::find(hosts_.begin(), hosts_.end(), mine) - hosts_.begin() == ranks_.rank();
}

bool MemoryLevel::several_hosts() const { return peer_of(0, hosts_) >= 0; }

fs::path MemoryLevel::newest(std::int64_t disk, std::vector<std::string>& notes) {
  if (folder_.empty()) return {};
  HeldStep found;
  try {
    ranks_.together([&] {
      if (!leads()) return;
      sweep_memory_folders(folder_, run_);
      make_memory_folder(folder_, run_);
    });
    found = newest_of(ranks_.gather_text(inventory(folder_).dump()));
    if (found.step <= disk) return {};
    complete(found.step, found.holders);
    fs::path place = folder_ / "ckpt" / fmt::format("step-{}", found.step);
    ranks_.together([&] {
      if (leads()) open_checkpoint(place);
    });
    notes.push_back(
        fmt::format("goes on from the checkpoint of step {} in memory; the newest on disk is {}",
                    found.step, disk < 0 ? "none" : fmt::format("of step {}", disk)));
    return place;
  } catch (const Error& error) {
    notes.push_back(fmt::format("the checkpoint of step {} in memory is passed over: {}",
                                found.step, error.what()));
    return {};
  }
}

// Hands every file to the hosts that lack it.
void MemoryLevel::complete(std::int64_t step, const std::vector<std::vector<int>>& holders) {
  const fs::path place = folder_ / "ckpt" / fmt::format("step-{}", step);
  const auto hand_on = [&](const fs::path& file, int from) {
    std::error_code ignored;
    if (!ranks_.any(!fs::is_regular_file(file, ignored))) return;
    std::string bytes;
    ranks_.together([&] {
      if (ranks_.rank() == from) bytes = files::read_text(file, no_limit, ErrorKind::disk);
    });
    double size = ranks_.most(static_cast<double>(bytes.size()));
    bytes.resize(static_cast<std::size_t>(size));
    ranks_.world()->broadcast(std::as_writable_bytes(std::span(bytes)), from);
    ranks_.together([&] {
      if (!leads() || fs::is_regular_file(file, ignored)) return;
      fs::create_directories(place, ignored);
      files::write_atomically(file, bytes);
    });
  };
  for (std::size_t file = 0; file < holders.size(); ++file)
    hand_on(shard_file(place, static_cast<int>(file)), holders[file].front());
  hand_on(place / files::manifest_name, holders.front().front());
}

std::string MemoryLevel::save(Session& session, const Progress& progress, const json& notes,
                              const fs::path& flush) {
  const auto start = std::chrono::steady_clock::now();
  comm::Heartbeat::doing("copying to memory the checkpoint of step", progress.step);
  try {
    // Where the first host may be lost, what metrics.jsonl has by now must not be lost with it.
    ranks_.together([&] {
      if (ranks_.first() && several_hosts()) files::sync_file(flush);
    });
    write(session, progress, notes);
  } catch (const Error& error) {
    every_ = 0;
    return fmt::format("no checkpoints in memory any more: {}{}{}", error.where,
                       error.where.empty() ? "" : ": ", error.message);
  }
  if (saves_++ > 0) return "";
  return fmt::format(
      "a checkpoint in memory every {} steps: {:.1f} ms for the first{}", every_,
      1e3 * std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
      several_hosts() ? ", each rank's also on the next host" : "");
}

void MemoryLevel::write(Session& session, const Progress& progress, const json& notes) {
  const fs::path part = CheckpointWrite::part(folder_, progress.step),
                 place = folder_ / "ckpt" / fmt::format("step-{}", progress.step);
  Snapshot snapshot;
  take_snapshot(session, progress, notes, snapshot);
  std::optional<files::AtomicFolder> made;
  ranks_.together([&] {
    if (leads()) made.emplace(place);
  });
  std::string table;
  ranks_.together([&] { table = table_text(write_own_shards(part, ranks_.rank(), snapshot)); });
  if (several_hosts()) send_copies(part);
  const std::vector<std::string> tables = ranks_.gather_text(table),
                                 states = ranks_.gather_text(ranks_.first() ? snapshot.state.dump()
                                                                            : std::string());
  ranks_.together([&] {
    if (!made) return;
    files::Manifest manifest;
    for (const std::string& text : tables) add_table(text, manifest.tensors);
    manifest.state = json::parse(states.front());
    manifest.state[writers_key] = ranks_.size();
    files::write_atomically(part / files::manifest_name, print(manifest));
    made->commit();
    const std::vector<StuckCheckpoint> stuck =
        remove_older(folder_, progress.step, -1, {kept_in_memory, false});
    if (!stuck.empty())  // memory would fill up
      throw Error(ErrorKind::disk, "the old checkpoint cannot be removed: " + stuck.front().why,
                  stuck.front().path.string());
  });
}

// Every rank's file, to its peer.
void MemoryLevel::send_copies(const fs::path& part) {
  std::string mine;
  ranks_.together(
      [&] { mine = files::read_text(shard_file(part, ranks_.rank()), no_limit, ErrorKind::disk); });
  const auto size = static_cast<double>(mine.size());
  const std::vector<double> sizes = ranks_.gather({&size, 1});
  std::vector<std::int64_t> sends(sizes.size()), gets(sizes.size());
  std::int64_t all = 0;
  sends[static_cast<std::size_t>(peer_of(ranks_.rank(), hosts_))] =
      static_cast<std::int64_t>(mine.size());
  for (std::size_t r = 0; r < sizes.size(); ++r)
    if (peer_of(static_cast<int>(r), hosts_) == ranks_.rank())
      all += gets[r] = static_cast<std::int64_t>(sizes[r]);
  std::string got(static_cast<std::size_t>(all), '\0');
  ranks_.world()->all_to_all(std::as_bytes(std::span(mine)), sends,
                             std::as_writable_bytes(std::span(got)), gets);
  ranks_.together([&] {
    std::size_t at = 0;
    for (std::size_t r = 0; r < gets.size(); ++r) {
      if (gets[r] == 0) continue;
      const auto bytes = static_cast<std::size_t>(gets[r]);
      files::write_atomically(shard_file(part, static_cast<int>(r)),
                              std::string_view(got).substr(at, bytes));
      at += bytes;
    }
  });
}

void MemoryLevel::loaded() {
  if (memory_is_last()) end();
}

void MemoryLevel::end() {
  if (folder_.empty()) return;
  ranks_.barrier();
  if (leads()) remove_memory_folder(folder_);
  every_ = 0;
}

}  // namespace tessera::run
