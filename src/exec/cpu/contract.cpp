// contract in f32 (exec/common/contraction.h: how a signature becomes a matrix product).
// Convention: a task is one tile of C and one chunk of k. Bias, residual and gelu are applied to a
// tile while it is in cache.
#include "exec/cpu/contract.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/index.h"
#include "exec/cpu/gemm/gemm.h"
#include "exec/cpu/simd/vector.h"

namespace tessera::exec::cpu {

namespace {

using std::int64_t;

// Even parts of at most `most`, rounded up to whole register tiles.
int64_t even_tile(int64_t extent, int64_t most, int64_t multiple) {
  return std::min(extent, ceil_div(ceil_div(extent, ceil_div(extent, most)), multiple) * multiple);
}

// Large tiles amortise packing (each side costs roughly as much as 4 rows of arithmetic); many
// tiles keep threads busy. The score weighs the loss to packing against the idle share of 2 and of
// 16 threads.
void choose_tiles(Lowering& lowering) {
  constexpr int64_t fewest_tasks = 16, shortest_chunk = 256;
  const int64_t m = lowering.m.extent, n = lowering.n.extent, k = lowering.k.extent,
                outer = lowering.outer_steps();
  const auto busy = [](int64_t tasks, int64_t threads) {
    return static_cast<double>(tasks) / static_cast<double>(ceil_div(tasks, threads) * threads);
  };
  double best = 0;
  for (int64_t most_m : {264, 192, 132, 96, 72, 48}) {
    for (int64_t most_n : {384, 192, 96}) {
      const int64_t m_tile = even_tile(m, most_m, 12), n_tile = even_tile(n, most_n, 32);
      const int64_t tiles = outer * ceil_div(m, m_tile) * ceil_div(n, n_tile);
      int64_t chunks = lowering.n.c == 1
                           ? std::clamp<int64_t>(std::min(fewest_tasks / tiles, k / shortest_chunk),
                                                 1, fewest_tasks)
                           : 1;
      const double packing = 1 + 4.0 / static_cast<double>(m_tile) +
                             4.0 / static_cast<double>(n_tile) +
                             (chunks > 1 ? 10.0 / static_cast<double>(k / chunks) : 0);
      const double score = (busy(tiles * chunks, 2) + busy(tiles * chunks, fewest_tasks)) / packing;
      if (score <= best) continue;
      best = score;
      lowering.m_tile = m_tile, lowering.n_tile = n_tile, lowering.k_chunks = chunks;
    }
  }
}

}  // namespace

Lowering lower_contract(std::string_view sig, std::span<const ir::Shape> in) {
  Lowering out{analyse_contraction(sig, in)};
  if (out.products)
    out.n_tile = 16;
  else if (out.c_elements() > 0)
    choose_tiles(out);
  return out;
}

namespace {

// One call: pointers beside what signature and shapes say.
struct Job {
  const Lowering& lowering;
  const float *a, *b;
  float* z;  // the value before act
  float* y;  // act(z); may be z's storage; null: nobody reads it, or there is no act
  bool tanh;
  std::span<const float* const> addends;
  const float* packed = nullptr;  // B as pack_contract() wrote it; null: as it is
};

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
  int64_t elements() const { return packed_b_elements(k, n); }  // of one
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

// No rows and columns: each element is a sum of products. Doubles, since nothing here blocks the
// sum.
void sum_products(const Job& job, const Tile& tile, float* c) {
  const Lowering& l = job.lowering;
  std::array<double, 16> sum{};
  const Offsets at = offsets(l.outer, tile.outer);
  for (int64_t step = 0, steps = l.outer_k_steps(); step < steps; ++step) {
    const Offsets k_at = offsets(l.outer_k, step);
    const float* a = job.a + at.a + k_at.a + tile.n * l.n.a;
    const float* b = job.b + at.b + k_at.b + tile.n * l.n.b;
    for (int64_t p = 0; p < l.k.extent; ++p, a += l.k.a, b += l.k.b)
      for (int64_t j = 0; j < tile.cols; ++j)
        sum[static_cast<std::size_t>(j)] +=
            static_cast<double>(a[j * l.n.a]) * static_cast<double>(b[j * l.n.b]);
  }
  for (int64_t j = 0; j < tile.cols; ++j)
    c[j * l.n.c] = static_cast<float>(sum[static_cast<std::size_t>(j)]);
}

void multiply(const Job& job, const Tile& tile, int64_t k_begin, int64_t k_size, float* c,
              int64_t rs_c, int64_t cs_c, float* packed) {
  const Lowering& l = job.lowering;
  const Offsets at = offsets(l.outer, tile.outer);
  const float* a = job.a + at.a + tile.m * l.m.a + k_begin * l.k.a;
  const float* b = job.b + at.b + tile.n * l.n.b + k_begin * l.k.b;
  for (int64_t step = 0, steps = l.outer_k_steps(); step < steps; ++step) {
    const Offsets k_at = offsets(l.outer_k, step);
    if (job.packed) {
      const PackedMatrices matrices(l);
      const float* matrix =
          job.packed + (PackedMatrices::index(l, tile.outer) + step) * matrices.elements();
      gemm_packed(tile.rows, tile.cols, k_size, a + k_at.a, l.m.a, l.k.a,
                  {matrix, l.k.extent, k_begin, tile.n}, step == 0 ? 0 : 1, c, rs_c, packed);
      continue;
    }
    gemm(tile.rows, tile.cols, k_size, 1, a + k_at.a, l.m.a, l.k.a, b + k_at.b, l.k.b, l.n.b,
         step == 0 ? 0 : 1, c, rs_c, cs_c, packed);
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

void gelu_row(const float* z, float* y, int64_t stride, int64_t n, bool tanh) {
  if (stride == 1) return vector_gelu(z, y, n, tanh);
  for (int64_t j = 0; j < n; ++j) vector_gelu(z + j * stride, y + j * stride, 1, tanh);
}

// Addends and act over a tile of C that holds the whole sum.
void finish(const Job& job, const Tile& tile, int64_t c_at) {
  const Lowering& l = job.lowering;
  if (job.addends.empty() && !job.y) return;
  std::array<const float*, 8> addend{};
  std::array<int64_t, 8> stride{};
  for (std::size_t i = 0; i < job.addends.size(); ++i) {
    addend[i] = job.addends[i];
    int64_t index = tile.outer;
    for (std::size_t o = l.outer.size(); o-- > 0; index /= l.outer[o].extent)
      addend[i] += addend_offset(l.outer[o], index % l.outer[o].extent,
                                 job.lowering.addend_strides[i], job.lowering.extents);
    stride[i] =
        l.n.letters.empty()
            ? 0
            : job.lowering.addend_strides[i][static_cast<unsigned char>(l.n.letters.back())];
    addend[i] += tile.n * stride[i];
  }
  for (int64_t row = 0; row < tile.rows; ++row) {
    float* z = job.z + c_at + row * l.m.c;
    for (std::size_t i = 0; i < job.addends.size(); ++i)
      add_row(addend[i] + addend_offset(l.m, tile.m + row, job.lowering.addend_strides[i],
                                        job.lowering.extents),
              stride[i], z, l.n.c, tile.cols);
    if (job.y) gelu_row(z, job.y + c_at + row * l.m.c, l.n.c, tile.cols, job.tanh);
  }
}

// Partial sums are read by whichever thread adds them up; a sum of products packs nothing.
Scratch scratch_of(const Lowering& l) {
  return {.shared = sizeof(float) * static_cast<std::size_t>(l.partial_elements()),
          .per_thread = l.products ? 0 : gemm_scratch_bytes};
}

}  // namespace

static const Lowering& lowering_of(const Call& call) {
  return call.once<Lowering>([&] {
    std::vector<ir::Shape> shapes;
    for (const Tensor& tensor : call.in) shapes.push_back(tensor.shape);
    CHECK(shapes.size() <= 10, "contract: at most 8 addends");
    return lower_contract(call.attr<ir::Contract>().sig, shapes);
  });
}

plan::PackedForm packed_contract(const ir::Attrs& attrs, std::span<const ir::Type> in,
                                 int operand) {
  std::vector<ir::Shape> shapes;
  for (const ir::Type& type : in) {
    if (type.dtype != ir::DType::f32) return {};
    shapes.push_back(type.shape);
  }
  const Lowering l = lower_contract(std::get<ir::Contract>(attrs).sig, shapes);
  if (operand != (l.swapped ? 0 : 1) || !can_pack(l)) return {};
  const PackedMatrices matrices(l);
  const auto run = [](const Run& r) {
    return std::to_string(r.extent) + "*" + std::to_string(r.b) + " ";
  };
  std::string layout = run(l.k) + run(l.n);
  for (const Run& r : l.outer)
    if (r.b != 0) layout += run(r);
  for (const Run& r : l.outer_k) layout += run(r);
  layout.pop_back();
  return {static_cast<int64_t>(sizeof(float)) * matrices.elements() * matrices.count *
              l.outer_k_steps(),
          layout};
}

void pack_contract(const Call& call) {
  const Lowering& l = lowering_of(call);
  const PackedMatrices matrices(l);
  const int64_t panels = ceil_div(matrices.n, scattered_columns);
  const float* b = call.in[l.swapped ? 0 : 1].as<float>();
  std::vector<Run> outer;
  for (const Run& run : l.outer)
    if (run.b != 0) outer.push_back(run);
  call.pool.parallel_for(matrices.count * l.outer_k_steps() * panels, [&](int64_t task, int) {
    const int64_t matrix = task / panels, n0 = task % panels * scattered_columns;
    const int64_t from = offsets(outer, matrix / l.outer_k_steps()).b +
                         offsets(l.outer_k, matrix % l.outer_k_steps()).b;
    gemm_pack_b(matrices.k, n0, std::min(scattered_columns, matrices.n - n0), b + from, l.k.b,
                l.n.b, reinterpret_cast<float*>(call.packed) + matrix * matrices.elements());
  });
}

void fast_contract(const Call& call) {
  const auto& attr = call.attr<ir::Contract>();
  const Lowering& l = lowering_of(call);
  const bool act = !attr.act.empty();
  float* const y = call.out[0].as<float>();
  float* const z = act && call.out.size() > 1 ? call.out[1].as<float>() : nullptr;
  if ((!y && !z) || l.c_elements() == 0) return;

  std::array<const float*, 8> addends{};
  for (std::size_t i = 2; i < call.in.size(); ++i) addends[i - 2] = call.in[i].as<float>();
  const Job job{.lowering = l,
                .a = call.in[l.swapped ? 1 : 0].as<float>(),
                .b = call.in[l.swapped ? 0 : 1].as<float>(),
                .z = z ? z : y,
                .y = act ? y : nullptr,
                .tanh = attr.act == "gelu_tanh",
                .addends = std::span(addends).first(l.addend_strides.size()),
                .packed = reinterpret_cast<const float*>(call.packed)};

  const int64_t tiles = l.tiles(), chunk = ceil_div(l.k.extent, l.k_chunks),
                slot = l.m_tile * l.n_tile;
  const Scratch need = scratch_of(l);
  CHECK(call.scratch.shared >= need.shared && call.scratch.per_thread >= need.per_thread,
        "contract: scratch too small");
  float* const partials = call.shared_scratch<float>();
  const auto c_of = [&](const Tile& tile) {
    return offsets(l.outer, tile.outer).c + tile.m * l.m.c + tile.n * l.n.c;
  };
  call.pool.parallel_for(tiles * l.k_chunks, [&](int64_t task, int thread) {
    const int64_t index = task / l.k_chunks, part = task % l.k_chunks;
    const Tile tile = tile_of(l, index);
    const int64_t c_at = c_of(tile), k_begin = part * chunk,
                  k_size = std::max<int64_t>(0, std::min(chunk, l.k.extent - k_begin));
    if (l.products)
      sum_products(job, tile, job.z + c_at);
    else if (part == 0)
      multiply(job, tile, 0, k_size, job.z + c_at, l.m.c, l.n.c, call.scratch_of<float>(thread));
    else
      multiply(job, tile, k_begin, k_size, partials + (index * (l.k_chunks - 1) + part - 1) * slot,
               tile.cols, 1, call.scratch_of<float>(thread));
    if (l.k_chunks == 1) finish(job, tile, c_at);
  });
  if (l.k_chunks == 1) return;
  constexpr int64_t strip = 16;  // rows of a tile that one task sums
  const int64_t strips = ceil_div(l.m_tile, strip);
  call.pool.parallel_for(tiles * strips, [&](int64_t task, int) {
    Tile tile = tile_of(l, task / strips);
    const int64_t first = task % strips * strip;
    if (first >= tile.rows) return;
    const float* partial = partials + task / strips * (l.k_chunks - 1) * slot + first * tile.cols;
    tile.m += first, tile.rows = std::min(strip, tile.rows - first);
    const int64_t c_at = c_of(tile);
    for (int64_t part = 1; part < l.k_chunks; ++part, partial += slot)
      for (int64_t row = 0; row < tile.rows; ++row)
        add_row(partial + row * tile.cols, 1, job.z + c_at + row * l.m.c, 1, tile.cols);
    finish(job, tile, c_at);
  });
}

Scratch scratch_contract(const ir::Attrs& attrs, std::span<const ir::Type> in,
                         std::span<const ir::Type>) {
  std::vector<ir::Shape> shapes;
  for (const ir::Type& type : in) shapes.push_back(type.shape);
  return scratch_of(lower_contract(std::get<ir::Contract>(attrs).sig, shapes));
}

}  // namespace tessera::exec::cpu
