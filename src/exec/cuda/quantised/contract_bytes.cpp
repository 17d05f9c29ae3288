// Products whose result is quantised: in one kernel where a card has it
// (products/contract_wgmma.cuh), else the product as the library makes it, and a pass of quantize.
// Convention: both are given the operands of one call; the pass reads the value before the
// activation rounded to its type, the kernel has it in registers as it is.
#include "exec/cuda/quantised/contract_bytes.h"

#include <array>
#include <vector>

#include "exec/cuda/products/choose.h"
#include "exec/cuda/products/contract_own.h"
#include "ir/signature.h"

namespace tessera::exec::cuda {
namespace {

using std::int64_t;

constexpr int64_t workspace_alignment = 256;

// The product alone: without the activation and what comes after it, and without the last operand.
ir::Contract product_of(const ir::Contract& attr) {
  ir::Contract out = attr;
  out.sig.erase(out.sig.find("->") - 1, 1);
  out.act.clear();
  out.to.reset();
  return out;
}

// The activation of the product's result and the quantisation of that.
ir::Quantize quantize_of(const ir::Contract& attr) {
  const std::string y = ir::letters_out(attr.sig);
  const std::string turned = y.back() + y.substr(0, y.size() - 1);
  return {.sig = y + ",->" + y + "," + turned + ",", .to = *attr.to, .act = attr.act};
}

// Bytes of workspace that the product takes; behind them its result lies if nobody wants it.
int64_t product_workspace(const ir::Contract& product, std::span<const ir::Type> in,
                          const Limits& limits) {
  const int64_t bytes = workspace_contract(product, in, {}, limits);
  return (bytes + workspace_alignment - 1) / workspace_alignment * workspace_alignment;
}

std::vector<ir::Type> types_of(std::span<const Tensor> tensors) {
  std::vector<ir::Type> out;
  for (const Tensor& tensor : tensors) out.push_back({tensor.dtype, tensor.shape, {}});
  return out;
}

ir::Shape shape_of_result(const ir::Contract& product, std::span<const ir::Type> in) {
  return ir::infer_shapes(product.sig, in)[0];
}

// The whole call as one kernel, where there is one.
std::optional<GeluProduct> in_one(const Call& call) {
  const auto& attr = call.attr<ir::Contract>();
  if (attr.act != "gelu" || attr.to != ir::DType::f8e4m3) return {};
  const std::span<const Tensor> in = call.in.first(call.in.size() - 1);
  std::vector<ir::Shape> shapes;
  std::vector<ir::DType> dtypes;
  for (const Tensor& tensor : in) {
    shapes.push_back(tensor.shape);
    dtypes.push_back(tensor.dtype);
  }
  const Way way = way_of(product_of(attr), shapes, dtypes);
  std::optional<GeluProduct> p = gelu_product({in, way});
  if (!p) return {};
  p->y = call.out[0].data;
  p->before = call.out[1].data;
  p->turned = call.out[2].data;
  p->amax = call.out[3].as<float>();
  p->y_scale = call.in.back().as<float>();
  return takes_gelu_product(*p, call.context.limits) ? p : std::nullopt;
}

// The product of a call into `before`, or into the workspace where nobody wants that.
struct Parts {
  ir::Attrs product;
  std::array<Tensor, 1> sum;

  explicit Parts(const Call& call) : product(product_of(call.attr<ir::Contract>())), sum() {
    const auto& attr = std::get<ir::Contract>(product);
    const std::vector<ir::Type> in = types_of(call.in.first(call.in.size() - 1));
    sum[0] = {*attr.out, shape_of_result(attr, in), call.out[1].data};
    if (!sum[0]) sum[0].data = call.workspace + product_workspace(attr, in, call.context.limits);
  }
  Call call_of_product(const Call& call) const {
    return {.op = call.op,
            .attrs = product,
            .in = call.in.first(call.in.size() - 1),
            .out = sum,
            .stream = call.stream,
            .workspace = call.workspace,
            .workspace_bytes = call.workspace_bytes,
            .context = call.context,
            .memo = call.memo};
  }
};

}  // namespace

void choose_contract_bytes(const Call& call) {
  if (in_one(call)) return;
  const Parts parts(call);
  choose_contract(parts.call_of_product(call));
}

void run_contract_bytes(const Call& call) {
  if (const std::optional<GeluProduct> own = in_one(call)) {
    if (own->amax)
      must(::cudaMemsetAsync(own->amax, 0, sizeof(float), call.stream), "clear a maximum");
    multiply_gelu(*own, call.context.limits, call.stream);
    return;
  }
  const Parts parts(call);
  run_contract(parts.call_of_product(call));
  const ir::Attrs quantize = quantize_of(call.attr<ir::Contract>());
  const std::array<Tensor, 2> in = {parts.sum[0], call.in.back()};
  const std::array<Tensor, 3> out = {call.out[0], call.out[2], call.out[3]};
  run_quantize({.op = ir::Op::quantize,
                .attrs = quantize,
                .in = in,
                .out = out,
                .stream = call.stream,
                .context = call.context});
}

int64_t workspace_contract_bytes(const ir::Attrs& attrs, std::span<const ir::Type> in,
                                 std::span<const ir::Type> out, const Limits& limits) {
  const ir::Contract product = product_of(std::get<ir::Contract>(attrs));
  const std::span<const ir::Type> operands = in.first(in.size() - 1);
  const bool kept = ir::elements(out[1].shape) > 0;
  const int64_t sums =
      kept ? 0 : ir::elements(shape_of_result(product, operands)) * ir::size_of(*product.out);
  return product_workspace(product, operands, limits) + sums;
}

}  // namespace tessera::exec::cuda
