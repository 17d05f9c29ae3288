// Shifted windows (Liu et al. 2021): cutting an image of tokens into windows and back, the mask of
// the shifted ones, and the bias by relative position. All are index maps: rolling, padding and
// cutting are one gather, and its derivative is the gather back. Legend: b batch, h w image of
// tokens, c channel, n window, t token of a window.
#include "base/check.h"
#include "ops/table.h"
#include "ops/windows.h"

namespace tessera::ops {
namespace {

using namespace ir;

Types infer_window(const Attrs& attrs, In in) {
  const Type& x = only(in);
  const Window& a = std::get<Window>(attrs);
  check_pair("size", a.size, 1);
  check_shift(a.shift, a.size);
  CHECK(x.rank() == 4 && x.shape[1] <= most_window && x.shape[2] <= most_window,
        "window takes an image of tokens [b,h,w,c]");
  return {{x.dtype,
           {x.shape[0], windows(x.shape[1], x.shape[2], a.size), a.size[0] * a.size[1], x.shape[3]},
           {}}};
}
Grads window_vjp(Builder& b, const Eqn& e, Grad g) {
  const Shape& s = b.type(e.in[0]).shape;
  Window a = std::get<Window>(e.attrs);
  a.image = {s[1], s[2]};
  return {b.emit1(Op::unwindow, a, {g[0]})};
}

Types infer_unwindow(const Attrs& attrs, In in) {
  const Type& x = only(in);
  const Window& a = std::get<Window>(attrs);
  check_pair("size", a.size, 1);
  check_shift(a.shift, a.size);
  check_pair("image", a.image, 0);
  CHECK(x.rank() == 4 && x.shape[1] == windows(a.image[0], a.image[1], a.size) &&
            x.shape[2] == a.size[0] * a.size[1],
        "windows " + to_string(x.shape) + " of size " + to_string(a.size) + " make up an image " +
            to_string(a.image));
  return {{x.dtype, {x.shape[0], a.image[0], a.image[1], x.shape[3]}, {}}};
}
Grads unwindow_vjp(Builder& b, const Eqn& e, Grad g) {
  Window a = std::get<Window>(e.attrs);
  a.image = {};
  return {b.emit1(Op::window, a, {g[0]})};
}

Types infer_window_mask(const Attrs& attrs, In in) {
  CHECK(in.empty(), "window_mask takes no operand");
  const WindowMask& a = std::get<WindowMask>(attrs);
  check_pair("size", a.size, 1);
  check_shift(a.shift, a.size);
  check_pair("image", a.image, 0);
  CHECK(is_float(a.dtype), "a mask is added to scores: a floating type");
  const std::int64_t t = a.size[0] * a.size[1];
  return {{a.dtype, {windows(a.image[0], a.image[1], a.size), t, t}, {}}};
}

std::int64_t table_rows(const Shape& size) { return (2 * size[0] - 1) * (2 * size[1] - 1); }

Types infer_bias_table(const Attrs& attrs, In in) {
  const Type& table = only(in);
  const Shape& size = std::get<BiasTable>(attrs).size;
  check_pair("size", size, 1);
  const std::int64_t t = size[0] * size[1];
  CHECK(table.rank() == 2 && table.shape[0] == table_rows(size),
        "a table for windows " + to_string(size) + " has " + std::to_string(table_rows(size)) +
            " rows: " + to_string(table.shape));
  return {{table.dtype, {table.shape[1], t, t}, {}}};
}
Grads bias_table_vjp(Builder& b, const Eqn& e, Grad g) {
  return {b.emit1(Op::bias_table_grad, e.attrs, {g[0]})};
}

Types infer_bias_table_grad(const Attrs& attrs, In in) {
  const Type& g = only(in);
  const Shape& size = std::get<BiasTable>(attrs).size;
  check_pair("size", size, 1);
  const std::int64_t t = size[0] * size[1];
  CHECK(g.rank() == 3 && g.shape[1] == t && g.shape[2] == t,
        "the bias of windows " + to_string(size) + " is [h,t,t]: " + to_string(g.shape));
  return {{g.dtype, {table_rows(size), g.shape[0]}, {}}};
}

}  // namespace

std::vector<OpDef> window_rows() {
  return {
      {.op = Op::window,
       .doc = "[b,h,w,c] -> [b,n,t,c]: padded with zeros at the bottom and right, rolled by "
              "-shift, cut into windows",
       .sig = "",
       .infer = infer_window,
       .vjp = window_vjp,
       .placement = [](const Attrs&, In, In) -> std::string { return "bx!y!c->bw!t!c"; },
       .linear = {0},
       .low = "l"},
      {.op = Op::unwindow,
       .doc = "[b,n,t,c] -> [b,h,w,c]: windows put back, rolled by shift, padding cut off",
       .sig = "",
       .infer = infer_unwindow,
       .vjp = unwindow_vjp,
       .placement = [](const Attrs&, In, In) -> std::string { return "bw!t!c->bx!y!c"; },
       .linear = {0},
       .low = "l"},
      {.op = Op::window_mask,
       .doc = "-> [n,t,t]: 0 where two tokens of a shifted window are neighbours in the image, "
              "-100 where the roll brought them together",
       .sig = "",
       .infer = infer_window_mask,
       .placement = [](const Attrs&, In, In) -> std::string { return "->w!t!s!"; }},
      {.op = Op::bias_table,
       .doc =
           "[(2wh-1)(2ww-1),h] -> [h,t,t]: for tokens i and j the row of position i - position j",
       .sig = "",
       .infer = infer_bias_table,
       .vjp = bias_table_vjp,
       .placement = [](const Attrs&, In, In) -> std::string { return "o!h->ht!s!"; },
       .linear = {0}},
      {.op = Op::bias_table_grad,
       .doc = "[h,t,t] -> [(2wh-1)(2ww-1),h]: the sum over all pairs of tokens that read a row, in "
              "a fixed order",
       .sig = "",
       .infer = infer_bias_table_grad,
       .placement = [](const Attrs&, In, In) -> std::string { return "ht!s!->o!h"; },
       .linear = {0}},
  };
}

}  // namespace tessera::ops
