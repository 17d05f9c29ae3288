// Numbers of one byte: how a tensor becomes one of them, and the scales that past steps suggest
// ("delayed scaling": what a step divides by follows from the largest numbers of steps before it,
// so that no pass over a tensor waits for another one to measure it).
#include <algorithm>

#include "ir/signature.h"
#include "ops/table.h"

namespace tessera::ops {
namespace {

using namespace ir;

bool is_rotation(const std::string& of, const std::string& letters) {
  return of.size() == letters.size() && (of + of).find(letters) != std::string::npos;
}

Types infer_quantize(const Attrs& attrs, In in) {
  const Quantize& a = std::get<Quantize>(attrs);
  const Signature& sig = parsed_signature(a.sig);
  CHECK(a.act.empty() || a.act == "gelu" || a.act == "gelu_tanh" || a.act == "gelu_grad" ||
            a.act == "gelu_tanh_grad",
        "quantize knows act gelu, gelu_tanh and their gradients, not " + a.act);
  const bool grad = a.act.ends_with("_grad");
  CHECK(in.size() == (grad ? 3 : 2) && sig.in.size() == in.size(),
        "quantize takes a tensor and its scale, and a gradient where `act` is one");
  const std::string& x = sig.in[0].letters;
  for (std::size_t i = 0; i < in.size(); i += 2)
    CHECK((in[i].dtype == DType::f32 || is_low(in[i].dtype)) && sig.in[i].letters == x,
          "quantize takes f32, bf16 or f16, not " + std::string(name(in[i].dtype)));
  CHECK(in[1].dtype == DType::f32, "the scale of quantize is f32");
  CHECK(is_quantised(a.to), "quantize gives f8e4m3, f8e5m2 or i8, not " + std::string(name(a.to)));
  for (const char c : sig.in[1].letters)
    CHECK(x.find(c) != std::string::npos, "the scale of \"" + a.sig + "\" has a dim that x lacks");
  const std::vector<Shape> shapes = infer_shapes(a.sig, in);
  Types out;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const std::string& letters = sig.out[i].letters;
    const bool rotated = !x.empty() && is_rotation(x, letters);
    CHECK(rotated || (letters.size() < x.size() && x.ends_with(letters)),
          "result " + std::to_string(i) + " of \"" + a.sig +
              "\" is neither a rotation of x's dims, nor some of the last, nor without any");
    out.push_back({rotated ? a.to : DType::f32, shapes[i], {}});
  }
  return out;
}

// Parts of a tensor would need the largest number of all of it: it stays whole.
std::string place_quantize(const Attrs& attrs, In, In) {
  return pinned(std::get<Quantize>(attrs).sig);
}

Types infer_delayed_scale(const Attrs& attrs, In in) {
  const DelayedScale& a = std::get<DelayedScale>(attrs);
  CHECK(only(in).dtype == DType::f32 && in[0].rank() == 2,
        "delayed_scale takes a history [tensors, steps] in f32");
  CHECK(is_quantised(a.to) && a.start > 0,
        "delayed_scale gives scales of f8e4m3, f8e5m2 or i8, from one above 0 on");
  return {{DType::f32, {in[0].shape[0], DelayedScale::copies}, {}}};
}

Types infer_amax_history(const Attrs&, In in) {
  CHECK(in.size() == 2 && in[0].dtype == DType::f32 && in[1].dtype == DType::f32 &&
            in[0].rank() == 2 && in[0].shape[1] > 0 && in[1].shape == Shape{in[0].shape[0]},
        "amax_history takes a history [tensors, steps] and a number for each tensor, in f32");
  return {{DType::f32, in[0].shape, {}}};
}

}  // namespace

std::vector<OpDef> quantize_rows() {
  return {
      {.op = Op::quantize,
       .doc = "x, scale, [g] -> v / scale in one byte, rounded to nearest and saturated, in "
              "orders of dims; the largest magnitude of v; sums of v; v is act(x) or g act'(x)",
       .sig = "",
       .infer = infer_quantize,
       .placement = place_quantize},
      {.op = Op::delayed_scale,
       .doc = "history [tensors, steps] -> for each tensor the least power of two that keeps its "
              "largest number in the range of `to`, four times, so that each lies at 16 bytes",
       .sig = "n!k!->n!a!",
       .infer = infer_delayed_scale},
      {.op = Op::amax_history,
       .doc = "history and the largest number of each tensor -> the history with it in front; a "
              "tensor whose number is not finite keeps its row",
       .sig = "n!k!,n!->n!k!",
       .infer = infer_amax_history,
       .may_alias = {{0, 0}}},
  };
}

}  // namespace tessera::ops
