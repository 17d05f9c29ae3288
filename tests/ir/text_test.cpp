// The text form: what is printed reads back as the same program, and prints the same again.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "ir/builder.h"
#include "ir/texts.h"
#include "transforms/tiny_vit.h"

namespace tessera::ir::text_test {
namespace {

TEST(Text, EveryOpPrintsAsItWasRead) {
  for (const std::string& text : {test::every_op(), test::one_rank()}) {
    const Program p = parse(text);
    EXPECT_EQ(print(p), text);
    EXPECT_EQ(parse(print(p)), p);
  }
}

TEST(Text, EveryOpIsInTheText) {
  std::set<Op> seen;
  for (const std::string& text : {test::every_op(), test::one_rank()})
    for (const Eqn& e : parse(text).eqns) seen.insert(e.op);
  for (int i = 0; i < op_count; ++i)
    EXPECT_TRUE(seen.contains(static_cast<Op>(i)))
        << name(static_cast<Op>(i))
        << ": TESSERA_UPDATE_GOLDENS=1 build/tests/ops_test --gtest_filter=OpText.* makes a line "
           "of its case";
}

TEST(Text, EveryAttributeIsInTheText) {
  std::map<std::string, std::set<std::string>> missing;
  for (int i = 0; i < op_count; ++i)
    std::visit(
        [&]<class A>(const A& a) {
          A::fields(a, [&](const char* key, const auto&) {
            missing[std::string(name(static_cast<Op>(i)))].insert(key);
          });
        },
        default_attrs(static_cast<Op>(i)));
  for (const std::string& text : {test::every_op(), test::one_rank()})
    for (const Eqn& e : parse(text).eqns) {
      const std::string shown = print(e.attrs);
      std::erase_if(missing[std::string(name(e.op))], [&](const std::string& key) {
        return shown.find(" " + key + "=") != std::string::npos;
      });
    }
  missing["constant"].erase("dtype");    // f32 is the default; see below
  missing["patchify"].erase("rows");     // unpatchify's
  missing["window"].erase("image");      // unwindow's
  missing["gelu"].erase("sums");         // gelu_grad's
  missing["attention"].erase("packed");  // attention_grad's
  for (const char* op : {"conv_input_grad", "conv_filter_grad"})
    for (const char* key : {"out", "scales"}) missing[op].erase(key);  // conv's
  // Each op has those of a collective's attributes that its move needs; own, once and widen never
  // reach one rank's program.
  for (const char* op : {"all_reduce", "all_gather", "reduce_scatter", "own", "once", "widen"})
    for (const char* key : {"from", "from_parts"}) missing[op].erase(key);
  for (const char* op : {"all_reduce", "own", "once", "widen"}) missing[op].erase("parts");
  for (const char* op : {"own", "once", "widen"}) missing[op].erase("index");
  for (const char* op : {"all_reduce", "once"}) missing[op].erase("dim");
  for (const char* op : {"transfer", "send"})  // what arrives says its type
    for (const char* key : {"dtype", "shape"}) missing[op].erase(key);
  for (const auto& [op, keys] : missing)
    for (const std::string& key : keys)
      ADD_FAILURE() << op << " never shows " << key << " in tests/ir/every_op.ir";
}

TEST(Text, DefaultsAreNotPrinted) {
  EXPECT_EQ(print(Attrs(AdamW{})), "");
  EXPECT_EQ(print(Attrs(AdamW{.beta1 = 0.8})), " beta1=0.8");
  EXPECT_EQ(print(Attrs(Constant{1, DType::i64, {}})), " value=1 dtype=i64");
}

TEST(Text, NumbersKeepEveryBit) {
  for (const double v : {0.1, 1.0 / 3.0, 1e-300, -2.5e17, 6.02214076e23, 4.9406564584124654e-324}) {
    Builder b;
    b.output("y", b.constant(v, DType::f64));
    EXPECT_EQ(std::get<Constant>(parse(print(b.program())).eqns[0].attrs).value, v);
  }
}

TEST(Text, PhasesAndScopes) {
  const std::string text =
      "program t mesh()\n  input x : f32[2] batch \"x\"\n  a : f32[2] = gelu x\n  b : f32[2] = "
      "gelu a  # s.0\n  c : f32[2] = gelu b  # ~\n"
      "  d : f32[2] = gelu c  # ^s\n  e : f32[2] = gelu d  # !s\n  output \"e\" = e\n";
  const Program p = parse(text);
  EXPECT_EQ(print(p), text);
  const Phase want[] = {Phase::forward, Phase::forward, Phase::backward, Phase::recompute,
                        Phase::update};
  for (std::size_t i = 0; i < p.eqns.size(); ++i) EXPECT_EQ(p.eqns[i].phase, want[i]);
  EXPECT_EQ(p.eqns[3].scope, "s");
}

TEST(Text, RolesOfInputsAndOutputs) {
  const std::string text =
      "program t mesh()\n  input w : f32[2] param \"w\" (bucket) as weights of \"decay\"\n"
      "  input n : i64[] state \"n\" as step\n  input lr : f32[] scalar \"lr\" as rate\n"
      "  output \"g\" = w as gradient of \"a.weight\"\n"
      "  output \"w\" = w updates \"w\" as weights of \"decay\"\n";
  const Program p = parse(text);
  EXPECT_EQ(print(p), text);
  EXPECT_EQ(p.input(Role::weights, "decay"), &p.inputs[0]);
  EXPECT_EQ(p.input(Role::weights, "no_decay"), nullptr);
  EXPECT_EQ(p.inputs[1].role, Role::step);
  EXPECT_EQ(p.outputs[0].role, Role::gradient);
  EXPECT_EQ(p.outputs[0].of, "a.weight");
  for (int i = 1; i <= static_cast<int>(Role::key); ++i) {
    const Role role = static_cast<Role>(i);
    EXPECT_EQ(parse_role(name(role)), role);
  }
}

// Everything that models and passes write must survive the text form.
TEST(Text, AWholeTrainingStepRoundTrips) {
  const Program p = test::vit_step(test::tiny_model_with_dropout(), DType::f32, {3, 2},
                                   {.bf16 = true, .remat = 2});
  verify(p);
  EXPECT_GT(p.eqns.size(), 100u);
  EXPECT_EQ(parse(print(p)), p);
  EXPECT_EQ(print(parse(print(p))), print(p));
}

}  // namespace
}  // namespace tessera::ir::text_test
