// Whole text files: read with a size cap, written so that a reader sees the old content or the new
// one, never half of it. Convention: what cannot be read is an error of the caller's kind (config,
// weights, ...); what cannot be written is always Error(disk).
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/check.h"

namespace tessera::files {

// An open, readable, regular file; the caller closes the descriptor.
struct OpenFile {
  int descriptor = -1;
  std::size_t size = 0;
};
OpenFile open_regular(const std::filesystem::path& path, ErrorKind kind);

std::string read_text(const std::filesystem::path& path,
                      std::size_t max_bytes = std::size_t{64} << 20,
                      ErrorKind kind = ErrorKind::usage);

// Adds to the end of a file, which is made where there is none. It is not flushed.
void append_text(const std::filesystem::path& path, std::string_view text);

void write_atomically(const std::filesystem::path& path, std::string_view text);

}  // namespace tessera::files
