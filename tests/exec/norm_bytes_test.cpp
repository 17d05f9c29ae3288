// Norms that give bytes of i8 give those of a quantisation behind the norm in f32, for rows that
// end within a vector, sums with f32 and bf16, and whichever other results are wanted.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ir/builder.h"
#include "ops/on_device.h"

namespace tessera::test::norm_bytes_test {
namespace {

using ir::DType;
using ir::Op;
using ir::Var;

Array random_array(DType dtype, const ir::Shape& shape, std::mt19937& random) {
  std::normal_distribution<double> normal;
  Array made(dtype, shape);
  for (std::int64_t i = 0; i < made.size(); ++i) made.set(i, normal(random));
  return made;
}

// Results "y" (bytes), and "s" and "mean" where they are wanted; `itself`: by the norm alone.
Arrays run(const Arrays& in, bool adds, bool itself, bool all) {
  ir::Builder b;
  std::map<std::string, Var> v;
  for (const auto& [name, array] : in) v[name] = b.input(ir::Input::batch, name, array.type());
  std::vector<Var> operands = {v["x"], v["gain"], v["bias"]};
  if (adds) operands.insert(operands.begin() + 1, v["r"]);  // in f32 but for the norm alone
  ir::Norm attrs{1e-6};
  if (itself) {
    attrs.to = DType::i8;
    operands.push_back(v["scale"]);
  }
  std::vector<std::string> names = {"y", "mean", "rstd"};
  if (adds) names.insert(names.begin(), "s");
  if (itself) names.insert(names.end(), {"_", "_"});
  std::vector<Var> out = b.emit_named(adds ? Op::add_norm : Op::layer_norm, attrs, operands, names);
  const std::size_t y = adds ? 1 : 0;
  if (!itself)
    out[y] = b.emit1(Op::quantize, ir::Quantize{.sig = "btc,->btc", .to = DType::i8},
                     {out[y], v["scale"]});
  b.output("y", out[y]);
  if (all && adds) b.output("s", out[0]);
  if (all) b.output("mean", out[y + 1]);
  return run_program(*exec::make_executor("cpu", 2), b.program(), in);
}

TEST(NormBytes, AreThoseOfAQuantisationBehindTheNorm) {
  std::mt19937 random(3);
  for (const std::int64_t width : {1, 7, 13, 32, 45, 192, 770})
    for (const float scale : {0.02f, 1e-3f, 0.0f})  // the others saturate, or have no inverse
      for (const DType added : {DType::f32, DType::bf16})
        for (const bool adds : {false, true})
          for (const bool all : {false, true}) {
            SCOPED_TRACE(testing::Message()
                         << width << " by " << scale << (adds ? ", sums with " : "")
                         << (adds ? ir::name(added) : "") << (all ? ", all results" : ""));
            Arrays in;
            in.emplace("x", random_array(DType::f32, {3, 5, width}, random));
            if (adds) in.emplace("r", random_array(added, {3, 5, width}, random));
            in.emplace("gain", random_array(DType::f32, {width}, random));
            in.emplace("bias", random_array(DType::f32, {width}, random));
            in.emplace("scale", Array(DType::f32, {})).first->second.set(0, scale);
            in.at("x").set(2 * width, std::nan(""));  // a row without numbers
            const Arrays found = run(in, adds, true, all);
            if (adds) in["r"] = in["r"].as(DType::f32);
            for (const auto& [name, array] : run(in, adds, false, all))
              EXPECT_TRUE(array.same_bits(found.at(name))) << name;
          }
}

}  // namespace
}  // namespace tessera::test::norm_bytes_test
