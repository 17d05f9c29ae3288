// The seven moves between places, each on its own: on meshes of 2, 3 and 2 x 3 ranks, along every
// dim, with parts that are uneven or empty, in every element type. Values are small whole numbers,
// so that every sum is exact and nothing may differ.
#include <gtest/gtest.h>

#include "base/check.h"
#include "base/rng.h"
#include "ir/builder.h"
#include "ops/ranks.h"

namespace tessera::test::moves_test {
namespace {

using namespace ir;

Op move_between(Place have, Place want) {
  if (have == whole) return want == partial ? Op::once : Op::own;
  if (have == partial) return want == whole ? Op::all_reduce : Op::reduce_scatter;
  return want == whole ? Op::all_gather : want == partial ? Op::widen : Op::all_to_all;
}

std::vector<Place> places_of(const Shape& shape) {
  std::vector<Place> out = {whole, partial};
  for (int d = 0; d < static_cast<int>(shape.size()); ++d) out.push_back({Place::S, d});
  return out;
}

Program moving(const Mesh& mesh, int axis, Place have, Place want, Place elsewhere, DType dtype,
               const Shape& shape) {
  Builder b;
  b.program().mesh = mesh;
  Type type{dtype, shape, {}};
  for (int a = 0; a < static_cast<int>(mesh.axes.size()); ++a)
    set_place(type, mesh, a, a == axis ? have : elsewhere);
  Collective attrs{mesh.axes[static_cast<std::size_t>(axis)].name,
                   want.kind == Place::S ? want.dim : have.dim,
                   -1,
                   {},
                   {},
                   0};
  if (have.kind == Place::S && want.kind == Place::S) attrs.from = have.dim;
  const Var x = b.input(Input::batch, "x", type), y = b.emit1(move_between(have, want), attrs, {x});
  set_place(type, mesh, axis, want);
  b.program().values[static_cast<std::size_t>(y)].type = type;
  b.output("y", y);
  return b.take();
}

Array small_numbers(DType dtype, const Shape& shape) {
  Array a(dtype, shape);
  for (std::int64_t i = 0; i < a.size(); ++i)
    a.set(i, static_cast<double>(random_bits(Key{}.with("moves"), static_cast<std::uint64_t>(i)) %
                                 41));
  return a;
}

class Moves : public ::testing::TestWithParam<std::vector<int>> {};
INSTANTIATE_TEST_SUITE_P(Meshes, Moves,
                         ::testing::Values(std::vector{2}, std::vector{3}, std::vector{2, 3}));

TEST_P(Moves, EveryPairKeepsTheValue) {
  Mesh mesh;
  for (const int size : GetParam())
    mesh.axes.push_back({Axis::data, mesh.axes.empty() ? "outer" : "inner", size});
  const bool two = mesh.axes.size() == 2;
  const std::vector<Shape> shapes = two ? std::vector<Shape>{{5, 7}, {2, 4, 1}}
                                        : std::vector<Shape>{{5, 7, 4}, {1, 2, 9}, {6, 0, 3}, {11}};
  const std::vector<DType> dtypes = {DType::f64, DType::f32, DType::bf16, DType::f16,
                                     DType::i32, DType::i64, DType::u8};
  int moves = 0, refused = 0;
  for (const Shape& shape : shapes)
    for (int axis = 0; axis < static_cast<int>(mesh.axes.size()); ++axis)
      for (const Place have : places_of(shape))
        for (const Place want : places_of(shape))
          for (const Place elsewhere : two ? places_of(shape) : std::vector<Place>{whole}) {
            if (have == want) continue;
            for (const DType dtype : dtypes) {
              if (two && dtype != DType::f64 && dtype != DType::bf16) continue;
              const Program p = moving(mesh, axis, have, want, elsewhere, dtype, shape);
              try {
                verify(p);
              } catch (const Error& e) {  // the cut of the other axis lies inside
                EXPECT_NE(std::string(e.what()).find("reaches through the cut"), std::string::npos)
                    << e.what();
                ++refused;
                continue;
              }
              SCOPED_TRACE(print(p));
              const Array x = small_numbers(dtype, shape);
              const std::vector<Parts> out =
                  run_ranks(p, {hand_out(x, p.type(p.inputs[0].var), mesh, "moves")});
              const Array y = put_together(out[0], p.type(p.outputs[0].var), mesh);
              for (std::int64_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], x[i]) << "element " << i;
              ++moves;
            }
          }
  EXPECT_GT(moves, 100);
  EXPECT_EQ(refused > 0, two);
}

}  // namespace
}  // namespace tessera::test::moves_test
