#include "files/regular_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "files/text.h"  // open_regular

namespace tessera::files {
namespace {

constexpr std::uint64_t piece_bytes = 1 << 18;

}  // namespace

RegularFile::RegularFile(const std::filesystem::path& path, ErrorKind kind)
    : path_(path), kind_(kind) {
  const OpenFile file = open_regular(path, kind);
  descriptor_ = file.descriptor;
  size_ = file.size;
}

RegularFile::~RegularFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

RegularFile::RegularFile(RegularFile&& other) noexcept
    : path_(std::move(other.path_)),
      kind_(other.kind_),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

RegularFile& RegularFile::operator=(RegularFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(kind_, other.kind_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

void RegularFile::read(std::uint64_t offset, std::span<std::byte> into) const {
  CHECK(offset <= size_ && into.size() <= size_ - offset,
        "what is read of " + path_.string() + " lies inside it");
  while (!into.empty()) {
    const ssize_t got = ::pread(descriptor_, into.data(), into.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    const int problem = errno;
    if (got < 0)
      throw Error(
          kind_,
          fmt::format("cannot read {} at byte {}: {}", path_.filename().string(), offset,
                      std::strerror(problem)),
          path_.string(),
          problem == EIO ? "the disk or the network to it is broken: `dmesg` may say more" : "");
    if (got == 0)
      throw Error(kind_,
                  fmt::format("{} ends at byte {}, it had {} when it was opened",
                              path_.filename().string(), offset, size_),
                  path_.string(), "somebody cut it meanwhile");
    offset += static_cast<std::uint64_t>(got);
    into = into.subspan(static_cast<std::size_t>(got));
  }
}

std::vector<std::byte> RegularFile::read(std::uint64_t offset, std::uint64_t bytes) const {
  CHECK(offset <= size_ && bytes <= size_ - offset,
        "what is read of " + path_.string() + " lies inside it");
  std::vector<std::byte> out(bytes);
  read(offset, out);
  return out;
}

void RegularFile::for_each_piece(
    std::uint64_t offset, std::uint64_t bytes,
    const std::function<void(std::span<const std::byte>)>& visit) const {
  std::vector<std::byte> piece(std::min(bytes, piece_bytes));
  for (std::uint64_t done = 0; done < bytes; done += piece.size()) {
    piece.resize(std::min<std::uint64_t>(piece.size(), bytes - done));
    read(offset + done, piece);
    visit(piece);
  }
}

}  // namespace tessera::files
