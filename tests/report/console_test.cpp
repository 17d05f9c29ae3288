// Lines for people: what the log of a run lacks is said.
#include "report/console.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "files/disk.h"
#include "files/scratch.h"
#include "files/text.h"

namespace tessera::report::console_test {
namespace {

using tessera::test::Scratch;

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(Console, ALogThatCannotBeWrittenIsNamedOnce) {
  const Scratch scratch;
  for (const bool quiet : {false, true}) {
    Console console;
    console.set_quiet(quiet);
    console.log_to((scratch / "nowhere/log.txt").string());
    testing::internal::CaptureStderr();
    console.line("one");
    console.line("two");
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(count(said,
                    "nowhere/log.txt lacks lines from here on: cannot open the file: No such "
                    "file or directory"),
              1u)
        << said;
    EXPECT_EQ(count(said, "two\n"), quiet ? 0u : 1u) << said;
  }
}

TEST(Console, AFullDiskKeepsNobodyFromReading) {
  const Scratch scratch;
  Console console;
  console.log_to((scratch / "log.txt").string());
  testing::internal::CaptureStderr();
  console.line("one");
  {
    const files::DiskFault fault(0, ENOSPC);
    console.line("two");
  }
  console.line("three");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(count(said, "note: "), 1u) << said;
  EXPECT_EQ(count(said, "No space left on device"), 1u) << said;
  EXPECT_EQ(files::read_text(scratch / "log.txt"), "one\nthree\n");
}

}  // namespace
}  // namespace tessera::report::console_test
