// Convolution on a card: by cuBLASLt where a filter has one tap and every pixel one window (that is
// a matrix product), the first one of a ResNet by a kernel of its own, otherwise by cuDNN, and by
// plain kernels where none of these serves.
// Convention: filters are [k,l,c,o] in memory; cuDNN gets and gives them as [o,k,l,c], a transpose
// in the workspace. Images of fewer channels than its tensor-core engines take are widened there.
#include "exec/cuda/products/conv.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "exec/cuda/products/blas.h"
#include "exec/cuda/products/choose.h"
#include "exec/cuda/products/conv_rooms.h"

namespace tessera::exec::cuda {
namespace {

using std::int64_t;

// Bytes that the parts of a filter gradient take in the plain kernel.
int64_t parts_of(ConvPass pass, const ConvSizes& s, ir::DType dtype, const Limits& limits) {
  const int64_t parts = pass == ConvPass::filter_grad ? conv_parts(s, limits) : 1;
  return parts == 1 ? 0 : parts * s.filters() * ir::size_of(ir::statistics_of(dtype));
}

int64_t workspace_of(ConvPass pass, const ConvSizes& s, ir::DType dtype, bool scaled,
                     const Limits& limits) {
  const int64_t parts = parts_of(pass, s, dtype, limits);
  if (pass == ConvPass::forward && is_stem(s, dtype, limits)) return parts;
  if (is_product(s))
    return std::max(parts, (scaled ? scaled_bytes(s, dtype) : 0) + blas_workspace(limits));
  if (!limits.dnn || dtype == ir::DType::f64) return parts;
  const DnnRooms rooms = dnn_rooms(pass, s, dtype);
  return std::max(parts, rooms.filters + rooms.images + rooms.rest);
}

// The tensors of one convolution, whichever of them is the result.
struct ConvJob {
  const Call& call;
  ConvPass pass;
  ConvSizes sizes;
  ir::DType dtype;
  void *images, *filters, *results;
  ConvFinish finish{};          // forward only
  std::byte* packed = nullptr;  // the filters as a library reads them (conv_packed.cpp); null: they
                                // are made so in the workspace, before its own
};

std::uintptr_t address_of(const void* at) { return reinterpret_cast<std::uintptr_t>(at); }

// Bytes of which each address is a multiple.
struct Alignments {
  std::uint32_t images = 1, filters = 1, results = 1;

  bool cover(const Alignments& less) const {
    return images >= less.images && filters >= less.filters && results >= less.results;
  }
};
Alignments alignments_of(const ConvJob& job) {
  return {.images = alignment_of({address_of(job.images)}),
          .filters = alignment_of({address_of(job.filters)}),
          .results = alignment_of({address_of(job.results), address_of(job.finish.addend)})};
}

// The state that a step of a plan keeps; neither: the plain kernel.
struct ConvKept {
  std::optional<BlasPlan> blas;
  std::shared_ptr<const DnnPlan> dnn;
  bool finishes = false;  // cuDNN does what follows the convolution, too
  Alignments alignments;  // of the addresses it was made for
};

// Algorithms may be tried out on the tensors of a call, whose result is of no account yet; not
// while a run is recorded.
bool may_try(const ConvJob& job) {
  cudaStreamCaptureStatus recorded = cudaStreamCaptureStatusNone;
  must(::cudaStreamIsCapturing(job.call.stream, &recorded), "ask whether a run is recorded");
  return recorded == cudaStreamCaptureStatusNone;
}

ProductAddresses product_addresses(const ConvJob& job, bool finished) {
  ProductAddresses at{.workspace = job.call.workspace};
  switch (job.pass) {
    case ConvPass::forward:
      at.left = job.filters;
      at.right = job.images;
      at.d = job.results;
      break;
    case ConvPass::input_grad:
      at.left = job.filters;
      at.right = job.results;
      at.d = job.images;
      break;
    case ConvPass::filter_grad:
      at.left = job.results;
      at.right = job.images;
      at.d = job.filters;
      break;
  }
  if (finished) {
    std::byte* const scaled = job.packed ? job.packed : job.call.workspace;
    at.left = scaled;
    at.bias = scaled + aligned_bytes(job.sizes.filters() * ir::size_of(job.dtype));
    at.c = job.finish.addend;
    if (!job.packed) at.workspace = job.call.workspace + scaled_bytes(job.sizes, job.dtype);
  }
  return at;
}

// images [pixels, c], filters [c, o], results [pixels, o], all row-major; the library's rows are
// the last dim of what is made. `finished`: what follows a convolution is the product's epilogue,
// its scale a factor of the filters.
std::optional<BlasPlan> plan_product(const ConvJob& job, const Alignments& align, bool finished) {
  const ConvSizes& s = job.sizes;
  const int64_t pixels = s.b * s.h * s.w;
  Product p{.factors = job.dtype, .result = job.dtype, .tf32 = job.call.context.tf32};
  p.workspace = blas_workspace(job.call.context.limits);
  switch (job.pass) {
    case ConvPass::forward:  // [o, pixels] = filters [o, c] images [c, pixels]
      p.rows = s.o;
      p.cols = pixels;
      p.depth = s.c;
      p.left = {.outer = 1, .depth = s.o};
      p.right = {.outer = s.c, .depth = 1};
      p.align_left = align.filters;
      p.align_right = align.images;
      p.align_result = align.results;
      break;
    case ConvPass::input_grad:  // [c, pixels] = filters [c, o] results [o, pixels]
      p.rows = s.c;
      p.cols = pixels;
      p.depth = s.o;
      p.left = {.outer = s.o, .depth = 1};
      p.right = {.outer = s.o, .depth = 1};
      p.align_left = align.filters;
      p.align_right = align.results;
      p.align_result = align.images;
      break;
    case ConvPass::filter_grad:  // [o, c] = results [o, pixels] images [pixels, c]
      p.rows = s.o;
      p.cols = s.c;
      p.depth = pixels;
      p.left = {.outer = 1, .depth = s.o};
      p.right = {.outer = 1, .depth = s.c};
      p.align_left = align.results;
      p.align_right = align.images;
      p.align_result = align.filters;
      break;
  }
  p.d = {.col = p.rows};
  if (finished) {
    p.align_left = 256;
    p.bias = true;
    p.relu = job.finish.relu;
  }
  const Blas::Trial trial{.at = product_addresses(job, finished), .stream = job.call.stream};
  // An addend may lie where the result goes.
  const bool tried = may_try(job) && !trial.at.c;
  return job.call.context.blas->plan(p, tried ? &trial : nullptr);
}

void run_product(const ConvJob& job, const BlasPlan& plan) {
  const bool finished = plan.product().bias;
  if (finished && !job.packed)
    scale_filters(job.filters, job.finish, job.sizes, job.dtype, job.call.workspace,
                  job.call.workspace + aligned_bytes(job.sizes.filters() * ir::size_of(job.dtype)),
                  job.call.stream);
  job.call.context.blas->run(plan, product_addresses(job, finished), job.call.stream);
}

// Images that were widened lie in the workspace, too.
DnnConvAddresses dnn_addresses(const ConvJob& job) {
  const DnnRooms rooms = dnn_rooms(job.pass, job.sizes, job.dtype);
  std::byte* const images = job.call.workspace + (job.packed ? 0 : rooms.filters);
  return {.images = rooms.images == 0 ? job.images : images,
          .filters = job.packed ? job.packed : job.call.workspace,
          .results = job.results,
          .scale = job.finish.scale,
          .offset = job.finish.offset,
          .workspace = images + rooms.images};
}

std::shared_ptr<const DnnPlan> plan_dnn(const ConvJob& job, const Alignments& align,
                                        bool finishes) {
  const ConvSizes s = widened(job.pass, job.sizes, job.dtype);
  const bool same = s.c == job.sizes.c;
  const Dnn::Trial trial{.at = dnn_addresses(job), .stream = job.call.stream};
  return job.call.context.dnn->plan({.pass = job.pass,
                                     .dtype = job.dtype,
                                     .tf32 = job.call.context.tf32,
                                     .any_order = job.call.context.any_order,
                                     .finishes = finishes,
                                     .relu = finishes && job.finish.relu,
                                     .b = s.b,
                                     .h = s.h,
                                     .w = s.w,
                                     .c = s.c,
                                     .p = s.p,
                                     .q = s.q,
                                     .o = s.o,
                                     .k = s.k,
                                     .l = s.l,
                                     .stride = s.stride,
                                     .pad = s.pad,
                                     .workspace = dnn_bytes(job.pass, s, job.dtype),
                                     .align_images = same ? std::min(16u, align.images) : 16,
                                     .align_filters = 16,
                                     .align_results = std::min(16u, align.results)},
                                    may_try(job) ? &trial : nullptr);
}

void run_dnn(const ConvJob& job, const DnnPlan& plan) {
  const ConvSizes &s = job.sizes, wide = widened(job.pass, s, job.dtype);
  const Call& call = job.call;
  const DnnConvAddresses at = dnn_addresses(job);
  if (wide.c != s.c)
    widen_channels(job.images, s.b * s.h * s.w, s.c, wide.c, at.images, call.stream);
  if (job.pass != ConvPass::filter_grad && !job.packed)
    turn_filters(job.filters, wide, s.c, at.filters, job.dtype, call.stream);
  call.context.dnn->run(plan, at, call.stream);
  if (job.pass == ConvPass::filter_grad)
    return_filters(at.filters, wide, s.c, job.filters, job.dtype, call.stream);
}

void run_plain(const ConvJob& job) {
  const Call& call = job.call;
  if (job.pass == ConvPass::forward)
    return conv_plain(job.sizes, job.dtype, job.images, job.filters, job.finish, call.stream);
  const bool input = job.pass == ConvPass::input_grad;
  const int64_t parts = parts_of(job.pass, job.sizes, job.dtype, call.context.limits);
  conv_plain_grad(job.pass, job.sizes, job.dtype, job.results, input ? job.filters : job.images,
                  input ? job.images : job.filters,
                  parts > 0 && parts <= call.workspace_bytes ? call.workspace : nullptr,
                  call.context.limits, call.stream);
}

// Whether what follows the convolution can be part of cuDNN's graph.
bool may_finish(const ConvJob& job) {
  return ir::is_low(job.dtype) && job.finish.scale && !job.finish.addend &&
         aligned_16(job.finish.scale) && aligned_16(job.finish.offset);
}

ConvKept make_kept(const ConvJob& job) {
  const ConvSizes& s = job.sizes;
  ConvKept made;
  made.alignments = alignments_of(job);
  // An empty sum is zero, which the plain kernel writes; the libraries take no empty tensors.
  if (s.images() == 0 || s.filters() == 0 || s.results() == 0) return made;
  const Context& context = job.call.context;
  if (is_product(s)) {
    if (job.finish.scale && job.dtype != ir::DType::f64)
      made.blas = plan_product(job, made.alignments, true);
    // A pass behind the product would find its result where the addend was.
    const bool over_addend = job.finish.addend && job.finish.addend == job.results;
    if (!made.blas && !over_addend) made.blas = plan_product(job, made.alignments, false);
  } else if (context.dnn && context.limits.dnn && job.dtype != ir::DType::f64 &&
             !(job.pass == ConvPass::forward && is_stem(s, job.dtype, context.limits))) {
    if (may_finish(job)) made.dnn = plan_dnn(job, made.alignments, true);
    made.finishes = made.dnn != nullptr;
    if (!made.dnn) made.dnn = plan_dnn(job, made.alignments, false);
  }
  return made;
}

// Whether the kernel for the first convolution of a ResNet takes it.
bool runs_as_stem(const ConvJob& job) {
  return job.pass == ConvPass::forward && is_stem(job.sizes, job.dtype, job.call.context.limits) &&
         !job.finish.addend && aligned_16(job.images) && aligned_16(job.filters) &&
         aligned_16(job.results);
}

// Whether what follows the convolution has been done, too.
bool run_job(const ConvJob& job) {
  if (runs_as_stem(job)) {
    conv_stem(job.sizes, job.dtype, job.images, job.filters, job.finish, job.call.context.limits,
              job.call.stream);
    return true;
  }
  const ConvKept& kept = job.call.once<ConvKept>([&] { return make_kept(job); });
  // Another copy of the plan's memory may be aligned less far; the kernel of our own takes that.
  const bool aligned = alignments_of(job).cover(kept.alignments);
  if (kept.blas && aligned) {
    run_product(job, *kept.blas);
    return kept.blas->product().bias;
  }
  if (kept.dnn && aligned && (!kept.finishes || may_finish(job))) {
    run_dnn(job, *kept.dnn);
    return kept.finishes;
  }
  run_plain(job);
  return true;
}

ConvJob forward_job(const Call& call) {
  const Tensor &x = call.in[0], &f = call.in[1], &y = call.out[0];
  const auto operand = [&](std::size_t i) -> const void* {
    return call.in.size() > i ? call.in[i].data : nullptr;
  };
  return {.call = call,
          .pass = ConvPass::forward,
          .sizes = sizes_of(x.shape, f.shape, y.shape, call.attr<ir::Conv>()),
          .dtype = x.dtype,
          .images = x.data,
          .filters = f.data,
          .results = y.data,
          .finish = {.y = y.data,
                     .scale = operand(2),
                     .offset = operand(3),
                     .addend = operand(4),
                     .relu = call.attr<ir::Conv>().relu},
          .packed = call.packed};
}
ConvJob input_grad_job(const Call& call) {
  const Tensor &dy = call.in[0], &f = call.in[1], &dx = call.out[0];
  return {.call = call,
          .pass = ConvPass::input_grad,
          .sizes = sizes_of(dx.shape, f.shape, dy.shape, call.attr<ir::Conv>()),
          .dtype = dy.dtype,
          .images = dx.data,
          .filters = f.data,
          .results = dy.data};
}
ConvJob filter_grad_job(const Call& call) {
  const Tensor &dy = call.in[0], &x = call.in[1], &df = call.out[0];
  return {.call = call,
          .pass = ConvPass::filter_grad,
          .sizes = sizes_of(x.shape, df.shape, dy.shape, call.attr<ir::Conv>()),
          .dtype = dy.dtype,
          .images = x.data,
          .filters = df.data,
          .results = dy.data};
}
bool empty(const Tensor& result) { return !result || result.elements() == 0; }

}  // namespace

void choose_conv(const Call& call) {
  if (empty(call.out[0])) return;
  if (call.op == ir::Op::conv && runs_as_stem(forward_job(call))) return;
  (void)make_kept(call.op == ir::Op::conv              ? forward_job(call)
                  : call.op == ir::Op::conv_input_grad ? input_grad_job(call)
                                                       : filter_grad_job(call));
}

bool conv_adds_in_place(const ir::Attrs& attrs, std::span<const ir::Type> in) {
  const auto& attr = std::get<ir::Conv>(attrs);
  const bool tap = in[1].shape[0] == 1 && in[1].shape[1] == 1;
  return tap && attr.stride == 1 && attr.pad == 0 && attr.scales == 0 &&
         in[0].dtype != ir::DType::f64;
}

void run_conv(const Call& call) {
  if (empty(call.out[0])) return;
  const ConvJob job = forward_job(call);
  if (!run_job(job)) finish_conv(job.finish, job.sizes, job.dtype, call.stream);
}
int64_t workspace_conv(const ir::Attrs& attrs, std::span<const ir::Type> in,
                       std::span<const ir::Type> out, const Limits& limits) {
  const ConvSizes sizes =
      sizes_of(in[0].shape, in[1].shape, out[0].shape, std::get<ir::Conv>(attrs));
  return workspace_of(ConvPass::forward, sizes, in[0].dtype, in.size() > 2, limits);
}

void run_conv_input_grad(const Call& call) {
  if (!empty(call.out[0])) run_job(input_grad_job(call));
}
int64_t workspace_conv_input_grad(const ir::Attrs& attrs, std::span<const ir::Type> in,
                                  std::span<const ir::Type> out, const Limits& limits) {
  const ConvSizes sizes =
      sizes_of(out[0].shape, in[1].shape, in[0].shape, std::get<ir::Conv>(attrs));
  return workspace_of(ConvPass::input_grad, sizes, in[0].dtype, false, limits);
}

void run_conv_filter_grad(const Call& call) {
  if (!empty(call.out[0])) run_job(filter_grad_job(call));
}
int64_t workspace_conv_filter_grad(const ir::Attrs& attrs, std::span<const ir::Type> in,
                                   std::span<const ir::Type> out, const Limits& limits) {
  const ConvSizes sizes =
      sizes_of(in[1].shape, out[0].shape, in[0].shape, std::get<ir::Conv>(attrs));
  return workspace_of(ConvPass::filter_grad, sizes, in[0].dtype, false, limits);
}

}  // namespace tessera::exec::cuda
