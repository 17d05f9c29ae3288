// The dependency rule and the housekeeping rules, read off the source text: breaking one fails with
// the file, the line and the reason. Convention: paths are relative to src/ ("ir/type.h"), as
// includes are written; the tables are the rule, the code only looks them up.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "pattern.h"

namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;
using tessera::test::Pattern;

const fs::path kRoot = TESSERA_SOURCE_DIR;
constexpr int kMostLines = 400;

// What each room may include besides itself: a room, or one header of it. In the order of the data
// flow.
const std::map<std::string, Strings> kMaySee = {
    {"base", {}},
    {"ir", {"base"}},
    {"ops", {"base", "ir"}},
    {"models", {"base", "ir"}},
    {"transforms", {"base", "ir", "ops"}},
    {"plan", {"base", "ir", "ops"}},
    {"files", {"base"}},
    {"comm", {"base", "ir/type.h", "ir/wire.h"}},
    {"exec", {"base", "ir", "ops", "plan", "comm"}},
    {"data", {"base", "files"}},
    {"config", {"base", "models/config.h", "data/class_folders.h", "ir/optimizers.h"}},
    {"report", {"base", "files", "ir", "plan/plan.h"}},
    {"study", {"base", "files", "config", "report"}},
    {"run",
     {"base", "ir", "ops", "models", "transforms", "plan", "files", "comm", "exec", "data",
      "config", "report"}},
    {"app", {"base", "config", "report", "study", "run"}},
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
    {"(cuda|cublas|cudnn|curand|nccl|nvtx|cute/|cutlass/).*",
     {"exec/cuda/", "comm/nccl"},
     "CUDA stays in exec/cuda/ and comm/nccl"},
    {"mpi\\.h", {"comm/"}, "MPI is a back-end of comm/"},
    {"nlohmann/.*",
     {"files/", "config/", "report/", "study/", "run/", "app/", "exec/", "comm/", "data/"},
     "the compiler half needs no JSON"},
    {"(gtest|gmock)/.*", {}, "tests live in tests/"},
};

// Files that may be longer than kMostLines. None is wanted; give the reason beside an entry.
const Strings kLongFiles = {};

struct Include {
  std::string path;
  bool quoted = false;
  int line = 0;
};

Strings lines_of(const fs::path& file) {
  std::ifstream in(file);
  Strings lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

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

bool starts_with_any(const std::string& path, const Strings& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const std::string& p) { return path.starts_with(p); });
}

// What is wrong with `file` including `include`; empty when nothing is.
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

bool is_code(const fs::path& file) {
  static const Strings endings = {".h", ".cpp", ".cu", ".cuh"};
  return std::find(endings.begin(), endings.end(), file.extension().string()) != endings.end();
}

// Code files under kRoot/folder, relative to it, sorted.
Strings code_in(const std::string& folder) {
  Strings files;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder))
    if (entry.is_regular_file() && is_code(entry.path()))
      files.push_back(fs::relative(entry.path(), kRoot / folder).generic_string());
  std::sort(files.begin(), files.end());
  return files;
}

TEST(Architecture, TheRuleBites) {
  auto quoted = [](const char* path) { return Include{path, true, 1}; };
  auto angled = [](const char* path) { return Include{path, false, 1}; };
  EXPECT_EQ(violation("ir/text.cpp", quoted("ir/type.h")), "");
  EXPECT_EQ(violation("config/read.cpp", quoted("models/config.h")), "");
  EXPECT_EQ(violation("exec/cpu/gemm.cpp", angled("blis.h")), "");
  EXPECT_EQ(violation("exec/cpu/norm.cpp", quoted("hwy/foreach_target.h")), "");
  EXPECT_EQ(violation("base/check.cpp", angled("string")), "");
  EXPECT_NE(violation("config/read.cpp", quoted("models/model.h")), "");
  EXPECT_NE(violation("models/vit.cpp", quoted("transforms/transforms.h")), "");
  EXPECT_NE(violation("transforms/fuse.cpp", quoted("models/model.h")), "");
  EXPECT_NE(violation("transforms/fuse.cpp", quoted("exec/executor.h")), "");
  EXPECT_NE(violation("base/check.cpp", quoted("ir/type.h")), "");
  EXPECT_NE(violation("comm/local.cpp", quoted("ir/program.h")), "");
  EXPECT_NE(violation("ir/text.cpp", quoted("type.h")), "");
  EXPECT_NE(violation("ir/text.cpp", quoted("../base/check.h")), "");
  EXPECT_NE(violation("run/train.cpp", angled("toml++/toml.h")), "");
  EXPECT_NE(violation("plan/plan.cpp", angled("nlohmann/json.hpp")), "");
  EXPECT_NE(violation("exec/cpu/gemm.cpp", angled("cuda_runtime.h")), "");
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

TEST(Architecture, FilesHoldOneIdea) {
  for (const std::string folder : {"src", "tests", "fuzz"})
    for (const std::string& file : code_in(folder)) {
      const std::string path = folder + "/" + file;
      if (std::find(kLongFiles.begin(), kLongFiles.end(), path) != kLongFiles.end()) continue;
      const auto count = lines_of(kRoot / path).size();
      EXPECT_LE(count, static_cast<std::size_t>(kMostLines))
          << path << " has " << count << " lines; past " << kMostLines
          << " it is two ideas: split it";
    }
  for (const std::string& path : kLongFiles)
    EXPECT_TRUE(fs::exists(kRoot / path))
        << path << " is in kLongFiles but is gone: remove the entry";
}

// Text leaves this program through base/say.h, which shows what would steer a terminal. Files that
// write by themselves write what is their own (the codes of a bar, of colour) or between fork and
// exec; each says which.
TEST(Architecture, TextIsSaidInOnePlace) {
  const std::map<std::string, std::string> own = {
      {"base/say.cpp", "the place itself"},
      {"app/main.cpp", "the colour of `error:`"},
      {"report/console.cpp", "the bar; its lines are made printable"},
      {"study/table.cpp", "the codes that redraw a table"},
      {"study/child.cpp", "after fork, where nothing else may be called; into the run's own file"},
      {"run/pulse_folder.cpp", "at once and whole, just before the process ends; made printable"},
      {"data/fetch.cpp", "bytes of a download into its file"},
  };
  const Strings writers = {"print",   "printf", "fprintf", "puts",   "fputs",
                           "putchar", "fwrite", "perror",  "psignal"};
  const auto writes = [&](const std::string& code) {
    for (const char* stream : {"std::cout", "std::cerr", "std::clog", "write(STD"})
      if (code.find(stream) != code.npos) return true;
    for (std::size_t at = 0; (at = code.find('(', at)) != code.npos; ++at) {
      std::size_t begin = at;
      while (begin > 0 &&
             (std::isalnum(static_cast<unsigned char>(code[begin - 1])) || code[begin - 1] == '_'))
        --begin;
      const std::string name = code.substr(begin, at - begin);
      const bool ours =
          name == "print" && !code.substr(0, begin).ends_with("fmt::");  // ir::print() makes a text
      if (!ours && std::find(writers.begin(), writers.end(), name) != writers.end()) return true;
    }
    return false;
  };
  EXPECT_TRUE(writes("  fmt::print(stderr, x);") && writes("std::fputs(a, b)") &&
              writes("::write(STDERR_FILENO, a, 1)"));
  EXPECT_FALSE(writes("say(stderr, x); ir::print(p); snprintf(a, 1, x); inputs(1)"));
  for (const std::string& file : code_in("src")) {
    if (own.contains(file)) continue;
    const Strings lines = lines_of(kRoot / "src" / file);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const std::string code = lines[i].substr(0, lines[i].find("//"));
      EXPECT_FALSE(writes(code)) << "src/" << file << ":" << i + 1
                                 << ": use say(), say_lines() or say_json() of base/say.h: "
                                 << lines[i];
    }
  }
  for (const auto& [file, why] : own)
    EXPECT_TRUE(fs::exists(kRoot / "src" / file))
        << file << " is gone: remove the entry (" << why << ")";
}

TEST(Architecture, HeadersOpenWithWhatTheyAre) {
  for (const std::string& file : code_in("src")) {
    if (!file.ends_with(".h") && !file.ends_with(".cuh")) continue;
    const Strings lines = lines_of(kRoot / "src" / file);
    ASSERT_FALSE(lines.empty()) << "src/" << file << " is empty";
    EXPECT_TRUE(lines[0].starts_with("//"))
        << "src/" << file
        << ":1: a header opens with a comment: what it is and the one convention it relies on";
    if (file.ends_with("-inl.h")) continue;  // Highway includes these once per instruction set
    EXPECT_NE(std::find(lines.begin(), lines.end(), "#pragma once"), lines.end())
        << "src/" << file << ": #pragma once is missing";
  }
}

// A path of somebody's machine works for nobody else.
TEST(Architecture, NoMachinePaths) {
  const Pattern machine(std::string(R"((^|[[:space:]"'=(:]))") +
                        "/(home|root|work|Users|mnt|media)/");
  Strings files;
  for (const std::string folder : {"src", "tests", "fuzz", "tools", "bench", "docs", "cmake"}) {
    if (!fs::exists(kRoot / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      static const Strings text = {".h",  ".cpp", ".cu", ".cuh",  ".txt", ".cmake",
                                   ".md", ".py",  ".sh", ".toml", ".ir",  ".jsonl"};
      if (entry.is_regular_file() &&
          std::find(text.begin(), text.end(), entry.path().extension()) != text.end())
        files.push_back(fs::relative(entry.path(), kRoot).generic_string());
    }
  }
  for (const char* file :
       {"README.md", "CMakeLists.txt", "CMakePresets.json", "setup", "check", "demo", "fuzz/run"})
    if (fs::exists(kRoot / file)) files.push_back(file);
  for (const std::string& file : files) {
    const Strings lines = lines_of(kRoot / file);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (lines[i].size() > 2000) continue;  // data, not text
      EXPECT_FALSE(machine.is_in(lines[i]))
          << file << ":" << i + 1 << ": a path of one machine: " << lines[i];
    }
  }
}

}  // namespace
