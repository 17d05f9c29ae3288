// The pages of docs/: each is in the index, and opens with what its reader will be able to do.
#include <gtest/gtest.h>

#include <string>

#include "architecture/source.h"

namespace tessera::test {
namespace {

Strings pages() {
  Strings found;
  for (const auto& entry : fs::directory_iterator(kRoot / "docs"))
    if (entry.path().extension() == ".md") found.push_back(entry.path().filename().string());
  std::sort(found.begin(), found.end());
  return found;
}

TEST(Docs, EveryPageIsInTheIndex) {
  std::string index;
  for (const std::string& line : lines_of(kRoot / "docs/README.md")) index += line + "\n";
  EXPECT_GE(pages().size(), 25u) << "the pages were not found";
  for (const std::string& page : pages()) {
    if (page == "README.md") continue;
    EXPECT_NE(index.find("](" + page + ")"), index.npos)
        << "docs/" << page << " is not in docs/README.md: add the question that it answers";
  }
}

TEST(Docs, EveryPageOpensWithWhatItIsFor) {
  const Strings openings = {"You will ", "After this page you "};
  for (const std::string& page : pages()) {
    const Strings lines = lines_of(kRoot / "docs" / page);
    ASSERT_GE(lines.size(), 3u) << "docs/" << page;
    std::size_t at = 2;
    if (lines[at].starts_with("**"))  // a warning may come before it
      while (at + 1 < lines.size() && !lines[at++].empty()) {
      }
    EXPECT_TRUE(lines[0].starts_with("# ") && lines[1].empty() &&
                starts_with_any(lines[at], openings))
        << "docs/" << page
        << ": below its title a page says what its reader will be able to do (\"You will be able "
           "to ...\"), not: "
        << lines[at];
  }
}

}  // namespace
}  // namespace tessera::test
