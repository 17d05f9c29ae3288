// Batch norm in visible pieces: sums that add up over ranks, the normalisation that uses them, and
// the running statistics as an equation of their own, so that recomputation never applies them
// twice. Sums are taken around `shift` (the running mean): one pass, no cancellation.
#include "base/check.h"
#include "ir/signature.h"
#include "ops/table.h"

namespace tessera::ops {
namespace {

using namespace ir;

const BatchNorm& checked(const Attrs& attrs) {
  const BatchNorm& a = std::get<BatchNorm>(attrs);
  CHECK(a.groups >= 1, "batch norm has at least one statistics group");
  return a;
}
void check_counts(const BatchNorm& a) {
  CHECK(a.samples >= a.groups && a.pixels >= 1,
        "batch norm knows how many samples and pixels are behind its sums");
}
void check_groups(const BatchNorm& a, const Type& sums) {
  CHECK(sums.rank() == 2 && sums.shape[0] == a.groups,
        "sums " + to_string(sums.shape) + " are not of " + std::to_string(a.groups) + " groups");
}

// x, shift -> per group and channel: sum of x - shift, and of its square
Types infer_moments(const Attrs& attrs, In in) {
  const BatchNorm& a = checked(attrs);
  infer_shapes("*c,c->c", in);
  CHECK(in[0].rank() >= 2, "moments are over a batch");
  const Type sums{statistics_of(in[0].dtype), {a.groups, in[0].shape.back()}, {}};
  return {sums, sums};
}
// x, sum, sumsq, shift, gain, bias, [addend, or all six of another norm] -> y, mean, rstd, [mean
// and rstd of the other]
std::string norm_signature(const Attrs&, int operands) {
  const std::string one = "*c,gc,gc,c,c,c";
  if (operands == 12) return one + "," + one + "->*c,gc,gc,gc,gc";
  return one + (operands == 7 ? ",*c" : "") + "->*c,gc,gc";
}
Types infer_batch_norm(const Attrs& attrs, In in) {
  const BatchNorm& a = checked(attrs);
  const auto s = infer_shapes(norm_signature(attrs, static_cast<int>(in.size())), in);
  check_counts(a);
  check_groups(a, in[1]);
  CHECK(in.size() < 7 || in[6].dtype == in[0].dtype,
        "what is added to a batch norm has the element type of its result");
  Types out{{in[0].dtype, s[0], {}}};
  for (std::size_t i = 1; i < s.size(); ++i) out.push_back({statistics_of(in[0].dtype), s[i], {}});
  return out;
}
// dy, x, mean, rstd, [gain, bias] -> per group and channel: sum of dy, and of dy (x - mean) rstd
std::string sums_signature(const Attrs& attrs, int) {
  return std::string("*c,*c,gc,gc") + (checked(attrs).relu ? ",c,c" : "") + "->gc,gc";
}
Types infer_sums(const Attrs& attrs, In in) {
  const auto s = infer_shapes(sums_signature(attrs, static_cast<int>(in.size())), in);
  check_groups(checked(attrs), in[2]);
  const DType stat = statistics_of(in[0].dtype);
  return {{stat, s[0], {}}, {stat, s[1], {}}};
}
// dy, x, mean, rstd, gain, and the two sums, [bias] -> dx
std::string grad_signature(const Attrs& attrs, int) {
  return std::string("*c,*c,gc,gc,c,gc,gc") + (checked(attrs).relu ? ",c" : "") + "->*c";
}
Types infer_grad(const Attrs& attrs, In in) {
  const BatchNorm& a = checked(attrs);
  const auto s = infer_shapes(grad_signature(attrs, static_cast<int>(in.size())), in);
  check_counts(a);
  check_groups(a, in[2]);
  return {{in[0].dtype, s[0], {}}};
}
// y, g, x, mean, rstd, [x, mean, rstd of another norm], [h] -> dz, and the sums of dz
std::string relu_sums_signature(const Attrs&, int operands) {
  const bool two = operands >= 8;
  return std::string("*c,*c,*c,gc,gc") + (two ? ",*c,gc,gc" : "") +
         (operands == 6 || operands == 9 ? ",*c" : "") + "->*c,gc,gc" + (two ? ",gc" : "");
}
Types infer_relu_sums(const Attrs& attrs, In in) {
  const auto s = infer_shapes(relu_sums_signature(attrs, static_cast<int>(in.size())), in);
  check_groups(checked(attrs), in[3]);
  for (const Type& type : in)
    CHECK(type.rank() == 2 || type.dtype == in[1].dtype,
          "relu_grad_sums takes values and gradients of one element type");
  Types out{{in[1].dtype, s[0], {}}};
  for (std::size_t i = 1; i < s.size(); ++i) out.push_back({statistics_of(in[1].dtype), s[i], {}});
  return out;
}
Types infer_running(const Attrs& attrs, In in) {
  const BatchNorm& a = checked(attrs);
  const auto s = infer_shapes("c,c,gc,gc,c->c,c", in);
  check_counts(a);
  check_groups(a, in[2]);
  return {{in[0].dtype, s[0], {}}, {in[1].dtype, s[1], {}}};
}

// With n = (x - mean) rstd over N values:  dx = gain rstd (dy - sum(dy)/N - n sum(dy n)/N),  dgain
// = sum dy n,  dbias = sum dy. The statistics' own dependence on x is inside this formula, so the
// sums get no gradient of their own.
//
// A ReLU behind the norm alone is open where the norm is above 0, which gain and bias tell. Behind
// a sum its result tells, and the gradient of the addend is a value of its own.
Grads batch_norm_vjp(Builder& b, const Eqn& e, Grad g) {
  CHECK(g[1] == none && g[2] == none, "the gradient of batch_norm's statistics is not defined");
  CHECK(e.in.size() <= 7,
        "two batch norms in one equation are differentiated before they are fused");
  BatchNorm attrs = std::get<BatchNorm>(e.attrs);
  const bool adds = e.in.size() == 7;
  const Var x = e.in[0], mean = e.out[1], rstd = e.out[2], gain = e.in[4];
  Var dy = g[0], sum = none, product = none;
  if (attrs.relu && adds) {
    const auto made = b.emit(Op::relu_grad_sums, e.attrs, {e.out[0], dy, x, mean, rstd},
                             {"dz", "sum_dy", "sum_dyn"});
    dy = made[0];
    sum = made[1];
    product = made[2];
    attrs.relu = false;
  } else {
    std::vector<Var> in = {dy, x, mean, rstd};
    if (attrs.relu) in.insert(in.end(), {gain, e.in[5]});
    const auto made = b.emit(Op::batch_norm_sums, attrs, in, {"sum_dy", "sum_dyn"});
    sum = made[0];
    product = made[1];
  }
  std::vector<Var> in = {dy, x, mean, rstd, gain, sum, product};
  if (attrs.relu) in.push_back(e.in[5]);
  Grads out = {b.emit1(Op::batch_norm_grad, attrs, in, "dx"),
               none,
               none,
               none,
               b.sum("gc->c", product, "dgain"),
               b.sum("gc->c", sum, "dbias")};
  if (adds) out.push_back(dy);
  return out;
}

// Statistics of one group add up over the parts of a batch; with a group per rank they belong to
// that rank's part.
std::string group_letter(const Attrs& attrs) {
  return std::get<BatchNorm>(attrs).groups > 1 ? "b" : "g!";
}
std::string by_group(const Attrs& attrs, std::string text) {
  std::string out;
  for (const char c : text) out += c == 'g' ? group_letter(attrs) : std::string(1, c);
  return out;
}
std::string moments_placement(const Attrs& attrs, In, In) {
  return by_group(attrs, "b*c,c->gc,gc");
}
// The batch is dim 0 of every image.
std::string of_images(const std::string& signature) {
  std::string out;
  for (const char c : signature) out += c == '*' ? "b*" : std::string(1, c);
  return out;
}
std::string norm_placement(const Attrs& attrs, In in, In) {
  return by_group(attrs, of_images(norm_signature(attrs, static_cast<int>(in.size()))));
}
std::string sums_placement(const Attrs& attrs, In in, In) {
  return by_group(attrs, of_images(sums_signature(attrs, static_cast<int>(in.size()))));
}
std::string grad_placement(const Attrs& attrs, In in, In) {
  return by_group(attrs, of_images(grad_signature(attrs, static_cast<int>(in.size()))));
}
std::string relu_sums_placement(const Attrs& attrs, In in, In) {
  return by_group(attrs, of_images(relu_sums_signature(attrs, static_cast<int>(in.size()))));
}
std::string running_placement(const Attrs&, In, In) {
  return "c,c,g!c,g!c,c->c,c";
}  // the mean over groups

// With a statistics group per rank this rank has one, over its own samples. `sums`: by group.
void local_groups(Attrs& attrs, const Part& part, Var sums) {
  BatchNorm& a = std::get<BatchNorm>(attrs);
  if (a.groups == 1) return;
  const Var x = part.eqn.in[0];
  const Range mine = part.ranges(sums)[0], samples = part.ranges(x)[0];
  if (mine.size == a.groups) return;
  // The samples of this rank's groups must be its samples, group by group.
  for (int g = 0; g < mine.size; ++g) {
    const Range whole = split(part.type(x).shape[0], static_cast<int>(a.groups),
                              static_cast<int>(mine.begin) + g),
                here = split(samples.size, static_cast<int>(mine.size), g);
    CHECK(whole.begin == samples.begin + here.begin && whole.size == here.size,
          "statistics groups are not cut where the batch is");
  }
  a.groups = mine.size;
  if (a.samples > 0) a.samples = samples.size;
}
void local_moments(Attrs& attrs, const Part& part) {
  local_groups(attrs, part, part.eqn.out[part.eqn.out[0] == none ? 1 : 0]);
}
void local_norm(Attrs& attrs, const Part& part) { local_groups(attrs, part, part.eqn.in[1]); }
void local_norm_grad(Attrs& attrs, const Part& part) { local_groups(attrs, part, part.eqn.in[2]); }
void local_relu_sums(Attrs& attrs, const Part& part) { local_groups(attrs, part, part.eqn.in[3]); }

}  // namespace

std::vector<OpDef> batch_norm_rows() {
  return {
      {.op = Op::moments,
       .doc = "x, shift -> per group and channel: sum of x - shift, and of its square",
       .sig = "b*c,c->gc,gc",
       .infer = infer_moments,
       .placement = moments_placement,
       .low = "l.",
       .local = local_moments},
      {.op = Op::batch_norm,
       .doc = "x, sum, sumsq, shift, gain, bias, [addend, or the operands of another norm] -> "
              "normalised "
              "per channel (+ addend or the other, then relu: made by fusion), mean, 1/standard "
              "deviation, [those of the other]",
       .sig = "",
       .infer = infer_batch_norm,
       .vjp = batch_norm_vjp,
       .may_alias = {{0, 0}, {0, 6}},
       .signature = norm_signature,
       .placement = norm_placement,
       .follows = {1, 2, 3, 4},
       .low = "l.....l.",
       .local = local_norm},
      {.op = Op::batch_norm_sums,
       .doc = "dy, x, mean, rstd, [gain, bias] -> per group and channel: sum of dy, and of dy (x - "
              "mean) rstd; relu: dy where the norm is above 0",
       .sig = "",
       .infer = infer_sums,
       .signature = sums_signature,
       .placement = sums_placement,
       .low = "ll.",
       .local = local_norm_grad},
      {.op = Op::batch_norm_grad,
       .doc = "dy, x, mean, rstd, gain, sum_dy, sum_dyn, [bias] -> dx; relu: of dy where the norm "
              "is above 0",
       .sig = "",
       .infer = infer_grad,
       .may_alias = {{0, 0}, {0, 1}},
       .signature = grad_signature,
       .placement = grad_placement,
       .low = "ll.",
       .local = local_norm_grad},
      {.op = Op::relu_grad_sums,
       .doc =
           "y, g, x, mean, rstd, [x, mean, rstd of another norm], [h] -> dz = g (+ h) where y is "
           "above 0, and per group and channel: sum of dz, of dz (x - mean) rstd, [and of the "
           "other] (made by fusion)",
       .sig = "",
       .infer = infer_relu_sums,
       .may_alias = {{0, 1}},
       .signature = relu_sums_signature,
       .placement = relu_sums_placement,
       .low = "lll..l..l",
       .local = local_relu_sums},
      {.op = Op::running_stats,
       .doc = "mean, variance, sum, sumsq, shift -> both moved towards the batch's by `momentum` "
              "(variance unbiased, groups averaged)",
       .sig = "c,c,gc,gc,c->c,c",
       .infer = infer_running,
       .may_alias = {{0, 0}, {1, 1}},
       .placement = running_placement},
      {.op = Op::batch_norm_fixed,
       .doc = "x, mean, variance, gain, bias -> (x - mean) / sqrt(variance + eps) gain + bias: "
              "evaluation",
       .sig = "*c,c,c,c,c->*c",
       .may_alias = {{0, 0}},
       .low = "l."},
      {.op = Op::batch_norm_scale,
       .doc = "mean, variance, gain, bias -> scale, offset: batch_norm_fixed as x scale + offset",
       .sig = "c,c,c,c->c,c"},
  };
}

}  // namespace tessera::ops
