// Where a job keeps checkpoints in memory (checkpoint/memory_level.h): on each host a folder in
// /dev/shm, which outlives the processes of the ranks, so that those that are started in their
// place find it. Convention: the launcher of --np gives the folders of one job one name that nobody
// else has, and removes those of its own host when the job has ended; on other hosts the ranks do,
// and their guards when the launcher is gone.
#pragma once

#include <filesystem>
#include <string>

namespace tessera::run {

// Variables of the environment for the ranks: the name of the job's folders; that nobody will start
// them again, so that nothing need be kept.
inline constexpr const char *memory_variable = "TESSERA_MEMORY",
                            *memory_last_variable = "TESSERA_MEMORY_LAST";

// Chooses the name for a job and puts it into the environment. It removes the folders of this host
// when it ends.
class MemoryName {
 public:
  explicit MemoryName(bool wanted);
  ~MemoryName();
  MemoryName(const MemoryName&) = delete;
  MemoryName& operator=(const MemoryName&) = delete;
  void last(bool is) const;  // the start that follows is the last one

 private:
  std::string name_;  // empty: the job keeps nothing in memory
};

// The folder of this job on a host, which need not exist; empty: the job keeps none.
std::filesystem::path memory_folder(const std::string& host);
bool memory_is_last();
// Makes the folder, for this user alone. Error(disk) when it cannot, or when it is another user's.
void make_memory_folder(const std::filesystem::path& folder, const std::filesystem::path& run);
// Removes what earlier jobs of the same run folder have left on this host.
void sweep_memory_folders(const std::filesystem::path& mine, const std::filesystem::path& run);
void remove_memory_folder(const std::filesystem::path& folder) noexcept;

}  // namespace tessera::run
