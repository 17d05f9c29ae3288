// The page as a whole: what is on it, and that its files appear whole.
#include "report/page.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "report/sample.h"

namespace tessera::report::test {
namespace {

TEST(Page, ForTheEye) {
  const char* out = std::getenv("TESSERA_PAGE_OUT");
  if (!out) GTEST_SKIP() << "TESSERA_PAGE_OUT names no folder for a page to look at";
  write_page(sample_study(), out);
}

}  // namespace
}  // namespace tessera::report::test
