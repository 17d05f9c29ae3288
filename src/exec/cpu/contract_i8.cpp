// contract of i8 factors: exact sums in i32 (gemm/i8.h), then in one pass over each row the scales,
// a bias per column, act and the rounding; or, with the same bits, all of that by a micro-kernel
// that finishes products itself. A result in bytes is quantised from the result that there would be
// without. Convention: a task is one tile of C with all of k.
#include "exec/cpu/simd/vector.h"  // before Highway: the instruction sets we build for

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/contract_i8.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "base/index.h"
#include "exec/cpu/contract_parts.h"
#include "exec/cpu/gemm/i8.h"
#include "exec/cpu/gemm/tasks.h"
#include "exec/cpu/quantize.h"
#include "exec/cpu/reference/quantised.h"
#include "exec/cpu/simd/gelu_table.h"
#include "exec/cpu/simd/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {

template <class D, class V>
HWY_INLINE void store_as(D d, V v, float* to) {
  hn::StoreU(v, d, to);
}
// The bits of bf16, rounded as round_to_bf16 does it (simd/convert.h).
template <class D, class V>
HWY_INLINE auto rounded(D, V v) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, v), kept = hn::ShiftRight<16>(bits);
  const auto up = hn::Add(hn::Set(du, 0x7fff), hn::And(kept, hn::Set(du, 1)));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), hn::Or(kept, hn::Set(du, 0x40)),
                        hn::ShiftRight<16>(hn::Add(bits, up)));
}
template <class D, class V>
HWY_INLINE void store_as(D d, V v, Low* to) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<std::uint16_t, D> half;
  hn::StoreU(hn::DemoteTo(half, hn::BitCast(di, rounded(d, v))), half, to);
}

// act: 0 none, 1 gelu, 2 gelu_tanh. That of bf16 is of the value as it is in bf16, as in other
// products.
template <int act, class T, class D, class V>
HWY_INLINE V acted(D d, V v) {
  constexpr bool low = std::is_same_v<T, Low>;
  if constexpr (act == 0) return v;
  if constexpr (low) v = hn::BitCast(d, hn::ShiftLeft<16>(rounded(d, v)));
  if constexpr (act == 1 && low)
    return vgelu_low(d, v);
  else if constexpr (act == 1)
    return vgelu(d, v);
  else
    return vgelu_tanh(d, v);
}

// to = act(sums * scale + bias) for n columns; what is read is whole vectors long.
template <int act, class T>
HWY_INLINE void finish_i8(const std::int32_t* HWY_RESTRICT sums, const float* HWY_RESTRICT scale,
                          const float* HWY_RESTRICT bias, std::int64_t n, T* HWY_RESTRICT to) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto value = [&](std::int64_t j) HWY_ATTR {
    const auto v = hn::MulAdd(hn::ConvertTo(d, hn::LoadU(di, sums + j)), hn::LoadU(d, scale + j),
                              hn::LoadU(d, bias + j));
    return acted<act, T>(d, v);
  };
  std::int64_t j = 0;
  for (; j + lanes <= n; j += lanes) store_as(d, value(j), to + j);
  if (j == n) return;
  HWY_ALIGN T part[hn::MaxLanes(d)];
  store_as(d, value(j), part);
  std::memcpy(to + j, part, static_cast<std::size_t>(n - j) * sizeof(T));
}
void finish_i8_floats(int act, const std::int32_t* sums, const float* scale, const float* bias,
                      std::int64_t n, float* to) {
  if (act == 0)
    finish_i8<0>(sums, scale, bias, n, to);
  else if (act == 1)
    finish_i8<1>(sums, scale, bias, n, to);
  else
    finish_i8<2>(sums, scale, bias, n, to);
}
void finish_i8_lows(int act, const std::int32_t* sums, const float* scale, const float* bias,
                    std::int64_t n, Low* to) {
  constexpr bool narrow = hn::MaxLanes(hn::ScalableTag<float>()) <= 4;  // to look it up is faster
  if (act == 0 || narrow)
    finish_i8<0>(sums, scale, bias, n, to);
  else if (act == 1)
    finish_i8<1>(sums, scale, bias, n, to);
  else
    finish_i8<2>(sums, scale, bias, n, to);
  if (act != 0 && narrow) look_up(gelu_table(act == 2), to, to, n);
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::exec::cpu {

HWY_EXPORT(finish_i8_floats);
HWY_EXPORT(finish_i8_lows);

namespace {

using std::int64_t;

// A matrix product with scales and addends that are the same in every row, which is what linear
// layers are; the others go to the reference.
bool is_product(const Lowering& l) {
  if (!can_pack(l) || l.outer_k_steps() != 1 || l.k.extent > i8_most_k) return false;
  for (std::size_t i = 0; i < l.addend_strides.size(); ++i)
    if (depends_on_row(l, i)) return false;
  return true;
}

int64_t matrix_bytes(const Lowering& l) {
  return (packed_i8_bytes(l.k.extent, l.n.extent) + 63) / 64 * 64;
}
int64_t all_bytes(const Lowering& l) { return matrix_bytes(l) * PackedMatrices(l).count; }

void pack_all(const Call& call, const Lowering& l, const Tensor& b, std::byte* to) {
  const PackedMatrices matrices(l);
  const int64_t panels = ceil_div(matrices.n, panel_columns);
  std::vector<Run> outer;
  for (const Run& run : l.outer)
    if (run.b != 0) outer.push_back(run);
  call.pool.parallel_for(matrices.count * panels, [&](int64_t task, int) {
    const int64_t matrix = task / panels, n0 = task % panels * panel_columns;
    pack_i8(matrices.k, n0, std::min(panel_columns, matrices.n - n0),
            b.as<std::int8_t>() + offsets(outer, matrix).b, l.k.b, l.n.b,
            reinterpret_cast<std::int8_t*>(to + matrix * matrix_bytes(l)));
  });
}

using Columns = std::array<float, most_columns + 32>;  // whole vectors of a tile's columns

// Operand i after the factors along the columns of a tile, widened.
void read_columns(const Lowering& l, const Tile& tile, std::size_t i, const Tensor& t, float* to) {
  const int64_t stride = addend_stride(l, i),
                first = outer_addend_offset(l, i, tile.outer) + tile.n * stride;
  const auto number = [&](int64_t at) {
    return is_bf16(t) ? widen_bf16(t.as<Low>()[at]) : t.as<float>()[at];
  };
  if (stride == 0)
    std::fill_n(to, tile.cols, number(first));
  else if (stride == 1 && is_bf16(t))
    widen_bf16(t.as<Low>() + first, to, tile.cols);
  else if (stride == 1)
    vector_copy(t.as<float>() + first, to, tile.cols);
  else
    for (int64_t j = 0; j < tile.cols; ++j) to[j] = number(first + j * stride);
}

// The product of all scales and the sum of all addends of a tile's columns.
void read_ends(const Call& call, const Lowering& l, const Tile& tile, Columns& scale,
               Columns& bias) {
  const auto& attr = call.attr<ir::Contract>();
  Columns next;
  scale.fill(1);
  bias.fill(0);
  for (std::size_t i = 2; i < call.in.size() - (attr.to ? 1 : 0); ++i) {
    read_columns(l, tile, i - 2, call.in[i], next.data());
    if (static_cast<int>(i) < 2 + attr.scales)
      for (std::size_t j = 0; j < static_cast<std::size_t>(tile.cols); ++j) scale[j] *= next[j];
    else
      vector_add(bias.data(), next.data(), bias.data(), tile.cols);
  }
}
// 0 none, 1 gelu, 2 gelu_tanh.
int act_of(const Call& call) {
  const auto& attr = call.attr<ir::Contract>();
  return attr.act.empty() ? 0 : attr.act == "gelu" ? 1 : 2;
}

// Numbers of a quantised result are multiplied by this.
float inverse_of(const Call& call) { return 1 / call.in.back().as<float>()[0]; }

// act(sums times all scales + all addends), and the same before act, for a tile whose sums are
// complete.
void finish_i8_tile(const Call& call, const Lowering& l, const Tile& tile, std::int32_t* sums,
                    int64_t pitch) {
  Columns scale, bias;
  read_ends(call, l, tile, scale, bias);
  const auto lows = [&](int act, const std::int32_t* row, Low* y) {
    HWY_DYNAMIC_DISPATCH(finish_i8_lows)(act, row, scale.data(), bias.data(), tile.cols, y);
    return y;
  };
  const auto floats = [&](int act, const std::int32_t* row, float* y) {
    HWY_DYNAMIC_DISPATCH(finish_i8_floats)(act, row, scale.data(), bias.data(), tile.cols, y);
    return y;
  };
  const bool low = call.attr<ir::Contract>().out == ir::DType::bf16;
  const auto put = [&](const Tensor& to, int act, const std::int32_t* row, int64_t at) {
    std::array<Low, most_columns> low_room;
    Columns room;
    if (!to) return;
    if (to.dtype == ir::DType::i8 && low)
      to_bytes(lows(act, row, low_room.data()), inverse_of(call), tile.cols,
               to.as<std::int8_t>() + at);
    else if (to.dtype == ir::DType::i8)
      to_bytes(floats(act, row, room.data()), inverse_of(call), tile.cols,
               to.as<std::int8_t>() + at);
    else if (low)
      lows(act, row, to.as<Low>() + at);
    else
      floats(act, row, to.as<float>() + at);
  };
  const int act = act_of(call);
  int64_t c_at = c_offset(l, tile);
  for (int64_t row = 0; row < tile.rows; ++row, c_at += l.m.c, sums += pitch) {
    put(call.out[0], act, sums, c_at);
    if (call.out.size() > 1) put(call.out[1], 0, sums, c_at);
  }
}

// How a micro-kernel finishes the call itself, from C's first element on, but for scales and
// offsets. Without an end: it does not, since it rounds all results to bf16.
Finish whole_finish(const Call& call, const Lowering& l) {
  const Tensor y = call.out[0], z = call.out.size() > 1 ? call.out[1] : Tensor{};
  const bool aligned = std::ranges::all_of(l.outer, [](const Run& r) { return r.a % 2 == 0; });
  if (!aligned || !finishes_i8(l.k.extent, l.m.a, l.k.a) ||
      call.attr<ir::Contract>().out != ir::DType::bf16)
    return {};
  const int act = y ? act_of(call) : 0;
  if (act == 0 && y && z) return {};
  Finish out{.pitch = l.m.c};
  if (y && y.dtype == ir::DType::i8) {
    out.bytes = y.as<std::int8_t>();
    out.inverse = inverse_of(call);
  } else {
    out.low = y ? y.as<Low>() : z ? z.as<Low>() : nullptr;
  }
  if (act != 0) {
    out.act = act == 1 ? Act::gelu : Act::gelu_tanh;
    if (z) out.before = z.as<Low>();
  }
  return out;
}
void finished_tile(const Call& call, const Lowering& l, const Tile& tile, Finish finish,
                   const std::int8_t* a, const std::int8_t* packed, void* panel) {
  Columns scale, bias;
  read_ends(call, l, tile, scale, bias);
  finish = finish.moved(c_offset(l, tile));
  finish.scale = scale.data();
  finish.offset = bias.data();
  finished_i8(tile.rows, tile.cols, l.k.extent, a, l.m.a, packed, tile.n, finish, panel);
}

// Tiles for this many threads whose sums, where they go to memory, fit a thread's room.
TileSize small_i8_tiles(const Lowering& l, int threads, bool in_memory) {
  const auto fits = [in_memory, room = l.m_tile * sums_pitch(l)](ProductTask t) {
    return !in_memory || t.rows * ceil_div(t.columns, panel_columns) * panel_columns <= room;
  };
  const ProductTask task = product_task(task_sizes(micro_i8()), l.m.extent, l.n.extent, l.k.extent,
                                        l.outer_steps(), threads, fits);
  return {task.rows, task.columns};
}

}  // namespace

plan::PackedForm packed_contract_i8(const ir::Attrs& attrs, std::span<const ir::Type> in,
                                    int operand) {
  const Lowering l = lowering_for(attrs, in);
  if (operand != (l.swapped ? 0 : 1) || !is_product(l)) return {};
  std::string layout = fmt::format("i8 {}*{} {}*{}", l.k.extent, l.k.b, l.n.extent, l.n.b);
  for (const Run& r : l.outer)
    if (r.b != 0) layout += fmt::format(" {}*{}", r.extent, r.b);
  return {all_bytes(l), layout};
}

void pack_contract_i8(const Call& call) {
  const Lowering& l = lowering_of(call);
  pack_all(call, l, call.in[l.swapped ? 0 : 1], call.packed);
}

void contract_i8(const Call& call) {
  const Lowering& l = lowering_of(call);
  const bool more = call.out.size() > 2 && (call.out[2] || call.out[3]);  // turned, the largest
  if (more) return contract_quantised(call);
  if (l.c_elements() == 0) return;
  if (!is_product(l)) return contract_quantised(call);
  const std::byte* packed = call.packed;
  if (!packed) {
    pack_all(call, l, call.in[l.swapped ? 0 : 1], call.shared);
    packed = call.shared;
  }
  const auto* const a = call.in[l.swapped ? 1 : 0].as<std::int8_t>();
  // Rows that are read where they lie make tasks that are small.
  const bool small = micro_i8().row_major && call.threading == Threading::automatic;
  const Finish finish = whole_finish(call, l);
  const TileSize size =
      small ? small_i8_tiles(l, call.pool.size(), !finish.ends()) : TileSize{l.m_tile, l.n_tile};
  const int64_t rows = small ? size.m : rows_of_task(l, call),
                same_rows = ceil_div(l.n.extent, size.n),
                of_head = ceil_div(l.m.extent, size.m) * ceil_div(size.m, rows) * same_rows,
                pitch = ceil_div(size.n, panel_columns) * panel_columns;
  call.share_out(l.outer_steps() * of_head, same_rows, of_head, [&](int64_t task, int thread) {
    const Tile tile = strip_of(l, small ? rows_first(l, task, size) : task, rows, size).tile;
    if (tile.rows <= 0) return;
    std::byte* const scratch = call.scratch_of<std::byte>(thread);
    const std::int8_t *const rows_a = a + offsets(l.outer, tile.outer).a + tile.m * l.m.a,
                             *const matrix = reinterpret_cast<const std::int8_t*>(packed) +
                                             PackedMatrices::index(l, tile.outer) * matrix_bytes(l);
    if (finish.ends()) return finished_tile(call, l, tile, finish, rows_a, matrix, scratch);
    auto* const sums = reinterpret_cast<std::int32_t*>(scratch + i8_panel_bytes);
    gemm_i8(tile.rows, tile.cols, l.k.extent, rows_a, l.m.a, l.k.a, matrix, tile.n, sums, pitch,
            scratch);
    finish_i8_tile(call, l, tile, sums, pitch);
  });
}

Scratch scratch_contract_i8(const ir::Attrs& attrs, std::span<const ir::Type> in) {
  const Lowering l = lowering_for(attrs, in);
  if (!is_product(l)) return {};
  return {.shared = static_cast<std::size_t>(all_bytes(l)),
          .per_thread = static_cast<std::size_t>(i8_panel_bytes) +
                        sizeof(std::int32_t) * static_cast<std::size_t>(l.m_tile * sums_pitch(l))};
}

}  // namespace tessera::exec::cpu
#endif
