// Commands that the README says can be pasted are pasted: all command blocks in the order of the
// page, in a folder where nothing ran before. In short: blocks that are marked long are left out,
// and trainings are as small as their mark says. The slow suite pastes everything as it stands.
#include <gtest/gtest.h>

#include <algorithm>

#include "app/binary.h"
#include "pages/document.h"

namespace tessera::test::readme_test {
namespace {

using When = CommandBlock::When;

std::string tail(const std::string& text) {
  return text.size() > 3000 ? "..." + text.substr(text.size() - 3000) : text;
}

// How many commands ran.
int paste_page(const std::string& page, const fs::path& folder, bool whole) {
  int ran = 0;
  for (const CommandBlock& block : command_blocks(fs::path(TESSERA_SOURCE_DIR) / page)) {
    if (block.when != When::always && (block.when != When::slow || !whole)) continue;
    for (const std::string& written : block.commands) {
      const std::string command = whole ? written : scaled_command(block, written);
      const Pasted done = paste(folder, command);
      EXPECT_EQ(done.code, 0) << page << ", block at line " << block.line << ": " << command << "\n"
                              << tail(done.output);
      std::printf("%s: %5.1f s  %s\n", page.c_str(), done.seconds, command.c_str());
      ++ran;
    }
  }
  return ran;
}

TEST(Readme, CommandsWorkWhenPastedInOrder) {
  (void)has_mpirun();  // where there is none, ranks are threads
  EXPECT_GE(paste_page("README.md", checkout_like("readme"), false), 15);
}

TEST(Readme, PagesOfRecipesAndStudiesWorkWhenPastedInOrder) {
  EXPECT_GE(paste_page("recipes/README.md", checkout_like("readme_recipes"), false), 3);
  EXPECT_GE(paste_page("studies/README.md", checkout_like("readme_studies"), false), 2);
}

TEST(Long, PagesOfRecipesAndStudiesAsTheyStand) {
  EXPECT_GE(paste_page("recipes/README.md", checkout_like("recipes_whole"), true), 3);
  EXPECT_GE(paste_page("studies/README.md", checkout_like("studies_whole"), true), 4);
}

// A block that needs several hosts names the scripts that have them and paste it; each of its
// commands is looked for there by words of its own.
TEST(Readme, BlocksForAClusterAreRunByScriptsThatAreThere) {
  int blocks = 0;
  for (const CommandBlock& block : command_blocks(fs::path(TESSERA_SOURCE_DIR) / "README.md")) {
    if (block.when != When::cluster) continue;
    ++blocks;
    std::string scripts;
    for (const char* name : {"hosts.sh", "slurm.sh"}) {
      EXPECT_NE(block.reason.find(name), block.reason.npos) << block.reason;
      scripts += read(fs::path(TESSERA_SOURCE_DIR) / "tests/cluster" / name);
    }
    for (const char* words : {"mpirun -np 8 --hostfile hosts", "srun -N 2", "--deepspeed ds.json",
                              "doctor --hostfile hosts", "--np 4:8", "sbatch --nodes=2"}) {
      EXPECT_TRUE(std::any_of(block.commands.begin(), block.commands.end(),
                              [&](const std::string& c) { return c.find(words) != c.npos; }))
          << words;
      EXPECT_NE(scripts.find(words), scripts.npos) << "no script pastes the line with " << words;
    }
    EXPECT_EQ(block.commands.size(), 6u) << "each is in the list above";
  }
  EXPECT_EQ(blocks, 1);
}

// Links of the README and of the index lead to files that are there, and so do its pictures.
TEST(Readme, LinksLeadSomewhere) {
  for (const char* page : {"README.md", "docs/README.md", "docs/ecosystem.md", "docs/cli.md"}) {
    const fs::path at = fs::path(TESSERA_SOURCE_DIR) / page;
    const std::string text = read(at);
    for (const std::string before : {"](", "src=\"", "srcset=\""})
      for (std::size_t from = text.find(before); from != text.npos;
           from = text.find(before, from + 1)) {
        const std::size_t start = from + before.size(), end = text.find_first_of(")\"#", start);
        const std::string link = text.substr(start, end - start);
        if (link.empty() || link.starts_with("http")) continue;
        EXPECT_TRUE(fs::exists(at.parent_path() / link)) << page << ": " << link;
      }
  }
}

// The picture of the results shows the numbers of the tables (tools/make_pictures.py draws it).
TEST(Readme, ThePictureOfTheResultsHasTheNumbersOfTheTable) {
  std::istringstream lines(read(fs::path(TESSERA_SOURCE_DIR) / "README.md"));
  int rows = 0;
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> cells;
    std::istringstream row(line);
    for (std::string cell; std::getline(row, cell, '|');) cells.push_back(cell);
    if (cells.size() != 8 ||
        !(cells[1] == " vit_b_16 " || cells[1] == " swin_t " || cells[1] == " resnet50 "))
      continue;
    ++rows;
    for (const char* theme : {"light", "dark"})
      for (const std::size_t column : {2u, 4u}) {  // ours, torch.compile's
        const std::string value = cells[column].substr(1, cells[column].size() - 2);
        EXPECT_NE(read(fs::path(TESSERA_SOURCE_DIR) / "docs/pictures" /
                       ("results-" + std::string(theme) + ".svg"))
                      .find(">" + value + "<"),
                  std::string::npos)
            << line << ": " << value;
      }
  }
  EXPECT_EQ(rows, 3);
}

// The pictures of the repository are named after what they show.
void expect_pictures_right(const fs::path& weights) {
  std::istringstream lines(run("predict --weights " + weights.string() +
                               " " TESSERA_SOURCE_DIR "/tests/golden/pictures/*.png")
                               .out);
  int pictures = 0;
  for (std::string line; std::getline(lines, line); ++pictures) {
    const json image = json::parse(line);
    EXPECT_EQ(image["top"][0]["label"].get<std::string>(),
              fs::path(image["file"].get<std::string>()).stem().string())
        << weights << ": " << line;
  }
  EXPECT_EQ(pictures, 6);
}

TEST(Long, ReadmeAsItStands) {
  (void)has_mpirun();
  const fs::path folder = checkout_like("readme_whole");
  EXPECT_GE(paste_page("README.md", folder, true), 25);
  expect_pictures_right(folder / "runs/first");
}

// The quickstart does not depend on a lucky seed.
TEST(Long, ReadmeQuickstartWithOtherSeeds) {
  const fs::path folder = checkout_like("readme_seeds");
  const std::string begin = "build/tessera train ", out = " --out runs/first";
  std::string first;
  for (const CommandBlock& block : command_blocks(fs::path(TESSERA_SOURCE_DIR) / "README.md"))
    for (const std::string& command : block.commands)
      if (first.empty() && command.starts_with(begin) && command.ends_with(out)) first = command;
  ASSERT_FALSE(first.empty()) << "the first training of the README ends in" << out;
  for (const char* seed : {"1", "2", "3"}) {
    const Pasted done = paste(folder, first + seed + " --seed " + seed);
    ASSERT_EQ(done.code, 0) << tail(done.output);
    expect_pictures_right(folder / ("runs/first" + std::string(seed)));
  }
}

std::vector<CommandBlock> blocks_of(const std::string& text) {
  const fs::path page = scratch() / "page.md";
  write(page, text);
  return command_blocks(page);
}

TEST(Readme, BlocksAreFoundWithTheirMarks) {
  const std::vector<CommandBlock> blocks = blocks_of(
      "```sh\n\n./demo   # builds\necho '# no comment' \\\n  b\n```\ntext\n\n```\nnot "
      "commands\n```\n"
      "<!-- test: long; scale train --steps 2 -->\n```sh\nbuild/tessera train "
      "x.toml\nbuild/tessera trainer\n```\n"
      "<!-- test: not pasted: it needs the network -->\n```sh\nget x\n```\n"
      "<!-- test: on a card; scale train --steps 2 -->\n```sh\nbuild-cuda/tessera train x\n```\n"
      "<!-- test: on a cluster: some.sh -->\n```sh\nsrun x\n```\n");
  ASSERT_EQ(blocks.size(), 5u);
  EXPECT_EQ(blocks[0].line, 3);
  EXPECT_EQ(blocks[0].when, When::always);
  EXPECT_EQ(blocks[0].commands, (std::vector<std::string>{"./demo", "echo '# no comment'  b"}));
  EXPECT_EQ(blocks[1].when, When::slow);
  EXPECT_EQ(scaled_command(blocks[1], blocks[1].commands[0]),
            "build/tessera train x.toml --steps 2");
  EXPECT_EQ(scaled_command(blocks[1], blocks[1].commands[1]), "build/tessera trainer");
  EXPECT_EQ(blocks[2].when, When::never);
  EXPECT_EQ(blocks[2].reason, "it needs the network");
  EXPECT_EQ(blocks[3].when, When::card);
  EXPECT_EQ(scaled_command(blocks[3], blocks[3].commands[0]),
            "build-cuda/tessera train x --steps 2");
  EXPECT_EQ(blocks[4].when, When::cluster);
  EXPECT_EQ(blocks[4].reason, "some.sh");
  for (const char* bad :
       {"<!-- test: sometimes -->\n```sh\na\n```\n", "<!-- test: not pasted: -->\n```sh\na\n```\n",
        "<!-- test: on a cluster: -->\n```sh\na\n```\n", "<!-- test: long -->\n\n```sh\na\n```\n",
        "<!-- test: long\n```sh\na\n```\n", "```sh\na\n", "```sh\n# a\n```\n"})
    EXPECT_THROW((void)blocks_of(bad), std::runtime_error) << bad;
}

}  // namespace
}  // namespace tessera::test::readme_test
