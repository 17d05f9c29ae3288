// contract in f32 and bf16 (exec/common/contraction.h: how a signature becomes a matrix product).
// Convention: a task is one tile of C and one chunk of k, summed in f32. Bias, residual, gelu and
// the rounding to bf16 are applied to a tile while it is in cache.
#include "exec/cpu/contract.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/index.h"
#include "exec/cpu/gemm/gemm.h"
#include "exec/cpu/low.h"
#include "exec/cpu/reference/quantised.h"
#include "exec/cpu/simd/vector.h"

namespace tessera::exec::cpu {

namespace {

using std::int64_t;

// One call: tensors beside what signature and shapes say.
struct Job {
  const Lowering& lowering;
  Tensor a, b;
  Tensor z;  // the value before act
  Tensor y;  // act(z); may be z's storage; absent: nobody reads it, or there is no act
  bool tanh;
  std::span<const Tensor> addends;
  const std::byte* packed = nullptr;  // B as pack_contract() wrote it; null: as it is

  bool direct() const { return !is_bf16(z ? z : y); }  // sums are made where they stay
};
constexpr int64_t most_columns = 384;  // of a tile

// Offsets of step `index` of nested runs, the last the fastest.
struct Offsets {
  int64_t a = 0, b = 0, c = 0;
};
Offsets offsets(const std::vector<Run>& runs, int64_t index) {
  Offsets at;
  for (std::size_t i = runs.size(); i-- > 0; index /= runs[i].extent) {
    const int64_t step = index % runs[i].extent;
    at.a += step * runs[i].a, at.b += step * runs[i].b, at.c += step * runs[i].c;
  }
  return at;
}

// What is packed of B: as many matrices k x n as the loops around the product meet.
struct PackedMatrices {
  int64_t k = 0, n = 0, count = 1;  // count: without those of outer_k

  explicit PackedMatrices(const Lowering& l) : k(l.k.extent), n(l.n.extent) {
    for (const Run& run : l.outer)
      if (run.b != 0) count *= run.extent;
  }
  template <class T>
  int64_t elements() const {  // of one
    return packed_b_elements<T>(k, n);
  }
  template <class T>
  int64_t bytes(const Lowering& l) const {
    return static_cast<int64_t>(sizeof(T)) * elements<T>() * count * l.outer_k_steps();
  }
  // The first matrix of a step of the outer loops; one of each step of outer_k follow each other.
  static int64_t index(const Lowering& l, int64_t outer) {
    int64_t at = 0, stride = 1;
    for (std::size_t i = l.outer.size(); i-- > 0; outer /= l.outer[i].extent)
      if (l.outer[i].b != 0) {
        at += outer % l.outer[i].extent * stride;
        stride *= l.outer[i].extent;
      }
    return at * l.outer_k_steps();
  }
};
// B can be packed where the columns of C are contiguous: else the product is the transposed one.
bool can_pack(const Lowering& l) { return !l.products && l.n.c == 1 && l.c_elements() > 0; }

// The same in an addend, whose letters need not be contiguous along the run.
int64_t addend_offset(const Run& run, int64_t index, const Strides& strides,
                      const Strides& extents) {
  int64_t at = 0;
  for (std::size_t i = run.letters.size(); i-- > 0;) {
    const auto letter = static_cast<unsigned char>(run.letters[i]);
    at += index % extents[letter] * strides[letter];
    index /= extents[letter];
  }
  return at;
}

struct Tile {
  int64_t outer, m, n, rows, cols;  // step of the outer loops, first row and column, size
};

Tile tile_of(const Lowering& lowering, int64_t index) {
  const int64_t n = index % lowering.n_tiles() * lowering.n_tile;
  index /= lowering.n_tiles();
  const int64_t m = index % lowering.m_tiles() * lowering.m_tile;
  return {index / lowering.m_tiles(), m, n, std::min(lowering.m_tile, lowering.m.extent - m),
          std::min(lowering.n_tile, lowering.n.extent - n)};
}

double number(const float* x, int64_t at) { return static_cast<double>(x[at]); }
double number(const Low* x, int64_t at) { return static_cast<double>(widen_bf16(x[at])); }

// No rows and columns: each element is a sum of products. Doubles, since nothing here blocks the
// sum.
template <class T>
void sum_products(const Job& job, const Tile& tile, float* c, int64_t cs_c) {
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

template <class T>
void multiply(const Job& job, const Tile& tile, int64_t k_begin, int64_t k_size, float* c,
              int64_t rs_c, int64_t cs_c, void* scratch) {
  const Lowering& l = job.lowering;
  const Offsets at = offsets(l.outer, tile.outer);
  const T* a = job.a.as<T>() + at.a + tile.m * l.m.a + k_begin * l.k.a;
  const T* b = job.b.as<T>() + at.b + tile.n * l.n.b + k_begin * l.k.b;
  for (int64_t step = 0, steps = l.outer_k_steps(); step < steps; ++step) {
    const Offsets k_at = offsets(l.outer_k, step);
    if (job.packed) {
      const PackedMatrices matrices(l);
      const T* matrix = reinterpret_cast<const T*>(job.packed) +
                        (PackedMatrices::index(l, tile.outer) + step) * matrices.elements<T>();
      gemm_packed<T>(tile.rows, tile.cols, k_size, a + k_at.a, l.m.a, l.k.a,
                     {matrix, l.k.extent, k_begin, tile.n}, step == 0 ? 0 : 1, c, rs_c, scratch);
      continue;
    }
    gemm<T>(tile.rows, tile.cols, k_size, 1, a + k_at.a, l.m.a, l.k.a, b + k_at.b, l.k.b, l.n.b,
            step == 0 ? 0 : 1, c, rs_c, cs_c, scratch);
  }
}

void add_row(const float* addend, int64_t stride, float* z, int64_t z_stride, int64_t n) {
  if (z_stride == 1 && stride == 1)
    vector_add(z, addend, z, n);
  else if (z_stride == 1 && stride == 0)
    vector_add_scalar(z, *addend, z, n);
  else
    for (int64_t j = 0; j < n; ++j) z[j * z_stride] += addend[j * stride];
}
void add_row(const Tensor& addend, int64_t at, int64_t stride, float* z, int64_t z_stride,
             int64_t n) {
  if (!is_bf16(addend)) return add_row(addend.as<float>() + at, stride, z, z_stride, n);
  std::array<float, most_columns> row;
  if (stride == 1)
    widen_bf16(addend.as<Low>() + at, row.data(), n);
  else
    for (int64_t j = 0; j < (stride == 0 ? 1 : n); ++j)
      row[static_cast<std::size_t>(j)] = widen_bf16(addend.as<Low>()[at + j * stride]);
  add_row(row.data(), stride == 0 ? 0 : 1, z, z_stride, n);
}

// act(z), or z itself, into a row of a result.
void put_row(const float* z, int64_t z_stride, const Tensor& to, int64_t at, int64_t stride,
             int64_t n, bool gelu, bool tanh) {
  if (!is_bf16(to) && z_stride == 1 && stride == 1)
    return gelu ? vector_gelu(z, to.as<float>() + at, n, tanh)
                : vector_copy(z, to.as<float>() + at, n);
  std::array<float, most_columns> row;
  for (int64_t j = 0; j < n && z_stride != 1; ++j)
    row[static_cast<std::size_t>(j)] = z[j * z_stride];
  const float* from = z_stride == 1 ? z : row.data();
  if (gelu) vector_gelu(from, row.data(), n, tanh), from = row.data();
  if (is_bf16(to) && stride == 1) return round_to_bf16(from, to.as<Low>() + at, n);
  for (int64_t j = 0; j < n; ++j) {
    if (is_bf16(to))
      to.as<Low>()[at + j * stride] = round_to_bf16(from[j]);
    else
      to.as<float>()[at + j * stride] = from[j];
  }
}

// Addends and act over a tile of C whose sums, complete, lie at `sums`; results at c_at.
void finish(const Job& job, const Tile& tile, int64_t c_at, float* sums, int64_t rs, int64_t cs) {
  const Lowering& l = job.lowering;
  if (job.direct() && job.addends.empty() && !job.y) return;
  std::array<int64_t, 8> first{}, stride{};
  for (std::size_t i = 0; i < job.addends.size(); ++i) {
    int64_t index = tile.outer;
    for (std::size_t o = l.outer.size(); o-- > 0; index /= l.outer[o].extent)
      first[i] += addend_offset(l.outer[o], index % l.outer[o].extent,
                                job.lowering.addend_strides[i], job.lowering.extents);
    stride[i] =
        l.n.letters.empty()
            ? 0
            : job.lowering.addend_strides[i][static_cast<unsigned char>(l.n.letters.back())];
    first[i] += tile.n * stride[i];
  }
  for (int64_t row = 0; row < tile.rows; ++row) {
    float* const z = sums + row * rs;
    const int64_t at = c_at + row * l.m.c;
    for (std::size_t i = 0; i < job.addends.size(); ++i)
      add_row(job.addends[i],
              first[i] + addend_offset(l.m, tile.m + row, job.lowering.addend_strides[i],
                                       job.lowering.extents),
              stride[i], z, cs, tile.cols);
    if (!job.direct() && job.z) put_row(z, cs, job.z, at, l.n.c, tile.cols, false, false);
    if (job.y) put_row(z, cs, job.y, at, l.n.c, tile.cols, true, job.tanh);
  }
}

// Columns of the tile in which a thread makes sums that do not stay as they are.
int64_t sums_pitch(const Lowering& l) { return ceil_div(l.n_tile, panel_columns) * panel_columns; }

// bf16 is multiplied several times as fast as it is packed: B is packed once for all tiles, unless
// that takes too much memory.
bool packs_first(const Lowering& l) {
  constexpr int64_t most_bytes = int64_t{64} << 20;
  return l.low && can_pack(l) && l.m_tiles() > 1 && PackedMatrices(l).bytes<Low>(l) <= most_bytes;
}

// Partial sums are read by whichever thread adds them up; a sum of products packs nothing.
// `direct`: the first chunk's sums lie in C.
struct Shared {
  std::size_t partials = 0, packed = 0;  // bytes
  Shared(const Lowering& l, bool direct) {
    const int64_t chunks = l.k_chunks == 1 ? 0 : l.k_chunks - (direct ? 1 : 0);
    partials = sizeof(float) * static_cast<std::size_t>(chunks * l.tiles() * l.m_tile * l.n_tile);
    partials = (partials + 63) / 64 * 64;
    if (packs_first(l)) packed = static_cast<std::size_t>(PackedMatrices(l).bytes<Low>(l));
  }
};
Scratch scratch_of(const Lowering& l, bool direct) {
  const Shared shared(l, direct);
  const std::size_t sums =
      direct ? 0 : sizeof(float) * static_cast<std::size_t>(l.m_tile * sums_pitch(l));
  return {.shared = shared.partials + shared.packed,
          .per_thread = (l.products ? 0 : gemm_scratch_bytes) + sums};
}

template <class T>
void pack_matrices(const Call& call, const Lowering& l, const Tensor& b, T* to) {
  const PackedMatrices matrices(l);
  const int64_t panels = ceil_div(matrices.n, panel_columns);
  std::vector<Run> outer;
  for (const Run& run : l.outer)
    if (run.b != 0) outer.push_back(run);
  call.pool.parallel_for(matrices.count * l.outer_k_steps() * panels, [&](int64_t task, int) {
    const int64_t matrix = task / panels, n0 = task % panels * panel_columns;
    const int64_t from = offsets(outer, matrix / l.outer_k_steps()).b +
                         offsets(l.outer_k, matrix % l.outer_k_steps()).b;
    gemm_pack_b<T>(matrices.k, n0, std::min(panel_columns, matrices.n - n0), b.as<T>() + from,
                   l.k.b, l.n.b, to + matrix * matrices.elements<T>());
  });
}

// All tiles of a job whose factors are of type T.
template <class T>
void run_tiles(const Call& call, const Job& job) {
  const Lowering& l = job.lowering;
  const bool direct = job.direct();
  const int64_t tiles = l.tiles(), chunk = l.chunk(), slot = l.m_tile * l.n_tile,
                pitch = sums_pitch(l), slots = l.k_chunks - (direct ? 1 : 0);
  float* const partials = call.shared_scratch<float>();
  const auto c_of = [&](const Tile& tile) {
    return offsets(l.outer, tile.outer).c + tile.m * l.m.c + tile.n * l.n.c;
  };
  float* const z = direct ? (job.z ? job.z : job.y).template as<float>() : nullptr;
  call.pool.parallel_for(tiles * l.k_chunks, [&](int64_t task, int thread) {
    const int64_t index = task / l.k_chunks, part = task % l.k_chunks;
    const Tile tile = tile_of(l, index);
    const int64_t c_at = c_of(tile), k_begin = part * chunk,
                  k_size = std::max<int64_t>(0, std::min(chunk, l.k.extent - k_begin));
    std::byte* const scratch = call.scratch_of<std::byte>(thread);
    float* sums = direct
                      ? z + c_at
                      : reinterpret_cast<float*>(scratch + (l.products ? 0 : gemm_scratch_bytes));
    int64_t rs = direct ? l.m.c : pitch, cs = direct ? l.n.c : 1;
    if (l.k_chunks > 1 && (part > 0 || !direct)) {
      sums = partials + (index * slots + part - (direct ? 1 : 0)) * slot;
      rs = tile.cols, cs = 1;
    }
    if (l.products)
      sum_products<T>(job, tile, sums, cs);
    else
      multiply<T>(job, tile, k_begin, k_size, sums, rs, cs, scratch);
    if (l.k_chunks == 1) finish(job, tile, c_at, sums, rs, cs);
  });
  if (l.k_chunks == 1) return;
  constexpr int64_t strip = 16;  // rows of a tile that one task sums
  const int64_t strips = ceil_div(l.m_tile, strip);
  call.pool.parallel_for(tiles * strips, [&](int64_t task, int) {
    Tile tile = tile_of(l, task / strips);
    const int64_t first = task % strips * strip;
    if (first >= tile.rows) return;
    float* partial = partials + task / strips * slots * slot + first * tile.cols;
    tile.m += first, tile.rows = std::min(strip, tile.rows - first);
    const int64_t c_at = c_of(tile);
    float* const sums = direct ? z + c_at : partial;
    const int64_t rs = direct ? l.m.c : tile.cols;
    if (!direct) partial += slot;
    for (int64_t part = 1; part < l.k_chunks; ++part, partial += slot)
      for (int64_t row = 0; row < tile.rows; ++row)
        add_row(partial + row * tile.cols, 1, sums + row * rs, 1, tile.cols);
    finish(job, tile, c_at, sums, rs, 1);
  });
}

}  // namespace

static Lowering lowering_for(const ir::Attrs& attrs, std::span<const ir::Type> in) {
  std::vector<ir::Shape> shapes;
  for (const ir::Type& type : in) shapes.push_back(type.shape);
  CHECK(shapes.size() <= 10, "contract: at most 8 addends");
  return lower_contract(std::get<ir::Contract>(attrs).sig, shapes, in[0].dtype == ir::DType::bf16);
}
static const Lowering& lowering_of(const Call& call) {
  return call.once<Lowering>([&] {
    std::vector<ir::Type> types;
    for (const Tensor& tensor : call.in) types.push_back({tensor.dtype, tensor.shape, {}});
    return lowering_for(call.attrs, types);
  });
}

plan::PackedForm packed_contract(const ir::Attrs& attrs, std::span<const ir::Type> in,
                                 int operand) {
  const bool low = in[0].dtype == ir::DType::bf16;
  if (!low && in[0].dtype != ir::DType::f32) return {};
  const Lowering l = lowering_for(attrs, in);
  if (operand != (l.swapped ? 0 : 1) || !can_pack(l)) return {};
  const PackedMatrices matrices(l);
  const auto run = [](const Run& r) {
    return std::to_string(r.extent) + "*" + std::to_string(r.b) + " ";
  };
  std::string layout = (low ? "bf16 " : "") + run(l.k) + run(l.n);
  for (const Run& r : l.outer)
    if (r.b != 0) layout += run(r);
  for (const Run& r : l.outer_k) layout += run(r);
  layout.pop_back();
  return {low ? matrices.bytes<Low>(l) : matrices.bytes<float>(l), layout};
}

void pack_contract(const Call& call) {
  const Lowering& l = lowering_of(call);
  const Tensor& b = call.in[l.swapped ? 0 : 1];
  if (l.low)
    pack_matrices<Low>(call, l, b, reinterpret_cast<Low*>(call.packed));
  else
    pack_matrices<float>(call, l, b, reinterpret_cast<float*>(call.packed));
}

void fast_contract(const Call& call) {
  if (ir::is_quantised(call.in[0].dtype)) return contract_quantised(call);
  const auto& attr = call.attr<ir::Contract>();
  const Lowering& l = lowering_of(call);
  const bool act = !attr.act.empty();
  const Tensor y = call.out[0], z = act && call.out.size() > 1 ? call.out[1] : Tensor{};
  if ((!y && !z) || l.c_elements() == 0) return;
  const bool direct = !is_bf16(y ? y : z);

  std::array<Tensor, 8> addends{};
  for (std::size_t i = 2; i < call.in.size(); ++i) addends[i - 2] = call.in[i];
  Job job{.lowering = l,
          .a = call.in[l.swapped ? 1 : 0],
          .b = call.in[l.swapped ? 0 : 1],
          .z = z || (act && !direct) ? z : y,
          .y = act ? y : Tensor{},
          .tanh = attr.act == "gelu_tanh",
          .addends = std::span(addends).first(l.addend_strides.size()),
          .packed = call.packed};
  const Shared shared(l, direct);
  const Scratch need = scratch_of(l, direct);
  CHECK(call.scratch.shared >= need.shared && call.scratch.per_thread >= need.per_thread,
        "contract: scratch too small");
  if (!job.packed && shared.packed > 0) {
    std::byte* const to = call.shared + shared.partials;
    pack_matrices<Low>(call, l, job.b, reinterpret_cast<Low*>(to));
    job.packed = to;
  }
  if (l.low)
    run_tiles<Low>(call, job);
  else
    run_tiles<float>(call, job);
}

Scratch scratch_contract(const ir::Attrs& attrs, std::span<const ir::Type> in,
                         std::span<const ir::Type> out) {
  if (ir::is_quantised(in[0].dtype)) return {};
  return scratch_of(lowering_for(attrs, in), !any_bf16({}, out));
}

}  // namespace tessera::exec::cpu
