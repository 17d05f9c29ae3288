// attention: softmax(scale q k^T + bias + mask) v as one op with results o and lse (log of the sum
// of exponentials, kept in f32), so that no executor ever has to store the scores. Legend: * batch
// (any dims), w window, t query, s key, h head, d head dim, n of q/k/v. A bias is one per head, a
// mask one per window: then the dim before the tokens counts windows.
#include <utility>

#include "base/check.h"
#include "ir/signature.h"
#include "ops/table.h"

namespace tessera::ops {
namespace {

using namespace ir;

struct AttentionLetters {
  std::string q, k, lse, optional;
};
AttentionLetters attention_letters(const Attrs& attrs) {
  const Attention& a = std::get<Attention>(attrs);
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
  const std::string packed = std::string(a.mask ? "*w!" : "*") + "t!n!hd!";  // t counts keys, too
  return q + "," + k + "," + k + "," + q + "," + lse + "," + q + optional + "->" +
         (a.packed ? packed : q + "," + k + "," + k) + (a.bias ? ",hts!" : "");
}

Types infer_attention(const Attrs& attrs, In in) {
  const auto shapes = infer_shapes(forward_signature(attrs, 0), in);
  return {{in[0].dtype, shapes[0], {}}, {statistics_of(in[0].dtype), shapes[1], {}}};
}

Types infer_attention_grad(const Attrs& attrs, In in) {
  Attention each = std::get<Attention>(attrs);
  const bool packed = std::exchange(each.packed, false);
  const auto shapes = infer_shapes(attention_grad_signature(each, 0), in);
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

double products(In in) {  // * t s h d
  return static_cast<double>(in[0].elements()) *
         static_cast<double>(in[1].shape[in[1].shape.size() - 3]);
}
Cost attention_cost(const Attrs&, In in, In) { return {4 * products(in), 0}; }
Cost attention_grad_cost(const Attrs&, In in, In) { return {8 * products(in), 0}; }

}  // namespace

std::vector<OpDef> attention_rows() {
  return {{.op = Op::attention,
           .doc = "q k v [bias] [mask] -> softmax(scale q k' + bias + mask[w]) v, and the log of "
                  "each row's sum of exponentials",
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
