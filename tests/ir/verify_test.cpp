// The verifier: a sound program broken by hand in one place, and the words that must name the
// mistake.
#include <gtest/gtest.h>

#include <functional>

#include "ir/builder.h"
#include "ir/texts.h"
#include "ir/verify.h"

namespace tessera::ir::verify_test {
namespace {

using test::message_of;

// x -> h = x w' -> y = gelu h; output y, and w goes back to w.
constexpr const char* sound = R"(program t mesh(dp=2:data)
  input x : f32[4,6]{dp:S0} batch "x"
  input w : f32[8,6] param "w" (mlp,dim)
  h : f32[4,8]{dp:S0} = contract sig="bc,fc->bf" x w  # mlp
  y : f32[4,8]{dp:S0} = gelu h  # mlp
  w2 : f32[8,6] = scale factor=2 w  # !
  output "y" = y
  output "w" = w2 updates "w"
)";

constexpr Var x = 0, w = 1, h = 2, y = 3;
Value& value(Program& p, Var v) { return p.values[static_cast<std::size_t>(v)]; }

struct Mistake {
  const char* what;
  std::function<void(Program&)> make;
  const char* words;
};

const std::vector<Mistake>& mistakes() {
  static const std::vector<Mistake> table = {
      {"name twice", [](Program& p) { value(p, h).name = "x"; },
       "the name x stands for two values"},
      {"no name", [](Program& p) { value(p, h).name = ""; }, "'' is not a name"},
      {"a name that cannot be printed", [](Program& p) { value(p, h).name = "a b"; },
       "'a b' is not a name"},
      {"a keyword", [](Program& p) { value(p, h).name = "output"; }, "'output' is not a name"},
      {"negative extent", [](Program& p) { value(p, h).type.shape[0] = -4; }, "negative extent"},
      {"absurd extent", [](Program& p) { value(p, x).type.shape[0] = std::int64_t{1} << 60; },
       "more elements than any memory"},
      {"wrong shape", [](Program& p) { value(p, h).type.shape[1] = 9; },
       "h is declared f32[4,9] but contract gives f32[4,8]"},
      {"wrong dtype", [](Program& p) { value(p, h).type.dtype = DType::bf16; },
       "h is declared bf16[4,8] but contract gives f32[4,8]"},
      {"another mesh", [](Program& p) { value(p, x).type.at.resize(2); },
       "x has a placement for another mesh"},
      {"sharded on no dim", [](Program& p) { value(p, x).type.at[0].dim = 2; },
       "x is sharded on a dim that it lacks"},
      {"used before defined", [](Program& p) { std::swap(p.eqns[0], p.eqns[1]); },
       "h is used before it is defined"},
      {"defined twice", [](Program& p) { p.eqns.push_back(p.eqns[1]); },
       "a value is defined twice"},
      {"input defined by an equation", [](Program& p) { p.eqns[1].out[0] = x; },
       "a value is defined twice"},
      {"operand that does not exist", [](Program& p) { p.eqns[1].in[0] = 99; },
       "an operand is not a value of this program"},
      {"absent operand", [](Program& p) { p.eqns[1].in[0] = none; }, "an operand is absent"},
      {"too many results", [](Program& p) { p.eqns[1].out.push_back(none); },
       "gelu has 1 results, the equation names 2"},
      {"too few operands", [](Program& p) { p.eqns[0].in.pop_back(); },
       "contract takes two operands"},
      {"attributes of another op", [](Program& p) { p.eqns[1].attrs = Scale{2}; },
       "gelu was given the attributes of another op"},
      {"an input twice", [](Program& p) { p.inputs.push_back(p.inputs[0]); },
       "input x stands twice"},
      {"input that is no value", [](Program& p) { p.inputs[0].var = 99; },
       "input x is not a value of this program"},
      {"wrong number of dims", [](Program& p) { p.inputs[1].dims.pop_back(); },
       "input w names a wrong number of dims"},
      {"output never defined", [](Program& p) { p.outputs[0].var = 99; },
       "output y is never defined"},
      {"output twice", [](Program& p) { p.outputs[0].name = "w"; }, "output w stands twice"},
      {"updates no input", [](Program& p) { p.outputs[1].updates = "v"; },
       "updates 'v', which is no input"},
      {"updates another type", [](Program& p) { p.outputs[1].var = y; },
       "output w and the input it updates differ in type"},
      {"one input updated twice",
       [](Program& p) {
         p.outputs.push_back({"again", p.outputs[1].var, "w"});
       },
       "input w is updated twice"},
      {"two inputs of one role",
       [](Program& p) {
         for (Input& in : p.inputs) {
           in.role = Role::weights;
           in.of = "decay";
         }
       },
       "input w is weights of decay, and so is another"},
      {"a role of nothing", [](Program& p) { p.inputs[1].role = Role::weights; },
       "input w is a role of nothing"},
      {"a gradient of nothing", [](Program& p) { p.outputs[0].role = Role::gradient; },
       "output y is a role of nothing"},
      {"something without a role", [](Program& p) { p.inputs[1].of = "decay"; },
       "or of something without a role"},
      {"f64 among f32",
       [](Program& p) {
         p.eqns[1] = {Op::cast, Cast{DType::f64}, {h}, {y}, "", {}};
         value(p, y).type.dtype = DType::f64;
         p.eqns.push_back({Op::mul, Sig{"bf,bf->bf"}, {h, y}, {none}, "", {}});
       },
       "takes two operands of one float type"},
  };
  return table;
}

TEST(Verify, TheSoundProgramIsSound) { EXPECT_NO_THROW(verify(parse(sound))); }
TEST(Verify, EveryOp) { EXPECT_NO_THROW(verify(parse(test::every_op()))); }

TEST(Verify, CatchesEachMistake) {
  for (const Mistake& m : mistakes()) {
    Program p = parse(sound);
    m.make(p);
    SCOPED_TRACE(m.what);
    EXPECT_SAYS(message_of([&] { verify(p); }), m.words);
  }
}

// A program that was sound before does not hide what is wrong now.
TEST(Verify, CatchesEachMistakeInWhatAPassMade) {
  const Program before = parse(sound);
  EXPECT_NO_THROW(verify(before, before));
  for (const Mistake& m : mistakes()) {
    Program p = before;
    m.make(p);
    SCOPED_TRACE(m.what);
    EXPECT_SAYS(message_of([&] { verify(p, before); }), m.words);
  }
  const std::vector<Mistake> table = {
      {"an attribute", [](Program& p) { std::get<Contract>(p.eqns[0].attrs).sig = "bc,cf->bf"; },
       "but c is 6"},
      {"an op",
       [](Program& p) {
         p.eqns[1].op = Op::relu;
         p.eqns[1].attrs = Gelu{};
       },
       "relu was given the attributes of another op"},
      {"an operand",
       [](Program& p) {
         value(p, w).type.shape = {9, 6};
         value(p, 4).type.shape = {9, 6};
       },
       "h is declared f32[4,8] but contract gives f32[4,9]"},
      {"a place", [](Program& p) { value(p, y).type.at.clear(); }, "y is not placed on dp"},
      {"a place of an operand", [](Program& p) { value(p, x).type.at.clear(); },
       "h is not placed on dp"},
      {"another mesh", [](Program& p) { p.mesh.axes[0].kind = Axis::stage; },
       "is sharded on an axis of stages"},
  };
  for (const Mistake& m : table) {
    Program p = before;
    m.make(p);
    SCOPED_TRACE(m.what);
    EXPECT_SAYS(message_of([&] { verify(p, before); }), m.words);
    EXPECT_SAYS(message_of([&] { verify(p); }), m.words);
  }
}

TEST(Verify, AMistakeInAnEquationShowsTheEquation) {
  Program p = parse(sound);
  value(p, h).type.shape[1] = 9;
  EXPECT_SAYS(message_of([&] { verify(p); }),
              "in `h : f32[4,9]{dp:S0} = contract sig=\"bc,fc->bf\" x w  # mlp`");
}

// Rules of single ops: an equation on operands a..., and why it is refused.
struct Refused {
  const char* line;
  const char* words;
};

TEST(Verify, OpsRefuseWhatTheyCannotDo) {
  const Refused table[] = {
      {"r : f32[2,4] = reshape shape=[2,4] m",
       "reshape keeps the number of elements: [2,3] to [2,4]"},
      {"r : f32[6] = reshape shape=[6] m m", "takes one operand, got 2"},
      {"r : f32[2] = constant shape=[2] m", "constant takes no operand"},
      {"r : f32[2,3] = cast", "takes one operand, got 0"},
      {"r : f32[3,2] = transpose perm=[1,1] m", "perm is a permutation"},
      {"r : f32[2,2] = slice dim=1 start=2 size=2 m", "slice lies inside [2,3]"},
      {"r : f32[2,2] = slice dim=1 start=9223372036854775807 size=2 m", "slice lies inside [2,3]"},
      {"r : f32[2,2] = slice dim=2 start=0 size=2 m", "dim 2 of [2,3]"},
      {"r : f32[2,2] = pad dim=1 before=-1 m", "padding is not negative"},
      {"r : f32[2,3] = concat dim=0 m v", "operands of concat agree in rank and element type"},
      {"r : f32[2,3] = concat dim=0 m t", "operands of concat agree in every dim but one"},
      {"r : f32[2,2,3] = stack m t", "operands of stack have one type"},
      {"r : f32[2,3] = view offset=4 shape=[2,3] v", "a view lies inside its bucket"},
      {"r : f32[8] = pack offsets=[0,2] size=8 v v",
       "operands of pack stand in order and do not overlap"},
      {"r : f32[4] = pack offsets=[2] size=4 v", "operands of pack fit the bucket"},
      {"r : f32[8] = pack size=8 v v", "pack gives every operand its offset"},
      {"r : f32[2,2] = broadcast sig=\"a->ab\" shape=[2,2] v", "is not [2,2]"},
      {"r : f32[2,3] = add sig=\"b,ab->ab\" v m", "the first with the dims of the result"},
      {"r : f32[3] = add sig=\"b,ab->b\" v m",
       "the second operand of \"b,ab->b\" has a dim that the result lacks"},
      {"r : f32[2,3] = add sig=\"ab,ab->ab\" m low", "takes two operands of one float type"},
      {"r : f32[3] = add sig=\"a,a->a\" labels labels", "takes two operands of one float type"},
      {"r : f32[2] = contract sig=\"ab->a\" m v",
       "lists 1 operands and 1 results; there are 2 and 1"},
      {"r : f32[2,2] = contract sig=\"ab,cb,d->ac\" m m v",
       "an addend of \"ab,cb,d->ac\" has a dim that the result lacks"},
      {"r : f32[2,9] = contract sig=\"ab,cb->az\" m m", "dim z of \"ab,cb->az\" is in no factor"},
      {"r : f32[2,2], _ = contract sig=\"ab,cb->ac\" act=\"relu\" m m",
       "contract knows act gelu and gelu_tanh, not relu"},
      {"r : f64[2] = sum sig=\"ab->a\" out=f64 m", "f64 does not mix with other float types"},
      {"r : f32[2,3] = dropout rate=1 m rng", "a dropout rate is at least 0 and less than 1"},
      {"r : f32[2,3] = dropout rate=0.1 m labels", "dropout takes a value and rng i64[3]"},
      {"r : f32[2,3] = dropout rate=0.1 whole=[5] m rng", "says where it begins in every dim"},
      {"r : f32[2,3] = dropout rate=0.1 whole=[5,5] start=[1,1] m rng",
       "says where it begins in every dim"},
      {"r : f32[2,3] = dropout rate=0.1 whole=[5] start=[3] m rng",
       "a part of a sample lies inside the whole one"},
      {"r : f32[2,6] = all_gather axis=\"tp\" dim=2 m", "names a dim that its operand lacks"},
      {"r : f32[2,6] = all_gather axis=\"tp\" dim=1 parts=[2,4] index=1 m",
       "does not have the extent 4 that its collective expects"},
      {"r : f32[2,6] = all_gather axis=\"tp\" dim=1 parts=[3,3] index=2 m",
       "a rank has a place in its group"},
      {"r : f32[2,3] = view shape=[2,3] parts=2 dim=1 low",
       "is not cut into 2 equal parts along dim 1"},
      {"r : f32[2] = nll m labels", "a target is i32[b] or a distribution [b,c], got i32[3]"},
      {"r : f32[2] = correct k=0 m m", "k is at least 1"},
      {"r : f32[2,3] = select s m low", "select takes a flag and two values of one type"},
      {"r : f32[2,3] = select s m t", "operand 2 of \",*,*->*\" is [3,2]"},
      {"r : f32[3], _ = sgd v v v v", "rates, steps, factors and flags are scalars"},
      {"r : f32[3], _ = sgd ok=true v v v s", "an update was given a wrong number of operands"},
      {"r : f32[3], _, _ = adamw v v m v s s",
       "weights, state and gradient of an update have one shape"},
      {"_, _ = clip v", "clip takes the sum of squares"},
      {"_ = finite v", "finite takes scalars"},
      {"r : f32[3] = softmax", "takes 1 operands, got 0"},
      {"r : f32[2,3,1,1,1] = patchify size=2 m", "patchify takes images [b,h,w,c]"},
  };
  for (const Refused& row : table) {
    const Program p =
        parse(std::string("program t mesh()\n input m : f32[2,3] batch \"m\"\n input t : f32[3,2] "
                          "batch \"t\"\n input v : f32[3] batch \"v\"\n") +
              " input s : f32[] scalar \"s\"\n input low : bf16[2,3] batch \"low\"\n input labels "
              ": i32[3] batch \"labels\"\n" +
              " input rng : i64[3] scalar \"rng\"\n " + row.line + "\n");
    SCOPED_TRACE(row.line);
    EXPECT_SAYS(message_of([&] { verify(p); }), row.words);
  }
}

}  // namespace
}  // namespace tessera::ir::verify_test
