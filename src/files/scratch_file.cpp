#include "files/scratch_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/check.h"
#include "files/disk.h"

namespace tessera::files {

ScratchFile::ScratchFile(const std::filesystem::path& folder) : path_(folder) {
  std::string name = (folder / ".tessera-scratch-XXXXXX").string();
  descriptor_ = ::mkostemp(name.data(), O_CLOEXEC);
  if (descriptor_ < 0) fail_disk(folder, "make a file in this folder", errno);
  if (::unlink(name.c_str()) != 0) {
    const int problem = errno;
    ::close(descriptor_);
    fail_disk(name, "take the name of a file away", problem);
  }
}

ScratchFile::~ScratchFile() { ::close(descriptor_); }

std::int64_t ScratchFile::grow(std::int64_t bytes) {
  CHECK(bytes >= 0, "a file grows by a number of bytes");
  const std::int64_t begin = bytes_;
  if (bytes == 0) return begin;
  require_room(path_, static_cast<std::uint64_t>(bytes));
  int problem = 0;
  do problem = ::posix_fallocate(descriptor_, begin, bytes);
  while (problem == EINTR);
  if (problem != 0)
    fail_disk(path_, "make room in a file", problem, static_cast<std::uint64_t>(bytes));
  bytes_ += bytes;
  return begin;
}

void ScratchFile::write(std::int64_t place, std::span<const std::byte> bytes) const {
  CHECK(place >= 0 && place + static_cast<std::int64_t>(bytes.size()) <= bytes_,
        "what is written lies inside the file");
  write_all_at(descriptor_, bytes, place, path_);
}

void ScratchFile::read(std::int64_t place, std::span<std::byte> bytes) const {
  CHECK(place >= 0 && place + static_cast<std::int64_t>(bytes.size()) <= bytes_,
        "what is read lies inside the file");
  read_all_at(descriptor_, bytes, place, path_);
}

}  // namespace tessera::files
