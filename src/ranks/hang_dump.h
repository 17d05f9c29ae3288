// The dump of a hang: what every rank of the job did, in one file of the run folder: the verdict,
// then rank by rank what it waits for, the operations that it ended last, and where its threads
// are. Convention: each rank (or its guard, where it is stopped) leaves its part in the heartbeat
// folder; whoever spoke the verdict puts them together.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "comm/heartbeat.h"
#include "ranks/heartbeat_folder.h"

namespace tessera::run {

// RUN/hang-1.txt, or the first number that is free; empty where `log`, which lies in RUN, does not
// exist.
std::filesystem::path next_dump(const std::filesystem::path& log);

// The part of one rank. `stacks`: lines, may be empty.
std::string dump_part(const Seen& rank, const comm::Heartbeat& heartbeat,
                      const std::string& stacks);
void leave_part(const HeartbeatFolder& folder, int rank, const std::string& part);

// Waits a while for the parts of all ranks and writes the file. The result says why it could not;
// "": it is there, or `file` is empty. Nothing here throws.
std::string write_dump(const HeartbeatFolder& folder, const std::filesystem::path& file,
                       const std::string& verdict, const std::vector<Seen>& table,
                       std::chrono::milliseconds patience);

}  // namespace tessera::run
