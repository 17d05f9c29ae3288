// Attention, with and without windows, and the ops that make windows. See cases.h.
#include "ops/families.h"

namespace tessera::test {

using namespace ir;
using enum Fill;

std::vector<Case> attention_cases() {
  struct Dims {
    std::int64_t b, t, s, h, d, windows = 0;  // windows: of a mask, 0 without one

    Shape shape(std::vector<std::int64_t> rest) const {
      if (windows) rest.insert(rest.begin(), windows);
      rest.insert(rest.begin(), b);
      return rest;
    }
    Operand q() const { return {shape({t, h, d})}; }
    Operand k() const { return {shape({s, h, d})}; }
  };
  const auto extras = [](Dims n, bool bias) {
    std::vector<Operand> out;
    if (bias) out.push_back({{n.h, n.t, n.s}});
    if (n.windows) out.push_back({{n.windows, n.t, n.s}, masked});
    return out;
  };
  const auto forward = [&](const std::string& name, Dims n, bool bias = false,
                           double scale = 0.35) {
    Case c{"attention_" + name,
           Op::attention,
           Attention{scale, bias, n.windows > 0},
           {n.q(), n.k(), n.k()},
           chain};
    for (Operand& o : extras(n, bias)) c.in.push_back(o);
    if (n.t < 60) c.grad = bias ? std::vector<int>{0, 1, 2, 3} : std::vector<int>{0, 1, 2};
    return c;
  };
  const auto backward = [&](const std::string& name, Dims n, bool bias = false,
                            double scale = 0.35) {
    const Operand q = n.q(), k = n.k(), lse{n.shape({n.h, n.t}), log_sum};
    Case c{"attention_grad_" + name,
           Op::attention_grad,
           Attention{scale, bias, n.windows > 0},
           {q, k, k, q, lse, q},
           chain};
    for (Operand& o : extras(n, bias)) c.in.push_back(o);
    return c;
  };
  const auto packed = [&](const std::string& name, Dims n, bool bias = false) {
    Case c = backward("packed_" + name, n, bias);
    std::get<Attention>(c.attrs).packed = true;
    return c;
  };
  // The same, cut out of an image of tokens inside the op.
  struct Image {
    Shape q, window, shift;
    bool bias = true;
  };
  const auto in_image = [](const std::string& name, const Image& n, bool gradient,
                           bool packed = false) {
    const std::int64_t t = n.window[0] * n.window[1],
                       windows = n.q[1] / n.window[0] * (n.q[2] / n.window[1]);
    const bool mask = n.shift[0] + n.shift[1] > 0;
    Case c{(gradient ? "attention_grad_" : "attention_") + name,
           gradient ? Op::attention_grad : Op::attention,
           Attention{0.35, n.bias, mask, packed, n.window, n.shift},
           {{n.q}, {n.q}, {n.q}},
           chain};
    if (gradient)
      for (Operand& o : std::vector<Operand>{{n.q}, {{n.q[0], windows, n.q[3], t}, log_sum}, {n.q}})
        c.in.push_back(o);
    if (n.bias) c.in.push_back({{n.q[3], t, t}});
    if (mask) c.in.push_back({{windows, t, t}, masked});
    if (!gradient && t < 40) c.grad = n.bias ? std::vector{0, 1, 2, 3} : std::vector{0, 1, 2};
    return c;
  };
  const Image small{{2, 4, 6, 2, 5}, {2, 3}, {1, 2}}, plain{{3, 2, 6, 2, 4}, {2, 2}, {0, 0}, false},
      seven{{3, 14, 21, 2, 32}, {7, 7}, {3, 3}}, five{{2, 10, 5, 3, 32}, {5, 5}, {0, 0}},
      none{{0, 4, 4, 2, 4}, {2, 2}, {1, 1}};
  return {
      in_image("image", small, false),
      in_image("image_plain", plain, false),
      in_image("image_49", seven, false),
      in_image("image_25", five, false),
      in_image("image_empty", none, false),
      in_image("image", small, true),
      in_image("image_plain", plain, true),
      in_image("image_49", seven, true),
      in_image("image_25", five, true),
      in_image("image_empty", none, true),
      in_image("image_packed", small, true, true),
      in_image("image_packed_49", seven, true, true),
      forward("small", {2, 7, 7, 3, 5}),
      forward("cross", {2, 5, 9, 2, 8}),
      forward("one_query", {3, 1, 65, 2, 16}),
      forward("one_key", {2, 5, 1, 2, 4}),
      forward("65", {2, 65, 65, 3, 32}),
      forward("two_left", {1, 30, 50, 2, 32}),
      forward("197", {1, 197, 197, 2, 64}, false, 0.125),
      forward("300", {1, 300, 261, 2, 64}, false, 0.125),
      forward("window_300", {1, 261, 300, 1, 32, 2}, true),
      forward("bias", {2, 7, 7, 3, 5}, true),
      forward("mask", {2, 7, 7, 3, 5, 2}),
      forward("bias_mask", {2, 9, 9, 2, 8, 3}, true),
      forward("window_49", {2, 49, 49, 2, 32, 2}, true),
      forward("peaked", {2, 7, 65, 2, 8}, false, 20.0),
      forward("empty", {0, 7, 7, 2, 4}),
      backward("small", {2, 7, 7, 3, 5}),
      backward("cross", {2, 5, 9, 2, 8}),
      backward("65", {2, 65, 65, 3, 32}),
      backward("two_left", {1, 30, 50, 2, 32}),
      backward("197", {1, 197, 197, 2, 64}),
      backward("300", {1, 300, 261, 2, 64}, false, 0.125),
      backward("window_300", {1, 261, 300, 1, 32, 2}, true),
      backward("long_cross", {1, 90, 208, 2, 64}, false, 0.125),
      backward("few_keys", {1, 130, 3, 2, 64}, false, 0.125),
      backward("bias", {3, 7, 7, 3, 5}, true),
      backward("mask", {2, 7, 7, 3, 5, 2}),
      backward("bias_mask", {2, 9, 9, 2, 8, 3}, true),
      backward("window_49", {3, 49, 49, 2, 32, 4}, true),
      backward("empty", {0, 7, 7, 2, 4}, true),
      packed("small", {2, 7, 7, 3, 5}),
      packed("65", {2, 65, 65, 3, 64}),
      packed("197", {1, 197, 197, 2, 64}),
      packed("300", {1, 300, 300, 2, 32}),
      packed("bias_mask", {2, 9, 9, 2, 8, 3}, true),
      packed("window_49", {3, 49, 49, 2, 32, 4}, true),
      packed("empty", {0, 7, 7, 2, 4}, true),
  };
}

std::vector<Case> window_cases() {
  const auto cut = [](const std::string& name, Shape image, Shape size, Shape shift) {
    return Case{"window_" + name, Op::window, Window{size, shift, {}}, {{image}}, exact, {0}};
  };
  const auto back = [](const std::string& name, std::int64_t b, std::int64_t c, Shape image,
                       Shape size, Shape shift) {
    const std::int64_t n =
        ((image[0] + size[0] - 1) / size[0]) * ((image[1] + size[1] - 1) / size[1]);
    return Case{"unwindow_" + name,
                Op::unwindow,
                Window{size, shift, image},
                {{{b, n, size[0] * size[1], c}}},
                exact,
                {0}};
  };
  const auto mask = [](const std::string& name, Shape size, Shape shift, Shape image) {
    return Case{"window_mask_" + name,
                Op::window_mask,
                WindowMask{size, shift, image, DType::f32},
                {},
                exact};
  };
  const auto table = [](const std::string& name, Shape size, std::int64_t heads) {
    return Case{"bias_table_" + name,
                Op::bias_table,
                BiasTable{size},
                {{{(2 * size[0] - 1) * (2 * size[1] - 1), heads}}},
                exact,
                {0}};
  };
  const auto table_grad = [](const std::string& name, Shape size, std::int64_t heads) {
    const std::int64_t t = size[0] * size[1];
    return Case{
        "bias_table_grad_" + name, Op::bias_table_grad, BiasTable{size}, {{{heads, t, t}}}, sums};
  };
  return {
      cut("plain", {2, 4, 6, 3}, {2, 3}, {0, 0}),
      cut("shifted", {2, 4, 6, 3}, {2, 2}, {1, 1}),
      cut("padded", {3, 5, 7, 2}, {4, 4}, {0, 0}),
      cut("padded_shifted", {2, 5, 7, 5}, {4, 3}, {2, 1}),
      cut("larger_than_image", {2, 3, 2, 4}, {5, 4}, {0, 0}),
      cut("one_dim_shifted", {1, 3, 9, 4}, {4, 4}, {0, 2}),
      cut("one_pixel", {2, 1, 1, 3}, {1, 1}, {0, 0}),
      cut("swin", {2, 14, 14, 32}, {7, 7}, {3, 3}),
      cut("wide_rows", {1, 8, 8, 700}, {4, 4}, {2, 2}),
      cut("empty", {0, 4, 4, 3}, {2, 2}, {1, 1}),
      back("plain", 2, 3, {4, 6}, {2, 3}, {0, 0}),
      back("shifted", 2, 3, {4, 6}, {2, 2}, {1, 1}),
      back("padded", 3, 2, {5, 7}, {4, 4}, {0, 0}),
      back("padded_shifted", 2, 5, {5, 7}, {4, 3}, {2, 1}),
      back("swin", 2, 32, {14, 14}, {7, 7}, {3, 3}),
      back("empty", 0, 3, {4, 4}, {2, 2}, {1, 1}),
      mask("small", {2, 2}, {1, 1}, {4, 6}),
      mask("padded", {4, 3}, {2, 1}, {5, 7}),
      mask("one_dim", {3, 4}, {0, 2}, {3, 12}),
      mask("swin", {7, 7}, {3, 3}, {14, 14}),
      table("square", {3, 3}, 2),
      table("wide", {2, 4}, 5),
      table("swin", {7, 7}, 3),
      table("one", {1, 1}, 1),
      table_grad("square", {3, 3}, 2),
      table_grad("swin", {7, 7}, 12),
      table_grad("one", {1, 1}, 1),
  };
}

}  // namespace tessera::test
