// contract on a card: the loops of a contraction (exec/common/contraction.h) become one or a few
// calls of cuBLASLt; one more pass does whatever its epilogues cannot. Convention: how it runs is a
// function of signature, shapes and element types (Way), but for what the library refuses.
#include "exec/cuda/products/contract.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/check.h"
#include "exec/common/index.h"
#include "exec/cuda/products/blas.h"
#include "exec/cuda/products/choose.h"
#include "exec/cuda/products/contract_own.h"
#include "exec/cuda/quantised/contract_bytes.h"

namespace tessera::exec::cuda {
namespace {

using std::int64_t;

// Offsets of step `index` of nested runs, the last the fastest.
struct Steps {
  int64_t a = 0, b = 0, c = 0, bias = 0;
};
Steps steps_of(const std::vector<Run>& runs, int64_t index, const Strides* bias,
               const Strides& extents) {
  Steps at;
  for (std::size_t i = runs.size(); i-- > 0; index /= runs[i].extent) {
    int64_t step = index % runs[i].extent;
    at.a += step * runs[i].a;
    at.b += step * runs[i].b;
    at.c += step * runs[i].c;
    for (std::size_t l = runs[i].letters.size(); bias && l-- > 0;) {
      const auto letter = letter_of(runs[i].letters[l]);
      at.bias += step % extents[letter] * (*bias)[letter];
      step /= extents[letter];
    }
  }
  return at;
}

const std::byte* moved(const std::byte* base, int64_t elements, ir::DType dtype) {
  return base + elements * ir::size_of(dtype);
}

// The state that a step of a plan keeps: how it runs, and the library's descriptors.
struct Kept {
  Way way;
  std::optional<BlasPlan> plan;
};

// The addresses of one call, and the element types that go with them.
struct Job : Operands {
  const Call& call;
  std::byte* sum;  // where the sum goes: a result, or the workspace
  bool gelu;       // the library applies it, and writes `before`
  std::byte* before;
};

// The first product of a call, where the operands and the result of the call lie. Nothing where an
// addend may lie where the result goes, and while a run is recorded.
std::optional<Blas::Trial> trial_of(const Job& job, const Product& p) {
  cudaStreamCaptureStatus recorded = cudaStreamCaptureStatusNone;
  must(::cudaStreamIsCapturing(job.call.stream, &recorded), "ask whether a run is recorded");
  if (job.way.residual >= 0 || recorded != cudaStreamCaptureStatusNone) return {};
  const std::byte *a = job.a().data, *b = job.b().data;
  return Blas::Trial{.at = {.left = job.way.turned ? a : b,
                            .right = job.way.turned ? b : a,
                            .left_scale = job.scale(0),
                            .right_scale = job.scale(1),
                            .c = nullptr,
                            .d = job.sum,
                            .bias = p.bias ? job.addend(job.way.bias)->data : nullptr,
                            .before_gelu = p.before_gelu ? job.before : nullptr,
                            .workspace = job.call.workspace},
                     .stream = job.call.stream};
}

std::optional<BlasPlan> plan_of(const Job& job, bool bias, bool gelu) {
  const Way& way = job.way;
  if (!way.by_library() || !job.scales_fit()) return {};
  Product p = way.product;
  p.tf32 = job.call.context.tf32;
  p.workspace = blas_workspace(job.call.context.limits);
  p.bias = bias && way.bias >= 0;
  p.gelu = gelu && job.gelu;
  p.before_gelu = p.gelu && job.before;
  const auto address = [](const std::byte* at) { return reinterpret_cast<std::uintptr_t>(at); };
  const auto factor_bytes = static_cast<std::uintptr_t>(ir::size_of(way.factors));
  const auto result_bytes = static_cast<std::uintptr_t>(ir::size_of(p.result));
  std::uint32_t a = alignment_of({address(job.a().data)}),
                b = alignment_of({address(job.b().data)});
  std::uint32_t d = alignment_of({address(job.sum), address(job.before)});
  for (const std::vector<Run>& runs : {way.loops, way.c.outer_k})
    for (const Run& run : runs) {
      a = std::min(a, alignment_of({static_cast<std::uintptr_t>(run.a) * factor_bytes}));
      b = std::min(b, alignment_of({static_cast<std::uintptr_t>(run.b) * factor_bytes}));
      d = std::min(d, alignment_of({static_cast<std::uintptr_t>(run.c) * result_bytes}));
    }
  if (const Tensor* residual = job.addend(way.residual))
    d = std::min(d, alignment_of({address(residual->data)}));
  if (p.bias) {
    d = std::min(d, alignment_of({address(job.addend(way.bias)->data)}));
    for (const Run& run : way.loops) {
      const Strides& strides = way.c.addend_strides[static_cast<std::size_t>(way.bias)];
      for (const char letter : run.letters)
        d = std::min(d, alignment_of({static_cast<std::uintptr_t>(strides[letter_of(letter)]) *
                                      result_bytes}));
    }
  }
  p.align_left = way.turned ? a : b;
  p.align_right = way.turned ? b : a;
  p.align_result = d;
  const std::optional<Blas::Trial> trial = trial_of(job, p);
  return job.call.context.blas->plan(p, trial ? &*trial : nullptr);
}

// Whether the addresses of this call are aligned as far as those that the plan was made for.
bool still_aligned(const Job& job, const Product& p) {
  const auto at_least = [](std::uint32_t alignment, const std::byte* at) {
    return reinterpret_cast<std::uintptr_t>(at) % alignment == 0;
  };
  const Tensor *residual = job.addend(job.way.residual), *bias = job.addend(job.way.bias);
  return job.scales_fit() &&
         at_least(job.way.turned ? p.align_left : p.align_right, job.a().data) &&
         at_least(job.way.turned ? p.align_right : p.align_left, job.b().data) &&
         at_least(p.align_result, job.sum) && at_least(p.align_result, job.before) &&
         (!residual || at_least(p.align_result, residual->data)) &&
         (!p.bias || at_least(p.align_result, bias->data));
}

void multiply_by_library(const Job& job, const BlasPlan& plan) {
  const Way& way = job.way;
  const Contraction& c = way.c;
  const ir::DType type = plan.product().result;
  const Strides* strides =
      plan.product().bias ? &c.addend_strides[static_cast<std::size_t>(way.bias)] : nullptr;
  const int64_t outer = c.outer_steps() / way.batch.extent, inner = c.outer_k_steps();
  for (int64_t i = 0; i < outer; ++i) {
    const Steps at = steps_of(way.loops, i, strides, c.extents);
    for (int64_t k = 0; k < inner; ++k) {
      const Steps in = steps_of(c.outer_k, k, nullptr, c.extents);
      const std::byte* a = moved(job.a().data, at.a + in.a, way.factors);
      const std::byte* b = moved(job.b().data, at.b + in.b, way.factors);
      const std::byte* d = moved(job.sum, at.c, type);
      ProductAddresses addresses{.left = way.turned ? a : b,
                                 .right = way.turned ? b : a,
                                 .left_scale = job.scale(0),
                                 .right_scale = job.scale(1),
                                 .c = k > 0 ? d : nullptr,
                                 .d = const_cast<std::byte*>(d),
                                 .workspace = job.call.workspace};
      if (const Tensor* residual = job.addend(way.residual); residual && k == 0)
        addresses.c = moved(residual->data, at.c, type);
      if (plan.product().bias) addresses.bias = moved(job.addend(way.bias)->data, at.bias, type);
      if (plan.product().before_gelu)
        addresses.before_gelu = const_cast<std::byte*>(moved(job.before, at.c, type));
      job.call.context.blas->run(plan, addresses, job.call.stream);
    }
  }
}

void multiply_by_own(const Job& job, ir::DType type) {
  const Contraction& c = job.way.c;
  const auto loop = [](const Run& run) { return PlainLoop{run.extent, run.a, run.b, run.c}; };
  PlainProduct p{.a = job.a().data,
                 .b = job.b().data,
                 .c = job.sum,
                 .a_type = job.a().dtype,
                 .b_type = job.b().dtype,
                 .m = loop(c.m),
                 .n = loop(c.n),
                 .k = loop(c.k)};
  CHECK(c.outer.size() <= most_loops && c.outer_k.size() <= most_loops,
        "contract: at most 8 loops around a product");
  p.outer_count = static_cast<int>(c.outer.size());
  p.inner_count = static_cast<int>(c.outer_k.size());
  std::transform(c.outer.begin(), c.outer.end(), p.outer.begin(), loop);
  std::transform(c.outer_k.begin(), c.outer_k.end(), p.inner.begin(), loop);
  p.outer_steps = c.outer_steps();
  p.inner_steps = c.outer_k_steps();
  multiply_plain(p, c.products, job.way.factors, type, job.call.stream);
}

// The product and its gelu as one kernel, where there is one.
std::optional<GeluProduct> with_gelu(const Job& job) {
  std::byte* const y = job.call.out[0].data;
  if (!y || job.call.attr<ir::Contract>().act != "gelu") return {};
  std::optional<GeluProduct> p = gelu_product(job);
  if (!p) return {};
  p->y = y;
  p->before = job.before;
  return takes_gelu_product(*p, job.call.context.limits) ? p : std::nullopt;
}

// Dims of the result that every addend of the pass walks in one stride become one.
void describe_dims(const Way& way, Finish& finish, std::span<const int> addends) {
  const auto& extents = way.c.extents;
  const auto stride = [&](int a, char letter) {
    return way.c.addend_strides[static_cast<std::size_t>(a)][letter_of(letter)];
  };
  char last = 0;
  for (const char letter : way.result) {
    const int64_t extent = extents[letter_of(letter)];
    if (extent == 1) continue;
    const bool follows = finish.dims > 0 && std::all_of(addends.begin(), addends.end(), [&](int a) {
                           return stride(a, last) == stride(a, letter) * extent;
                         });
    if (!follows) {
      CHECK(finish.dims < most_loops, "contract: a result has at most 8 dims that do not merge");
      finish.extents[static_cast<std::size_t>(finish.dims++)] = 1;
    }
    const auto d = static_cast<std::size_t>(finish.dims - 1);
    finish.extents[d] *= extent;
    for (std::size_t i = 0; i < addends.size(); ++i)
      finish.addends[i].strides[d] = stride(addends[i], letter);
    last = letter;
  }
  if (finish.dims == 0) finish.extents[static_cast<std::size_t>(finish.dims++)] = 1;
}

// By the library where it has a plan, by kernels of our own where not.
void multiply(const Job& job, const BlasPlan* plan, const std::optional<ThinProduct>& thin) {
  const ir::DType type = job.way.wide_sums ? ir::DType::f32 : job.way.type;
  if (plan)
    multiply_by_library(job, *plan);
  else if (thin)
    multiply_thin(*thin, job.way.factors, type, job.call.stream);
  else
    multiply_by_own(job, type);
}

std::byte* before_of(const Call& call) {
  return !call.attr<ir::Contract>().act.empty() && call.out.size() > 1 ? call.out[1].data : nullptr;
}

Job job_of(const Call& call, const Way& way) {
  const auto& attr = call.attr<ir::Contract>();
  std::byte *const y = call.out[0].data, *const before = before_of(call);
  const bool gelu = y && attr.act == "gelu_tanh" && way.fused && !way.wide_sums &&
                    ir::is_low(way.type) && way.c.outer_k_steps() == 1;
  std::byte* sum = way.wide_sums     ? call.workspace + blas_workspace(call.context.limits)
                   : gelu || !before ? y
                                     : before;
  return Job{{call.in, way}, call, sum, gelu, before};
}

Kept make_kept(const Call& call) {
  std::vector<ir::Shape> shapes;
  std::vector<ir::DType> dtypes;
  for (const Tensor& tensor : call.in) {
    shapes.push_back(tensor.shape);
    dtypes.push_back(tensor.dtype);
  }
  Kept kept{.way = way_of(call.attr<ir::Contract>(), shapes, dtypes), .plan = {}};
  const Job job = job_of(call, kept.way);
  if (thin_product(job, job.sum) || with_gelu(job)) return kept;
  kept.plan = plan_of(job, true, true);
  if (!kept.plan && job.gelu) kept.plan = plan_of(job, true, false);
  if (!kept.plan && kept.way.bias >= 0) kept.plan = plan_of(job, false, false);
  return kept;
}

}  // namespace

void choose_contract(const Call& call) {
  if (call.attr<ir::Contract>().to) return choose_contract_bytes(call);
  if (call.out[0].data || before_of(call)) (void)make_kept(call);
}

void run_contract(const Call& call) {
  const auto& attr = call.attr<ir::Contract>();
  if (attr.to) return run_contract_bytes(call);
  std::byte *const y = call.out[0].data, *const before = before_of(call);
  const bool acts = !attr.act.empty() && y;
  if (!y && !before) return;
  const Kept& kept = call.once<Kept>([&] { return make_kept(call); });
  const Way& way = kept.way;
  if (way.c.c_elements() == 0) return;
  Job job = job_of(call, way);
  if (const std::optional<GeluProduct> own = with_gelu(job)) {
    multiply_gelu(*own, call.context.limits, call.stream);
    return;
  }
  // Another copy of the plan's memory may be aligned less far; the kernel of our own takes that.
  const BlasPlan* const plan =
      kept.plan && still_aligned(job, kept.plan->product()) ? &*kept.plan : nullptr;
  const bool gelu_done = plan && plan->product().gelu;
  if (job.gelu && !gelu_done && before) job.sum = before;
  const std::optional<ThinProduct> thin = plan ? std::nullopt : thin_product(job, job.sum);
  const bool bias_done = plan ? plan->product().bias : thin && thin->bias;
  multiply(job, plan, thin);

  std::vector<int> left;
  int scales = 0;
  for (int i = 0; i < static_cast<int>(call.in.size()) - 2; ++i) {
    const bool done = (i == way.bias && bias_done) || (i == way.residual && plan) ||
                      (i < way.scales && way.scaled && plan);
    if (done) continue;
    left.push_back(i);
    scales += i < way.scales;
  }
  const bool acts_now = acts && !gelu_done;
  if (left.empty() && !acts_now && !way.wide_sums) return;
  Finish finish{.sum = job.sum,
                .sum_type = way.wide_sums ? ir::DType::f32 : way.type,
                .y = !attr.act.empty() ? (acts_now ? y : nullptr) : y,
                .type = way.type,
                .act = !acts_now            ? Act::none
                       : attr.act == "gelu" ? Act::gelu
                                            : Act::gelu_tanh,
                .addend_count = static_cast<int>(left.size()),
                .scale_count = scales};
  // The value before the activation is there already unless something was added to it.
  if (before && (!left.empty() || job.sum != before)) finish.before = before;
  for (std::size_t i = 0; i < left.size(); ++i) {
    finish.addends[i].data = job.addend(left[i])->data;
    finish.addends[i].dtype = job.addend(left[i])->dtype;
  }
  describe_dims(way, finish, left);
  finish_contract(finish, call.stream);
}

int64_t workspace_contract(const ir::Attrs& attrs, std::span<const ir::Type> in,
                           std::span<const ir::Type> out, const Limits& limits) {
  if (std::get<ir::Contract>(attrs).to) return workspace_contract_bytes(attrs, in, out, limits);
  std::vector<ir::Shape> shapes;
  std::vector<ir::DType> dtypes;
  for (const ir::Type& type : in) {
    shapes.push_back(type.shape);
    dtypes.push_back(type.dtype);
  }
  const Way way = way_of(std::get<ir::Contract>(attrs), shapes, dtypes);
  if (!way.by_library() && !way.wide_sums) return 0;
  const int64_t sums = way.wide_sums ? way.c.c_elements() * int64_t{sizeof(float)} : 0;
  return blas_workspace(limits) + sums;
}

}  // namespace tessera::exec::cuda
