// Convolution and pooling over images [b,h,w,c]; filters are [k,l,c,o]. Borders are zeros, `pad` of
// them on each side.
#include <algorithm>

#include "base/check.h"
#include "ir/signature.h"
#include "ops/table.h"

namespace tessera::ops {
namespace {

using namespace ir;

std::int64_t positions(std::int64_t extent, std::int64_t size, std::int64_t stride,
                       std::int64_t pad) {
  CHECK(stride >= 1 && pad >= 0 && pad < size,
        "a window of " + std::to_string(size) +
            " has a stride of at least 1 and a border of 0 to " + std::to_string(size - 1) +
            ", not " + std::to_string(stride) + " and " + std::to_string(pad));
  CHECK(extent + 2 * pad >= size, "a window of " + std::to_string(size) + " does not fit into " +
                                      std::to_string(extent + 2 * pad) + " pixels");
  return (extent + 2 * pad - size) / stride + 1;
}

void check_rank(const Type& type, const char* what) {
  CHECK(type.rank() == 4 && is_float(type.dtype),
        std::string(what) + " has four dims and a float type, not " + to_string(type.shape));
}

std::string conv_signature(const Attrs& attrs, int operands) {
  const int scales = std::get<Conv>(attrs).scales;
  return std::string("bx!y!c,k!l!co") + (scales > 0 ? ",,o" : "") +
         (operands > 2 + scales ? ",o,o" : "") + (operands > 4 + scales ? ",bp!q!o" : "") +
         "->bp!q!o";
}
// Both of one float type, or both i8: then the product has a scale of the images and one of each
// filter.
void check_factors(const Conv& a, In in) {
  if (in[0].dtype != DType::i8) {
    check_rank(in[0], "an image batch");
    check_rank(in[1], "a filter bank");
    CHECK(in[0].dtype == in[1].dtype && a.scales == 0 && !a.out,
          "images and filters have one element type; those of i8 have scales");
    return;
  }
  CHECK(in[1].dtype == DType::i8 && in[0].rank() == 4 && in[1].rank() == 4 && a.scales == 2 &&
            in.size() >= 4,
        "images of i8 meet filters of i8, a scale of the images and one of each filter");
  CHECK(a.out == DType::f32 || a.out == DType::bf16, "a conv of i8 says that `out` is f32 or bf16");
  CHECK(in[2].dtype == DType::f32 && in[2].shape.empty() && in[3].dtype == DType::f32 &&
            in[3].shape == Shape{in[1].shape[3]},
        "the scales of a conv are f32, one number and one per filter");
}
// images, filters [, scales of both] [, scale, offset [, addend]]
Types infer_conv(const Attrs& attrs, In in) {
  const Conv& a = std::get<Conv>(attrs);
  const std::size_t affine = 2 + static_cast<std::size_t>(std::max(a.scales, 0));
  CHECK(in.size() == affine || in.size() == affine + 2 || in.size() == affine + 3,
        "conv takes images and filters, scales where they are of i8, then scale and offset, then "
        "an addend");
  check_factors(a, in);
  const Shape &x = in[0].shape, &f = in[1].shape;
  CHECK(x[3] == f[2],
        "images " + to_string(x) + " have other channels than filters " + to_string(f));
  const Type y{
      a.out.value_or(in[0].dtype),
      {x[0], positions(x[1], f[0], a.stride, a.pad), positions(x[2], f[1], a.stride, a.pad), f[3]},
      {}};
  for (std::size_t i = affine; i < in.size(); ++i) {
    const bool statistic = i < affine + 2;
    CHECK(in[i].dtype == (statistic ? statistics_of(y.dtype) : y.dtype) &&
              in[i].shape == (statistic ? Shape{f[3]} : y.shape),
          (statistic ? "scale and offset are one number per filter, not "
                     : "the addend is like the result, not ") +
              to_string(in[i].shape));
  }
  return {y};
}
// dy, filters -> images of rows x cols
Types infer_input_grad(const Attrs& attrs, In in) {
  const Conv& a = std::get<Conv>(attrs);
  CHECK(in.size() == 2, "conv_input_grad takes a gradient and filters");
  check_rank(in[0], "a gradient");
  check_rank(in[1], "a filter bank");
  const Shape &g = in[0].shape, &f = in[1].shape;
  CHECK(g[1] == positions(a.rows, f[0], a.stride, a.pad) &&
            g[2] == positions(a.cols, f[1], a.stride, a.pad) && g[3] == f[3],
        "the gradient " + to_string(g) + " does not belong to images of " + std::to_string(a.rows) +
            " x " + std::to_string(a.cols));
  return {{in[0].dtype, {g[0], a.rows, a.cols, f[2]}, {}}};
}
// dy, images -> filters of rows x cols
Types infer_filter_grad(const Attrs& attrs, In in) {
  const Conv& a = std::get<Conv>(attrs);
  CHECK(in.size() == 2, "conv_filter_grad takes a gradient and images");
  check_rank(in[0], "a gradient");
  check_rank(in[1], "an image batch");
  const Shape &g = in[0].shape, &x = in[1].shape;
  CHECK(g[0] == x[0] && g[1] == positions(x[1], a.rows, a.stride, a.pad) &&
            g[2] == positions(x[2], a.cols, a.stride, a.pad),
        "the gradient " + to_string(g) + " does not belong to images " + to_string(x));
  return {{in[0].dtype, {a.rows, a.cols, x[3], g[3]}, {}}};
}

Grads conv_vjp(Builder& b, const Eqn& e, Grad g) {
  const Conv& a = std::get<Conv>(e.attrs);
  CHECK(e.in.size() == 2 && !a.relu, "a fused conv has no derivative; differentiate before fusion");
  const Shape x = b.type(e.in[0]).shape, f = b.type(e.in[1]).shape;
  return {b.emit1(Op::conv_input_grad,
                  Conv{.stride = a.stride, .pad = a.pad, .rows = x[1], .cols = x[2]},
                  {g[0], e.in[1]}, "dx"),
          b.emit1(Op::conv_filter_grad,
                  Conv{.stride = a.stride, .pad = a.pad, .rows = f[0], .cols = f[1]},
                  {g[0], e.in[0]}, "dw")};
}

// Every result pixel meets every tap of the filter: 2 b h' w' k l c o, for the gradients too.
Cost conv_cost(const Attrs&, In in, In out) {
  return {2.0 * static_cast<double>(out[0].elements()) *
              static_cast<double>(in[1].shape[0] * in[1].shape[1] * in[1].shape[2]),
          0};
}
Cost input_grad_cost(const Attrs&, In in, In) {
  return {2.0 * static_cast<double>(in[0].elements()) *
              static_cast<double>(in[1].shape[0] * in[1].shape[1] * in[1].shape[2]),
          0};
}
Cost filter_grad_cost(const Attrs&, In in, In out) {
  return {2.0 * static_cast<double>(in[0].elements()) *
              static_cast<double>(out[0].shape[0] * out[0].shape[1] * out[0].shape[2]),
          0};
}

// images -> largest value of each window, and its number in the window (the first of equal ones)
Types infer_max_pool(const Attrs& attrs, In in) {
  const Pool& a = std::get<Pool>(attrs);
  check_rank(only(in), "an image batch");
  CHECK(a.size >= 1 && a.size <= 15,
        "max_pool numbers the pixels of a window in one byte: its size is 1 to 15");
  const Shape& x = in[0].shape;
  const Shape y = {x[0], positions(x[1], a.size, a.stride, a.pad),
                   positions(x[2], a.size, a.stride, a.pad), x[3]};
  return {{in[0].dtype, y, {}}, {DType::u8, y, {}}};
}
Types infer_max_pool_grad(const Attrs& attrs, In in) {
  const Pool& a = std::get<Pool>(attrs);
  CHECK(in.size() == 2 && in[0].shape == in[1].shape && in[1].dtype == DType::u8,
        "max_pool_grad takes a gradient and where each came from");
  check_rank(in[0], "a gradient");
  const Shape& g = in[0].shape;
  CHECK(g[1] == positions(a.rows, a.size, a.stride, a.pad) &&
            g[2] == positions(a.cols, a.size, a.stride, a.pad),
        "the gradient " + to_string(g) + " does not belong to images of " + std::to_string(a.rows) +
            " x " + std::to_string(a.cols));
  return {{in[0].dtype, {g[0], a.rows, a.cols, g[3]}, {}}};
}
Grads max_pool_vjp(Builder& b, const Eqn& e, Grad g) {
  Pool a = std::get<Pool>(e.attrs);
  a.rows = b.type(e.in[0]).shape[1];
  a.cols = b.type(e.in[0]).shape[2];
  return {b.emit1(Op::max_pool_grad, a, {g[0], e.out[1]}, "dx")};
}

}  // namespace

std::vector<OpDef> conv_rows() {
  return {
      {.op = Op::conv,
       .doc = "images, filters [`scales` of both] [scale offset [addend]] -> each filter's product "
              "with the window around every stride-th pixel, times its scales, "
              "relu(product scale + offset + addend)",
       .sig = "",
       .infer = infer_conv,
       .vjp = conv_vjp,
       .cost = conv_cost,
       .some_alias = {{0, 4}},
       .signature = conv_signature,
       .linear = {0, 1},
       .low = "l"},
      {.op = Op::conv_input_grad,
       .doc = "dy, filters -> gradient of the images",
       .sig = "bp!q!o,k!l!co->bx!y!c",
       .infer = infer_input_grad,
       .cost = input_grad_cost,
       .linear = {0, 1},
       .low = "l"},
      {.op = Op::conv_filter_grad,
       .doc = "dy, images -> gradient of the filters",
       .sig = "bp!q!o,bx!y!c->k!l!co",
       .infer = infer_filter_grad,
       .cost = filter_grad_cost,
       .linear = {0, 1},
       .low = "l"},
      {.op = Op::max_pool,
       .doc = "images -> largest value of each window, and which pixel of the window held it",
       .sig = "bx!y!c->bp!q!c,bp!q!c",
       .infer = infer_max_pool,
       .vjp = max_pool_vjp,
       .low = "l"},
      {.op = Op::max_pool_grad,
       .doc = "dy, which -> dy at the pixels it came from",
       .sig = "bp!q!c,bp!q!c->bx!y!c",
       .infer = infer_max_pool_grad,
       .low = "l."},
  };
}

}  // namespace tessera::ops
