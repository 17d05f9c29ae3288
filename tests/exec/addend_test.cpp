// A convolution writes its result over an addend that nobody reads behind it, where the target says
// that its kernel can. Convention: `a` is such an addend, unless it is asked for at the end, too.
#include "base/check.h"
#include "base/rng.h"
#include "exec/cpu/gemm/micro.h"
#include "ir/builder.h"
#include "ops/on_device.h"
#include "portable/micros_in_use.h"

namespace tessera::test::addend_test {
namespace {

using namespace ir;

class Addend : public EveryDevice {};
FOR_EVERY_DEVICE(Addend);

Array random_array(DType dtype, const Shape& shape, std::uint64_t seed) {
  Array made(dtype, shape);
  for (std::int64_t i = 0; i < made.size(); ++i)
    made.set(i, 2.0 * uniform(Key{seed}, static_cast<std::uint64_t>(i)) - 1);
  return made;
}

struct Made {
  Program program;
  Arrays in;
};

Made convolution(DType dtype, std::int64_t c, std::int64_t o, std::int64_t taps, bool late) {
  const DType wide = statistics_of(dtype);
  Made made;
  made.in.emplace("x", random_array(dtype, {3, 6, 5, c}, 1));
  made.in.emplace("f", random_array(dtype, {taps, taps, c, o}, 2));
  made.in.emplace("scale", random_array(wide, {o}, 3));
  made.in.emplace("offset", random_array(wide, {o}, 4));
  made.in.emplace("more", random_array(dtype, {3, 6, 5, o}, 5));
  Builder b;
  std::map<std::string, Var> v;
  for (const auto& [name, array] : made.in) v[name] = b.input(Input::batch, name, array.type());
  const Var a = b.emit1(Op::scale, Scale{2}, {v["more"]}, "a");
  const Var y = b.emit1(Op::conv, Conv{.stride = 1, .pad = (taps - 1) / 2, .relu = true},
                        {v["x"], v["f"], v["scale"], v["offset"], a}, "y");
  b.output("z", b.emit1(Op::scale, Scale{3}, {y}, "z"));
  if (late) b.output("late", b.emit1(Op::scale, Scale{5}, {a}, "late"));
  made.program = b.program();
  return made;
}

bool in_place(const plan::Target& target, const Program& program) {
  const plan::Plan plan = plan::lower(program, 0, target);
  for (const plan::Step& step : plan.steps)
    if (step.op == Op::conv)
      return step.out[0].base == step.in[4].base && step.out[0].offset == step.in[4].offset;
  ADD_FAILURE() << "the plan has no convolution";
  return false;
}

TEST(AddendOfAPlan, GivesItsPlaceWhereTheTargetSaysSo) {
  plan::Target can;
  can.overwrites = [](Op op, const Attrs&, const std::vector<Type>&, const OpDef::Alias& alias) {
    return op == Op::conv && alias.in == 4;
  };
  const Made dies = convolution(DType::f32, 8, 8, 1, false),
             stays = convolution(DType::f32, 8, 8, 1, true);
  EXPECT_FALSE(in_place(plan::Target{}, dies.program));
  EXPECT_TRUE(in_place(can, dies.program));
  EXPECT_FALSE(in_place(can, stays.program)) << "the addend is read behind the convolution";
  const plan::Plan plan = plan::lower(dies.program, 0, can);
  EXPECT_NO_THROW(plan::verify(plan, can));
  EXPECT_THROW(plan::verify(plan, plan::Target{}), Error) << "another target's kernel cannot";
}

// With the results of a plan whose addend is read again.
void expect_same(exec::Executor& executor, const Made& dies, const Made& stays, bool bits) {
  const Array over = run_program(executor, dies.program, dies.in).at("z"),
              apart = run_program(executor, stays.program, stays.in).at("z");
  const bool low = over.type().dtype == DType::bf16 || over.type().dtype == DType::f16;
  EXPECT_LE(relative_error(over, apart), low ? 4e-3 : 1e-6);
  EXPECT_TRUE(!bits || over.same_bits(apart));
}

// Widths that libraries take, and odd ones, which are left to kernels of our own. A CPU has one
// kernel for both, by each of its instructions.
TEST_P(Addend, InPlaceOrNotTheResultIsTheSame) {
  const MicrosInUse kept;
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (const auto& [c, o] : {std::pair{64, 256}, std::pair{16, 9}, std::pair{7, 5}})
      for (const int taps : {1, 3}) {
        SCOPED_TRACE(std::string(name(dtype)) + " " + std::to_string(c) + " to " +
                     std::to_string(o) + ", taps " + std::to_string(taps));
        const Made dies = convolution(dtype, c, o, taps, false),
                   stays = convolution(dtype, c, o, taps, true);
        EXPECT_FALSE(in_place(executor_->target(), stays.program));
        const bool shared = in_place(executor_->target(), dies.program);
        EXPECT_EQ(shared,
                  GetParam() == "cuda" ? taps == 1 && dtype != DType::f64 : dtype == DType::bf16);
        if (GetParam() == "cuda") {
          expect_same(*executor_, dies, stays, false);
          continue;
        }
        for (const exec::cpu::Micro* micro : exec::cpu::low_micros()) {
          ASSERT_TRUE(exec::cpu::use_low_micro(micro->name));
          expect_same(*executor_, dies, stays, true);
        }
      }
}

}  // namespace
}  // namespace tessera::test::addend_test
