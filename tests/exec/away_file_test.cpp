// Buffers in a file, read and written by threads beside the one that asks: what was written is what
// is read, whoever drops an operation waits for it, and an error comes to who waits.
#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

#include "base/check.h"
#include "exec/common/away.h"
#include "files/disk.h"
#include "files/scratch.h"

namespace tessera::exec::away_file_test {
namespace {

using Bytes = std::vector<std::byte>;

TEST(AwayFile, ReadsWhatWasWrittenWhileItIsUnderWay) {
  const test::Scratch scratch;
  AwayFile file(scratch.folder().string());
  EXPECT_EQ(file.bytes(), 0);  // no buffer, no file
  file.add("m", 1 << 18);
  file.add("v", 4096);
  EXPECT_EQ(file.bytes(), (1 << 18) + 4096);
  EXPECT_EQ(file.bytes_of("v"), 4096);
  Bytes from(3 << 16), to(3 << 16), zeros(4096, std::byte{1});
  for (std::size_t round = 0; round < 20; ++round) {
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + round);
    const auto part = [](Bytes& all, int k) {
      return std::span(all).subspan(static_cast<std::size_t>(k) << 16, 1 << 16);
    };
    std::vector<comm::Pending> writes, reads;
    for (const int k : {0, 1, 2})
      writes.push_back(file.start_write("m", 4096 + (k << 16), part(from, k)));
    const comm::Pending other = file.start_read("v", 0, zeros);
    while (!writes[0]->done()) {
    }
    for (const comm::Pending& write : writes) write->wait();
    for (const int k : {0, 1, 2})
      reads.push_back(file.start_read("m", 4096 + (k << 16), part(to, k)));
    if (round % 2 == 0)
      for (const comm::Pending& read : reads) read->wait();
    reads.clear();  // waits
    ASSERT_EQ(to, from);
    other->wait();
    ASSERT_EQ(zeros, Bytes(4096));
  }
}

TEST(AwayFile, AnErrorComesToWhoeverWaits) {
  const test::Scratch scratch;
  AwayFile file(scratch.folder().string());
  file.add("m", 1000);
  Bytes bytes(1000, std::byte{3});
  {
    const files::DiskFault fault(100, ENOSPC);
    const comm::Pending write = file.start_write("m", 0, bytes);
    EXPECT_EQ(test::error_of([&] { write->wait(); }).kind, ErrorKind::disk);
    file.start_write("m", 0, bytes).reset();  // nobody waits, nobody hears
  }
  file.start_write("m", 0, bytes)->wait();  // the next one is as good as any
  Bytes back(1000);
  file.read("m", 0, back);
  EXPECT_EQ(back, bytes);
  EXPECT_EQ(test::error_of([&] { file.read("m", 1, back); }).kind, ErrorKind::internal);
  EXPECT_EQ(test::error_of([&] { file.add("m", 10); }).kind, ErrorKind::internal);
}

}  // namespace
}  // namespace tessera::exec::away_file_test
