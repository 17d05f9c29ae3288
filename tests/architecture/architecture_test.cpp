// The dependency rule, read off the source text: breaking it fails with the file, the line and the
// reason. (Housekeeping rules: house_test.cpp.) Convention: paths are relative to src/
// ("ir/type.h"), as includes are written; the tables are the rule, the code only looks them up.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "architecture/source.h"
#include "pattern.h"

namespace tessera::test {
namespace {

// The table says what each room may include besides itself: a room, or one header of it. In the
// order of the data flow.
const std::map<std::string, Strings> kMaySee = {
    {"base", {}},
    {"ir", {"base"}},
    {"ops", {"base", "ir"}},
    {"models", {"base", "ir"}},
    {"onnx", {"base", "ir"}},
    {"transforms", {"base", "ir", "ops"}},
    {"plan", {"base", "ir", "ops"}},
    {"files", {"base"}},
    {"comm", {"base", "ir/type.h", "ir/wire.h"}},
    {"exec", {"base", "ir", "ops", "plan", "comm", "files/scratch_file.h", "files/disk_call.h"}},
    {"data", {"base", "files"}},
    {"config", {"base", "models/config.h", "data/class_folders.h", "ir/optimizers.h"}},
    {"report", {"base", "files", "ir", "plan/plan.h"}},
    {"record", {"base", "files", "report"}},
    {"page", {"base", "files", "report", "record"}},
    {"study", {"base", "files", "config", "report", "record", "page"}},
    // The rooms of a run: each sees those above it.
    {"input", {"base", "files", "data", "models", "config", "report"}},
    {"ranks", {"base", "files", "comm", "exec/device.h", "config", "report"}},
    {"compile",
     {"base", "ir", "ops", "models", "transforms", "plan", "files", "comm", "config", "input",
      "ranks"}},
    {"session",
     {"base", "ir", "models", "transforms", "plan", "comm", "exec", "config", "report", "input",
      "ranks", "compile"}},
    {"checkpoint",
     {"base", "ir", "models", "transforms", "plan", "files", "comm", "exec", "data", "config",
      "input", "ranks", "compile", "session"}},
    {"measure",
     {"base", "ir", "models", "transforms", "plan", "files", "comm", "exec", "config", "report",
      "ranks", "compile", "session"}},
    {"train",
     {"base", "ir", "models", "transforms", "plan", "files", "comm", "exec", "data", "config",
      "report", "input", "ranks", "compile", "session", "checkpoint", "measure"}},
    {"verbs", {"base",  "ir",      "ops",     "models",     "onnx",    "transforms", "plan",
               "files", "comm",    "exec",    "data",       "config",  "report",     "input",
               "ranks", "compile", "session", "checkpoint", "measure", "train"}},
    {"app", {"base", "config", "report", "study", "input", "ranks", "compile", "train", "verbs"}},
};

// Where a library may be seen: includes that match `header` only in files that start with one of
// `places`.
struct Library {
  std::string header;  // regular expression on the included path
  Strings places;
  std::string why;
};
const std::vector<Library> kLibraries = {
    {"toml\\+\\+/.*", {"config/"}, "toml++ is read in config/ only"},
    {"sqlite3\\.h", {"study/"}, "the database of a study is read and written in study/ only"},
    {"xxh(ash|3)\\.h", {"files/"}, "hashes are taken through files/hash.h"},
    {"CLI/.*", {"app/"}, "the command line is read in app/ only"},
    {"(spng|jpeglib|jerror|turbojpeg)\\.h", {"data/"}, "pictures are decoded in data/ only"},
    {"(curl/|openssl/|zlib\\.h).*",
     {"data/fetch", "data/archive"},
     "downloads are fetched, checked and unpacked in two files"},
    {"(blis/)?(blis|cblas)\\.h", {"exec/cpu/"}, "BLAS is called by the CPU kernels only"},
    {"hwy/.*", {"exec/cpu/"}, "Highway is used by the CPU kernels only"},
    {"Eigen/.*", {"exec/cpu/peers/"}, "Eigen is a row of `bench gemm` only"},
    {"(cuda|cublas|cudnn|curand|nccl|nvtx|cute/|cutlass/).*",
     {"exec/cuda/"},
     "CUDA stays in exec/cuda/"},
    {"mpi\\.h", {"comm/"}, "MPI is a back-end of comm/"},
    {"nlohmann/.*",
     {"files/", "config/", "report/", "record/", "page/", "study/", "app/", "exec/", "comm/",
      "data/", "input/", "ranks/", "checkpoint/", "measure/", "train/", "verbs/"},
     "the compiler half needs no JSON"},
    {"(gtest|gmock)/.*", {}, "tests live in tests/"},
};

struct Include {
  std::string path;
  bool quoted = false;
  int line = 0;
};

std::vector<Include> includes_of(const Strings& lines) {
  std::vector<Include> found;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::string_view line = lines[i];
    const auto skip = [&line](std::string_view word) {
      while (!line.empty() && (line[0] == ' ' || line[0] == '\t')) line.remove_prefix(1);
      const bool there = line.starts_with(word);
      if (there) line.remove_prefix(word.size());
      return there;
    };
    if (!skip("#") || !skip("include")) continue;
    const bool quoted = skip("\"");
    if (!quoted && !skip("<")) continue;
    const std::size_t end = line.find_first_of(">\"");
    if (end == line.npos || end == 0) continue;
    found.push_back({std::string(line.substr(0, end)), quoted, static_cast<int>(i) + 1});
  }
  return found;
}

std::string room_of(const std::string& path) { return path.substr(0, path.find('/')); }

// Says what is wrong with `file` including `include`; empty when nothing is.
std::string violation(const std::string& file, const Include& include) {
  const std::string from = room_of(file), to = room_of(include.path);
  static const auto patterns = [] {
    std::deque<Pattern> all;
    for (const Library& library : kLibraries) all.emplace_back("^(" + library.header + ")$");
    return all;
  }();
  for (std::size_t i = 0; i < kLibraries.size(); ++i) {
    const Library& library = kLibraries[i];
    if (patterns[i].is_in(include.path))
      return starts_with_any(file, library.places) ? "" : library.why;
  }
  if (!kMaySee.contains(to))
    return include.quoted ? "our own includes are written from src/, as \"room/file.h\"" : "";
  if (!include.quoted) return "our own headers are included with quotes";
  const Strings& seen = kMaySee.at(from);
  if (from == to || std::find(seen.begin(), seen.end(), to) != seen.end() ||
      std::find(seen.begin(), seen.end(), include.path) != seen.end())
    return "";
  std::string may = seen.empty() ? "nothing" : "";
  for (const std::string& s : seen) may += (may.empty() ? "" : ", ") + s;
  return from + "/ may see " + may + " (and itself), but not " + include.path;
}

TEST(Architecture, TheRuleBites) {
  auto quoted = [](const char* path) { return Include{path, true, 1}; };
  auto angled = [](const char* path) { return Include{path, false, 1}; };
  EXPECT_EQ(violation("ir/text.cpp", quoted("ir/type.h")), "");
  EXPECT_EQ(violation("config/read.cpp", quoted("models/config.h")), "");
  EXPECT_EQ(violation("exec/cpu/gemm/gemm.cpp", angled("blis.h")), "");
  EXPECT_EQ(violation("exec/cpu/norm/norm.cpp", quoted("hwy/foreach_target.h")), "");
  EXPECT_EQ(violation("base/check.cpp", angled("string")), "");
  EXPECT_NE(violation("config/read.cpp", quoted("models/model.h")), "");
  EXPECT_NE(violation("models/vit.cpp", quoted("transforms/transforms.h")), "");
  EXPECT_NE(violation("transforms/fuse.cpp", quoted("models/model.h")), "");
  EXPECT_NE(violation("transforms/fuse.cpp", quoted("exec/executor.h")), "");
  EXPECT_NE(violation("base/check.cpp", quoted("ir/type.h")), "");
  EXPECT_NE(violation("comm/local.cpp", quoted("ir/program.h")), "");
  EXPECT_NE(violation("ir/text.cpp", quoted("type.h")), "");
  EXPECT_NE(violation("ir/text.cpp", quoted("../base/check.h")), "");
  EXPECT_NE(violation("train/train.cpp", angled("toml++/toml.h")), "");
  EXPECT_NE(violation("plan/plan.cpp", angled("nlohmann/json.hpp")), "");
  EXPECT_NE(violation("exec/cpu/gemm/gemm.cpp", angled("cuda_runtime.h")), "");
  EXPECT_EQ(
      includes_of({"#include <a/b.h>", "// #include \"c.h\"", "  # include \"base/x.h\"  // why"})
          .size(),
      2u);
}

TEST(Architecture, IncludesFollowTheDependencyRule) {
  int seen = 0;
  for (const std::string& file : code_in("src")) {
    if (!kMaySee.contains(room_of(file))) continue;  // EveryFolderIsARoom reports it
    for (const Include& include : includes_of(lines_of(kRoot / "src" / file))) {
      ++seen;
      const std::string wrong = violation(file, include);
      EXPECT_TRUE(wrong.empty()) << "src/" << file << ":" << include.line << ": includes "
                                 << include.path << "; rule: " << wrong;
    }
  }
  EXPECT_GT(seen, 0) << "no includes found under " << kRoot / "src";
}

// The list of instruction sets stands in that header: without it Highway takes others, which a
// compiler may not know (SVE, g++ 12).
TEST(Architecture, KernelsAreCompiledForTheSetsThatWeBuildFor) {
  int files = 0;
  for (const std::string& file : code_in("src")) {
    bool listed = false;
    for (const Include& include : includes_of(lines_of(kRoot / "src" / file))) {
      listed |= include.path == "exec/cpu/simd/vector.h";
      if (include.path != "hwy/foreach_target.h") continue;
      ++files;
      EXPECT_TRUE(listed) << "src/" << file << ":" << include.line
                          << ": exec/cpu/simd/vector.h must come before Highway";
    }
  }
  EXPECT_GE(files, 8);
}

TEST(Architecture, MpiIsSeenByOneFile) {
  Strings users;
  for (const std::string& file : code_in("src"))
    for (const Include& include : includes_of(lines_of(kRoot / "src" / file)))
      if (include.path == "mpi.h") users.push_back("src/" + file);
  EXPECT_LE(users.size(), 1u) << "mpi.h belongs in one file; it is in "
                              << testing::PrintToString(users);
}

TEST(Architecture, EveryFolderIsARoomAndIsExplained) {
  std::string readme;
  for (const std::string& line : lines_of(kRoot / "src/README.md")) readme += line + "\n";
  ASSERT_FALSE(readme.empty())
      << "src/README.md is missing: the picture and one paragraph per room";
  for (const auto& entry : fs::directory_iterator(kRoot / "src")) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_directory()) {
      EXPECT_FALSE(is_code(entry.path()))
          << "src/" << name << ": code lives in a room, not in src/ itself";
      continue;
    }
    EXPECT_TRUE(kMaySee.contains(name))
        << "src/" << name
        << " is not a room; add it to kMaySee with what it may see, and to src/README.md";
    EXPECT_NE(readme.find(name + "/"), std::string::npos)
        << "src/README.md does not name the room " << name << "/";
  }
}

}  // namespace
}  // namespace tessera::test
