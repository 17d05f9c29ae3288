// A file that appears complete or not at all: written under a temporary name in the same folder,
// flushed to the disk, renamed. Convention: without commit() the destructor removes the temporary
// file and whatever was there before is untouched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace tessera::files {

class AtomicFile {
 public:
  // Every failure (unwritable folder, disk full, ...) throws Error(disk) naming the path. `bytes`:
  // how long the file will be, where that is known; a disk without so much room is refused before
  // anything is written.
  explicit AtomicFile(const std::filesystem::path& path, std::uint64_t bytes = 0);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  // Replaces what was written at `offset`: a number that is only known at the end.
  void overwrite(std::uint64_t offset, std::span<const std::byte> bytes);
  void commit();
  // For a file that somebody waits for: its name is the last that is done in the folder, which the
  // other may move or remove as soon as it sees it. The name itself may not outlive a power
  // failure.
  void hand_over();

 private:
  std::filesystem::path path_, temporary_;
  std::uint64_t needed_ = 0;
  int descriptor_ = -1;
};

}  // namespace tessera::files
