// Element types, shapes, the mesh, and what one rank holds of a value.
#include <gtest/gtest.h>

#include <algorithm>

#include "ir/texts.h"
#include "ir/type.h"

namespace tessera::ir::type_test {
namespace {

using test::message_of;

TEST(DType, NamesRoundTrip) {
  for (const DType d : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32,
                        DType::u8, DType::f8e4m3, DType::f8e5m2, DType::i8})
    EXPECT_EQ(parse_dtype(name(d)), d);
  for (const DType d : {DType::f8e4m3, DType::f8e5m2, DType::i8})
    EXPECT_TRUE(size_of(d) == 1 && is_quantised(d) && !is_float(d) && !is_low(d));
  EXPECT_FALSE(is_quantised(DType::u8));
  EXPECT_EQ(size_of(DType::bf16), 2);
  EXPECT_TRUE(is_float(DType::bf16));
  EXPECT_EQ(size_of(DType::f16), 2);
  EXPECT_TRUE(is_float(DType::f16) && is_low(DType::f16) && is_low(DType::bf16));
  EXPECT_FALSE(is_low(DType::f32));
  EXPECT_EQ(statistics_of(DType::f16), DType::f32);
  EXPECT_FALSE(is_float(DType::i32));
  EXPECT_EQ(statistics_of(DType::bf16), DType::f32);
  EXPECT_EQ(statistics_of(DType::f64), DType::f64);
  EXPECT_SAYS(message_of([] { parse_dtype("f8"); }),
              "choose one of f64, f32, bf16, f16, i64, i32, u8, f8e4m3, f8e5m2, i8");
}

TEST(Shape, CountsElements) {
  EXPECT_EQ(elements({}), 1);
  EXPECT_EQ(elements({2, 3, 4}), 24);
  EXPECT_EQ(elements({5, 0, 7}), 0);
  EXPECT_EQ(to_string({2, 3}), "[2,3]");
  EXPECT_EQ((Type{DType::bf16, {3, 5}, {}}.bytes()), 30);
}

TEST(Shape, RefusesWhatNoMemoryHolds) {
  EXPECT_SAYS(message_of([] { elements({-1}); }), "[-1] has a negative extent");
  EXPECT_SAYS(message_of([] {
                elements({std::int64_t{1} << 40, std::int64_t{1} << 40});
              }),
              "more elements than any memory");
  EXPECT_SAYS(message_of([] {
                elements({0, std::int64_t{1} << 62, 4});
              }),
              "more elements than any memory");
}

TEST(Split, ByWeightsTheRestGoesToTheLargestRemainders) {
  EXPECT_EQ(split_by(10, {2, 2, 1}), (Shape{4, 4, 2}));
  EXPECT_EQ(split_by(7, {1, 1, 1}), (Shape{3, 2, 2}));
  EXPECT_EQ(split_by(8, {2, 2, 1}), (Shape{3, 3, 2}));
  EXPECT_EQ(split_by(5, {1, 0, 1}), (Shape{3, 0, 2}));  // nothing for nobody
  EXPECT_EQ(split_by(0, {1, 2}), (Shape{0, 0}));
  for (std::int64_t n = 0; n < 100; ++n) {
    const Shape parts = split_by(n, {0.3, 0.011, 7, 1e-9});
    EXPECT_EQ(parts[0] + parts[1] + parts[2] + parts[3], n);
    const Shape even = split_by(n, {1, 1, 1, 1});
    for (int i = 0; i < 4; ++i) EXPECT_EQ(even[static_cast<std::size_t>(i)], split(n, 4, i).size);
  }
  EXPECT_SAYS(message_of([] { split_by(3, {0, 0}); }), "weights must have a positive sum");
}

TEST(Axis, CutsTheExtentsThatItLists) {
  Axis dp{Axis::data, "dp", 3, {{4, 4, 2}, {1, 0, 2}}};
  EXPECT_EQ(dp.part(10, 2).begin, 8);
  EXPECT_EQ(dp.part(10, 2).size, 2);
  EXPECT_EQ(dp.part(3, 1).size, 0);
  EXPECT_EQ(dp.part(9, 1).size, 3);  // not listed: evenly
  const Mesh mesh{{dp}};
  EXPECT_EQ(local_shape({DType::f32, {10, 5}, {{Place::S, 0}}}, mesh, 1), (Shape{4, 5}));
}

TEST(Mesh, TheLastAxisIsTheFastest) {
  const Mesh mesh{{{Axis::data, "dp", 2}, {Axis::model, "tp", 3}}};
  EXPECT_EQ(mesh.ranks(), 6);
  EXPECT_EQ(mesh.find("tp"), 1);
  EXPECT_EQ(mesh.find("pp"), -1);
  EXPECT_EQ(mesh.coordinates(4), (std::vector<int>{1, 1}));
  EXPECT_EQ(mesh.coordinates(5), (std::vector<int>{1, 2}));
  EXPECT_EQ(Mesh{}.ranks(), 1);
}

TEST(Split, PartsDifferByAtMostOneAndTile) {
  for (const std::int64_t extent : {0, 1, 2, 7, 65, 197, 1000})
    for (const int parts : {1, 2, 3, 8, 200}) {
      std::int64_t at = 0;
      for (int i = 0; i < parts; ++i) {
        const Range r = split(extent, parts, i);
        EXPECT_EQ(r.begin, at);
        EXPECT_GE(r.size, extent / parts);
        EXPECT_LE(r.size, extent / parts + 1);
        EXPECT_LE(r.size, split(extent, parts, std::max(0, i - 1)).size)
            << "larger parts come first";
        at += r.size;
      }
      EXPECT_EQ(at, extent);
    }
}

TEST(LocalShape, UnevenAndEmptySplits) {
  const Mesh mesh{{{Axis::data, "dp", 2}, {Axis::model, "tp", 3}}};
  const Type t{DType::f32, {5, 197, 2}, {{Place::S, 0}, {Place::S, 2}}};
  EXPECT_EQ(local_shape(t, mesh, 0), (Shape{3, 197, 1}));
  EXPECT_EQ(local_shape(t, mesh, 2), (Shape{3, 197, 0}));  // two elements for three ranks
  EXPECT_EQ(local_shape(t, mesh, 3), (Shape{2, 197, 1}));
  const Type both{DType::f32,
                  {7},
                  {{Place::S, 0},
                   {Place::S, 0}}};  // one dim over two axes: the second cuts what the first left
  std::int64_t total = 0;
  for (int rank = 0; rank < 6; ++rank) total += local_shape(both, mesh, rank)[0];
  EXPECT_EQ(total, 7);
  const Type partial{DType::f32, {7}, {{Place::P, -1}, {Place::R, -1}}};
  EXPECT_EQ(local_shape(partial, mesh, 5), (Shape{7}));
}

}  // namespace
}  // namespace tessera::ir::type_test
