// attention: softmax(scale q k^T + bias + mask) v as one op with results o and lse (log of the sum
// of exponentials, kept in f32), so that no executor ever has to store the scores. Legend: * batch
// (any dims), w window, t query, s key, h head, d head dim, n of q/k/v. A bias is one per head, a
// mask one per window: then the dim before the tokens counts windows. With a window size tokens are
// those of an image, i row and j column, and windows are cut inside the op (made by fusion).
#include <utility>

#include "base/check.h"
#include "ir/signature.h"
#include "ops/table.h"
#include "ops/windows.h"

namespace tessera::ops {
namespace {

using namespace ir;

struct AttentionLetters {
  std::string q, k, lse, optional;
};
AttentionLetters attention_letters(const Attrs& attrs) {
  const Attention& a = std::get<Attention>(attrs);
  if (!a.window.empty())
    return {.q = "*i!j!hd!",
            .k = "*i!j!hd!",
            .lse = "*w!ht!",
            .optional = std::string(a.bias ? ",ht!s!" : "") + (a.mask ? ",w!t!s!" : "")};
  const std::string lead = a.mask ? "*w!" : "*";
  return {.q = lead + "thd!",
          .k = lead + "s!hd!",
          .lse = lead + "ht",
          .optional = std::string(a.bias ? ",hts!" : "") + (a.mask ? ",w!ts!" : "")};
}
std::string forward_signature(const Attrs& attrs, int) {
  const auto [q, k, lse, optional] = attention_letters(attrs);
  return q + "," + k + "," + k + optional + "->" + q + "," + lse;
}
std::string attention_grad_signature(const Attrs& attrs, int) {
  const Attention& a = std::get<Attention>(attrs);
  const auto [q, k, lse, optional] = attention_letters(attrs);
  const std::string packed = !a.window.empty() ? "*i!j!n!hd!"
                             : a.mask          ? "*w!t!n!hd!"
                                               : "*t!n!hd!";  // t counts keys, too
  return q + "," + k + "," + k + "," + q + "," + lse + "," + q + optional + "->" +
         (a.packed ? packed : q + "," + k + "," + k) +
         (!a.bias            ? ""
          : a.window.empty() ? ",hts!"
                             : ",ht!s!");
}

// An attention that cuts windows itself: the shapes of q (k and v are alike), lse and bias.
struct WindowShapes {
  Shape q, lse, bias;
};
WindowShapes window_shapes(const Attention& a, In in, std::size_t first_optional) {
  check_pair("window", a.window, 1);
  check_shift(a.shift, a.window);
  CHECK(in.size() >= first_optional, "attention in windows: too few operands");
  const Shape& q = in[0].shape;
  const std::size_t rank = q.size();
  CHECK(rank >= 4 && in[1].shape == q && in[2].shape == q,
        "attention in windows takes q, k and v of one image of tokens [.., i, j, h, d]: " +
            to_string(q) + ", " + to_string(in[1].shape) + ", " + to_string(in[2].shape));
  const std::int64_t rows = q[rank - 4], columns = q[rank - 3], h = q[rank - 2];
  CHECK(rows % a.window[0] == 0 && columns % a.window[1] == 0,
        "windows " + to_string(a.window) + " make up an image without padding: " + to_string(q));
  const std::int64_t t = a.window[0] * a.window[1], n = windows(rows, columns, a.window);
  WindowShapes out{.q = q, .lse = Shape(q.begin(), q.end() - 4), .bias = {h, t, t}};
  out.lse.insert(out.lse.end(), {n, h, t});
  std::size_t next = first_optional;
  const auto check = [&](bool asked, const Shape& wanted, const char* what) {
    if (!asked) return;
    CHECK(next < in.size() && in[next].shape == wanted,
          std::string("attention in windows: ") + what + " is " + to_string(wanted));
    ++next;
  };
  check(a.bias, out.bias, "the bias");
  check(a.mask, {n, t, t}, "the mask");
  CHECK(next == in.size(), "attention in windows: too many operands");
  return out;
}

Types infer_attention(const Attrs& attrs, In in) {
  if (const auto& a = std::get<Attention>(attrs); !a.window.empty()) {
    const WindowShapes shapes = window_shapes(a, in, 3);
    return {{in[0].dtype, shapes.q, {}}, {statistics_of(in[0].dtype), shapes.lse, {}}};
  }
  const auto shapes = infer_shapes(forward_signature(attrs, 0), in);
  return {{in[0].dtype, shapes[0], {}}, {statistics_of(in[0].dtype), shapes[1], {}}};
}

Types infer_attention_grad(const Attrs& attrs, In in) {
  Attention each = std::get<Attention>(attrs);
  const bool packed = std::exchange(each.packed, false);
  std::vector<Shape> shapes;
  if (each.window.empty()) {
    shapes = infer_shapes(attention_grad_signature(each, 0), in);
  } else {
    const WindowShapes window = window_shapes(each, in, 6);
    CHECK(in[3].shape == window.q && in[4].shape == window.lse && in[5].shape == window.q,
          "attention_grad in windows: o and do are like q, lse is " + to_string(window.lse));
    shapes = {window.q, window.q, window.q};
    if (each.bias) shapes.push_back(window.bias);
  }
  Types out;
  for (const Shape& shape : shapes)
    out.push_back({out.size() < 3 ? in[0].dtype : statistics_of(in[0].dtype), shape, {}});
  if (packed) {
    CHECK(shapes[0] == shapes[1],
          "attention_grad packs gradients of as many queries as keys: queries are " +
              to_string(shapes[0]) + ", keys " + to_string(shapes[1]));
    out.erase(out.begin(), out.begin() + 2);
    out[0].shape.insert(out[0].shape.end() - 2, 3);
  }
  return out;
}

Grads attention_vjp(Builder& b, const Eqn& e, Grad g) {
  CHECK(g.size() < 2 || g[1] == none, "the gradient of attention's lse is not defined");
  std::vector<Var> in = {e.in[0], e.in[1], e.in[2], e.out[0], e.out[1], g[0]};
  in.insert(in.end(), e.in.begin() + 3, e.in.end());
  Grads grads = b.emit(Op::attention_grad, e.attrs, in, {"dq", "dk", "dv", "dbias"});
  grads.resize(e.in.size(), none);
  return grads;
}

double products(const Attrs& attrs, In in) {  // * t s h d
  const Shape& window = std::get<Attention>(attrs).window;
  const std::int64_t keys =
      window.empty() ? in[1].shape[in[1].shape.size() - 3] : window[0] * window[1];
  return static_cast<double>(in[0].elements()) * static_cast<double>(keys);
}
Cost attention_cost(const Attrs& attrs, In in, In) { return {4 * products(attrs, in), 0}; }
Cost attention_grad_cost(const Attrs& attrs, In in, In) { return {8 * products(attrs, in), 0}; }

}  // namespace

std::vector<OpDef> attention_rows() {
  return {{.op = Op::attention,
           .doc = "q k v [bias] [mask] -> softmax(scale q k' + bias + mask[w]) v, and the log of "
                  "each row's sum of exponentials. window, shift: tokens are those of an image, "
                  "each attends to its window (made by fusion)",
           .sig = "",
           .infer = infer_attention,
           .vjp = attention_vjp,
           .cost = attention_cost,
           .signature = forward_signature,
           .low = "lll."},
          {.op = Op::attention_grad,
           .doc = "q k v o lse do [bias] [mask] -> dq dk dv [dbias]; the probabilities are "
                  "recomputed from lse. packed: [.., t, 3, h, d] instead of dq dk dv (made by "
                  "fusion)",
           .sig = "",
           .infer = infer_attention_grad,
           .cost = attention_grad_cost,
           .signature = attention_grad_signature,
           .low = "llll.l."}};
}

}  // namespace tessera::ops
