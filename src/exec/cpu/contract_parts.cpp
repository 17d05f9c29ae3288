#include "exec/cpu/contract_parts.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/index.h"
#include "exec/cpu/simd/vector.h"

namespace tessera::exec::cpu {

using std::int64_t;

Offsets offsets(const std::vector<Run>& runs, int64_t index) {
  Offsets at;
  for (std::size_t i = runs.size(); i-- > 0; index /= runs[i].extent) {
    const int64_t step = index % runs[i].extent;
    at.a += step * runs[i].a;
    at.b += step * runs[i].b;
    at.c += step * runs[i].c;
  }
  return at;
}

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

int64_t outer_addend_offset(const Lowering& l, std::size_t i, int64_t outer) {
  int64_t at = 0;
  for (std::size_t o = l.outer.size(); o-- > 0; outer /= l.outer[o].extent)
    at += addend_offset(l.outer[o], outer % l.outer[o].extent, l.addend_strides[i], l.extents);
  return at;
}

int64_t addend_stride(const Lowering& l, std::size_t i) {
  return l.n.letters.empty() ? 0
                             : l.addend_strides[i][static_cast<unsigned char>(l.n.letters.back())];
}

bool depends_on_row(const Lowering& l, std::size_t i) {
  return std::any_of(l.m.letters.begin(), l.m.letters.end(), [&](char c) {
    return l.addend_strides[i][static_cast<unsigned char>(c)] != 0;
  });
}

Tile tile_of(const Lowering& l, int64_t index, TileSize size) {
  const int64_t m_tiles = ceil_div(l.m.extent, size.m), n_tiles = ceil_div(l.n.extent, size.n);
  const int64_t n = index % n_tiles * size.n, m = index / n_tiles % m_tiles * size.m;
  return {index / n_tiles / m_tiles, m, n, std::min(size.m, l.m.extent - m),
          std::min(size.n, l.n.extent - n)};
}

Strip strip_of(const Lowering& lowering, int64_t task, int64_t rows, TileSize size) {
  const int64_t across = ceil_div(lowering.n.extent, size.n), strips = ceil_div(size.m, rows);
  Strip strip{task / (across * strips) * across + task % across, task / across % strips * rows, {}};
  strip.tile = tile_of(lowering, strip.index, size);
  strip.tile.m += strip.first;
  strip.tile.rows = std::min(rows, strip.tile.rows - strip.first);
  return strip;
}

int64_t rows_of_task(const Lowering& l, const Call& call) {
  if (call.threading != Threading::rows) return l.m_tile;
  const int64_t multiple = l.low ? low_rows : scattered_rows,
                high = std::max<int64_t>(1, l.outer_steps() * l.m_tiles());
  const int64_t strips = ceil_div(call.pool.size(), high);  // no sum knows of them
  return std::min(l.m_tile, ceil_div(ceil_div(l.m_tile, strips), multiple) * multiple);
}

void add_to_row(const float* addend, int64_t stride, float* z, int64_t z_stride, int64_t n) {
  if (z_stride == 1 && stride == 1)
    vector_add(z, addend, z, n);
  else if (z_stride == 1 && stride == 0)
    vector_add_scalar(z, *addend, z, n);
  else
    for (int64_t j = 0; j < n; ++j) z[j * z_stride] += addend[j * stride];
}

namespace {

void add_row(const Tensor& addend, int64_t at, int64_t stride, float* z, int64_t z_stride,
             int64_t n) {
  if (!is_bf16(addend)) return add_to_row(addend.as<float>() + at, stride, z, z_stride, n);
  std::array<float, most_columns> row;
  if (stride == 1)
    widen_bf16(addend.as<Low>() + at, row.data(), n);
  else
    for (int64_t j = 0; j < (stride == 0 ? 1 : n); ++j)
      row[static_cast<std::size_t>(j)] = widen_bf16(addend.as<Low>()[at + j * stride]);
  add_to_row(row.data(), stride == 0 ? 0 : 1, z, z_stride, n);
}

// act(z), or z itself, into a row of a result; where that is bf16, act of z as it is in bf16.
void put_row(const float* z, int64_t z_stride, const Tensor& to, int64_t at, int64_t stride,
             int64_t n, bool gelu, bool tanh) {
  if (!is_bf16(to) && z_stride == 1 && stride == 1)
    return gelu ? vector_gelu(z, to.as<float>() + at, n, tanh)
                : vector_copy(z, to.as<float>() + at, n);
  std::array<float, most_columns> row;
  for (int64_t j = 0; j < n && z_stride != 1; ++j)
    row[static_cast<std::size_t>(j)] = z[j * z_stride];
  const float* from = z_stride == 1 ? z : row.data();
  if (gelu && is_bf16(to)) {
    std::array<Low, most_columns> rounded;
    round_to_bf16(from, rounded.data(), n);
    widen_bf16(rounded.data(), row.data(), n);
    vector_gelu_low(row.data(), row.data(), n, tanh);
  } else if (gelu) {
    vector_gelu(from, row.data(), n, tanh);
  }
  if (gelu) from = row.data();
  if (is_bf16(to) && stride == 1) return round_to_bf16(from, to.as<Low>() + at, n);
  for (int64_t j = 0; j < n; ++j) {
    if (is_bf16(to))
      to.as<Low>()[at + j * stride] = round_to_bf16(from[j]);
    else
      to.as<float>()[at + j * stride] = from[j];
  }
}

}  // namespace

void finish_tile(const ContractJob& job, const Tile& tile, int64_t c_at, float* sums, int64_t rs,
                 int64_t cs) {
  const Lowering& l = job.lowering;
  if (job.finished()) return;
  std::array<int64_t, 8> first{}, stride{};
  for (std::size_t i = 0; i < job.addends.size(); ++i) {
    stride[i] = addend_stride(l, i);
    first[i] = outer_addend_offset(l, i, tile.outer) + tile.n * stride[i];
  }
  const bool bias =
      !job.addends.empty() && stride[0] == 1 && is_bf16(job.addends[0]) && !depends_on_row(l, 0);
  std::array<float, most_columns> columns;  // a bias of bf16 is widened once for all rows
  if (bias) widen_bf16(job.addends[0].as<Low>() + first[0], columns.data(), tile.cols);
  for (int64_t row = 0; row < tile.rows; ++row) {
    float* const z = sums + row * rs;
    const int64_t at = c_at + row * l.m.c;
    if (bias) add_to_row(columns.data(), 1, z, cs, tile.cols);
    for (std::size_t i = bias || job.bias_added ? 1 : 0; i < job.addends.size(); ++i)
      add_row(job.addends[i],
              first[i] + addend_offset(l.m, tile.m + row, job.lowering.addend_strides[i],
                                       job.lowering.extents),
              stride[i], z, cs, tile.cols);
    if (!job.direct() && job.z) put_row(z, cs, job.z, at, l.n.c, tile.cols, false, false);
    if (job.y) put_row(z, cs, job.y, at, l.n.c, tile.cols, true, job.tanh);
  }
}

Lowering lowering_for(const ir::Attrs& attrs, std::span<const ir::Type> in) {
  std::vector<ir::Shape> shapes;
  for (const ir::Type& type : in) shapes.push_back(type.shape);
  CHECK(shapes.size() <= 10, "contract: at most 8 addends");
  const bool i8 = in[0].dtype == ir::DType::i8;
  return lower_contract(std::get<ir::Contract>(attrs).sig, shapes,
                        i8 || in[0].dtype == ir::DType::bf16, i8);
}
const Lowering& lowering_of(const Call& call) {
  return call.once<Lowering>([&] {
    std::vector<ir::Type> types;
    for (const Tensor& tensor : call.in) types.push_back({tensor.dtype, tensor.shape, {}});
    return lowering_for(call.attrs, types);
  });
}

}  // namespace tessera::exec::cpu
