#include "ops/families.h"

namespace tessera::test {

using namespace ir;
using enum Fill;

Rows contract_cases() {
  const auto row = [](const std::string& name, const std::string& sig, Shape x, Shape w,
                      std::vector<Operand> addends = {}, const std::string& act = {}) {
    Case c{"contract_" + name,
           Op::contract,
           Contract{sig, act, {}},
           {{std::move(x)}, {std::move(w)}},
           sums};
    c.in.insert(c.in.end(), addends.begin(), addends.end());
    if (addends.empty() && act.empty() && elements(c.in[0].shape) < 20000) c.grad = {0, 1};
    return c;
  };
  return {
      row("linear", "btc,fc->btf", {2, 5, 7}, {3, 7}),
      row("linear_197", "btc,fc->btf", {2, 197, 65}, {33, 65}),
      row("linear_tiles", "btc,fc->btf", {4, 197, 192}, {576, 192}),
      row("linear_tasks", "btc,fc->btf", {1, 200, 400}, {330, 400}),
      row("linear_tasks_residual", "btf,cf,c,btc->btc", {2, 100, 800}, {200, 800},
          {{{200}}, {{2, 100, 200}}}),
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
      row("qkv_dx_large", "nbthd,nhdc->btc", {3, 8, 64, 2, 32}, {3, 2, 32, 256}),
      row("qkv_dw", "btc,nbthd->nhdc", {2, 65, 12}, {3, 2, 65, 2, 7}),
      row("qkv_dw_from_gradient", "nbthd,btc->nhdc", {3, 2, 9, 2, 7}, {2, 9, 12}),
      row("heads_out", "bthd,chd->btc", {2, 65, 3, 5}, {17, 3, 5}),
      row("heads_added", "bthd,chd,c,btc->btc", {2, 65, 3, 5}, {17, 3, 5}, {{{17}}, {{2, 65, 17}}}),
      row("heads_out_dx", "btc,chd->bthd", {2, 7, 17}, {17, 3, 5}),
      row("heads_out_dw", "btc,bthd->chd", {2, 7, 17}, {2, 7, 3, 5}),
      row("patches", "btpqc,pqcd->btd", {2, 9, 4, 4, 3}, {4, 4, 3, 21}),
      row("patches_bias", "btpqc,pqcd,d->btd", {2, 9, 4, 4, 3}, {4, 4, 3, 21}, {{{21}}}),
      row("patches_dx", "btd,pqcd->btpqc", {2, 9, 21}, {4, 4, 3, 21}),
      row("patches_dw", "btd,btpqc->pqcd", {2, 9, 21}, {2, 9, 4, 4, 3}),
      row("linear_dx", "btf,fc->btc", {2, 65, 33}, {33, 19}),
      row("linear_dw", "btf,btc->fc", {2, 65, 33}, {2, 65, 19}),
      row("linear_dw_deep", "btf,btc->fc", {16, 197, 33}, {16, 197, 19}),
      row("linear_dw_wide", "btf,btc->fc", {3, 100, 300}, {3, 100, 70}),
      row("linear_dw_tasks", "btf,btc->fc", {2, 211, 200}, {2, 211, 330}),
      row("linear_dw_odd", "btf,btc->fc", {3, 33, 101}, {3, 33, 75}),
      row("linear_dw_empty", "btf,btc->fc", {0, 7, 5}, {0, 7, 3}),
      row("head", "bc,fc,f->bf", {5, 65}, {10, 65}, {{{10}}}),
      row("scores", "bhtd,bhsd->bhts", {2, 3, 7, 5}, {2, 3, 9, 5}),
      row("values", "bhts,bhsd->bhtd", {2, 3, 7, 9}, {2, 3, 9, 5}),
      row("scores_interleaved", "bthd,bshd->bhts", {2, 7, 3, 5}, {2, 9, 3, 5}),
      row("result_transposed", "btc,fc->fbt", {2, 5, 7}, {3, 7}),
      row("one_row", "bc,fc,f->bf", {1, 64}, {40, 64}, {{{40}}}),
      row("four_rows", "bc,fc,f->bf", {4, 72}, {37, 72}, {{{37}}}),
      row("three_columns", "bc,fc,f->bf", {40, 64}, {3, 64}, {{{3}}}),
      row("one_row_residual", "bc,fc,bf->bf", {1, 320}, {40, 320}, {{{1, 40}}}),
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
    const auto row = [&, op = op, name = name](const std::string& what, const std::string& sig,
                                               Shape a, Shape b) {
      rows.push_back(
          {name + what, op, Sig{sig}, {{std::move(a)}, {std::move(b)}}, rounding, {0, 1}});
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
      {"relu", Op::relu, None{}, {{{3, 5, 7}}}, exact, {0}},
      {"relu_flat", Op::relu, None{}, {{{40001}}}, exact},
      {"relu_grad", Op::relu_grad, None{}, {{{3, 5, 7}}, {{3, 5, 7}}}, exact},
      {"relu_grad_ties", Op::relu_grad, None{}, {{{1001}, ties}, {{1001}}}, exact},
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
      {.name = "cast_to_bf16",
       .op = Op::cast,
       .attrs = Cast{DType::bf16},
       .in = {{{1001}}},
       .tolerance = exact,
       .fixed = true},
      {.name = "cast_from_bf16",
       .op = Op::cast,
       .attrs = Cast{DType::f32},
       .in = {{{1001}, normal, DType::bf16}},
       .tolerance = exact,
       .fixed = true},
      {.name = "cast_to_f16",
       .op = Op::cast,
       .attrs = Cast{DType::f16},
       .in = {{{1001}}},
       .tolerance = exact,
       .fixed = true},
      {.name = "cast_from_f16",
       .op = Op::cast,
       .attrs = Cast{DType::f32},
       .in = {{{1001}, normal, DType::f16}},
       .tolerance = exact,
       .fixed = true},
      {.name = "cast_f16_to_bf16",
       .op = Op::cast,
       .attrs = Cast{DType::bf16},
       .in = {{{1001}, normal, DType::f16}},
       .tolerance = exact,
       .fixed = true},
      {.name = "cast_to_f64",
       .op = Op::cast,
       .attrs = Cast{DType::f64},
       .in = {{{3, 7}}},
       .tolerance = exact,
       .fixed = true},
      {.name = "cast_from_f64",
       .op = Op::cast,
       .attrs = Cast{DType::f32},
       .in = {{{3, 7}, normal, DType::f64}},
       .tolerance = exact,
       .fixed = true},
      {.name = "cast_to_i32",
       .op = Op::cast,
       .attrs = Cast{DType::i32},
       .in = {{{3, 7}, wide}},
       .tolerance = exact,
       .fixed = true},
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
      {"dropout",
       Op::dropout,
       Dropout{0.1, false, "blocks.0.mlp", 0},
       {{{3, 5, 7}}, draws},
       rounding,
       {0}},
      {"dropout_half",
       Op::dropout,
       Dropout{0.5, false, "embed", 64},
       {{{5, 197, 33}}, draws},
       rounding,
       {0}},
      {"dropout_none",
       Op::dropout,
       Dropout{0.0, false, "embed", 0},
       {{{3, 7}}, draws},
       rounding,
       {0}},
      {"dropout_path",
       Op::dropout,
       Dropout{0.4, true, "blocks.1", 17},
       {{{9, 5, 7}}, draws},
       rounding,
       {0}},
      {"dropout_vector", Op::dropout, Dropout{0.4, false, "x", 0}, {{{65}}, draws}, rounding, {0}},
      {"dropout_empty", Op::dropout, Dropout{0.4, false, "x", 0}, {{{0, 7}}, draws}, rounding},
      {"mark", Op::mark, Mark{"residual"}, {{{3, 5, 7}}}, exact, {0}},
      {"copy", Op::copy, None{}, {{{3, 5, 7}}}, exact, {}},
      {"mark_scalar", Op::mark, Mark{"loss"}, {{{}}}, exact, {0}},
  };
  rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    Rows rows;
    for (auto family :
         {contract_cases, quantize_cases, conv_cases, attention_cases, pointwise_cases, norm_cases,
          batch_norm_cases, loss_cases, shape_cases, window_cases, reduce_cases, update_cases,
          lamb_cases, compress_cases, image_cases})
      for (Case& c : family()) rows.push_back(std::move(c));
    return rows;
  }();
  return all;
}

}  // namespace tessera::test
