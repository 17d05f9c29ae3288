// Scales of products lie side by side in one tensor, at any place of it: libraries may want them
// elsewhere, and then the executor has to see to that.
#include "base/rng.h"
#include "ir/builder.h"
#include "ops/on_device.h"

namespace tessera::test::scale_views_test {
namespace {

using namespace ir;

class ScaleViews : public EveryDevice {};
FOR_EVERY_DEVICE(ScaleViews);

Array drawn(DType dtype, const Shape& shape, const std::string& name) {
  Array made(dtype, shape);
  for (std::int64_t i = 0; i < made.size(); ++i)
    made.set(i, normal(Key{}.with(name), static_cast<std::uint64_t>(i)));
  return made;
}

// act(sum of x w, times two of five scales, + bias) for each pair of neighbours.
Arrays products(exec::Executor& executor, DType left, DType out, bool bias) {
  const Shape x{32, 64}, w{48, 64};
  Arrays in;
  in.emplace("x", drawn(left, x, "x"));
  in.emplace("w", drawn(DType::f8e4m3, w, "w"));
  if (bias) in.emplace("bias", drawn(out, {48}, "bias"));
  Array scales(DType::f32, {5});
  for (std::int64_t i = 0; i < 5; ++i) scales.set(i, 1.0 / static_cast<double>(1 << i));
  in.emplace("scales", scales);
  Builder b;
  std::map<std::string, Var> v;
  for (const auto& [name, array] : in) v[name] = b.input(Input::batch, name, array.type());
  const auto scale = [&](std::int64_t i) {
    return b.reshape(b.emit1(Op::slice, Slice{0, i, 1}, {v["scales"]}), {});
  };
  for (std::int64_t i = 0; i + 1 < 5; ++i) {
    std::vector<Var> operands = {v["x"], v["w"], scale(i), scale(i + 1)};
    if (bias) operands.push_back(v["bias"]);
    const Contract attrs{bias ? "bc,fc,,,f->bf" : "bc,fc,,->bf", {}, out, 2};
    b.output("y" + std::to_string(i), b.emit1(Op::contract, attrs, operands));
  }
  return run_program(executor, b.program(), in);
}

TEST_P(ScaleViews, EveryPlaceServes) {
  const auto cpu = exec::make_executor("cpu", 2);
  for (const DType left : {DType::f8e4m3, DType::f8e5m2})
    for (const DType out : {DType::bf16, DType::f32})
      for (const bool bias : {false, true}) {
        SCOPED_TRACE(std::string(name(left)) + " to " + std::string(name(out)) +
                     (bias ? " with a bias" : ""));
        try {
          const Arrays got = products(*executor_, left, out, bias),
                       want = products(*cpu, left, out, bias);
          for (const auto& [name, array] : want)
            EXPECT_LE(relative_error(got.at(name), array), out == DType::bf16 ? 4e-3 : 5e-4)
                << name;
        } catch (const std::exception& e) {
          ADD_FAILURE() << e.what();
        }
      }
}

}  // namespace
}  // namespace tessera::test::scale_views_test
