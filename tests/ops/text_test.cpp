// Every op that has a case has a line in tests/ir/every_op.ir, on which the text form is tested;
// the line of a new op is made of its case. TESSERA_UPDATE_GOLDENS=1 writes it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "ir/builder.h"
#include "ir/texts.h"
#include "ops/cases.h"

namespace tessera::test::text_test {
namespace {

using namespace ir;

// The case of an op that says most is taken: every attribute should be in the text.
const Case* telling_case(Op op) {
  const Case* best = nullptr;
  for (const Case& c : cases())
    if (c.op == op && (!best || print(c.attrs).size() > print(best->attrs).size())) best = &c;
  return best;
}

TEST(OpText, EveryOpHasALine) {
  const std::string text = every_op();
  const Program before = parse(text);
  std::set<Op> seen;
  for (const Eqn& e : before.eqns) seen.insert(e.op);
  for (const Eqn& e : parse(one_rank()).eqns) seen.insert(e.op);
  Builder b(before);
  std::string missing;
  for (int i = 0; i < op_count; ++i) {
    const auto op = static_cast<Op>(i);
    const Case* c = seen.contains(op) ? nullptr : telling_case(op);
    if (!c) continue;
    missing += " " + std::string(name(op));
    const std::string prefix = std::string(name(op)) + ".";
    std::vector<Var> in;
    for (const Operand& operand : c->in)
      in.push_back(b.input(Input::batch, prefix + "x" + std::to_string(in.size()),
                           {operand.dtype, operand.shape, {}}));
    b.emit_named(op, c->attrs, in, {prefix + "y"});
  }
  if (missing.empty()) return;
  verify(b.program());
  if (const char* update = std::getenv("TESSERA_UPDATE_GOLDENS");
      update && std::string(update) == "1") {
    std::ofstream(std::string(TESSERA_SOURCE_DIR) + "/tests/ir/every_op.ir") << print(b.program());
    GTEST_SKIP() << "added lines for" << missing << "; look at them before committing";
  }
  FAIL() << "tests/ir/every_op.ir has no line for" << missing
         << "; TESSERA_UPDATE_GOLDENS=1 build/tests/ops_test --gtest_filter=OpText.* writes it";
}

}  // namespace
}  // namespace tessera::test::text_test
