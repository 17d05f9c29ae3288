// A file without a name, for what a process puts aside while it runs: it is made, its name is taken
// away at once, and so nothing of it is left when the process ends, however it ends, and nothing
// that another process left is ever read. Convention: the room is taken from the disk when it is
// asked for; failures are Error(disk).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace tessera::files {

class ScratchFile {
 public:
  // In `folder`, which must be there.
  explicit ScratchFile(const std::filesystem::path& folder);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  // Adds so many bytes, zeroed, and says where they begin.
  std::int64_t grow(std::int64_t bytes);
  std::int64_t bytes() const { return bytes_; }
  const std::filesystem::path& path() const { return path_; }  // for messages
  // Any number of threads, as long as no two of them are at the same bytes.
  void write(std::int64_t place, std::span<const std::byte> bytes) const;
  void read(std::int64_t place, std::span<std::byte> bytes) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t bytes_ = 0;
};

}  // namespace tessera::files
