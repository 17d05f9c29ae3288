// A rank is two processes: the one that works, and its parent, which only waits for it. So whatever
// ends a rank, kill -9 or a segmentation fault included, somebody on its machine knows how it ended
// and what it did last, says so, and ends the job with exit code 7; under any launcher. The code is
// 8 where it crashed while it joined the others under a limit on memory (memory_limit.h). It also
// notices a rank that is stopped where no other rank is left to miss it. Convention: the guard is
// forked before anything is started; requests to stop that reach it are handed on, numbered
// (stop.h).
#pragma once

#include <filesystem>

#include "comm/heartbeat.h"
#include "ranks/heartbeat_folder.h"

namespace tessera::run {

class Guard {
 public:
  // Returns in the child. The parent stays inside until the child ended and then ends as it did.
  // `log`: as in end_job(); `hang_s`: how long a rank may be stopped, and somewhat more; 0: for
  // ever.
  Guard(int rank, double hang_s, const std::filesystem::path& log);

  comm::Heartbeat& heartbeat();              // in memory that both see
  void tell(const HeartbeatFolder& folder);  // where verdicts are left
  void joined();  // the other ranks: from now on the first request to stop is handed on, too

 private:
  struct Shared;
  Shared* shared_ = nullptr;
};

// "killed by the kernel for lack of memory", "segmentation fault (SIGSEGV)", ...: a signal that
// ended a process, in words.
std::string how_it_ended(int signal, bool out_of_memory);

}  // namespace tessera::run
