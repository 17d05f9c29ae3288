#include "checkpoint/checkpoint_parts.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <span>
#include <thread>

#include "base/check.h"
#include "files/atomic_file.h"
#include "files/disk.h"
#include "files/json.h"
#include "files/look.h"
#include "files/text.h"

namespace tessera::run {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

fs::path table_of(const fs::path& folder, int rank) {
  return folder / fmt::format("rank-{}.json", rank);
}

json to_json(const ShardTable& table) {
  json out = json::object();
  for (const auto& [name, tensor] : table) {
    json shards = json::array();
    for (const files::Shard& s : tensor.shards)
      shards.push_back({s.file, s.key, s.offset, s.extent, s.hash});
    out[name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"shards", shards}};
  }
  return out;
}

// The first rank puts the folder in its place when it has seen the last table: who touches the
// folder afterwards does not find it.
void hand_over(const fs::path& path, const json& table) {
  const std::string text = table.dump();
  files::AtomicFile file(path, text.size());
  file.write(std::as_bytes(std::span(text)));
  file.hand_over();
}

void add_part(const json& part, ShardTable& into) {
  for (const auto& [name, tensor] : part.items()) {
    files::GlobalTensor& whole =
        into.try_emplace(name, files::GlobalTensor{tensor.at("dtype"), tensor.at("shape"), {}})
            .first->second;
    for (const json& s : tensor.at("shards"))
      whole.shards.push_back(
          {.file = s.at(0), .key = s.at(1), .offset = s.at(2), .extent = s.at(3), .hash = s.at(4)});
  }
}

}  // namespace

std::string table_text(const ShardTable& table) { return to_json(table).dump(); }

void add_table(const std::string& text, ShardTable& into) { add_part(json::parse(text), into); }

ShardTable write_own_shards(const fs::path& folder, int rank, const Snapshot& snapshot) {
  std::vector<files::ShardBytes> shards;
  std::uint64_t bytes = 1 << 16;  // headers and the manifest
  for (const StateTensor& t : snapshot.tensors) {
    if (!t.keeps) continue;
    const std::span<const std::byte> buffer = snapshot.buffers.at(t.buffer);
    shards.push_back({.name = t.name,
                      .dtype = stored_name(t.dtype),
                      .shape = t.shape,
                      .offset = t.begin,
                      .extent = t.extent,
                      .bytes = buffer.subspan(static_cast<std::size_t>(t.offset),
                                              static_cast<std::size_t>(t.bytes()))});
    bytes += shards.back().bytes.size() + 512;
  }
  files::require_room(folder, bytes);
  return files::write_shards(folder, rank, shards);
}

void write_part(const fs::path& folder, int rank, const Snapshot& snapshot) {
  try {
    hand_over(table_of(folder, rank), to_json(write_own_shards(folder, rank, snapshot)));
  } catch (const Error& error) {
    try {
      hand_over(table_of(folder, rank), {{"error", error.message}});
    } catch (const Error&) {  // the first rank will miss the table
    }
    throw;
  }
}

bool join_parts(const fs::path& folder, int ranks, ShardTable& own, SaveState& state) {
  const auto start = std::chrono::steady_clock::now();
  for (int rank = 1; rank < ranks; ++rank) {
    const fs::path path = table_of(folder, rank);
    std::error_code ignored;
    while (!files::is_there(path)) {
      state.waits_for = rank;
      if (state.cancelled) return false;
      if (state.patience_s > 0 && std::chrono::steady_clock::now() - start >
                                      std::chrono::duration<double>(state.patience_s))
        throw Error(ErrorKind::rank_lost,
                    fmt::format("rank {} has not written its part of the checkpoint for {:.0f} s",
                                rank, state.patience_s),
                    folder.string(), "all ranks must see the same run folder");
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    state.waits_for = -1;
    const json part =
        files::parse_json(files::read_text(path, std::size_t{64} << 20, ErrorKind::disk));
    if (part.is_discarded() || part.contains("error"))
      throw Error(ErrorKind::disk,
                  fmt::format("rank {} could not write its part of the checkpoint: {}", rank,
                              part.is_object() ? part.value("error", "")
                                               : std::string("its table is damaged")),
                  folder.string());
    add_part(part, own);
    fs::remove(path, ignored);
  }
  return true;
}

}  // namespace tessera::run
