// contract in f32 and bf16 (exec/common/contraction.h: how a signature becomes a matrix product).
// Convention: a task is one tile of C and one chunk of k, or all of them in turn, summed in f32.
// Bias, residual, gelu and the rounding to bf16 are applied to a tile while it is in cache.
#include "exec/cpu/contract.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "base/check.h"
#include "base/index.h"
#include "exec/cpu/contract_parts.h"
#include "exec/cpu/gemm/gemm.h"
#include "exec/cpu/low.h"
#include "exec/cpu/reference/quantised.h"
#include "exec/cpu/simd/vector.h"

namespace tessera::exec::cpu {

namespace {

using std::int64_t;

double number(const float* x, int64_t at) { return static_cast<double>(x[at]); }
double number(const Low* x, int64_t at) { return static_cast<double>(widen_bf16(x[at])); }

// No rows and columns: each element is a sum of products. Doubles, since nothing here blocks the
// sum.
template <class T>
void sum_products(const ContractJob& job, const Tile& tile, float* c, int64_t cs_c) {
  const Lowering& l = job.lowering;
  std::array<double, 16> sum{};
  const Offsets at = offsets(l.outer, tile.outer);
  for (int64_t step = 0, steps = l.outer_k_steps(); step < steps; ++step) {
    const Offsets k_at = offsets(l.outer_k, step);
    const T* a = job.a.as<T>() + at.a + k_at.a + tile.n * l.n.a;
    const T* b = job.b.as<T>() + at.b + k_at.b + tile.n * l.n.b;
    for (int64_t p = 0; p < l.k.extent; ++p, a += l.k.a, b += l.k.b)
      for (int64_t j = 0; j < tile.cols; ++j)
        sum[static_cast<std::size_t>(j)] += number(a, j * l.n.a) * number(b, j * l.n.b);
  }
  for (int64_t j = 0; j < tile.cols; ++j)
    c[j * cs_c] = static_cast<float>(sum[static_cast<std::size_t>(j)]);
}

// C gets the products of a part of one chunk of k; `more`: they are added to it.
template <class T>
void multiply_chunk(const ContractJob& job, const Tile& tile, int64_t k_begin, int64_t k_size,
                    bool more, float* c, int64_t rs_c, int64_t cs_c, void* scratch,
                    const Finish& finish) {
  const Lowering& l = job.lowering;
  const Offsets at = offsets(l.outer, tile.outer);
  const T* a = job.a.as<T>() + at.a + tile.m * l.m.a + k_begin * l.k.a;
  const T* b = job.b.as<T>() + at.b + tile.n * l.n.b + k_begin * l.k.b;
  for (int64_t step = 0, steps = l.outer_k_steps(); step < steps; ++step) {
    const Offsets k_at = offsets(l.outer_k, step);
    const float beta = step > 0 || more ? 1 : 0;
    if (job.packed) {
      const PackedMatrices matrices(l);
      const T* matrix = reinterpret_cast<const T*>(job.packed) +
                        (PackedMatrices::index(l, tile.outer) + step) * matrices.elements<T>();
      gemm_packed<T>(tile.rows, tile.cols, k_size, a + k_at.a, l.m.a, l.k.a,
                     {matrix, l.k.extent, k_begin, tile.n}, beta, c, rs_c, scratch,
                     step + 1 == steps ? finish : Finish{},
                     {job.packed_rows, l.k.extent, k_begin, tile.m});
      continue;
    }
    gemm<T>(tile.rows, tile.cols, k_size, 1, a + k_at.a, l.m.a, l.k.a, b + k_at.b, l.k.b, l.n.b,
            beta, c, rs_c, cs_c, scratch);
  }
}
// A task that has several chunks takes one after the other.
template <class T>
void multiply(const ContractJob& job, const Tile& tile, int64_t k_begin, int64_t k_size, float* c,
              int64_t rs_c, int64_t cs_c, void* scratch, const Finish& finish = {}) {
  const int64_t chunk = job.lowering.chunk();
  int64_t done = 0;
  do {
    const int64_t size = std::min(chunk, k_size - done);
    multiply_chunk<T>(job, tile, k_begin + done, size, done > 0, c, rs_c, cs_c, scratch,
                      done + size == k_size ? finish : Finish{});
    done += size;
  } while (done < k_size);
}

// Whether the micro-kernel finishes tiles of this job: factors and results are bf16, and there is
// at most one addend, the same for all rows.
template <class T>
bool finishes_in_tiles(const ContractJob& job) {
  const Lowering& l = job.lowering;
  const auto fits = [](const Tensor& t) { return !t || is_bf16(t); };
  const bool bias = job.addends.size() == 1 && addend_stride(l, 0) == 1 && !depends_on_row(l, 0);
  return l.low && job.packed && (micro<T>().tile_low || micro<T>().product) && job.k_tasks == 1 &&
         l.k.extent > 0 && fits(job.z) && fits(job.y) && (bias || job.addends.empty());
}
void multiply_and_finish(const ContractJob& job, const Tile& tile, int64_t c_at, float* sums,
                         int64_t rs, void* scratch) {
  const Lowering& l = job.lowering;
  std::array<float, most_columns + panel_columns> bias{};
  if (!job.addends.empty()) {
    const int64_t at = outer_addend_offset(l, 0, tile.outer) + tile.n;
    vector_copy(wide(job.addends[0], at, tile.cols, bias.data()), bias.data(), tile.cols);
  }
  const auto result = [&](const Tensor& t) { return t ? t.as<Low>() + c_at : nullptr; };
  multiply<Low>(job, tile, 0, l.k.extent, sums, rs, 1, scratch,
                {.offset = job.addends.empty() ? nullptr : bias.data(),
                 .low = result(job.y ? job.y : job.z),
                 .pitch = l.m.c,
                 .act = !job.y     ? Act::none
                        : job.tanh ? Act::gelu_tanh
                                   : Act::gelu,
                 .before = !job.y || job.z.data == job.y.data ? nullptr : result(job.z)});
}

// Whether tiles of f32 add the bias, the first addend: one number for each column.
bool adds_bias(const ContractJob& job) {
  const Lowering& l = job.lowering;
  return !l.low && micro_f32().offsets && job.packed && job.direct() && job.k_tasks == 1 &&
         l.k.extent > 0 && !job.addends.empty() && !is_bf16(job.addends[0]) &&
         addend_stride(l, 0) == 1 && !depends_on_row(l, 0);
}
const float* bias_of(const ContractJob& job, const Tile& tile) {
  if (!job.bias_added) return nullptr;
  return job.addends[0].as<float>() + outer_addend_offset(job.lowering, 0, tile.outer) + tile.n;
}

// Rows of a packed product with one block of k are finished while their sums are in cache.
template <class T>
bool finishes_in_strips(const ContractJob& job) {
  return job.packed && job.lowering.k_chunks == 1 && job.lowering.k.extent <= micro<T>().k_block &&
         !job.finished();
}
template <class T>
void multiply_in_strips(const ContractJob& job, const Tile& tile, int64_t c_at, float* sums,
                        int64_t rs, int64_t cs, void* scratch) {
  constexpr int64_t rows = 96;  // whole panels of any micro-kernel
  for (int64_t first = 0; first < tile.rows; first += rows) {
    Tile strip = tile;
    strip.m += first;
    strip.rows = std::min(rows, tile.rows - first);
    multiply<T>(job, strip, 0, job.lowering.k.extent, sums, rs, cs, scratch,
                {.offset = bias_of(job, tile)});
    finish_tile(job, strip, c_at + first * job.lowering.m.c, sums, rs, cs);
    if (job.direct()) sums += rows * rs;  // else they are done with
  }
}

// Partial sums are read by whichever thread adds them up; a sum of products packs nothing.
// `direct`: the first chunk's sums lie in C.
struct Shared {
  std::size_t partials = 0, packed = 0, rows = 0;  // bytes
  Shared(const Lowering& l, bool direct) {
    const int64_t chunks = l.k_chunks == 1 ? 0 : l.k_chunks - (direct ? 1 : 0);
    partials = sizeof(float) * static_cast<std::size_t>(chunks * l.tiles() * l.m_tile * l.n_tile);
    partials = (partials + 63) / 64 * 64;
    if (packs_first(l)) packed = static_cast<std::size_t>(packed_bytes(l));
    if (packs_rows_first(l))
      rows = sizeof(float) * static_cast<std::size_t>(packed_a_elements(l.m.extent, l.k.extent));
  }
};
Scratch scratch_of(const Lowering& l, bool direct) {
  const Shared shared(l, direct);
  const std::size_t sums =
      direct ? 0 : sizeof(float) * static_cast<std::size_t>(l.m_tile * sums_pitch(l));
  return {.shared = shared.partials + shared.packed + shared.rows,
          .per_thread = (l.products ? 0 : gemm_scratch_bytes) + sums};
}

bool by_tiles(const Call& call) {
  return call.threading != Threading::rows && call.threading != Threading::heads;
}
// Tiles of C that a call would have without chunks of k.
int64_t whole_tiles(const Call& call, const ContractJob& job, const Micro& kernel) {
  const Lowering& l = job.lowering;
  if (kernel.packs_rows() || !job.packed) return kernel.a_block > 0 ? l.tiles() : 0;
  const TileSize size = small_tiles(l, kernel, call.pool.size(), job.direct());
  return l.outer_steps() * ceil_div(l.m.extent, size.m) * ceil_div(l.n.extent, size.n);
}
// Whether a task takes all chunks of k in turn: there are tiles enough for all threads, and chunks
// are single blocks, so that adding them to C one after the other has the bits of adding their
// sums, which those of AMX have not (they go on from C). Tiles of bf16 that are added to C have no
// fast act.
template <class T>
bool takes_in_turn(const Call& call, const ContractJob& job) {
  const Lowering& l = job.lowering;
  const Micro& kernel = micro<T>();
  return l.k_chunks > 1 && !kernel.product && l.chunk() <= kernel.k_block &&
         l.outer_k_steps() == 1 && !(l.low && job.y) && by_tiles(call) &&
         whole_tiles(call, job, kernel) >= 2 * call.pool.size();
}
bool in_turn(const ContractJob& job) { return job.k_tasks < job.lowering.k_chunks; }

// All tiles of a job whose factors are of type T.
template <class T>
void run_tiles(const Call& call, const ContractJob& job) {
  const Lowering& l = job.lowering;
  const bool direct = job.direct(), in_tiles = finishes_in_tiles<T>(job);
  const bool one_step = direct && job.packed && l.k_chunks == 1;
  const bool recut = (in_tiles || in_turn(job) || one_step) && micro<T>().a_block > 0;
  const bool whole = (direct || recut) && by_tiles(call);
  const bool small = !micro<T>().packs_rows() && job.packed && whole && job.k_tasks == 1;
  const TileSize size = !whole  ? TileSize{l.m_tile, l.n_tile}
                        : small ? small_tiles(l, micro<T>(), call.pool.size(), direct)
                        : recut ? even_tiles(l, micro<T>(), call.pool.size(), direct)
                                : larger_tiles(l, call.pool.size());
  const int64_t k_tasks = job.k_tasks, slot = l.m_tile * l.n_tile,
                chunk = k_tasks == 1 ? l.k.extent : l.chunk(),
                pitch = ceil_div(size.n, panel_columns) * panel_columns,
                slots = k_tasks - (direct ? 1 : 0);
  float* const partials = call.shared_scratch<float>();
  float* const z = direct ? (job.z ? job.z : job.y).template as<float>() : nullptr;
  const int64_t rows = whole ? size.m : rows_of_task(l, call),
                same_rows = ceil_div(l.n.extent, size.n) * k_tasks,
                of_head = ceil_div(l.m.extent, size.m) * ceil_div(size.m, rows) * same_rows;
  call.share_out(l.outer_steps() * of_head, same_rows, of_head, [&](int64_t task, int thread) {
    const int64_t at = small ? rows_first(l, task, size) : task / k_tasks;
    const auto [index, first, tile] = strip_of(l, at, rows, size);
    if (tile.rows <= 0) return;
    const int64_t part = task % k_tasks, c_at = c_offset(l, tile), k_begin = part * chunk,
                  k_size = std::max<int64_t>(0, std::min(chunk, l.k.extent - k_begin));
    std::byte* const scratch = call.scratch_of<std::byte>(thread);
    float* sums = direct
                      ? z + c_at
                      : reinterpret_cast<float*>(scratch + (l.products ? 0 : gemm_scratch_bytes));
    int64_t rs = direct ? l.m.c : pitch, cs = direct ? l.n.c : 1;
    if (k_tasks > 1 && (part > 0 || !direct)) {
      sums = partials + (index * slots + part - (direct ? 1 : 0)) * slot + first * tile.cols;
      rs = tile.cols;
      cs = 1;
    }
    if (l.products)
      sum_products<T>(job, tile, sums, cs);
    else if (in_tiles)
      return multiply_and_finish(job, tile, c_at, sums, rs, scratch);
    else if (finishes_in_strips<T>(job))
      return multiply_in_strips<T>(job, tile, c_at, sums, rs, cs, scratch);
    else
      multiply<T>(job, tile, k_begin, k_size, sums, rs, cs, scratch,
                  {.offset = bias_of(job, tile)});
    if (k_tasks == 1) finish_tile(job, tile, c_at, sums, rs, cs);
  });
  if (k_tasks == 1) return;
  constexpr int64_t summed = 16;  // rows that one task sums
  const int64_t sums_of_head = l.m_tiles() * l.strips(summed) * l.n_tiles();
  call.share_out(l.outer_steps() * sums_of_head, l.n_tiles(), sums_of_head, [&](int64_t task, int) {
    const auto [index, first, tile] = strip_of(l, task, summed);
    if (tile.rows <= 0) return;
    float* partial = partials + index * slots * slot + first * tile.cols;
    const int64_t c_at = c_offset(l, tile);
    float* const sums = direct ? z + c_at : partial;
    const int64_t rs = direct ? l.m.c : tile.cols;
    if (!direct) partial += slot;
    for (int64_t part = 1; part < k_tasks; ++part, partial += slot)
      for (int64_t row = 0; row < tile.rows; ++row)
        add_to_row(partial + row * tile.cols, 1, sums + row * rs, 1, tile.cols);
    finish_tile(job, tile, c_at, sums, rs, 1);
  });
}

}  // namespace

void fast_contract(const Call& call) {
  if (call.in[0].dtype == ir::DType::i8) return contract_i8(call);
  if (ir::is_quantised(call.in[0].dtype)) return contract_quantised(call);
  const auto& attr = call.attr<ir::Contract>();
  const Lowering& l = lowering_of(call);
  const bool act = !attr.act.empty();
  const Tensor y = call.out[0], z = act && call.out.size() > 1 ? call.out[1] : Tensor{};
  if ((!y && !z) || l.c_elements() == 0) return;
  const bool direct = !is_bf16(y ? y : z);

  std::array<Tensor, 8> addends{};
  for (std::size_t i = 2; i < call.in.size(); ++i) addends[i - 2] = call.in[i];
  ContractJob job{.lowering = l,
                  .a = call.in[l.swapped ? 1 : 0],
                  .b = call.in[l.swapped ? 0 : 1],
                  .z = z || (act && !direct) ? z : y,
                  .y = act ? y : Tensor{},
                  .tanh = attr.act == "gelu_tanh",
                  .addends = std::span(addends).first(l.addend_strides.size()),
                  .packed = call.packed,
                  .k_tasks = l.k_chunks};
  const Shared shared(l, direct);
  const Scratch need = scratch_of(l, direct);
  CHECK(call.scratch.shared >= need.shared && call.scratch.per_thread >= need.per_thread,
        "contract: scratch too small");
  // In f32 where panels of B pass through the first-level cache, or tasks are small.
  const bool packs = l.low || micro_f32().a_block > 0 || !micro_f32().packs_rows();
  if (!job.packed && shared.packed > 0 && packs) {
    std::byte* const to = call.shared + shared.partials;
    pack_either(call, l, job.b, to);
    job.packed = to;
    if (shared.rows > 0) job.packed_rows = pack_rows_first(call, l, job.a, to + shared.packed);
  }
  const bool turns = l.low ? takes_in_turn<Low>(call, job) : takes_in_turn<float>(call, job);
  if (turns) job.k_tasks = 1;
  job.bias_added = adds_bias(job);
  if (l.low)
    run_tiles<Low>(call, job);
  else
    run_tiles<float>(call, job);
}

Scratch scratch_contract(const ir::Attrs& attrs, std::span<const ir::Type> in,
                         std::span<const ir::Type> out) {
  if (in[0].dtype == ir::DType::i8) return scratch_contract_i8(attrs, in);
  if (ir::is_quantised(in[0].dtype)) return {};
  return scratch_of(lowering_for(attrs, in), !any_bf16({}, out));
}

}  // namespace tessera::exec::cpu
