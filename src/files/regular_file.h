// A regular file, open for reading at any place. Every read is a system call whose failure is an
// Error: a file that is mapped instead ends the process with SIGBUS where a sector cannot be read
// or somebody has cut it. Convention: the file stays the one that was opened, whatever takes its
// name; what it holds is checked by whoever has a hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "base/check.h"

namespace tessera::files {

class RegularFile {
 public:
  // Throws Error(kind) when the path is missing, unreadable or not a regular file.
  RegularFile(const std::filesystem::path& path, ErrorKind kind);
  ~RegularFile();
  RegularFile(RegularFile&& other) noexcept;
  RegularFile& operator=(RegularFile&& other) noexcept;

  std::uint64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }

  // The bytes from `offset` on. Error(kind) names the file and the place when they cannot be read,
  // or are not there any more.
  void read(std::uint64_t offset, std::span<std::byte> into) const;
  std::vector<std::byte> read(std::uint64_t offset, std::uint64_t bytes) const;
  // The same in order, a piece that fits a processor's cache at a time.
  void for_each_piece(std::uint64_t offset, std::uint64_t bytes,
                      const std::function<void(std::span<const std::byte>)>& visit) const;

 private:
  std::filesystem::path path_;
  ErrorKind kind_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace tessera::files
