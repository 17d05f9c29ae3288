// Files in folders that others write to: what waits, leads elsewhere, is too large or somebody
// else's is not looked at.
#include "files/own_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "files/scratch.h"

namespace tessera::test::own_file_test {
namespace {

namespace fs = std::filesystem;
using files::open_own;
using files::read_own;

TEST(OwnFile, OnlyRegularFilesOfTheOwnerAreRead) {
  const Scratch scratch;
  const uid_t me = ::geteuid();
  std::ofstream(scratch / "good") << "text";
  EXPECT_EQ(read_own(scratch / "good", 4, me), "text");
  EXPECT_FALSE(read_own(scratch / "good", 3, me)) << "more than was allowed";
  EXPECT_FALSE(read_own(scratch / "good", 4, me + 1)) << "another user's";
  EXPECT_FALSE(read_own(scratch / "missing", 4, me));
  ASSERT_EQ(::mkfifo((scratch / "pipe").c_str(), 0666), 0);
  EXPECT_FALSE(read_own(scratch / "pipe", 4, me)) << "nobody writes to it, and nobody waits";
  fs::create_symlink("good", scratch / "link");
  EXPECT_FALSE(read_own(scratch / "link", 4, me));
  fs::create_symlink("/dev/zero", scratch / "zero");
  EXPECT_FALSE(read_own(scratch / "zero", 4, me));
  EXPECT_FALSE(read_own(scratch.folder(), 4, me));
  EXPECT_TRUE(files::is_own_folder(scratch.folder()));
  fs::create_directory_symlink(scratch.folder(), scratch / "folder");
  EXPECT_FALSE(files::is_own_folder(scratch / "folder"));
  EXPECT_FALSE(files::is_own_folder(scratch / "good"));
}

TEST(OwnFile, NothingElseIsWritten) {
  const Scratch scratch;
  const auto opened = [&](const char* name, int flags) {
    const int file = open_own(scratch / name, flags);
    const int problem = errno;
    if (file >= 0) ::close(file);
    return file >= 0 ? 0 : problem;
  };
  EXPECT_EQ(opened("new", O_TRUNC), 0);
  std::ofstream(scratch / "new") << "text";
  EXPECT_EQ(opened("new", O_APPEND), 0);
  EXPECT_EQ(fs::file_size(scratch / "new"), 4u);
  fs::create_symlink("new", scratch / "link");
  EXPECT_EQ(opened("link", O_TRUNC), ELOOP);
  EXPECT_EQ(fs::file_size(scratch / "new"), 4u) << "what the link leads to was cut";
  EXPECT_EQ(opened("new", O_TRUNC), 0);
  EXPECT_EQ(fs::file_size(scratch / "new"), 0u);
  ASSERT_EQ(::mkfifo((scratch / "pipe").c_str(), 0666), 0);
  EXPECT_EQ(opened("pipe", O_TRUNC), ENXIO);
  if (::geteuid() == 0) {  // only then can a test make a file of somebody else
    std::ofstream(scratch / "theirs") << "text";
    ASSERT_EQ(::chown((scratch / "theirs").c_str(), 65534, 65534), 0);
    EXPECT_EQ(opened("theirs", O_TRUNC), EPERM);
    EXPECT_EQ(fs::file_size(scratch / "theirs"), 4u);
  }
}

}  // namespace
}  // namespace tessera::test::own_file_test
