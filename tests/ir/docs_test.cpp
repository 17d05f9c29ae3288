// docs/ir.md says what the code says: the op table is generated, the examples parse.
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "ir/texts.h"
#include "ops/table.h"

namespace tessera::ir::docs_test {
namespace {

const std::string begin = "<!-- ops begin -->\n", end = "<!-- ops end -->";

TEST(Docs, TheOpTableIsTheCodes) {
  const std::string text = test::read_source("docs/ir.md");
  const auto from = text.find(begin), to = text.find(end);
  ASSERT_TRUE(from != text.npos && to != text.npos && from < to)
      << "docs/ir.md needs a line " << begin << " and a line " << end;
  const std::string table = ops::markdown();
  if (text.substr(from + begin.size(), to - from - begin.size()) == table) return;
  if (const char* update = std::getenv("TESSERA_UPDATE_GOLDENS");
      update && std::string(update) == "1") {
    std::ofstream(std::string(TESSERA_SOURCE_DIR) + "/docs/ir.md")
        << text.substr(0, from + begin.size()) << table << text.substr(to);
    GTEST_SKIP() << "rewrote the op table of docs/ir.md";
  }
  std::istringstream page(text.substr(from + begin.size(), to - from - begin.size())), code(table);
  std::string said, meant;
  while (said == meant && std::getline(code, meant))
    if (!std::getline(page, said)) said.clear();
  FAIL() << "the op table of docs/ir.md is stale; TESSERA_UPDATE_GOLDENS=1 build/tests/ir_test "
            "rewrites it. The first line that differs:\n"
         << "  docs  " << said << "\n  code  " << (said == meant ? "(no further op)" : meant);
}

TEST(Docs, EveryOpHasARowWithAllItNeeds) {
  for (int i = 0; i < op_count; ++i) {
    const OpDef& row = def(static_cast<Op>(i));
    EXPECT_EQ(row.op, static_cast<Op>(i));
    EXPECT_FALSE(row.doc.empty()) << name(row.op);
    EXPECT_TRUE(row.infer || !row.sig.empty())
        << name(row.op) << " has neither a signature nor a rule";
    EXPECT_EQ(row.doc.find('|'), row.doc.npos) << name(row.op) << "'s line would break the table";
  }
}

TEST(Docs, TheExampleParses) {
  const std::string text = test::read_source("docs/ir.md");
  const auto from = text.find("program mlp mesh("), to = text.find("```", from);
  ASSERT_NE(from, text.npos);
  const std::string example = text.substr(from, to - from);
  const Program p = parse(example);
  verify(p);
  EXPECT_EQ(print(p), example);
}

TEST(Docs, TheGrammarNamesEveryWord) {
  const std::string text = test::read_source("docs/ir.md");
  for (const char* word : {"\"batch\"", "\"param\"", "\"state\"", "\"scalar\"", "\"updates\"",
                           "\"f64\"", "\"bf16\"", "\"u8\"", "\"data\"", "\"model\""})
    EXPECT_NE(text.find(word), text.npos) << word;
  for (int i = 1; i <= static_cast<int>(Role::key); ++i) {
    const std::string role(name(static_cast<Role>(i)));
    EXPECT_NE(text.find("`" + role + "`"), text.npos) << "the role " << role << " is not explained";
  }
}

}  // namespace
}  // namespace tessera::ir::docs_test
