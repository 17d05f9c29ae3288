// The memory of an executor: what the system said when it had none is told.
#include "exec/cpu/memory.h"

#include <gtest/gtest.h>

#include "files/scratch.h"

namespace tessera::exec::cpu::memory_test {
namespace {

TEST(Pages, TheSystemsReasonIsTold) {
  const Error error = test::error_of([] { Pages(0, std::int64_t{1} << 56, nullptr); });
  EXPECT_EQ(error.kind, ErrorKind::memory);
  EXPECT_NE(error.message.find("Cannot allocate memory"), std::string::npos) << error.what();
  EXPECT_FALSE(error.hint.empty());
}

}  // namespace
}  // namespace tessera::exec::cpu::memory_test
