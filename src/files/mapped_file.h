// A whole file mapped read-only into memory.
// Convention: the file must not shrink while it is mapped; our own writers replace files by rename, so a mapping keeps the old content.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "base/check.h"

namespace tessera::files {

class MappedFile {
 public:
  // Throws Error(kind) when the path is missing, unreadable or not a regular file.
  MappedFile(const std::filesystem::path& path, ErrorKind kind);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace tessera::files
