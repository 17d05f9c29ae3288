// A checkpoint that several ranks write together: each writes its own shards into the folder that
// the first rank made, and beside them a table of what it wrote; the first rank waits for all
// tables, joins them and puts the folder in its place. Convention: only files are exchanged, so the
// writers may be threads beside the training, which has the ranks' attention to itself.
#pragma once

#include <atomic>
#include <filesystem>
#include <map>
#include <string>

#include "checkpoint/checkpoint.h"
#include "files/sharded.h"

namespace tessera::run {

using ShardTable = std::map<std::string, files::GlobalTensor>;

// Error(disk) when there is no room for this rank's shards.
ShardTable write_own_shards(const std::filesystem::path& folder, int rank,
                            const Snapshot& snapshot);

// A table as text, and such a text joined to `into`.
std::string table_text(const ShardTable& table);
void add_table(const std::string& text, ShardTable& into);

// Writes the part of a rank other than the first and reports it; an error is reported too, and
// thrown.
void write_part(const std::filesystem::path& folder, int rank, const Snapshot& snapshot);

// Joins the tables of ranks 1 .. ranks-1 to `own` as they come in. Error(disk) when one of them
// failed, Error(rank_lost) when one does not come; false when the save is cancelled and one is
// missing.
bool join_parts(const std::filesystem::path& folder, int ranks, ShardTable& own, SaveState& state);

}  // namespace tessera::run
