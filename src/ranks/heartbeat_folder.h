// The ranks' heartbeats as files: each rank writes one small record again and again, anybody reads
// all of them, and the first that knows why the job must end leaves the verdict there, so that one
// speaks and all end. Files need no MPI, no thread of its own in MPI, and also work between
// machines that share the run folder. Convention: clocks are never compared; a record counts ticks
// and says how long ago things were when it was written. A reader opens a file anew each time,
// which is what shared file systems promise to answer truthfully.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ranks/hang_analysis.h"

namespace tessera::run {

inline constexpr int launcher_rank =
    -1;  // whoever made the folder for ranks that it starts has a record, too

// The activity of a rank until it can talk to the others.
inline constexpr std::string_view joining_text = "joining the other ranks";

// This process as others see it.
Seen this_process(int rank);
// Whether that process is still there, on this machine.
bool is_alive(const Seen& process);
char state_of(const Seen& process);  // as Seen::state

class HeartbeatFolder {
 public:
  HeartbeatFolder() = default;
  explicit HeartbeatFolder(std::filesystem::path path) : path_(std::move(path)) {}
  const std::filesystem::path& path() const { return path_; }
  explicit operator bool() const { return !path_.empty(); }

  // Nothing here throws: what cannot be written is missed by others, and that is all. write() is
  // false then, and errno says why.
  bool write(const Seen& me) const;
  std::optional<Seen> read(int rank) const;
  std::vector<Seen> read_all() const;  // the ranks that are there

  struct Verdict {
    int code = 0;
    std::string text;
  };
  std::optional<Verdict> verdict() const;
  // False when there is one already: somebody else has spoken.
  bool decide(const Verdict& verdict) const;
  // The exit code of the first rank that ended by itself with another one than 0: mpirun may end
  // with the code of a rank that it killed itself, or with one of its own.
  void leave_code(int code) const;
  std::optional<int> code() const;
  // Signs for the launcher and for other ranks, each left once by any rank.
  enum class Sign {
    opened,  // the run folder is this job's from now on: whoever starts it again goes on with it
    ended,   // a rank has come to an end of its own, good or bad, and says itself what there is to
             // say
    dumped   // all that will be written of a hang is written (hang_dump.h)
  };
  void leave(Sign sign) const;
  bool left(Sign sign) const;
  // Ranks have so long to add to the dump of a hang; a guard waits longer than that.
  static constexpr std::chrono::milliseconds parts_within{2400};
  // A launcher may kill all ranks as soon as one has ended, as MPICH's does: none ends before the
  // one that writes the dump has written it.
  void wait_for_dump() const;
  void remove() const;

 private:
  bool appears_first(const std::string& text, const char* name) const;

  std::filesystem::path path_;
};

// Set by the launcher of --np: the folder that its ranks use from their very start. It reads the
// verdict there and says it.
inline constexpr const char* heartbeat_variable = "TESSERA_PULSE";
HeartbeatFolder given_folder();  // none without the variable

// Makes the launcher's folder ".ranks-XXXXXX" in `place`, with its record; none where nothing can
// be written.
HeartbeatFolder new_heartbeat_folder(const std::filesystem::path& place);
// Removes what launchers that were killed left in `place`: folders whose processes are all known to
// be gone.
void sweep_heartbeat_folders(const std::filesystem::path& place);

// Ends this process with the verdict: says it on stderr (unless a launcher of ours does that) and
// appends it to `log` if that exists, calls `last`, says what that returns in both places ("":
// nothing) and leaves Sign::dumped; silently, and without `last`, when another rank was first.
// Never returns.
[[noreturn]] void end_job(const HeartbeatFolder& folder, const HeartbeatFolder::Verdict& verdict,
                          const std::filesystem::path& log,
                          const std::function<std::string()>& last = {});

}  // namespace tessera::run
