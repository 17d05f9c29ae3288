// Every row of the case table sharded against unsharded: whatever places the verifier lets operands
// have, the parts that all ranks compute make up the unsharded result, in f64 to 1e-12 and in f32
// with the fast kernels to the row's tolerance. Extents that do not divide, and fewer elements than
// ranks, come from the table's shapes.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/index.h"
#include "base/rng.h"
#include "ir/builder.h"
#include "ir/placement.h"
#include "ops/cases.h"
#include "ops/interpret.h"
#include "ops/ranks.h"

namespace tessera::test::sharded_test {

void PrintTo(const Case& c, std::ostream* out);

namespace {

using namespace ir;

// Places of the operands on one axis; of the results where they are more than a consequence (made
// in parts).
struct Way {
  std::vector<Place> in, made = {};
  bool operator==(const Way&) const = default;
};

std::string shown(const Way& way) {
  std::string out;
  for (const Place& p : way.in)
    out += p.kind == Place::R ? " R" : p.kind == Place::P ? " P" : " S" + std::to_string(p.dim);
  return out + (way.made.empty() ? "" : " made in parts");
}

std::vector<Type> types_for(const Case& c, DType element) {
  std::vector<Type> out;
  for (const Operand& o : c.in)
    out.push_back({!c.fixed && o.dtype == DType::f32 ? element : o.dtype, o.shape, {}});
  return out;
}

// The case as a program of one equation on a mesh of the given axes.
Program program_of(const Case& c, DType element, const std::vector<int>& sizes,
                   const std::vector<Way>& ways) {
  Builder b;
  for (std::size_t a = 0; a < sizes.size(); ++a)
    b.program().mesh.axes.push_back({Axis::data, a == 0 ? "outer" : "inner", sizes[a]});
  std::vector<Var> in;
  const std::vector<Type> operands = types_for(c, element);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    Type type = operands[i];
    for (std::size_t a = 0; a < ways.size(); ++a)
      set_place(type, b.program().mesh, static_cast<int>(a), ways[a].in[i]);
    in.push_back(b.input(Input::batch, "x" + std::to_string(i), type));
  }
  const std::vector<Var> out = b.emit(c.op, attrs_for(c, element), in);
  for (std::size_t r = 0; r < out.size(); ++r) {
    for (std::size_t a = 0; a < ways.size(); ++a)
      if (!ways[a].made.empty())
        set_place(b.program().values[at(out[r])].type, b.program().mesh, static_cast<int>(a),
                  ways[a].made[r]);
    b.output("y" + std::to_string(r), out[r]);
  }
  return b.take();
}

// Rows of a bucket and groups of statistics are cut as a whole: an axis must divide them, or there
// is no such placement.
bool divides(const Case& c, int ranks) {
  if (const View* a = std::get_if<View>(&c.attrs)) return a->parts == 1 || a->parts % ranks == 0;
  if (const Pack* a = std::get_if<Pack>(&c.attrs)) return a->parts == 1 || a->parts % ranks == 0;
  if (const BatchNorm* a = std::get_if<BatchNorm>(&c.attrs))
    return a->groups == 1 || a->groups == ranks;
  return true;
}

// All ways that the verifier accepts: every combination of places where there are few operands,
// else those that are cut along one letter, partial in one operand, in all, or in all addends.
std::vector<Way> ways_of(const Case& c) {
  const std::vector<Type> in = types_for(c, DType::f64);
  const std::vector<Type> out = infer(c.op, attrs_for(c, DType::f64), in);
  const Letters letters = letters_of(c.op, c.attrs, in, out);
  std::vector<Way> all;
  std::set<char> tried;
  for (const auto* side : {&letters.in, &letters.out})
    for (const std::string& operand : *side)
      for (const char letter : operand) {
        if (!tried.insert(letter).second) continue;
        Way way;
        for (const std::string& o : letters.in) way.in.push_back(place_of(o, letter));
        all.push_back(way);
        for (std::size_t i = 2; i < way.in.size(); ++i) way.in[i] = partial;
        all.push_back(way);
        if (side == &letters.out && (c.op == Op::constant || c.op == Op::broadcast))
          all.push_back({std::vector<Place>(in.size()), {place_of(operand, letter)}});
      }
  std::vector<std::vector<Place>> choices;
  std::size_t combinations = 1;
  for (const Type& type : in) {
    std::vector<Place>& places = choices.emplace_back(std::vector<Place>{Place{}, partial});
    for (int d = 0; d < type.rank(); ++d) places.push_back({Place::S, d});
    combinations *= places.size();
  }
  const bool few = combinations <= 250;
  for (std::size_t n = 0; n < (few ? combinations : 100); ++n) {
    Way way;
    std::size_t rest =
        few ? n : static_cast<std::size_t>(random_bits(Key{}.with(c.name).with("ways"), n));
    for (const std::vector<Place>& places : choices) {
      way.in.push_back(places[rest % places.size()]);
      rest /= places.size();
    }
    all.push_back(way);
  }
  for (std::size_t i = 0; i <= in.size(); ++i) {
    Way way{std::vector<Place>(in.size(), i == in.size() ? partial : Place{})};
    if (i < in.size()) way.in[i] = partial;
    all.push_back(way);
  }
  std::vector<Way> accepted;
  for (const Way& way : all) {
    if (std::find(accepted.begin(), accepted.end(), way) != accepted.end()) continue;
    const bool whole =
        way.made.empty() && std::all_of(way.in.begin(), way.in.end(),
                                        [](const Place& p) { return p.kind == Place::R; });
    const Program p = program_of(c, DType::f64, {2}, {way});
    if (!whole && propagate(p, p.eqns[0], 0)) accepted.push_back(way);
  }
  return accepted;
}

void expect_same(const Case& c, DType element, const std::vector<Array>& whole,
                 const std::vector<int>& sizes, const std::vector<Way>& ways,
                 const std::vector<Array>& want) {
  std::string how = std::string(name(element));
  for (std::size_t a = 0; a < sizes.size(); ++a)
    how += " on " + std::to_string(sizes[a]) + ":" + shown(ways[a]);
  SCOPED_TRACE(how);
  const Program p = program_of(c, element, sizes, ways);
  verify(p);
  std::vector<Parts> inputs;
  for (std::size_t i = 0; i < whole.size(); ++i)
    inputs.push_back(
        hand_out(whole[i], p.type(p.inputs[i].var), p.mesh, c.name + std::to_string(i)));
  const std::vector<Parts> outputs = run_ranks(p, inputs);
  const double tolerance = element == DType::f64 ? 1e-12 : c.tolerance.error;
  for (std::size_t r = 0; r < outputs.size(); ++r) {
    const Array got = put_together(outputs[r], p.type(p.outputs[r].var), p.mesh);
    EXPECT_TRUE(relative_error(got, want[r]) <= tolerance)
        << "result " << r << ": relative error " << relative_error(got, want[r]);
  }
}

double work(const Case& c) {
  const std::vector<Type> in = types_for(c, DType::f32), out = infer(c.op, c.attrs, in);
  const Cost n = cost(c.op, c.attrs, in, out);
  return n.flops + n.bytes;
}

class Sharded : public ::testing::TestWithParam<Case> {};
std::string name_of(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(All, Sharded, ::testing::ValuesIn(cases()), name_of);

TEST_P(Sharded, IsTheUnsharded) {
  const Case& c = GetParam();
  ThreadPool pool(1);
  const std::vector<Array> want =
      run_reference(c.op, attrs_for(c, DType::f64), make_operands(c, DType::f64), pool);
  const std::vector<Way> ways = ways_of(c);
  std::vector<DType> elements = {DType::f32};
  if (!c.fixed && work(c) < 3e6) elements.insert(elements.begin(), DType::f64);
  if (c.fixed) elements = {DType::f32};
  for (const DType element : elements) {
    const std::vector<Array> whole = make_operands(c, element);
    for (const Way& way : ways)
      for (const int size : {2, 3, 5})  // 5: mostly more ranks than elements
        if (divides(c, size) && (size < 5 || (work(c) < 1e5 && element == DType::f32)))
          expect_same(c, element, whole, {size}, {way}, want);
    // Two axes at once, also along one letter: some of all pairs.
    for (std::uint64_t n = 0; n < 4 && !ways.empty() && divides(c, 2) && divides(c, 4); ++n) {
      const std::uint64_t draw = random_bits(Key{}.with(c.name).with("pairs"), n);
      expect_same(c, element, whole, {2, 2},
                  {ways[draw % ways.size()], ways[(draw >> 32) % ways.size()]}, want);
    }
    if (HasFailure()) return;
  }
}

// Every letter that is not pinned may be sharded: no rule refuses what its letters promise.
TEST(ShardedLetters, AreAllAccepted) {
  for (const Case& c : cases()) {
    const std::vector<Type> in = types_for(c, DType::f64);
    const Letters letters =
        letters_of(c.op, c.attrs, in, infer(c.op, attrs_for(c, DType::f64), in));
    for (const std::string& operand : letters.in)
      for (const char letter : operand) {
        Way way;
        for (const std::string& o : letters.in) way.in.push_back(place_of(o, letter));
        const Program p = program_of(c, DType::f64, {2}, {way});
        const bool accepted = propagate(p, p.eqns[0], 0).has_value(),
                   pinned = letters.pinned.find(letter) != std::string::npos;
        const bool summed =
            letters.out[0].find(letter) ==
            std::string::npos;  // under a bias or an activation there are no partial sums
        EXPECT_TRUE(accepted || pinned || (summed && !sums_alone(p.eqns[0])))
            << c.name << " along " << letter;
        EXPECT_TRUE(!accepted || !pinned || c.op == Op::slice || c.op == Op::mark)
            << c.name << " along the pinned " << letter;
      }
  }
}

}  // namespace
}  // namespace tessera::test::sharded_test
