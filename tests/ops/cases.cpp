#include "ops/cases.h"

namespace tessera::test {
namespace {

using namespace ir;
using enum Fill;

Operand labels_of(std::int64_t b) { return {{b}, labels, DType::i32}; }
const Operand draws{{3}, rng, DType::i64};
const Operand scalar_one{{}, one}, scalar_zero{{}, zero}, scalar_rate{{}, rate}, scalar_positive{{}, positive},
    scalar_step{{}, count, DType::i64};

using Rows = std::vector<Case>;

Rows contract_cases() {
  const auto row = [](const std::string& name, const std::string& sig, Shape x, Shape w, std::vector<Operand> addends = {},
                      const std::string& act = {}) {
    Case c{"contract_" + name, Op::contract, Contract{sig, act, {}}, {{std::move(x)}, {std::move(w)}}, sums};
    c.in.insert(c.in.end(), addends.begin(), addends.end());
    if (addends.empty() && act.empty() && elements(c.in[0].shape) < 20000) c.grad = {0, 1};
    return c;
  };
  return {
      row("linear", "btc,fc->btf", {2, 5, 7}, {3, 7}),
      row("linear_197", "btc,fc->btf", {2, 197, 65}, {33, 65}),
      row("linear_tiles", "btc,fc->btf", {4, 197, 192}, {576, 192}),
      row("linear_one", "btc,fc->btf", {1, 1, 1}, {1, 1}),
      row("linear_empty", "btc,fc->btf", {0, 5, 7}, {3, 7}),
      row("linear_bias", "btc,fc,f->btf", {3, 5, 17}, {19, 17}, {{{19}}}),
      row("linear_residual", "btf,cf,c,btc->btc", {2, 65, 31}, {23, 31}, {{{23}}, {{2, 65, 23}}}),
      row("linear_residual_only", "btf,cf,btc->btc", {2, 3, 31}, {23, 31}, {{{2, 3, 23}}}),
      row("linear_gelu", "btc,fc,f->btf", {2, 65, 24}, {37, 24}, {{{37}}}, "gelu"),
      row("linear_gelu_tanh", "btc,fc,f->btf", {3, 7, 5}, {11, 5}, {{{11}}}, "gelu_tanh"),
      row("gelu_without_bias", "btc,fc->btf", {3, 7, 5}, {11, 5}, {}, "gelu"),
      row("linear_position", "btc,fc,f,tf->btf", {3, 7, 5}, {11, 5}, {{{11}}, {{7, 11}}}),
      row("qkv", "btc,nhdc->nbthd", {2, 5, 12}, {3, 2, 7, 12}),
      row("qkv_bias", "btc,nhdc,nhd->nbthd", {2, 65, 24}, {3, 3, 8, 24}, {{{3, 3, 8}}}),
      row("qkv_dx", "nbthd,nhdc->btc", {3, 2, 5, 3, 7}, {3, 3, 7, 13}),
      row("qkv_dw", "btc,nbthd->nhdc", {2, 65, 12}, {3, 2, 65, 2, 7}),
      row("qkv_dw_from_gradient", "nbthd,btc->nhdc", {3, 2, 9, 2, 7}, {2, 9, 12}),
      row("heads_out", "bthd,chd->btc", {2, 65, 3, 5}, {17, 3, 5}),
      row("heads_out_fused", "bthd,chd,c,btc->btc", {2, 65, 3, 5}, {17, 3, 5}, {{{17}}, {{2, 65, 17}}}),
      row("heads_out_dx", "btc,chd->bthd", {2, 7, 17}, {17, 3, 5}),
      row("heads_out_dw", "btc,bthd->chd", {2, 7, 17}, {2, 7, 3, 5}),
      row("patches", "btpqc,pqcd->btd", {2, 9, 4, 4, 3}, {4, 4, 3, 21}),
      row("patches_bias", "btpqc,pqcd,d->btd", {2, 9, 4, 4, 3}, {4, 4, 3, 21}, {{{21}}}),
      row("patches_dx", "btd,pqcd->btpqc", {2, 9, 21}, {4, 4, 3, 21}),
      row("patches_dw", "btd,btpqc->pqcd", {2, 9, 21}, {2, 9, 4, 4, 3}),
      row("linear_dx", "btf,fc->btc", {2, 65, 33}, {33, 19}),
      row("linear_dw", "btf,btc->fc", {2, 65, 33}, {2, 65, 19}),
      row("linear_dw_deep", "btf,btc->fc", {16, 197, 33}, {16, 197, 19}),
      row("linear_dw_empty", "btf,btc->fc", {0, 7, 5}, {0, 7, 3}),
      row("head", "bc,fc,f->bf", {5, 65}, {10, 65}, {{{10}}}),
      row("scores", "bhtd,bhsd->bhts", {2, 3, 7, 5}, {2, 3, 9, 5}),
      row("values", "bhts,bhsd->bhtd", {2, 3, 7, 9}, {2, 3, 9, 5}),
      row("scores_interleaved", "bthd,bshd->bhts", {2, 7, 3, 5}, {2, 9, 3, 5}),
      row("result_transposed", "btc,fc->fbt", {2, 5, 7}, {3, 7}),
      row("matrix_vector", "btc,c->bt", {3, 17, 33}, {33}),
      row("vector_matrix", "c,fc->f", {33}, {65, 33}),
      row("dot", "b,b->", {197}, {197}),
      row("outer", "a,b->ab", {7}, {5}),
      row("scaled", "ab,b->ab", {7, 5}, {5}),
      row("elementwise", "ab,ab->ab", {7, 5}, {7, 5}),
      row("by_scalar", "ab,->ab", {7, 5}, {}),
  };
}

Rows pointwise_cases() {
  Rows rows;
  for (const auto& [op, name] : {std::pair{Op::add, "add_"}, std::pair{Op::mul, "mul_"}}) {
    const auto row = [&, op = op, name = name](const std::string& what, const std::string& sig, Shape a, Shape b) {
      rows.push_back({name + what, op, Sig{sig}, {{std::move(a)}, {std::move(b)}}, rounding, {0, 1}});
    };
    row("same", "btc,btc->btc", {3, 5, 7}, {3, 5, 7});
    row("channel", "btc,c->btc", {2, 197, 65}, {65});
    row("token", "btc,tc->btc", {3, 5, 7}, {5, 7});
    row("sample", "btc,b->btc", {3, 5, 7}, {3});
    row("middle", "btc,t->btc", {3, 5, 7}, {5});
    row("ends", "btc,bc->btc", {3, 5, 7}, {3, 7});
    row("swapped", "btc,cb->btc", {3, 5, 7}, {7, 3});
    row("scalar", "abc,->abc", {3, 5, 7}, {});
    row("scalars", ",->", {}, {});
    row("empty", "btc,c->btc", {0, 5, 7}, {7});
    row("flat", "a,a->a", {40001}, {40001});
  }
  const Rows more = {
      {"scale", Op::scale, Scale{-0.3}, {{{3, 5, 7}}}, rounding, {0}},
      {"scale_flat", Op::scale, Scale{1.0 / 7}, {{{40001}}}, rounding, {0}},
      {"scale_scalar", Op::scale, Scale{2.0}, {{{}}}, rounding, {0}},
      {"gelu", Op::gelu, Gelu{}, {{{3, 5, 7}}}, curve, {0}},
      {"gelu_flat", Op::gelu, Gelu{}, {{{40001}}}, curve, {0}},
      {"gelu_wide", Op::gelu, Gelu{}, {{{1001}, wide}}, curve},
      {"gelu_tanh", Op::gelu, Gelu{true}, {{{3, 5, 7}}}, curve, {0}},
      {"gelu_tanh_wide", Op::gelu, Gelu{true}, {{{1001}, wide}}, curve},
      {"gelu_one", Op::gelu, Gelu{}, {{{1}}}, curve, {0}},
      {"gelu_empty", Op::gelu, Gelu{}, {{{0, 7}}}, curve},
      {"gelu_grad", Op::gelu_grad, Gelu{}, {{{3, 5, 7}}, {{3, 5, 7}}}, curve},
      {"gelu_grad_flat", Op::gelu_grad, Gelu{}, {{{40001}}, {{40001}}}, curve},
      {"gelu_grad_wide", Op::gelu_grad, Gelu{}, {{{1001}, wide}, {{1001}}}, curve},
      {"gelu_grad_tanh", Op::gelu_grad, Gelu{true}, {{{197, 65}}, {{197, 65}}}, curve},
      {"gelu_grad_tanh_wide", Op::gelu_grad, Gelu{true}, {{{1001}, wide}, {{1001}}}, curve},
      {"select_yes", Op::select, None{}, {scalar_one, {{3, 5, 7}}, {{3, 5, 7}}}, exact, {1, 2}},
      {"select_no", Op::select, None{}, {scalar_zero, {{3, 5, 7}}, {{3, 5, 7}}}, exact, {1, 2}},
      {"select_scalar", Op::select, None{}, {scalar_zero, {{}}, {{}}}, exact, {1, 2}},
      {"cast_same", Op::cast, Cast{DType::f32}, {{{5, 7}}}, exact, {0}},
      {.name = "cast_to_bf16", .op = Op::cast, .attrs = Cast{DType::bf16}, .in = {{{1001}}}, .tolerance = exact, .fixed = true},
      {.name = "cast_from_bf16",
       .op = Op::cast,
       .attrs = Cast{DType::f32},
       .in = {{{1001}, normal, DType::bf16}},
       .tolerance = exact,
       .fixed = true},
      {.name = "cast_to_f64", .op = Op::cast, .attrs = Cast{DType::f64}, .in = {{{3, 7}}}, .tolerance = exact, .fixed = true},
      {.name = "cast_from_f64",
       .op = Op::cast,
       .attrs = Cast{DType::f32},
       .in = {{{3, 7}, normal, DType::f64}},
       .tolerance = exact,
       .fixed = true},
      {.name = "cast_to_i32", .op = Op::cast, .attrs = Cast{DType::i32}, .in = {{{3, 7}, wide}}, .tolerance = exact, .fixed = true},
      {.name = "cast_from_i32",
       .op = Op::cast,
       .attrs = Cast{DType::f32},
       .in = {{{17}, labels, DType::i32}},
       .tolerance = exact,
       .classes = 1000,
       .fixed = true},
      {.name = "cast_from_i64",
       .op = Op::cast,
       .attrs = Cast{DType::f32},
       .in = {{{17}, labels, DType::i64}},
       .tolerance = exact,
       .classes = 1000,
       .fixed = true},
      {"dropout", Op::dropout, Dropout{0.1, false, "blocks.0.mlp", 0}, {{{3, 5, 7}}, draws}, rounding, {0}},
      {"dropout_half", Op::dropout, Dropout{0.5, false, "embed", 64}, {{{5, 197, 33}}, draws}, rounding, {0}},
      {"dropout_none", Op::dropout, Dropout{0.0, false, "embed", 0}, {{{3, 7}}, draws}, rounding, {0}},
      {"dropout_path", Op::dropout, Dropout{0.4, true, "blocks.1", 17}, {{{9, 5, 7}}, draws}, rounding, {0}},
      {"dropout_vector", Op::dropout, Dropout{0.4, false, "x", 0}, {{{65}}, draws}, rounding, {0}},
      {"dropout_empty", Op::dropout, Dropout{0.4, false, "x", 0}, {{{0, 7}}, draws}, rounding},
      {"mark", Op::mark, Mark{"residual"}, {{{3, 5, 7}}}, exact, {0}},
      {"mark_scalar", Op::mark, Mark{"loss"}, {{{}}}, exact, {0}},
  };
  rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

Rows norm_cases() {
  Rows rows;
  const std::vector<Shape> shapes = {{3, 5, 7}, {2, 197, 65}, {33, 192}, {5, 1}, {1, 3}, {7}, {0, 5, 7}};
  for (const Shape& x : shapes) {
    Shape outer = x;
    const std::int64_t c = outer.back();
    outer.pop_back();
    std::string tag;
    for (std::int64_t extent : x) tag += "_" + std::to_string(extent);
    const bool flat = c == 1;  // a row of one: y is the bias, gradients are zero
    rows.push_back({"layer_norm" + tag,
                    Op::layer_norm,
                    Norm{1e-5},
                    {{x}, {{c}}, {{c}}},
                    sums,
                    flat ? std::vector<int>{2} : std::vector<int>{0, 1, 2}});
    rows.push_back({"layer_norm_grad" + tag, Op::layer_norm_grad, Norm{1e-5}, {{x}, {x}, {outer}, {outer, positive}, {{c}}}, chain});
    rows.push_back(
        {"layer_norm_grad_addend" + tag, Op::layer_norm_grad, Norm{1e-5}, {{x}, {x}, {outer}, {outer, positive}, {{c}}, {x}}, chain});
    rows.push_back({"add_norm" + tag, Op::add_norm, Norm{1e-5}, {{x}, {x}, {{c}}, {{c}}}, sums});
    rows.push_back({"softmax" + tag, Op::softmax, None{}, {{x}}, sums, {0}});
    rows.push_back({"softmax_grad" + tag, Op::softmax_grad, None{}, {{x, probabilities}, {x}}, chain});
    rows.push_back({"log_softmax" + tag, Op::log_softmax, None{}, {{x}}, sums, {0}});
    rows.push_back({"log_softmax_grad" + tag, Op::log_softmax_grad, None{}, {{x}, {x}}, chain});
  }
  rows.push_back({"softmax_wide", Op::softmax, None{}, {{{9, 65}, wide}}, chain});
  rows.push_back({"log_softmax_wide", Op::log_softmax, None{}, {{{9, 65}, wide}}, sums});
  rows.push_back({"layer_norm_wide", Op::layer_norm, Norm{1e-6}, {{{9, 65}, wide}, {{65}}, {{65}}}, sums});
  rows.push_back({"layer_norm_constant_rows", Op::layer_norm, Norm{1e-6}, {{{9, 65}, one}, {{65}}, {{65}}}, sums});
  return rows;
}

Rows loss_cases() {
  Rows rows;
  for (const auto& [b, c] : {std::pair<std::int64_t, std::int64_t>{5, 10}, {1, 3}, {33, 197}, {7, 1000}, {0, 10}}) {
    const std::string tag = "_" + std::to_string(b) + "_" + std::to_string(c);
    const Operand x{{b, c}}, soft{{b, c}, probabilities}, g{{b}};
    const int classes = static_cast<int>(c);
    for (double s : {0.0, 0.1})
      for (bool is_soft : {false, true}) {
        const Operand target = is_soft ? soft : labels_of(b);
        const std::string name = tag + (is_soft ? "_soft" : "") + (s > 0 ? "_smooth" : "");
        rows.push_back({"nll" + name, Op::nll, Loss{s}, {x, target}, sums, {0}, classes});
        rows.push_back({"nll_grad" + name, Op::nll_grad, Loss{s}, {x, target, g}, rounding, {}, classes});
        rows.push_back({"cross_entropy" + name, Op::cross_entropy, Loss{s}, {x, target}, sums, {0}, classes});
        rows.push_back({"cross_entropy_grad" + name, Op::cross_entropy_grad, Loss{s}, {x, target, g}, chain, {}, classes});
      }
    for (int k : {1, 5}) {
      rows.push_back({"correct" + tag + "_top" + std::to_string(k), Op::correct, TopK{k}, {x, labels_of(b)}, exact, {}, classes});
      rows.push_back({"correct" + tag + "_soft_top" + std::to_string(k), Op::correct, TopK{k}, {x, soft}, exact, {}, classes});
      rows.push_back(
          {"correct" + tag + "_ties_top" + std::to_string(k), Op::correct, TopK{k}, {{{b, c}, ties}, labels_of(b)}, exact, {}, classes});
    }
  }
  rows.push_back({"cross_entropy_wide", Op::cross_entropy, Loss{}, {{{9, 65}, wide}, labels_of(9)}, sums, {}, 65});
  rows.push_back({"cross_entropy_grad_wide", Op::cross_entropy_grad, Loss{0.1}, {{{9, 65}, wide}, labels_of(9), {{9}}}, chain, {}, 65});
  return rows;
}

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
      {"pack", Op::pack, Pack{{0, 16, 40}, 48}, {{{3, 5}}, {{17}}, {{}}}, exact, {0, 1, 2}},
      {"pack_late", Op::pack, Pack{{3}, 9}, {{{5}}}, exact, {0}},
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
  };
}

Rows update_cases() {
  Rows rows;
  for (std::int64_t n : {1, 7, 40001})
    for (bool factor : {false, true})
      for (bool ok : {false, true}) {
        const std::string tag = "_" + std::to_string(n) + (factor ? "_factor" : "") + (ok ? "_ok" : "");
        const Operand w{{n}}, v{{n}, positive};
        Case sgd{"sgd" + tag, Op::sgd, Sgd{0.9, 0.05, factor, factor, ok}, {w, w, w, scalar_rate}, rounding};
        Case adamw{"adamw" + tag, Op::adamw, AdamW{0.9, 0.999, 1e-8, 0.05, factor, ok}, {w, w, v, w, scalar_rate, scalar_step}, rounding};
        for (Case* c : {&sgd, &adamw}) {
          if (factor) c->in.push_back(scalar_positive);
          if (ok) c->in.push_back(scalar_one);
          rows.push_back(*c);
        }
      }
  const Operand w{{3, 5}}, v{{3, 5}, positive};
  const Rows more = {
      {"sgd_plain", Op::sgd, Sgd{}, {w, w, w, scalar_rate}, rounding},
      {"sgd_skipped", Op::sgd, Sgd{0.9, 0.05, false, true, true}, {w, w, w, scalar_rate, scalar_one, scalar_zero}, exact},
      {"adamw_no_decay", Op::adamw, AdamW{}, {w, w, v, w, scalar_rate, scalar_step}, rounding},
      {"adamw_skipped",
       Op::adamw,
       AdamW{0.9, 0.999, 1e-8, 0.05, true, true},
       {w, w, v, w, scalar_rate, scalar_step, scalar_one, scalar_zero},
       exact},
      {"clip_off", Op::clip, Clip{0}, {scalar_positive}, rounding},
      {"clip_acts", Op::clip, Clip{0.1}, {scalar_positive}, rounding},
      {"clip_passes", Op::clip, Clip{100}, {scalar_positive}, rounding},
      {"finite_one", Op::finite, None{}, {scalar_positive}, exact},
      {"finite_three", Op::finite, None{}, {scalar_positive, {{}}, scalar_zero}, exact},
  };
  rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

}  // namespace

const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    Rows rows;
    for (auto family :
         {contract_cases, attention_cases, pointwise_cases, norm_cases, loss_cases, shape_cases, window_cases, reduce_cases, update_cases})
      for (Case& c : family()) rows.push_back(std::move(c));
    return rows;
  }();
  return all;
}

}  // namespace tessera::test
