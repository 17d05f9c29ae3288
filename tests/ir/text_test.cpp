// The text form: what is printed reads back as the same program, and prints the same again.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "ir/builder.h"
#include "ir/texts.h"
#include "models/model.h"
#include "transforms/transforms.h"

namespace tessera::ir {
namespace {

TEST(Text, EveryOpPrintsAsItWasRead) {
  const std::string text = test::every_op();
  const Program p = parse(text);
  EXPECT_EQ(print(p), text);
  EXPECT_EQ(parse(print(p)), p);
}

TEST(Text, EveryOpIsInTheText) {
  std::set<Op> seen;
  for (const Eqn& e : parse(test::every_op()).eqns) seen.insert(e.op);
  for (int i = 0; i < op_count; ++i)
    EXPECT_TRUE(seen.contains(static_cast<Op>(i))) << name(static_cast<Op>(i)) << ": add a line with every attribute set to tests/ir/every_op.ir";
}

TEST(Text, EveryAttributeIsInTheText) {
  std::map<std::string, std::set<std::string>> missing;
  for (int i = 0; i < op_count; ++i)
    std::visit([&]<class A>(const A& a) { A::fields(a, [&](const char* key, const auto&) { missing[std::string(name(static_cast<Op>(i)))].insert(key); }); },
               default_attrs(static_cast<Op>(i)));
  for (const Eqn& e : parse(test::every_op()).eqns) {
    const std::string shown = print(e.attrs);
    std::erase_if(missing[std::string(name(e.op))], [&](const std::string& key) { return shown.find(" " + key + "=") != std::string::npos; });
  }
  missing["constant"].erase("dtype");    // f32 is the default; see below
  missing["patchify"].erase("rows");     // unpatchify's
  for (const auto& [op, keys] : missing)
    for (const std::string& key : keys) ADD_FAILURE() << op << " never shows " << key << " in tests/ir/every_op.ir";
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
  const std::string text = "program t mesh()\n  input x : f32[2] batch \"x\"\n  a : f32[2] = gelu x\n  b : f32[2] = gelu a  # s.0\n  c : f32[2] = gelu b  # ~\n"
                           "  d : f32[2] = gelu c  # ^s\n  e : f32[2] = gelu d  # !s\n  output \"e\" = e\n";
  const Program p = parse(text);
  EXPECT_EQ(print(p), text);
  const Phase want[] = {Phase::forward, Phase::forward, Phase::backward, Phase::recompute, Phase::update};
  for (std::size_t i = 0; i < p.eqns.size(); ++i) EXPECT_EQ(p.eqns[i].phase, want[i]);
  EXPECT_EQ(p.eqns[3].scope, "s");
}

// A whole training step: everything that models and passes write must survive the text form.
Program vit_step() {
  models::ModelConfig m;
  m.image_h = 8, m.image_w = 12, m.patch = 4, m.dim = 12, m.depth = 2, m.heads = 3, m.mlp = 24, m.classes = 5, m.dropout = 0.1, m.drop_path = 0.2;
  Builder b;
  b.program().name = "train_step";
  const Var images = b.input(Input::batch, "images", {DType::f32, {2, 8, 12, 3}, {}});
  std::map<std::string, Var> params;
  for (const models::Param& p : models::parameters(m)) params[p.name] = b.input(Input::param, p.name, {DType::f32, p.shape, {}}, p.dims);
  const Var logits = models::forward(b, m, images, true, [&](const std::string& name) { return params.at(name); });
  const Var labels = b.input(Input::batch, "labels", {DType::i32, {2}, {}}), inv = b.input(Input::scalar, "inv_count", {DType::f32, {}, {}});
  const Var each = b.emit1(Op::nll, Loss{0.1}, {b.emit1(Op::log_softmax, None{}, {logits}), labels});
  b.output("loss", b.mul(",->", b.sum("b->", each), inv));
  using namespace transforms;
  Program p = precision(autodiff(b.take()), DType::bf16);
  const std::vector<Bucket> list = plan_buckets(p, [](const std::string& name) { return name.ends_with("weight"); });
  p = optimizer(buckets(p, list), Optimizer{.weight_decay = 0.05, .clip = 1.0}, list);
  return simplify(fuse_update(fuse_loss(fuse_norm(fuse_contract(remat(simplify(p), 2))))));
}

TEST(Text, AWholeTrainingStepRoundTrips) {
  const Program p = vit_step();
  verify(p);
  EXPECT_GT(p.eqns.size(), 100u);
  EXPECT_EQ(parse(print(p)), p);
  EXPECT_EQ(print(parse(print(p))), print(p));
}

}  // namespace
}  // namespace tessera::ir
