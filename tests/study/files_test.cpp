// The studies that come with the repository: each parses, every run of its grid is a sound
// configuration, every claim can be computed, and each full study has a twin that asks the same.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/check.h"
#include "config/study/file.h"
#include "study/claims.h"
#include "study/grid.h"
#include "study/view.h"

namespace tessera::study {
namespace files_test {

namespace fs = std::filesystem;

const fs::path kStudies = fs::path(TESSERA_SOURCE_DIR) / "studies";

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".toml") names.insert(entry.path().filename().string());
  return names;
}

std::vector<fs::path> all_files() {
  std::vector<fs::path> files;
  for (const fs::path& folder : {kStudies, kStudies / "small"})
    for (const std::string& name : names_in(folder)) files.push_back(folder / name);
  return files;
}

TEST(StudyFiles, EveryRunOfEveryStudyIsSound) {
  const std::vector<fs::path> files = all_files();
  ASSERT_GT(files.size(), 30u);
  for (const fs::path& file : files) {
    SCOPED_TRACE(file.string());
    try {
      const config::StudyFile study = config::read_study(file.string());
      const Plan plan = plan_study(study);
      EXPECT_FALSE(plan.runs.empty());
      const auto problems =
          check_claims(study, study_of(plan_json(study, plan, "tessera study"), {}));
      EXPECT_EQ(join(problems, "\n"), "");
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
    }
  }
}

TEST(StudyFiles, NamesAreThoseOfTheFiles) {
  for (const fs::path& file : all_files()) {
    const bool small = file.parent_path().filename() == "small";
    EXPECT_EQ(config::read_study(file.string()).name,
              file.stem().string() + (small ? "-small" : ""))
        << file;
  }
}

// The same parts, of the same kinds, with the same techniques and keys; a twin is small enough for
// two cores.
TEST(StudyFiles, ATwinAsksTheSame) {
  const std::set<std::string> full = names_in(kStudies), small = names_in(kStudies / "small");
  for (const std::string& name : small)
    EXPECT_TRUE(full.contains(name)) << "studies/small/" << name << " is the twin of nothing";
  for (const std::string& name : full) {
    if (name == "quick.toml" || name == "claims.toml") continue;  // small themselves
    if (name == "claims_gpu.toml") continue;  // asks a card what claims.toml asks cores
    SCOPED_TRACE(name);
    ASSERT_TRUE(small.contains(name));
    const config::StudyFile a = config::read_study((kStudies / name).string()),
                            b = config::read_study((kStudies / "small" / name).string());
    ASSERT_EQ(a.parts.size(), b.parts.size());
    for (std::size_t i = 0; i < a.parts.size(); ++i) {
      const config::StudyPart &p = a.parts[i], &q = b.parts[i];
      EXPECT_EQ(p.name, q.name);
      EXPECT_EQ(p.kind, q.kind);
      EXPECT_EQ(p.verb, q.verb);
      EXPECT_EQ(p.needs, q.needs);
      EXPECT_EQ(p.published, q.published);
      ASSERT_EQ(p.techniques.size(), q.techniques.size());
      for (std::size_t t = 0; t < p.techniques.size(); ++t)
        EXPECT_EQ(p.techniques[t].name, q.techniques[t].name);
      ASSERT_EQ(p.grid.size(), q.grid.size());
      for (std::size_t g = 0; g < p.grid.size(); ++g) {
        if (p.grid[g].key == "launch.per_host") continue;  // one machine has no hosts
        EXPECT_EQ(p.grid[g].key, q.grid[g].key);
      }
    }
    for (const PlannedPoint& point : plan_study(b).points) EXPECT_LE(point.ranks, 4);
    EXPECT_NE(b.base.size(), 0u);
    EXPECT_TRUE(b.config.empty()) << "a twin needs no other file";
  }
}

TEST(StudyFiles, EachOpensWithWhatItIsForAndIsInTheTable) {
  std::ifstream in(kStudies / "README.md");
  std::stringstream readme;
  readme << in.rdbuf();
  for (const fs::path& file : all_files()) {
    std::ifstream text(file);
    std::string first;
    std::getline(text, first);
    EXPECT_TRUE(first.starts_with("# ")) << file;
    EXPECT_NE(readme.str().find("`" + file.stem().string() + "`"), std::string::npos)
        << file << " is not in studies/README.md";
  }
}

}  // namespace files_test
}  // namespace tessera::study
