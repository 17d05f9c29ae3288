// Every test that is called Long runs in ./check --all: some long_run of tests/CMakeLists.txt
// has a filter that takes it. A long test that no filter takes would never run, and never fail.
#include <gtest/gtest.h>

#include <map>
#include <string_view>

#include "architecture/source.h"
#include "pattern.h"

namespace tessera::test {
namespace {

// Whether a name matches a glob of googletest: `*` is any text.
bool matches_glob(std::string_view name, std::string_view glob) {
  if (glob.empty()) return name.empty();
  if (glob[0] == '*')
    return matches_glob(name, glob.substr(1)) ||
           (!name.empty() && matches_glob(name.substr(1), glob));
  return !name.empty() && name[0] == glob[0] && matches_glob(name.substr(1), glob.substr(1));
}

bool matches_one_of(std::string_view name, std::string_view globs) {
  while (true) {
    const std::size_t end = std::min(globs.find(':'), globs.size());
    if (matches_glob(name, globs.substr(0, end))) return true;
    if (end == globs.size()) return false;
    globs.remove_prefix(end + 1);
  }
}

// As --gtest_filter reads it: globs that take a test, and after a `-` globs that leave it out.
bool takes(std::string_view filter, std::string_view name) {
  const std::size_t minus = std::min(filter.find('-'), filter.size());
  const std::string_view wanted = filter.substr(0, minus);
  if (!wanted.empty() && !matches_one_of(name, wanted)) return false;
  return minus == filter.size() || !matches_one_of(name, filter.substr(minus + 1));
}

TEST(LongRuns, AFilterIsReadAsGoogletestReadsIt) {
  EXPECT_TRUE(takes("Long.*", "Long.Kills"));
  EXPECT_TRUE(takes("Other.*:Long.*Named", "Long.HangsAreNamed"));
  EXPECT_FALSE(takes("Long.Readme*", "Long.PagesAsTheyStand"));
  EXPECT_TRUE(takes("-Long.EveryCall*:Faults.*", "Long.Races"));
  EXPECT_FALSE(takes("-Long.EveryCall*:Faults.*", "Long.EveryCallOfOneRank"));
}

TEST(LongRuns, EveryLongTestIsInOne) {
  std::map<std::string, Strings> filters;  // by room
  const Pattern run("^ *long_run\\(([a-z]+) +([^ )]+)");
  for (const std::string& line : lines_of(kRoot / "tests/CMakeLists.txt")) {
    std::size_t at = 0;
    if (const Strings found = run.next_in(line, at); !found.empty())
      filters[found[1]].push_back(found[2]);
  }
  const Pattern test("^TEST(_F)?\\(Long, *([A-Za-z0-9_]+)\\)");
  int seen = 0;
  for (const std::string& file : code_in("tests")) {
    const std::string room = file.substr(0, file.find('/'));
    for (const std::string& line : lines_of(kRoot / "tests" / file)) {
      std::size_t at = 0;
      const Strings found = test.next_in(line, at);
      if (found.empty()) continue;
      ++seen;
      const std::string name = "Long." + found[2];
      EXPECT_TRUE(std::any_of(filters[room].begin(), filters[room].end(),
                              [&](const std::string& filter) { return takes(filter, name); }))
          << "tests/" << file << ": " << name << " is taken by no long_run(" << room
          << " ...) of tests/CMakeLists.txt, so it never runs: add it to a filter there";
    }
  }
  EXPECT_GE(seen, 25) << "the long tests were not found";
}

}  // namespace
}  // namespace tessera::test
