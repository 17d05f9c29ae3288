// A first level of checkpoints, in memory (checkpoint.memory_every): each rank's shards lie in
// /dev/shm of its host and, where there are several hosts, of the next one, so that a rank that is
// lost costs the few steps since then, and so does one host. A restart goes on from them where they
// are newer than what is on disk. Convention: what lies there has the format of a checkpoint
// (docs/checkpoints.md) and is proved like one before it is used; all calls are made by all ranks
// together; a save that fails is told and ends this level, never the run.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "base/process.h"
#include "checkpoint/checkpoint.h"
#include "ranks/ranks.h"

namespace tessera::run {

// Which rank keeps a copy of which one's shards: the rank of the same place on the next host.
// -1: there is no other host.
int peer_of(int rank, const std::vector<std::string>& hosts);

class MemoryLevel {
 public:
  // `every`: steps. Nothing is kept where no launcher would start the job again.
  MemoryLevel(Ranks ranks, std::int64_t every, std::filesystem::path run,
              const std::string& host = host_name());

  // The folder of the newest checkpoint in memory that is whole and newer than `disk`, a step; each
  // host has all of it from now on. Empty: there is none; a note says why one is passed over.
  std::filesystem::path newest(std::int64_t disk, std::vector<std::string>& notes);
  bool due(std::int64_t step) const { return every_ > 0 && step % every_ == 0; }
  // Copies the state of the session. A remark, or "".
  std::string save(Session& session, const Progress& progress, const nlohmann::json& notes,
                   const std::filesystem::path& flush);
  void loaded();  // the run stands at its beginning: where nobody will start it again, this ends
  void end();     // nothing is kept any more

 private:
  bool leads() const;  // the first rank of its host
  bool several_hosts() const;
  void write(Session& session, const Progress& progress, const nlohmann::json& notes);
  void send_copies(const std::filesystem::path& part);
  void complete(std::int64_t step, const std::vector<std::vector<int>>& holders);

  Ranks ranks_;
  std::int64_t every_ = 0;
  std::filesystem::path run_, folder_;
  std::vector<std::string> hosts_;  // by rank
  int saves_ = 0;
};

}  // namespace tessera::run
