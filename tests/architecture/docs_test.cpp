// The pages of docs/: each is in the index, and opens with what its reader will be able to do.
#include <gtest/gtest.h>

#include <regex>
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

// The README's picture of results has the numbers of its tables: who changes one makes it anew.
TEST(Docs, ThePictureOfResultsHasTheNumbersOfTheTable) {
  std::string pictures[2];
  for (int dark = 0; dark < 2; ++dark)
    for (const std::string& line : lines_of(
             kRoot / (dark ? "docs/pictures/results-dark.svg" : "docs/pictures/results-light.svg")))
      pictures[dark] += line + "\n";
  int rows = 0;
  const std::regex row(
      R"(^\| (?:vit_b_16|swin_t|resnet50) \| ([\d,]+) \| [\d,]+ \| ([\d,]+) \|.*)");
  for (const std::string& line : lines_of(kRoot / "README.md")) {
    std::smatch found;
    if (!std::regex_match(line, found, row)) continue;
    ++rows;
    for (const std::string& number : {found.str(1), found.str(2)})
      for (const std::string& picture : pictures)
        EXPECT_NE(picture.find(">" + number + "<"), picture.npos)
            << number
            << " is not in docs/pictures/results-*.svg: tools/make_pictures.py makes them";
  }
  EXPECT_EQ(rows, 3) << "the README's table of a card was not found";
}

// Lines that a patch adds to files whose path starts with this.
int added_by(const std::string& patch, const std::string& prefix) {
  int lines = 0;
  bool counts = false;
  for (const std::string& line : lines_of(kRoot / "docs/examples" / patch)) {
    if (line.starts_with("+++ "))
      counts = line.starts_with("+++ b/" + prefix);
    else if (line.starts_with("+"))
      lines += counts;
  }
  return lines;
}

// The pages about adding things say how many lines their examples add, and where.
TEST(Docs, ExamplesAreAsLongAsTheirPagesSay) {
  struct Row {
    std::string page, patch;
    Strings prefixes;
    std::string before, after;  // the words around the number
  };
  const std::string executor = "executor_counting.patch", lion = "optimizer_lion.patch",
                    op = "op_quick_gelu.patch", mixer = "model_mixer.patch";
  const std::vector<Row> rows = {
      {"add_an_executor.md", executor, {"src/", "CMakeLists.txt"}, "), ", " lines and a test"},
      {"add_an_executor.md", executor, {"src/exec/counting/"}, "two files, ", " lines |"},
      {"add_an_executor.md", executor, {"src/exec/device.cpp"}, "`make` | ", " lines |"},
      {"add_an_executor.md", executor, {"CMakeLists.txt"}, "its sources | ", " line |"},
      {"add_an_executor.md", executor, {"tests/"}, "only it promises | ", " lines |"},
      {"add_an_optimizer.md", lion, {"src/"}, "), ", " lines and a test"},
      {"add_an_optimizer.md", lion, {"src/ir/"}, "the row | ", " lines |"},
      {"add_an_optimizer.md", lion, {"src/transforms/"}, "the row's name | ", " lines |"},
      {"add_an_optimizer.md", lion, {"tests/"}, "by hand | ", " lines |"},
      {"add_an_op.md", op, {"src/", "tests/"}, "), ", " lines in"},
      {"add_an_op.md", op, {"src/ops/"}, " | 2 | ", " lines |"},
      {"add_an_op.md", op, {"src/exec/cpu/reference/"}, " | 3 | ", " lines |"},
      {"add_an_op.md", op, {"src/exec/cuda/"}, "does not compile | 4 | ", " lines |"},
      {"add_an_op.md", op, {"tests/"}, " | 5 | ", " lines |"},
      {"add_a_model.md", mixer, {"src/models/description/"}, "may say of it (", " lines)"},
      {"add_a_model.md", mixer, {"src/models/mixer"}, "names elsewhere (", " lines)"},
      {"add_a_model.md", mixer, {"tests/"}, "the patch's test is ", " lines"}};
  for (const Row& row : rows) {
    std::string page;
    for (const std::string& line : lines_of(kRoot / "docs" / row.page)) page += line + " ";
    int lines = 0;
    for (const std::string& prefix : row.prefixes) lines += added_by(row.patch, prefix);
    EXPECT_NE(page.find(row.before + std::to_string(lines) + row.after), page.npos)
        << "docs/" << row.page << ": " << row.patch << " adds " << lines << " lines to "
        << row.prefixes[0];
  }
}

// src/README.md tells the order of the passes.
TEST(Docs, TheListOfPassesIsWhole) {
  Strings passes;
  for (const std::string& line : lines_of(kRoot / "src/compile/passes.cpp"))
    if (const auto at = line.find("{\""); at != line.npos)
      passes.push_back(line.substr(at + 2, line.find('"', at + 2) - at - 2));
  EXPECT_GE(passes.size(), 25u) << "the passes were not found";
  std::string page;
  for (const std::string& line : lines_of(kRoot / "src/README.md")) page += line + " ";
  const auto begin = page.find("The passes of a training step");
  ASSERT_NE(begin, page.npos);
  std::size_t at = begin;
  for (const std::string& pass : passes) {
    at = page.find(pass, at);
    ASSERT_NE(at, page.npos) << "src/README.md lacks the pass " << pass << ", or has it too early";
    at += pass.size();
  }
}

}  // namespace
}  // namespace tessera::test
