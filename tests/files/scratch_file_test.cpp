// A file without a name: zeroed room, bytes that come back, nothing in the folder, and a disk that
// fills up.
#include "files/scratch_file.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

#include "files/disk.h"
#include "files/scratch.h"

namespace tessera::files::scratch_file_test {
namespace {

using test::error_of;
using test::Scratch;
using Bytes = std::vector<std::byte>;

Bytes pattern(std::size_t n, int seed) {
  Bytes out(n);
  for (std::size_t i = 0; i < n; ++i)
    out[i] = static_cast<std::byte>((i * 31 + static_cast<std::size_t>(seed)) % 251);
  return out;
}
Bytes read(const ScratchFile& file, std::int64_t place, std::size_t n) {
  Bytes out(n, std::byte{0xff});
  file.read(place, out);
  return out;
}

// A user who may not write is told what to do, and nothing about the room on the disk.
TEST(Disk, AFolderThatMayNotBeWrittenIsNoFullDisk) {
  for (const int problem : {EACCES, EPERM, EROFS}) {
    const Error error = error_of([&] { fail_disk("/somewhere/run", "create a file", problem); });
    EXPECT_NE(error.hint.find("writable"), std::string::npos) << error.what();
    EXPECT_EQ(error.message.find("free"), std::string::npos) << error.what();
  }
  const Error full = error_of([&] { fail_disk("/", "create a file", ENOSPC); });
  EXPECT_NE(full.hint.find("free some space"), std::string::npos) << full.what();
}

TEST(ScratchFile, GivesBackWhatWasWrittenAndHasNoName) {
  const Scratch scratch;
  ScratchFile file(scratch.folder());
  EXPECT_EQ(file.grow(100000), 0);
  EXPECT_EQ(file.grow(5000), 100000);
  EXPECT_EQ(file.bytes(), 105000);
  EXPECT_EQ(read(file, 0, 105000), Bytes(105000));
  file.write(99000, pattern(6000, 1));
  EXPECT_EQ(read(file, 99000, 6000), pattern(6000, 1));
  EXPECT_EQ(read(file, 0, 99000), Bytes(99000));
  EXPECT_TRUE(std::filesystem::is_empty(scratch.folder()));
}

TEST(ScratchFile, RefusesWhatLiesOutside) {
  const Scratch scratch;
  ScratchFile file(scratch.folder());
  file.grow(64);
  Bytes room(65);
  EXPECT_EQ(error_of([&] { file.write(0, room); }).kind, ErrorKind::internal);
  EXPECT_EQ(error_of([&] { file.read(1, std::span(room).first(64)); }).kind, ErrorKind::internal);
}

TEST(ScratchFile, AFullDiskIsNamed) {
  const Scratch scratch;
  ScratchFile file(scratch.folder());
  const Error large = error_of([&] { file.grow(std::int64_t{1} << 60); });
  EXPECT_EQ(large.kind, ErrorKind::disk);
  EXPECT_EQ(large.where, scratch.folder().string());
  file.grow(10000);
  const DiskFault fault(4000, ENOSPC);
  const Error full = error_of([&] { file.write(0, pattern(10000, 2)); });
  EXPECT_EQ(full.kind, ErrorKind::disk);
  EXPECT_NE(full.message.find("No space left on device; 6000 bytes are needed"), std::string::npos)
      << full.message;
}

TEST(ScratchFile, NeedsAFolder) {
  const Scratch scratch;
  const Error error = error_of([&] { const ScratchFile file(scratch.folder() / "nowhere"); });
  EXPECT_EQ(error.kind, ErrorKind::disk);
  EXPECT_NE(error.message.find("cannot make a file in this folder"), std::string::npos);
}

}  // namespace
}  // namespace tessera::files::scratch_file_test
