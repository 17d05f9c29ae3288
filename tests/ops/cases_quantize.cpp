// Cases of quantisation: tensors of one byte, products of them, and scales of past steps. They have
// several types at once, which are meant as they stand.
#include "ops/families.h"

namespace tessera::test {

using namespace ir;
using enum Fill;

namespace {

// An op that reads scales rounds in another order; a value that is rounded to bf16 may be rounded
// the other way.
constexpr Tolerance scaled{1e-6, "a product of scales and a sum of one addend or two, in f32"};
constexpr Tolerance scaled_low{4e-3, "a rounding to bf16 that falls to the other neighbour"};

constexpr Tolerance into_bytes{
    3e-2, "one in fifty falls to the other byte, where the value before act is rounded to bf16"};

Case product(const std::string& name, const Contract& attrs, std::vector<Operand> in) {
  const bool low = attrs.out == DType::bf16;
  return {.name = "contract_" + name,
          .op = Op::contract,
          .attrs = attrs,
          .in = std::move(in),
          .tolerance = attrs.to ? into_bytes
                       : low    ? scaled_low
                                : scaled,
          .fixed = true};
}

Rows products() {
  const Operand s{{}, positive};
  const auto e4 = [](Shape shape) { return Operand{std::move(shape), normal, DType::f8e4m3}; };
  const auto e5 = [](Shape shape) { return Operand{std::move(shape), normal, DType::f8e5m2}; };
  const auto i8 = [](Shape shape) { return Operand{std::move(shape), wide, DType::i8}; };
  const auto low = [](Shape shape) { return Operand{std::move(shape), normal, DType::bf16}; };
  return {
      product("f8", {"bc,fc,,->bf", {}, DType::f32, 2}, {e4({16, 32}), e4({48, 32}), s, s}),
      product("f8_linear", {"btc,fc,,,f->btf", "gelu_tanh", DType::bf16, 2},
              {e4({2, 8, 64}), e4({32, 64}), s, s, low({32})}),
      product("f8_linear_erf", {"btc,fc,,,f->btf", "gelu", DType::bf16, 2},
              {e4({2, 8, 64}), e4({32, 64}), s, s, low({32})}),
      product("f8_residual", {"btc,fc,,,f,btf->btf", {}, DType::f32, 2},
              {e4({2, 8, 64}), e4({32, 64}), s, s, {{32}}, {{2, 8, 32}}}),
      product("f8_packed", {"btc,nhdc,,,nhd->btnhd", {}, DType::bf16, 2},
              {e4({2, 8, 32}), e4({3, 2, 16, 32}), s, s, low({3, 2, 16})}),
      product("f8_gradient", {"bf,cf,,->bc", {}, DType::bf16, 2},
              {e5({32, 48}), e4({16, 48}), s, s}),
      product("f8_weight_gradient", {"fb,cb,,->cf", {}, DType::f32, 2},
              {e5({48, 32}), e4({16, 32}), s, s}),
      product("f8_low", {"bc,fc,,->bf", {}, DType::bf16, 2}, {e4({32, 64}), e4({48, 64}), s, s}),
      product("f8_biased", {"bc,fc,,,f->bf", {}, DType::bf16, 2},
              {e4({32, 64}), e4({48, 64}), s, s, low({48})}),
      product("f8_gradient_wide", {"bf,cf,,->bc", {}, DType::f32, 2},
              {e5({32, 48}), e4({16, 48}), s, s}),
      product("f8_deep", {"bc,fc,,->bf", {}, DType::bf16, 2},
              {e4({16, 3072}), e4({16, 3072}), s, s}),
      product("f8_deep_gradient", {"fb,cb,,->cf", {}, DType::f32, 2},
              {e5({32, 4096}), e4({16, 4096}), s, s}),
      product("f8_odd", {"bc,fc,,->bf", {}, DType::f32, 2}, {e4({3, 7}), e5({5, 7}), s, s}),
      product("f8_odd_low", {"btc,cf,,,f->btf", "gelu", DType::bf16, 2},
              {e5({2, 3, 13}), e5({13, 9}), s, s, {{9}}}),
      product("f8_to_bytes", {"btc,fc,,,f,->btf", "gelu", DType::bf16, 2, DType::f8e4m3},
              {e4({2, 8, 64}), e4({32, 64}), s, s, low({32}), s}),
      product("f8_to_bytes_odd", {"btc,cf,,,f,->btf", "gelu", DType::bf16, 2, DType::f8e4m3},
              {e4({3, 7, 13}), e5({13, 9}), s, s, {{9}}, s}),
      product("f8_to_bytes_tanh", {"bc,fc,,,->bf", "gelu_tanh", DType::f32, 2, DType::f8e5m2},
              {e4({32, 64}), e4({48, 64}), s, s, s}),
      product("f8_to_no_bytes", {"bc,fc,,,->bf", "gelu", DType::bf16, 2, DType::f8e4m3},
              {e4({0, 16}), e4({32, 16}), s, s, s}),
      product("f8_bare", {"bc,fc->bf", {}, DType::f32}, {e4({4, 16}), e4({8, 16})}),
      product("i8_channels", {"btc,cf,,f,f->btf", "gelu", DType::f32, 2},
              {i8({2, 5, 19}), i8({19, 11}), s, {{11}, positive}, {{11}}}),
      product("i8_channels_low", {"btc,cf,,f,f,btf->btf", {}, DType::bf16, 2},
              {i8({2, 5, 64}), i8({64, 48}), s, {{48}, positive}, low({48}), low({2, 5, 48})}),
      product("i8_linear", {"btc,cf,,f,f->btf", {}, DType::bf16, 2},
              {i8({2, 35, 64}), i8({64, 45}), s, {{45}, positive}, low({45})}),
      product("i8_linear_erf", {"btc,cf,,f,f->btf", "gelu", DType::bf16, 2},
              {i8({3, 11, 130}), i8({130, 64}), s, {{64}, positive}, low({64})}),
      product("i8_linear_tanh", {"btc,cf,,f->btf", "gelu_tanh", DType::bf16, 2},
              {i8({2, 9, 66}), i8({66, 33}), s, {{33}, positive}}),
      product("i8_long", {"bc,cf,,->bf", {}, DType::f32, 2}, {i8({3, 3072}), i8({3072, 17}), s, s}),
      product("i8_empty", {"bc,cf,->bf", {}, DType::f32, 1}, {i8({0, 8}), i8({8, 4}), s}),
  };
}

// An activation that differs in its last place may round to the other neighbour.
constexpr Tolerance activated{2e-3, "a few of the elements are rounded to the other neighbour"};

Case quantized(const std::string& name, const Quantize& attrs, Operand x, Operand scale) {
  return {.name = "quantize_" + name,
          .op = Op::quantize,
          .attrs = attrs,
          .in = {std::move(x), std::move(scale)},
          .tolerance = exact,
          .fixed = true};
}

}  // namespace

Rows quantize_cases() {
  const Operand s{{}, positive};
  Rows rows = {
      quantized("both", {"btc,->btc,cbt,", DType::f8e4m3}, {{2, 16, 48}, wide, DType::bf16}, s),
      quantized("gradient", {"btc,->btc,cbt,", DType::f8e5m2}, {{4, 33, 65}, normal, DType::bf16},
                s),
      quantized("weight", {"cf,->cf,fc,", DType::f8e4m3}, {{64, 192}}, s),
      quantized("turned", {"cnhd,->nhdc", DType::f8e4m3}, {{40, 3, 2, 16}}, s),
      quantized("odd", {"btc,->btc,cbt,", DType::f8e4m3}, {{3, 7, 13}, wide}, s),
      quantized("saturates", {"bc,->bc,cb,", DType::f8e4m3}, {{8, 24}, wide}, {{}, rate}),
      quantized("plain", {"bc,->bc", DType::f8e5m2}, {{5, 11}, wide}, s),
      quantized("channels", {"cf,f->cf", DType::i8}, {{19, 11}, wide}, {{11}, positive}),
      quantized("channels_turned", {"cf,f->fc,", DType::i8}, {{24, 16}, wide}, {{16}, positive}),
      quantized("i8", {"btc,->btc", DType::i8}, {{2, 17, 40}, wide, DType::bf16}, s),
      quantized("large", {"bc,->bc,cb,", DType::f8e4m3}, {{512, 384}, normal, DType::bf16}, s),
      quantized("nothing", {"bc,->bc,cb,", DType::f8e4m3}, {{0, 8}}, s),
  };
  const auto activation = [&](const std::string& act, const std::string& sig, Shape shape) {
    Case c = quantized(act, {sig, DType::f8e4m3, act}, {shape, normal, DType::bf16}, s);
    c.tolerance = activated;
    if (act.ends_with("_grad")) c.in.push_back({shape, normal, DType::bf16});
    rows.push_back(std::move(c));
  };
  activation("gelu", "btc,->btc,cbt,", {3, 17, 64});
  activation("gelu_tanh", "btc,->btc,cbt,", {2, 5, 7});
  activation("gelu_grad", "btc,,btc->btc,cbt,,c", {3, 17, 64});
  activation("gelu_tanh_grad", "btc,,btc->btc,cbt,,c", {2, 5, 7});
  const auto normed = [&](const std::string& name, Op op, Shape shape, DType added) {
    const std::int64_t width = shape.back();
    Case c{.name = name + "_in_bytes",
           .op = op,
           .attrs = Norm{1e-6, DType::f8e4m3},
           .in = {{shape}},
           .tolerance = activated,
           .fixed = true};
    if (op == Op::add_norm) c.in.push_back({shape, normal, added});
    c.in.insert(c.in.end(), {{{width}, positive}, {{width}}, s});
    rows.push_back(std::move(c));
  };
  normed("layer_norm", Op::layer_norm, {2, 16, 64}, DType::f32);
  normed("layer_norm_odd", Op::layer_norm, {3, 7, 13}, DType::f32);
  normed("layer_norm_wide", Op::layer_norm, {64, 1024}, DType::f32);
  normed("add_norm", Op::add_norm, {2, 32, 768}, DType::bf16);
  normed("add_norm_odd", Op::add_norm, {5, 3, 21}, DType::bf16);
  normed("add_norm_f32", Op::add_norm, {32, 320}, DType::f32);
  rows.push_back({.name = "delayed_scale_of_rows",
                  .op = Op::delayed_scale,
                  .attrs = DelayedScale{DType::f8e5m2, 0.0625},
                  .in = {{{37, 16}, ties}},
                  .tolerance = exact,
                  .fixed = true});
  rows.push_back({.name = "delayed_scale_at_the_start",
                  .op = Op::delayed_scale,
                  .attrs = DelayedScale{DType::f8e4m3, 0.25},
                  .in = {{{5, 3}, zero}},
                  .tolerance = exact,
                  .fixed = true});
  rows.push_back({.name = "amax_history",
                  .op = Op::amax_history,
                  .attrs = None{},
                  .in = {{{37, 16}, positive}, {{37}, positive}},
                  .tolerance = exact,
                  .fixed = true});
  for (Case& c : products()) rows.push_back(std::move(c));
  const Operand x{{2, 5, 7, 19}, wide, DType::i8}, f{{3, 3, 19, 21}, wide, DType::i8};
  for (const DType out : {DType::f32, DType::bf16})
    rows.push_back({.name = out == DType::f32 ? "conv_i8" : "conv_i8_low",
                    .op = Op::conv,
                    .attrs = Conv{.stride = 2, .pad = 1, .relu = true, .out = out, .scales = 2},
                    .in = {x, f, s, {{21}, positive}, {{21}}, {{21}}, {{2, 3, 4, 21}, normal, out}},
                    .tolerance = out == DType::f32 ? scaled : scaled_low,
                    .fixed = true});
  return rows;
}

}  // namespace tessera::test
