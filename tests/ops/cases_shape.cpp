#include "ops/families.h"

namespace tessera::test {

using namespace ir;
using enum Fill;

Rows shape_cases() {
  const auto constant_row = [](const std::string& name, double value, DType dtype, Shape shape) {
    return Case{.name = name, .op = Op::constant, .attrs = Constant{value, dtype, std::move(shape)}, .in = {}, .tolerance = rounding};
  };
  return {
      constant_row("constant", 0.1, DType::f32, {3, 5}),
      constant_row("constant_zero", 0, DType::f32, {40001}),
      constant_row("constant_scalar", -2.5, DType::f32, {}),
      constant_row("constant_i64", 7, DType::i64, {3}),
      {"reshape", Op::reshape, Reshape{{15, 7}}, {{{3, 5, 7}}}, exact, {0}},
      {"reshape_to_scalar", Op::reshape, Reshape{{}}, {{{1, 1}}}, exact, {0}},
      {"reshape_labels", Op::reshape, Reshape{{1, 5}}, {labels_of(5)}, exact, {}, 10},
      {"transpose_matrix", Op::transpose, Transpose{{1, 0}}, {{{65, 197}}}, exact, {0}},
      {"transpose_heads", Op::transpose, Transpose{{0, 2, 1, 3}}, {{{2, 5, 3, 7}}}, exact, {0}},
      {"transpose_cycle", Op::transpose, Transpose{{2, 0, 1}}, {{{3, 5, 7}}}, exact, {0}},
      {"transpose_nothing", Op::transpose, Transpose{{0, 1, 2}}, {{{3, 5, 7}}}, exact, {0}},
      {"transpose_empty", Op::transpose, Transpose{{1, 0}}, {{{0, 7}}}, exact},
      {"slice_class_token", Op::slice, Slice{1, 0, 1}, {{{3, 65, 7}}}, exact, {0}},
      {"slice_middle", Op::slice, Slice{1, 2, 2}, {{{3, 5, 7}}}, exact, {0}},
      {"slice_last", Op::slice, Slice{2, 3, 4}, {{{3, 5, 7}}}, exact, {0}},
      {"slice_batch", Op::slice, Slice{0, 1, 2}, {{{3, 5, 7}}}, exact, {0}},
      {"slice_labels", Op::slice, Slice{0, 2, 3}, {labels_of(7)}, exact, {}, 10},
      {"slice_nothing", Op::slice, Slice{0, 2, 0}, {{{3, 5}}}, exact},
      {"concat_token", Op::concat, Dim{1}, {{{3, 1, 7}}, {{3, 64, 7}}}, exact, {0, 1}},
      {"concat_last", Op::concat, Dim{2}, {{{3, 5, 1}}, {{3, 5, 7}}, {{3, 5, 2}}}, exact, {0, 1, 2}},
      {"concat_batch", Op::concat, Dim{0}, {{{1, 5}}, {{0, 5}}, {{3, 5}}}, exact, {0, 2}},
      {"concat_one", Op::concat, Dim{0}, {{{3, 5}}}, exact, {0}},
      {"pad_token", Op::pad, Pad{1, 1, 0}, {{{3, 5, 7}}}, exact, {0}},
      {"pad_last", Op::pad, Pad{2, 2, 3}, {{{3, 5, 7}}}, exact, {0}},
      {"pad_batch", Op::pad, Pad{0, 0, 2}, {{{3, 5}}}, exact, {0}},
      {"pad_nothing", Op::pad, Pad{0, 0, 0}, {{{3, 5}}}, exact, {0}},
      {"stack", Op::stack, None{}, {{{5, 7}}, {{5, 7}}, {{5, 7}}}, exact, {0, 1, 2}},
      {"stack_scalars", Op::stack, None{}, {{{}}, {{}}, {{}}, {{}}}, exact, {0, 3}},
      {.name = "unstack", .op = Op::unstack, .attrs = None{}, .in = {{{3, 5, 7}}}, .tolerance = exact, .grad = {0}, .cotangents = 3},
      {.name = "unstack_part", .op = Op::unstack, .attrs = None{}, .in = {{{3, 5, 7}}}, .tolerance = exact, .grad = {0}, .cotangents = 2},
      {.name = "unstack_scalars", .op = Op::unstack, .attrs = None{}, .in = {{{4}}}, .tolerance = exact, .grad = {0}, .cotangents = 4},
      {"broadcast_position", Op::broadcast, Broadcast{"tc->btc", {3, 5, 7}}, {{{5, 7}}}, exact, {0}},
      {"broadcast_channel", Op::broadcast, Broadcast{"c->btc", {3, 197, 65}}, {{{65}}}, exact, {0}},
      {"broadcast_sample", Op::broadcast, Broadcast{"b->btc", {3, 5, 7}}, {{{3}}}, exact, {0}},
      {"broadcast_ends", Op::broadcast, Broadcast{"bc->btc", {3, 5, 7}}, {{{3, 7}}}, exact, {0}},
      {"broadcast_scalar", Op::broadcast, Broadcast{"->btc", {3, 5, 7}}, {{{}}}, exact, {0}},
      {"broadcast_empty", Op::broadcast, Broadcast{"c->bc", {0, 7}}, {{{7}}}, exact},
      {"patchify", Op::patchify, Patch{4, 0}, {{{2, 8, 12, 3}}}, exact, {0}},
      {"patchify_one", Op::patchify, Patch{1, 0}, {{{2, 3, 5, 3}}}, exact, {0}},
      {"patchify_whole", Op::patchify, Patch{7, 0}, {{{3, 7, 7, 1}}}, exact, {0}},
      {"patchify_empty", Op::patchify, Patch{4, 0}, {{{0, 8, 8, 3}}}, exact},
      {"unpatchify", Op::unpatchify, Patch{4, 2}, {{{2, 6, 4, 4, 3}}}, exact, {0}},
      {"unpatchify_row", Op::unpatchify, Patch{3, 1}, {{{3, 5, 3, 3, 1}}}, exact, {0}},
      {"view", Op::view, View{5, {3, 7}}, {{{40}}}, exact, {0}},
      {"view_scalar", Op::view, View{39, {}}, {{{40}}}, exact, {0}},
      {"view_parts", Op::view, View{5, {3, 8, 2}, 4, 1}, {{{4, 20}}}, exact, {0}},
      {"view_parts_first", Op::view, View{0, {6, 5}, 3, 0}, {{{3, 12}}}, exact, {0}},
      {"pack", Op::pack, Pack{{0, 16, 40}, 48}, {{{3, 5}}, {{17}}, {{}}}, exact, {0, 1, 2}},
      {"pack_late", Op::pack, Pack{{3}, 9}, {{{5}}}, exact, {0}},
      {"pack_parts", Op::pack, Pack{{1, 16}, 20, 2, {1, 0}}, {{{3, 10}}, {{4, 2}}}, exact, {0, 1}},
      {"pack_parts_last", Op::pack, Pack{{0, 8}, 12, 3, {2, 0}}, {{{2, 2, 6}}, {{9}}}, exact, {0, 1}},
      {"pack_tight", Op::pack, Pack{{0, 15}, 32}, {{{3, 5}}, {{17}}}, exact, {0, 1}},
  };
}

Rows reduce_cases() {
  const auto row = [](const std::string& name, const std::string& sig, Shape x) {
    return Case{"sum_" + name, Op::sum, Sum{sig, {}}, {{std::move(x)}}, sums, {0}};
  };
  return {
      row("channel", "btc->c", {3, 197, 65}),
      row("token", "btc->bc", {3, 65, 7}),
      row("last", "btc->bt", {3, 5, 197}),
      row("batch", "btc->tc", {33, 5, 7}),
      row("sample", "btc->b", {5, 7, 33}),
      row("middle_kept", "btc->t", {5, 7, 33}),
      row("all", "btc->", {5, 7, 33}),
      row("vector", "b->", {4097}),
      row("nothing", "ab->ab", {3, 5}),
      row("swapped", "abc->ca", {3, 5, 7}),
      row("scalar", "->", {}),
      row("heads", "nbthd->nhd", {3, 2, 65, 2, 5}),
      {"sum_empty", Op::sum, Sum{"bc->c", {}}, {{{0, 7}}}, sums},
      {"sum_typed", Op::sum, Sum{"bc->c", DType::f32}, {{{33, 7}}}, sums, {0}},
      {"sumsq", Op::sumsq, None{}, {{{3, 5, 7}}}, sums, {0}},
      {"sumsq_flat", Op::sumsq, None{}, {{{40001}}}, sums, {0}},
      {"sumsq_scalar", Op::sumsq, None{}, {{{}}}, sums, {0}},
      {"sumsq_empty", Op::sumsq, None{}, {{{0}}}, sums},
      {"alarm", Op::alarm, None{}, {{{3, 5, 7}}}, exact},
      {"alarm_flat", Op::alarm, None{}, {{{40001}}}, exact},
      {"alarm_empty", Op::alarm, None{}, {{{0}}}, exact},
  };
}

}  // namespace tessera::test
