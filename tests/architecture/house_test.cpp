// Housekeeping rules, read off the source text: how long files, rooms, functions and lines may be,
// where text is said, how headers open, and that no path of somebody's machine is in the
// repository. Convention: breaking one fails with the file, the line and the reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>

#include "architecture/source.h"
#include "pattern.h"

namespace tessera::test {
namespace {

constexpr int kMostLines = 400, kMostRoomLines = 5000, kMostFunctionLines = 80;
constexpr std::size_t kMostColumns = 100;

// Files that may be longer than kMostLines. None is wanted; give the reason beside an entry.
const Strings kLongFiles = {};

// Functions that may be longer than kMostFunctionLines, as "file: name". None is wanted; an entry
// goes when its function was cut.
const Strings kLongFunctions = {};

bool is_python(const fs::path& file) { return file.extension() == ".py"; }

// Scripts for a shell and for CMake; fuzz/run has no ending.
bool is_script(const fs::path& file) {
  const std::string end = file.extension().string();
  return end == ".sh" || end == ".sbatch" || end == ".cmake" ||
         file.filename() == "CMakeLists.txt" || (end.empty() && file.filename() == "run");
}

// The files beside the C++ that are read by people, too: those of the folders that hold some and,
// where they are scripts, those of the root.
std::vector<fs::path> files_that(bool (*fits)(const fs::path&)) {
  std::vector<fs::path> found;
  for (const std::string folder : {"bench", "cmake", "deploy", "fuzz", "tests", "tools"})
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder))
      if (entry.is_regular_file() && fits(entry.path())) found.push_back(entry.path());
  for (const char* name : {"CMakeLists.txt", "check", "demo", "setup"})
    if (fits == is_script) found.push_back(kRoot / name);
  return found;
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
  for (const fs::path& file : files_that(is_python))
    EXPECT_LE(lines_of(file).size(), static_cast<std::size_t>(kMostLines)) << file.string();
  for (const std::string& path : kLongFiles)
    EXPECT_TRUE(fs::exists(kRoot / path))
        << path << " is in kLongFiles but is gone: remove the entry";
}

// A room is a folder: what lies in folders inside it is counted there.
TEST(Architecture, RoomsCanBeReadInADay) {
  std::map<std::string, std::size_t> lines;
  for (const std::string folder : {"src", "tests", "fuzz"})
    for (const std::string& file : code_in(folder)) {
      const std::string path = folder + "/" + file;
      lines[fs::path(path).parent_path().generic_string()] += lines_of(kRoot / path).size();
    }
  for (const auto& [room, count] : lines)
    EXPECT_LE(count, static_cast<std::size_t>(kMostRoomLines))
        << room << " has " << count << " lines; past " << kMostRoomLines
        << " it is two rooms, or one with a folder inside";
}

std::size_t columns_of(std::string_view line) {  // characters of UTF-8, not bytes
  return static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

// The numbers of lines that are too long. Raw strings are as they are written, and so are tables
// between marks that switch clang-format off and on.
std::vector<int> too_wide(const Strings& lines) {
  std::vector<int> found;
  bool off = false;
  std::string end;  // of the raw string that is open; empty: none
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::string_view rest = lines[i];
    if (rest.find("// clang-format off") != rest.npos) off = true;
    if (rest.find("// clang-format on") != rest.npos) off = false;
    bool raw = !end.empty();
    while (!rest.empty()) {
      if (end.empty()) {
        const std::size_t at = rest.find("R\"");
        const std::size_t open = at == rest.npos ? at : rest.find('(', at);
        if (open == rest.npos) break;
        end = ")" + std::string(rest.substr(at + 2, open - at - 2)) + "\"";
        rest.remove_prefix(open + 1);
        raw = true;
      }
      const std::size_t close = rest.find(end);
      if (close == rest.npos) break;
      rest.remove_prefix(close + end.size());
      end.clear();
    }
    if (columns_of(lines[i]) > kMostColumns && !off && !raw)
      found.push_back(static_cast<int>(i) + 1);
  }
  return found;
}

TEST(Architecture, LinesFitIn100Columns) {
  const std::string wide(101, 'x');
  EXPECT_EQ(too_wide({wide, std::string(100, 'x')}), std::vector<int>{1});
  EXPECT_EQ(too_wide({"// clang-format off", wide, "// clang-format on", wide}),
            std::vector<int>{4});
  EXPECT_EQ(too_wide({"a = R\"(" + wide, wide, ")\";", wide}), std::vector<int>{4});
  EXPECT_EQ(too_wide({"a = R\"x(" + wide + ")x\" + b;", wide}), std::vector<int>{2});
  for (const std::string folder : {"src", "tests", "fuzz"})
    for (const std::string& file : code_in(folder)) {
      const Strings lines = lines_of(kRoot / folder / file);
      for (const int line : too_wide(lines))
        ADD_FAILURE() << folder << "/" << file << ":" << line << ": "
                      << columns_of(lines[static_cast<std::size_t>(line) - 1])
                      << " columns; tools/format.sh breaks what it can";
    }
  int seen = 0;
  for (const auto fits : {is_python, is_script})
    for (const fs::path& file : files_that(fits)) {
      ++seen;
      int line = 0;
      for (const std::string& text : lines_of(file)) {
        ++line;
        EXPECT_LE(columns_of(text), kMostColumns) << file.string() << ":" << line;
      }
    }
  EXPECT_GT(seen, 50) << "the scripts were not found";
}

struct Function {
  std::string name;
  int line = 0, lines = 0;
};

// Functions of a file and methods of its classes, by their indentation as clang-format leaves it:
// from the line at the depth of the closing brace that precedes it to that brace.
std::vector<Function> functions_of(const Strings& lines) {
  static const Strings others = {"class ", "struct ", "namespace ", "enum ", "union "};
  std::vector<Function> found;
  for (const std::size_t depth : {0u, 2u}) {
    std::size_t begin = lines.size();
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const std::size_t first = lines[i].find_first_not_of(' ');
      if (first != depth) continue;
      const std::string text = lines[i].substr(depth);
      if (std::string_view("/#*").find(text[0]) != std::string_view::npos) continue;
      if (text[0] != '}') {
        begin = i;
        continue;
      }
      if (text == "}" && begin < i && !starts_with_any(lines[begin].substr(depth), others)) {
        const std::string head = lines[begin].substr(depth);
        if (const std::size_t end = head.find('('); end != head.npos) {
          const std::size_t space = head.find_last_of(" *&:", end);
          found.push_back({head.substr(space == head.npos ? 0 : space + 1,
                                       end - (space == head.npos ? 0 : space + 1)),
                           static_cast<int>(begin) + 1, static_cast<int>(i - begin)});
        }
      }
      begin = lines.size();
    }
  }
  return found;
}

TEST(Architecture, FunctionsFitOnAScreenOrTwo) {
  const std::vector<Function> two =
      functions_of({"int f(int a,", "      int b) {", "  return a;", "}", "struct S {",
                    "  void g() {", "    h();", "  }", "};"});
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0].name, "f");
  EXPECT_EQ(two[0].lines, 3);
  EXPECT_EQ(two[1].name, "g");
  EXPECT_EQ(two[1].line, 6);
  Strings still_long;
  int seen = 0;
  for (const std::string& file : code_in("src"))
    for (const Function& f : functions_of(lines_of(kRoot / "src" / file))) {
      ++seen;
      if (f.lines <= kMostFunctionLines) continue;
      const std::string entry = file + ": " + f.name;
      still_long.push_back(entry);
      EXPECT_NE(std::find(kLongFunctions.begin(), kLongFunctions.end(), entry),
                kLongFunctions.end())
          << "src/" << file << ":" << f.line << ": " << f.name << " has " << f.lines
          << " lines; past " << kMostFunctionLines << " it is cut at its seams";
    }
  EXPECT_GT(seen, 1000) << "the functions of src/ were not found";
  for (const std::string& entry : kLongFunctions)
    EXPECT_NE(std::find(still_long.begin(), still_long.end(), entry), still_long.end())
        << entry << " is in kLongFunctions but is short now: remove the entry";
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
      {"ranks/heartbeat_folder.cpp",
       "at once and whole, just before the process ends; made printable"},
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

// A message states what was found and what to do; it asks nothing. A guess at a name that was
// misspelt is the one exception.
TEST(Architecture, MessagesDoNotAsk) {
  const Pattern question(R"("([^"\\]|\\.)*[a-z)}][?]([^a-z"&=][^"]*)?")");
  EXPECT_TRUE(question.is_in(R"(throw Error(usage, "is the disk full?");)"));
  EXPECT_TRUE(question.is_in(R"(help = "is it there? `ulimit -a` shows it")"));
  EXPECT_TRUE(question.is_in(R"(help = "bring it back (is its disk mounted?), or remove it")"));
  EXPECT_FALSE(question.is_in(R"(a ? "yes" : "no"; f("https://x/?a=b"))"));
  for (const std::string& file : code_in("src")) {
    const Strings lines = lines_of(kRoot / "src" / file);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const std::string code = lines[i].substr(0, lines[i].find(" // "));
      if (code.find("did you mean") != code.npos) continue;
      EXPECT_FALSE(question.is_in(code))
          << "src/" << file << ":" << i + 1
          << ": a message asks a question; say what was found and what to do: " << lines[i];
    }
  }
}

// A comment is a sentence with a subject: "Of the thread." leaves out what belongs to the thread,
// and "What a plan is for." leaves out a verb.
TEST(Architecture, CommentsHaveASubject) {
  const Pattern comment("^ *//+ Of "), clause("^ *//+ (What|Who|Whose|Whoever) ");
  for (const std::string folder : {"src", "tests", "fuzz"})
    for (const std::string& file : code_in(folder)) {
      const Strings lines = lines_of(kRoot / folder / file);
      for (std::size_t i = 0; i < lines.size(); ++i) {
        const bool begins = i == 0 || lines[i - 1].find("//") == lines[i - 1].npos;
        EXPECT_FALSE(comment.is_in(lines[i]) &&
                     (begins || (folder == "src" && lines[i - 1].ends_with("."))))
            << folder << "/" << file << ":" << i + 1
            << ": a comment that begins with \"Of\": " << lines[i];
        EXPECT_FALSE(begins && clause.is_in(lines[i]))
            << folder << "/" << file << ":" << i + 1
            << ": a comment that is a clause, not a sentence: " << lines[i];
      }
    }
}

// The tests that the presets and ./check run under emulation have the portable kernels of x86-64
// among them: on an aarch64 machine nothing else does.
TEST(Architecture, TheOtherArchitectureRunsItsPortableKernels) {
  const std::string programs = "'^(ops_part_.|exec|tiny|(ops|exec|tiny)_portable)$'";
  for (const std::string file : {"check", "CMakePresets.json", "docs/testing.md"}) {
    std::size_t found = 0;
    for (std::string line : lines_of(kRoot / file)) {
      if (line.find("ops_part_.") == line.npos) continue;
      std::replace(line.begin(), line.end(), '"', '\'');
      EXPECT_NE(line.find(programs), line.npos) << file << ": " << line;
      ++found;
    }
    EXPECT_EQ(found, 1u) << file;
  }
}

// The facts of a family stand in its row (models/description/): code that asks for a family by its
// name would have to be found and changed for a new one.
TEST(Architecture, FamiliesAreRows) {
  const std::map<std::string, std::string> own = {
      {"checkpoint/weights_recognise.cpp",
       "how many heads a ViT of a known width has, and which functions others put into a ViT or a "
       "ResNet"}};
  const Pattern asked(R"(family *(==|!=) *")");
  EXPECT_TRUE(asked.is_in(R"(if (m.family == "vit") return 1;)"));
  for (const std::string& file : code_in("src")) {
    if (file.starts_with("models/") || own.contains(file)) continue;
    const Strings lines = lines_of(kRoot / "src" / file);
    for (std::size_t i = 0; i < lines.size(); ++i)
      EXPECT_FALSE(asked.is_in(lines[i]))
          << "src/" << file << ":" << i + 1 << ": a branch on a family's name: " << lines[i];
  }
  for (const auto& [file, why] : own)
    EXPECT_TRUE(fs::exists(kRoot / "src" / file))
        << file << " is gone: remove the entry (" << why << ")";
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
}  // namespace tessera::test
