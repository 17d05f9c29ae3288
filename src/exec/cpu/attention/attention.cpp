// attention and its gradient in f32 and bf16: a task holds the scores of some queries of one head,
// never those of the batch. Scores, sums and the softmax are f32; of bf16 operands P and dS are
// rounded before they are multiplied. Scratch is per thread (what gemm packs into, then what is
// kept of one block), plus partial bias gradients that belong to no thread. Legend: b batch (all
// leading dims as one), t query token, s key token, h head, d head dim. q, o: [b,t,h,d]; k, v:
// [b,s,h,d]; lse: [b,h,t]; bias: [h,t,s]; mask: [w,t,s], b % w picks one. P = softmax(S) over s
// with S = scale q k^T + bias
// + mask; backward recomputes P = exp(S - lse) and uses dS = P * (do v^T - rowsum(do * o)), dq =
// scale dS k, dk = scale dS^T q, dv = P^T do (Dao et al. 2022, the part on recomputation).
// Convention: heads, query blocks and the order of every sum follow from the shapes.
#include "base/index.h"
#include "exec/cpu/kernel.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "exec/cpu/attention/scores.h"
#include "exec/cpu/attention/tokens.h"
#include "exec/cpu/gemm/gemm.h"
#include "exec/cpu/low.h"
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

// A thread keeps of a block of queries, in this order, scores and their gradients, the same
// rounded, and sums of results that are rounded when they are complete. Of f32 only the first.
struct Kept {
  int64_t scores = 0, low = 0, sums = 0;  // elements of each
  int64_t blocks = 1;                     // of scores: P, and in the gradient dS

  Kept(const Sizes& n, int64_t block, bool gradient, bool is_low)
      : scores(block * (gradient ? n.s : score_pitch(n.s))), blocks(gradient ? 2 : 1) {
    if (!is_low) return;
    low = scores;
    sums = gradient ? block * n.d + 2 * n.s * n.d : block * n.d;
  }
  std::size_t bytes() const {
    return gemm_scratch_bytes +
           static_cast<std::size_t>(blocks) * (padded_bytes(scores) + padded_bytes(low)) +
           padded_bytes(sums);
  }
};
struct Room {
  void* packed;
  float *p, *ds, *sums;
  Low *low_p, *low_ds;

  Room(const Call& call, int thread, const Kept& kept) {
    std::byte* at = call.scratch_of<std::byte>(thread);
    const auto take = [&](std::size_t bytes) { return std::exchange(at, at + bytes); };
    packed = take(gemm_scratch_bytes);
    p = reinterpret_cast<float*>(take(padded_bytes(kept.scores)));
    ds = kept.blocks > 1 ? reinterpret_cast<float*>(take(padded_bytes(kept.scores))) : nullptr;
    low_p = reinterpret_cast<Low*>(take(padded_bytes(kept.low)));
    low_ds = kept.blocks > 1 ? reinterpret_cast<Low*>(take(padded_bytes(kept.low))) : nullptr;
    sums = reinterpret_cast<float*>(at);
  }
};

// Scores of `rows` queries from `first`: [rows, s], dense.
template <class T>
struct Scores {
  const T *q, *k;
  Tensor bias, mask;  // absent where there is none
  float scale;
  int64_t windows;
};
template <class T>
Scores<T> scores_of(const Call& call, const ir::Attention& attr, std::size_t optional) {
  const Tensor mask = attr.mask ? call.in[optional + (attr.bias ? 1 : 0)] : Tensor{};
  return {.q = call.in[0].as<T>(),
          .k = call.in[1].as<T>(),
          .bias = attr.bias ? call.in[optional] : Tensor{},
          .mask = mask,
          .scale = static_cast<float>(attr.scale),
          .windows = mask ? mask.shape[0] : 1};
}
Addend addend(const Tensor& x, int64_t begin) {
  if (!x) return {};
  return is_bf16(x) ? Addend{.low = x.as<Low>() + begin} : Addend{.wide = x.as<float>() + begin};
}

// The gradients of q, k and v: three tensors, or one in which those of a token follow each other.
template <class T>
struct HeadGradients {
  T *dq, *dk, *dv;
  float* dbias;
  int64_t row;  // distance between tokens
};
template <class T>
HeadGradients<T> head_gradients(const Call& call, const ir::Attention& attr, const Sizes& n) {
  const auto result = [&](std::size_t i) {
    return i < call.out.size() ? call.out[i].as<T>() : nullptr;
  };
  const std::size_t bias_at = attr.packed ? 1 : 3;
  float* const dbias =
      attr.bias && bias_at < call.out.size() ? call.out[bias_at].as<float>() : nullptr;
  if (!attr.packed) return {result(0), result(1), result(2), dbias, n.row()};
  T* const first = result(0);
  return {first, first ? first + n.row() : nullptr, first ? first + 2 * n.row() : nullptr, dbias,
          3 * n.row()};
}

// Bias gradients of parts 1.., which are read across threads; P and dS of a block for each thread.
Scratch grad_scratch(const Sizes& n, bool bias, bool low) {
  return {.shared = bias ? padded_bytes((parts_of(n, bias).parts - 1) * n.h * n.t * n.s) : 0,
          .per_thread = Kept(n, grad_block_of(n), true, low).bytes()};
}

// A factor as the product reads it: f32 as it is, for bf16 rounded into `to`.
template <class T>
const T* factor(const float* values, int64_t count, Low* to) {
  if constexpr (std::is_same_v<T, float>) {
    return values;
  } else {
    round_to_bf16(values, to, count);
    return to;
  }
}

template <class T>
void attention(const Call& call) {
  constexpr bool low = std::is_same_v<T, Low>;
  const auto& attr = call.attr<ir::Attention>();
  const Sizes n = sizes_of(call.in[0].shape, call.in[1].shape);
  const auto in = scores_of<T>(call, attr, 3);
  const T* v = call.in[2].as<T>();
  T* o = call.out[0].as<T>();
  float* lse = call.out.size() > 1 ? call.out[1].as<float>() : nullptr;
  const int64_t block = block_of(n), blocks = ceil_div(n.t, block), row = n.row(),
                pitch = score_pitch(n.s);
  const Kept kept(n, block, false, low);
  CHECK(call.scratch.per_thread >= kept.bytes(), "attention: scratch too small");

  // Blocks of a head follow each other, for they read the same k and v; by rows the heads of a
  // block.
  const bool by_rows = call.threading == Threading::rows;
  call.share_out(n.b * n.h * blocks, n.h, blocks, [&](int64_t task, int thread) {
    const int64_t inner = by_rows ? task / n.h : task, outer = by_rows ? task : task / blocks;
    const int64_t first = inner % blocks * block, rows = std::min(block, n.t - first);
    const int64_t head = outer % n.h, batch = task / blocks / n.h;
    const Room room(call, thread, kept);
    float* const lse_rows = lse ? lse + (batch * n.h + head) * n.t + first : nullptr;
    const Addend bias = addend(in.bias, (head * n.t + first) * n.s),
                 mask = addend(in.mask, (batch % in.windows * n.t + first) * n.s);
    const int64_t other =
        task + (by_rows ? 1 : call.pool.size());  // likely to be the thread's next
    const bool alike = blocks == 1 && n.t == n.s && other < n.b * n.h;
    if constexpr (low)
      if (micro_low().attend &&
          micro_low().attend(
              {.q = in.q + n.q_at(batch, head) + first * row,
               .k = in.k + n.k_at(batch, head),
               .v = v + n.k_at(batch, head),
               .o = o ? o + n.q_at(batch, head) + first * row : nullptr,
               .lse = lse_rows,
               .row = row,
               .rows = rows,
               .s = n.s,
               .d = n.d,
               .next = alike ? n.q_at(other / n.h, other % n.h) - n.q_at(batch, head) : 0,
               .scale = in.scale,
               .bias = bias,
               .mask = mask,
               .room = room.packed,
               .room_bytes = gemm_scratch_bytes}))
        return;
    std::array<float, most_block> greatest, sum;
    gemm<T>(rows, n.s, n.d, in.scale, in.q + n.q_at(batch, head) + first * row, row, 1,
            in.k + n.k_at(batch, head), 1, row, 0, room.p, pitch, 1, room.packed, {.c = true});
    exponentials({room.p, rows, n.s}, bias, mask, greatest.data(), sum.data());
    if (lse)
      for (int64_t i = 0; i < rows; ++i) {
        const auto at = static_cast<std::size_t>(i);
        lse_rows[i] = greatest[at] + std::log(sum[at]);
      }
    if (!o) return;
    // Dividing the rows of o by their sums is less work than dividing those of P.
    T* const o_rows = o + n.q_at(batch, head) + first * row;
    const T* const p = factor<T>(room.p, rows * pitch, room.low_p);
    float* sums = room.sums;
    if constexpr (!low) sums = o_rows;
    const int64_t o_pitch = low ? n.d : row;
    gemm<T>(rows, n.d, n.s, 1, p, pitch, 1, v + n.k_at(batch, head), row, 1, 0, sums, o_pitch, 1,
            room.packed, {.a = true});
    divide_rows(sums, rows, n.d, o_pitch, sum.data());
    if constexpr (low)
      for (int64_t i = 0; i < rows; ++i) round_to_bf16(sums + i * n.d, o_rows + i * row, n.d);
  });
}

// One product of the gradient: f32 into `to`; bf16 into `sums`, rounded into `to` after the last
// block that adds to it.
template <class T>
void add_gradient(int64_t m, int64_t n, int64_t k, float alpha, const T* a, int64_t rs_a,
                  int64_t cs_a, const T* b, int64_t rs_b, float beta, T* to, int64_t row,
                  float* sums, bool last, void* packed) {
  if constexpr (std::is_same_v<T, float>) {
    gemm<T>(m, n, k, alpha, a, rs_a, cs_a, b, rs_b, 1, beta, to, row, 1, packed);
  } else {
    gemm<T>(m, n, k, alpha, a, rs_a, cs_a, b, rs_b, 1, beta, sums, n, 1, packed);
    for (int64_t i = 0; last && i < m; ++i) round_to_bf16(sums + i * n, to + i * row, n);
  }
}

// All queries of a head by the machine's own kernel. False: it has none for these sizes.
bool machine_gradient(const Scores<Low>& in, const Low* v, const Low* o, const Low* d_o,
                      const HeadGradients<Low>& to, const Sizes& n, int64_t batch, int64_t head,
                      AttendGrad x) {
  if (!micro_low().attend_grad) return false;
  const auto moved = [](Low* to_all, int64_t by) { return to_all ? to_all + by : nullptr; };
  const int64_t q_at = n.q_at(batch, head), k_at = n.k_at(batch, head),
                dk_at = batch * n.s * to.row + head * n.d;
  x.q = in.q + q_at;
  x.k = in.k + k_at;
  x.v = v + k_at;
  x.o = o + q_at;
  x.d_o = d_o + q_at;
  x.dq = moved(to.dq, batch * n.t * to.row + head * n.d);
  x.dk = moved(to.dk, dk_at);
  x.dv = moved(to.dv, dk_at);
  x.row = n.row();
  x.to_row = to.row;
  x.t = n.t;
  x.s = n.s;
  x.d = n.d;
  x.scale = in.scale;
  return micro_low().attend_grad(x);
}

// From a head to that of the next sample, which comes next where it is of the same part; else 0.
int64_t next_of(const Sizes& n, const Parts& cut, int64_t batch) {
  const bool follows = batch + 1 < n.b && (batch + 1) % cut.samples != 0 && n.t == n.s;
  return follows ? n.t * n.row() : 0;
}

template <class T>
void attention_grad(const Call& call) {
  constexpr bool low = std::is_same_v<T, Low>;
  const auto& attr = call.attr<ir::Attention>();
  const Sizes n = sizes_of(call.in[0].shape, call.in[1].shape);
  const auto in = scores_of<T>(call, attr, 6);
  const T *v = call.in[2].as<T>(), *o = call.in[3].as<T>(), *d_o = call.in[5].as<T>();
  const float* lse = call.in[4].as<float>();
  const auto to = head_gradients<T>(call, attr, n);
  const Parts cut = parts_of(n, attr.bias);
  const int64_t block = grad_block_of(n), row = n.row(), bias_size = n.t * n.s;
  const Kept kept(n, block, true, low);
  const Scratch need = grad_scratch(n, attr.bias, low);
  CHECK(call.scratch.shared >= need.shared && call.scratch.per_thread >= need.per_thread,
        "attention_grad: scratch too small");
  float* const partials = call.shared_scratch<float>();  // bias gradients of parts 1..

  // One block of queries of one head.
  const auto run_block = [&](const Room& room, float* sum, int64_t batch, int64_t head,
                             int64_t first) {
    const int64_t rows = std::min(block, n.t - first), q_at = n.q_at(batch, head) + first * row;
    const int64_t k_at = n.k_at(batch, head), dk_at = batch * n.s * to.row + head * n.d;
    const float add = first == 0 ? 0 : 1;  // beta of what later blocks add to
    const bool last = first + block >= n.t;
    float *const dq_sums = room.sums, *const dk_sums = room.sums + block * n.d,
                 *const dv_sums = dk_sums + n.s * n.d;
    const Addend bias = addend(in.bias, (head * n.t + first) * n.s),
                 mask = addend(in.mask, (batch % in.windows * n.t + first) * n.s);
    const float* const lse_rows = lse + (batch * n.h + head) * n.t + first;
    if constexpr (low)
      if (rows == n.t && machine_gradient(in, v, o, d_o, to, n, batch, head,
                                          {.lse = lse_rows,
                                           .bias_sum = sum,
                                           .next = next_of(n, cut, batch),
                                           .bias = bias,
                                           .mask = mask,
                                           .room = room.packed,
                                           .room_bytes = static_cast<int64_t>(kept.bytes())}))
        return;
    std::array<float, most_block> dots;
    row_dots(d_o + q_at, o + q_at, rows, n.d, row, dots.data());
    gemm<T>(rows, n.s, n.d, in.scale, in.q + q_at, row, 1, in.k + k_at, 1, row, 0, room.p, n.s, 1,
            room.packed);
    gemm<T>(rows, n.s, n.d, 1, d_o + q_at, row, 1, v + k_at, 1, row, 0, room.ds, n.s, 1,
            room.packed);
    score_gradients({room.p, rows, n.s}, bias, mask, lse_rows, dots.data(), room.ds);
    if (sum) vector_add(sum + first * n.s, room.ds, sum + first * n.s, rows * n.s);
    const T *const p = factor<T>(room.p, rows * n.s, room.low_p), *const ds =
                                                                      factor<T>(room.ds, rows * n.s,
                                                                                room.low_ds);
    if (to.dv)
      add_gradient<T>(n.s, n.d, rows, 1, p, 1, n.s, d_o + q_at, row, add, to.dv + dk_at, to.row,
                      dv_sums, last, room.packed);
    if (to.dq)
      add_gradient<T>(rows, n.d, n.s, in.scale, ds, n.s, 1, in.k + k_at, row, 0,
                      to.dq + (batch * n.t + first) * to.row + head * n.d, to.row, dq_sums, true,
                      room.packed);
    if (to.dk)
      add_gradient<T>(n.s, n.d, rows, in.scale, ds, 1, n.s, in.q + q_at, row, add, to.dk + dk_at,
                      to.row, dk_sums, last, room.packed);
  };
  call.share_out(cut.parts * n.h, n.h, 1, [&](int64_t task, int thread) {
    const int64_t head = task % n.h, part = task / n.h;
    const Room room(call, thread, kept);
    float* sum = nullptr;  // of dS over the samples of this part
    if (to.dbias)
      sum = part == 0 ? to.dbias + head * bias_size
                      : partials + ((part - 1) * n.h + head) * bias_size;
    if (sum) vector_fill(sum, bias_size, 0);
    for (int64_t batch = part * cut.samples, end = std::min(n.b, batch + cut.samples); batch < end;
         ++batch)
      for (int64_t first = 0; first < std::max<int64_t>(n.t, 1); first += block)
        run_block(room, sum, batch, head, first);
  });
  if (!to.dbias) return;
  call.pool.parallel_for(n.h, [&](int64_t head, int) {
    float* const sum = to.dbias + head * bias_size;
    for (int64_t part = 1; part < cut.parts; ++part)
      vector_add(sum, partials + ((part - 1) * n.h + head) * bias_size, sum, bias_size);
  });
}

}  // namespace

void attend_tokens(const Call& call) {
  is_bf16(call.in[0]) ? attention<Low>(call) : attention<float>(call);
}
Scratch scratch_of_tokens(const ir::Attrs&, std::span<const ir::Type> in) {
  const Sizes n = sizes_of(in[0].shape, in[1].shape);
  return {.per_thread = Kept(n, block_of(n), false, in[0].dtype == ir::DType::bf16).bytes()};
}

void attend_tokens_grad(const Call& call) {
  is_bf16(call.in[0]) ? attention_grad<Low>(call) : attention_grad<float>(call);
}
Scratch grad_scratch_of_tokens(const ir::Attrs& attrs, std::span<const ir::Type> in) {
  return grad_scratch(sizes_of(in[0].shape, in[1].shape), std::get<ir::Attention>(attrs).bias,
                      in[0].dtype == ir::DType::bf16);
}

}  // namespace tessera::exec::cpu
