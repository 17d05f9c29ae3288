#include "files/mapped_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "files/text.h"  // open_regular

namespace tessera::files {

MappedFile::MappedFile(const std::filesystem::path& path, ErrorKind kind) {
  const OpenFile file = open_regular(path, kind);
  if (file.size == 0) {
    ::close(file.descriptor);
    return;
  }
  void* at = ::mmap(nullptr, file.size, PROT_READ, MAP_PRIVATE, file.descriptor, 0);
  const int problem = errno;
  ::close(file.descriptor);
  if (at == MAP_FAILED) throw Error(kind, std::string("cannot map the file into memory: ") + std::strerror(problem), path.string());
  bytes_ = {static_cast<const std::byte*>(at), file.size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace tessera::files
