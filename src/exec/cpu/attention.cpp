// attention and its gradient in f32: a task holds the scores of some queries of one head, never
// those of the batch. Scratch is per thread (what gemm packs into, then scores of one block), plus
// partial bias gradients that belong to no thread. Legend: b batch (all leading dims as one), t
// query token, s key token, h head, d head dim. q, o: [b,t,h,d]; k, v: [b,s,h,d]; lse: [b,h,t];
// bias: [h,t,s]; mask: [w,t,s], b % w picks one. P = softmax(S) over s with S = scale q k^T + bias
// + mask; backward recomputes P = exp(S - lse) and uses dS = P * (do v^T - rowsum(do * o)), dq =
// scale dS k, dk = scale dS^T q, dv = P^T do (Dao et al. 2022, the part on recomputation).
// Convention: heads, query blocks and the order of every sum follow from the shapes.
#include "base/index.h"
#include "exec/cpu/kernel.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "exec/cpu/gemm/gemm.h"
#include "exec/cpu/simd/vector.h"

namespace tessera::exec::cpu {

namespace {

using std::int64_t;

std::size_t padded_bytes(int64_t elements) {
  return (sizeof(float) * static_cast<std::size_t>(elements) + 63) / 64 * 64;
}

struct Sizes {
  int64_t b, t, s, h, d;
  int64_t row() const { return h * d; }  // distance between tokens of a head
  int64_t q_at(int64_t batch, int64_t head) const { return batch * t * row() + head * d; }
  int64_t k_at(int64_t batch, int64_t head) const { return batch * s * row() + head * d; }
};
Sizes sizes_of(const ir::Shape& q, const ir::Shape& k) {
  const std::size_t lead = q.size() - 3;
  int64_t b = 1;
  for (std::size_t i = 0; i < lead; ++i) b *= q[i];
  return {.b = b, .t = q[lead], .s = k[lead], .h = q[lead + 1], .d = q[lead + 2]};
}

// Queries of one block: few enough for the scores to stay in the second-level cache, and for 16
// threads to have work.
constexpr int64_t most_block = 256;
int64_t block_of(const Sizes& n) {
  constexpr int64_t least = 64, fewest_tasks = 16;
  const int64_t heads = std::max<int64_t>(1, n.b * n.h);
  const int64_t blocks = std::max(ceil_div(n.t, most_block),
                                  std::min(ceil_div(n.t, least), ceil_div(fewest_tasks, heads)));
  return std::max<int64_t>(1, ceil_div(n.t, std::max<int64_t>(1, blocks)));
}
// The gradient walks all query blocks of a head in one task, since they add into the same dk and
// dv.
int64_t grad_block_of(const Sizes& n) {
  return std::max<int64_t>(1, ceil_div(n.t, std::max<int64_t>(1, ceil_div(n.t, most_block))));
}

// A bias gradient sums over the batch: it is cut into parts of whole samples, each with its own
// sum, added in order at the end.
struct Parts {
  int64_t parts, samples;  // samples of one part
};
Parts parts_of(const Sizes& n, bool bias) {
  if (!bias) return {std::max<int64_t>(n.b, 1), 1};
  const int64_t samples = std::max<int64_t>(
      1, ceil_div(n.b, std::clamp<int64_t>(32 / std::max<int64_t>(n.h, 1), 1, 16)));
  return {std::max<int64_t>(1, ceil_div(n.b, samples)), samples};
}

// Bytes of one thread: what gemm packs into, then `blocks` of scores.
std::size_t thread_bytes(std::size_t blocks, int64_t scores) {
  return gemm_scratch_bytes + blocks * padded_bytes(scores);
}

// Scores of `rows` queries from `first`: [rows, s], dense.
struct Scores {
  const float *q, *k, *bias, *mask;
  float scale;
  int64_t windows;
};
Scores scores_of(const Call& call, const ir::Attention& attr, std::size_t optional) {
  const Tensor* mask = attr.mask ? &call.in[optional + (attr.bias ? 1 : 0)] : nullptr;
  return {.q = call.in[0].as<float>(),
          .k = call.in[1].as<float>(),
          .bias = attr.bias ? call.in[optional].as<float>() : nullptr,
          .mask = mask ? mask->as<float>() : nullptr,
          .scale = static_cast<float>(attr.scale),
          .windows = mask ? mask->shape[0] : 1};
}
void compute(const Scores& in, const Sizes& n, int64_t batch, int64_t head, int64_t first,
             int64_t rows, float* scores, float* packed) {
  gemm(rows, n.s, n.d, in.scale, in.q + n.q_at(batch, head) + first * n.row(), n.row(), 1,
       in.k + n.k_at(batch, head), 1, n.row(), 0, scores, n.s, 1, packed);
  if (in.bias) vector_add(scores, in.bias + (head * n.t + first) * n.s, scores, rows * n.s);
  if (in.mask)
    vector_add(scores, in.mask + (batch % in.windows * n.t + first) * n.s, scores, rows * n.s);
}

// The gradients of q, k and v: three tensors, or one in which those of a token follow each other.
struct HeadGradients {
  float *dq, *dk, *dv, *dbias;
  int64_t row;  // distance between tokens
};
HeadGradients head_gradients(const Call& call, const ir::Attention& attr, const Sizes& n) {
  const auto result = [&](std::size_t i) {
    return i < call.out.size() ? call.out[i].as<float>() : nullptr;
  };
  if (!attr.packed)
    return {result(0), result(1), result(2), attr.bias ? result(3) : nullptr, n.row()};
  float* const first = result(0);
  return {first, first ? first + n.row() : nullptr, first ? first + 2 * n.row() : nullptr,
          attr.bias ? result(1) : nullptr, 3 * n.row()};
}

// Bias gradients of parts 1.., which are read across threads; P and dS of a block for each thread.
Scratch grad_scratch(const Sizes& n, bool bias) {
  return {.shared = bias ? padded_bytes((parts_of(n, bias).parts - 1) * n.h * n.t * n.s) : 0,
          .per_thread = thread_bytes(2, grad_block_of(n) * n.s)};
}

}  // namespace

void fast_attention(const Call& call) {
  const auto& attr = call.attr<ir::Attention>();
  const Sizes n = sizes_of(call.in[0].shape, call.in[1].shape);
  const Scores in = scores_of(call, attr, 3);
  const float* v = call.in[2].as<float>();
  float* o = call.out[0].as<float>();
  float* lse = call.out.size() > 1 ? call.out[1].as<float>() : nullptr;
  const int64_t block = block_of(n), blocks = ceil_div(n.t, block);
  CHECK(call.scratch.per_thread >= thread_bytes(1, block * n.s), "attention: scratch too small");

  call.pool.parallel_for(n.b * n.h * blocks, [&](int64_t task, int thread) {
    const int64_t first = task % blocks * block, rows = std::min(block, n.t - first);
    const int64_t head = task / blocks % n.h, batch = task / blocks / n.h;
    float* const packed = call.scratch_of<float>(thread);
    float* const p = packed + gemm_scratch_bytes / sizeof(float);
    std::array<float, most_block> sum;
    compute(in, n, batch, head, first, rows, p, packed);
    for (int64_t i = 0; i < rows; ++i) {
      float* row = p + i * n.s;
      const float max = vector_max(row, n.s);
      sum[static_cast<std::size_t>(i)] = vector_exp_sub_sum(row, row, n.s, max);
      if (lse)
        lse[(batch * n.h + head) * n.t + first + i] =
            max + std::log(sum[static_cast<std::size_t>(i)]);
    }
    if (!o) return;
    // Dividing the rows of o by their sums is less work than dividing those of P.
    float* const o_rows = o + n.q_at(batch, head) + first * n.row();
    gemm(rows, n.d, n.s, 1, p, n.s, 1, v + n.k_at(batch, head), n.row(), 1, 0, o_rows, n.row(), 1,
         packed);
    for (int64_t i = 0; i < rows; ++i)
      vector_scale(o_rows + i * n.row(), o_rows + i * n.row(), n.d,
                   1 / sum[static_cast<std::size_t>(i)]);
  });
}

Scratch scratch_attention(const ir::Attrs&, std::span<const ir::Type> in,
                          std::span<const ir::Type>) {
  const Sizes n = sizes_of(in[0].shape, in[1].shape);
  return {.per_thread = thread_bytes(1, block_of(n) * n.s)};
}

void fast_attention_grad(const Call& call) {
  const auto& attr = call.attr<ir::Attention>();
  const Sizes n = sizes_of(call.in[0].shape, call.in[1].shape);
  const Scores in = scores_of(call, attr, 6);
  const float *v = call.in[2].as<float>(), *o = call.in[3].as<float>(),
              *lse = call.in[4].as<float>(), *d_o = call.in[5].as<float>();
  const HeadGradients to = head_gradients(call, attr, n);

  const Parts cut = parts_of(n, attr.bias);
  const int64_t block = grad_block_of(n), row = n.row(), bias_size = n.t * n.s;
  const Scratch need = grad_scratch(n, attr.bias);
  CHECK(call.scratch.shared >= need.shared && call.scratch.per_thread >= need.per_thread,
        "attention_grad: scratch too small");
  float* const partials = call.shared_scratch<float>();  // bias gradients of parts 1..

  call.pool.parallel_for(cut.parts * n.h, [&](int64_t task, int thread) {
    const int64_t head = task % n.h, part = task / n.h;
    float* const packed = call.scratch_of<float>(thread);
    float* const p = packed + gemm_scratch_bytes / sizeof(float);
    float* const ds = p + padded_bytes(block * n.s) / sizeof(float);
    float* sum = nullptr;  // of dS over the samples of this part
    if (to.dbias)
      sum = part == 0 ? to.dbias + head * bias_size
                      : partials + ((part - 1) * n.h + head) * bias_size;
    if (sum) vector_fill(sum, bias_size, 0);

    for (int64_t batch = part * cut.samples, end = std::min(n.b, batch + cut.samples); batch < end;
         ++batch) {
      const int64_t k_at = n.k_at(batch, head), dk_at = batch * n.s * to.row + head * n.d;
      for (int64_t first = 0; first < std::max<int64_t>(n.t, 1); first += block) {
        const int64_t rows = std::min(block, n.t - first), q_at = n.q_at(batch, head) + first * row;
        const float add = first == 0 ? 0 : 1;  // beta of what later blocks add to
        compute(in, n, batch, head, first, rows, p, packed);
        gemm(rows, n.s, n.d, 1, d_o + q_at, row, 1, v + k_at, 1, row, 0, ds, n.s, 1, packed);
        for (int64_t i = 0; i < rows; ++i) {
          float *p_row = p + i * n.s, *ds_row = ds + i * n.s;
          vector_exp_sub(p_row, p_row, n.s, lse[(batch * n.h + head) * n.t + first + i]);
          vector_add_scalar(ds_row, -vector_dot(d_o + q_at + i * row, o + q_at + i * row, n.d),
                            ds_row, n.s);
          vector_mul(ds_row, p_row, ds_row, n.s);
        }
        if (sum) vector_add(sum + first * n.s, ds, sum + first * n.s, rows * n.s);
        if (to.dv)
          gemm(n.s, n.d, rows, 1, p, 1, n.s, d_o + q_at, row, 1, add, to.dv + dk_at, to.row, 1,
               packed);
        if (to.dq)
          gemm(rows, n.d, n.s, in.scale, ds, n.s, 1, in.k + k_at, row, 1, 0,
               to.dq + (batch * n.t + first) * to.row + head * n.d, to.row, 1, packed);
        if (to.dk)
          gemm(n.s, n.d, rows, in.scale, ds, 1, n.s, in.q + q_at, row, 1, add, to.dk + dk_at,
               to.row, 1, packed);
      }
    }
  });

  if (!to.dbias) return;
  call.pool.parallel_for(n.h, [&](int64_t head, int) {
    float* const sum = to.dbias + head * bias_size;
    for (int64_t part = 1; part < cut.parts; ++part)
      vector_add(sum, partials + ((part - 1) * n.h + head) * bias_size, sum, bias_size);
  });
}

Scratch scratch_attention_grad(const ir::Attrs& attrs, std::span<const ir::Type> in,
                               std::span<const ir::Type>) {
  return grad_scratch(sizes_of(in[0].shape, in[1].shape), std::get<ir::Attention>(attrs).bias);
}

}  // namespace tessera::exec::cpu
