// gelu and its gradient; at bf16 numbers both are looked up (simd/gelu_table.h).
#include <algorithm>

#include "exec/cpu/gemm/micro.h"
#include "exec/cpu/kernel.h"
#include "exec/cpu/low.h"
#include "exec/cpu/simd/gelu_table.h"
#include "exec/cpu/simd/vector.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/gelu.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set
#include "hwy/highway.h"

#include "exec/cpu/simd/low-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {

// dx = g slope; sums, when given, are increased by dx as it is before it is rounded.
template <bool machine, bool summed, class G, class DX>
HWY_INLINE void by_slope_of(const float* slope, const G* g, DX* dx, float* sums, std::int64_t n) {
  along_row(n, [&](std::int64_t i, auto where) TESSERA_ROW_ATTR {
    const Two s = load_two(where, slope + i), y = load_two(where, g + i);
    const Two v{hn::Mul(s.a, y.a), hn::Mul(s.b, y.b)};
    store_two<machine>(where, v, dx + i);
    if constexpr (summed) {
      const Two sum = load_two(where, sums + i);
      store_two<false>(where, Two{hn::Add(sum.a, v.a), hn::Add(sum.b, v.b)}, sums + i);
    }
  });
}
template <bool machine, class G, class DX>
HWY_INLINE void by_slope(const float* slope, const G* g, DX* dx, float* sums, std::int64_t n) {
  if (sums != nullptr)
    by_slope_of<machine, true>(slope, g, dx, sums, n);
  else
    by_slope_of<machine, false>(slope, g, dx, nullptr, n);
}
void by_slope_wide(const float* slope, const float* g, float* dx, float* sums, std::int64_t n) {
  by_slope<false>(slope, g, dx, sums, n);
}

// The next slopes are looked up while the last ones are multiplied: loads beside vectors. dx may be
// x or g.
template <bool machine>
HWY_INLINE void by_table(const std::uint32_t* table, const Low* x, const Low* g, Low* dx,
                         float* sums, std::int64_t n) {
  constexpr std::int64_t step = 32;
  HWY_ALIGN float slopes[2][step];
  look_up(table, x, slopes[0], std::min(step, n));
  std::int64_t i = 0;
  int turn = 0;
  const auto piece = [&](std::int64_t size, std::int64_t next) HWY_ATTR {
    look_up(table, x + i + step, slopes[turn ^ 1], next);
    by_slope<machine>(slopes[turn], g + i, dx + i, sums == nullptr ? nullptr : sums + i, size);
    turn ^= 1;
    i += step;
  };
  while (i + 2 * step <= n) piece(step, step);
  while (i < n) piece(std::min(step, n - i), std::clamp<std::int64_t>(n - i - step, 0, step));
}
void by_table_low(const std::uint32_t* table, const Low* x, const Low* g, Low* dx, float* sums,
                  std::int64_t n) {
  by_table<false>(table, x, g, dx, sums, n);
}
void by_table_rounding(const std::uint32_t* table, const Low* x, const Low* g, Low* dx, float* sums,
                       std::int64_t n) {
  by_table<true>(table, x, g, dx, sums, n);
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::exec::cpu {

HWY_EXPORT(by_slope_wide);
HWY_EXPORT(by_table_low);
HWY_EXPORT(by_table_rounding);

namespace {
struct GeluGrad {
  Tensor x, g, dx;
  bool tanh;
  const std::uint32_t* slopes = is_bf16(x) ? gelu_slope_table(tanh) : nullptr;

  // Elements [begin, begin + n), at most low_piece of them; sums may be null.
  void piece(std::int64_t begin, std::int64_t n, float* sums) const {
    static const bool rounds = machine_round() != nullptr;
    if (slopes != nullptr && is_bf16(g) && is_bf16(dx)) {
      const Low *const from = x.as<Low>() + begin, *const dy = g.as<Low>() + begin;
      Low* const to = dx.as<Low>() + begin;
      if (rounds)
        HWY_DYNAMIC_DISPATCH(by_table_rounding)(slopes, from, dy, to, sums, n);
      else
        HWY_DYNAMIC_DISPATCH(by_table_low)(slopes, from, dy, to, sums, n);
      return;
    }
    if (sums == nullptr && slopes == nullptr && !is_bf16(g) && !is_bf16(dx))
      return vector_gelu_grad(x.as<float>() + begin, g.as<float>() + begin, dx.as<float>() + begin,
                              n, tanh);
    Piece slope, g_room, dx_room;
    if (slopes != nullptr) {
      look_up(slopes, x.as<Low>() + begin, slope.data(), n);
    } else {
      vector_fill(slope.data(), n, 1.0f);
      vector_gelu_grad(x.as<float>() + begin, slope.data(), slope.data(), n, tanh);
    }
    float* const to = room_for(dx, begin, dx_room.data());
    HWY_DYNAMIC_DISPATCH(by_slope_wide)
    (slope.data(), wide(g, begin, n, g_room.data()), to, sums, n);
    give(dx, begin, n, to);
  }
};

// Runs of rows whose sums are taken apart: at most 64.
std::int64_t sum_run(std::int64_t rows) { return std::max<std::int64_t>(8, (rows + 63) / 64); }
}  // namespace

void fast_gelu(const Call& call) {
  const bool tanh = call.attr<ir::Gelu>().tanh, low = is_bf16(call.out[0]);
  if (low && is_bf16(call.in[0])) {
    const Low* const x = call.in[0].as<Low>();
    Low* const y = call.out[0].as<Low>();
    for_chunks(call.pool, call.out[0].elements(), chunk,
               [&](std::int64_t i, std::int64_t n) { look_up(gelu_table(tanh), x + i, y + i, n); });
    return;
  }
  same_place(call, [&](const float* x, const float*, float* y, std::int64_t n) {
    low ? vector_gelu_low(x, y, n, tanh) : vector_gelu(x, y, n, tanh);
  });
}

void fast_gelu_grad(const Call& call) {
  const GeluGrad of{call.in[0], call.in[1], call.out[0], call.attr<ir::Gelu>().tanh};
  const std::int64_t n = of.x.elements();
  if (call.out.size() < 2 || !call.out[1]) {
    for_chunks(call.pool, n, chunk, [&](std::int64_t begin, std::int64_t size) {
      for (std::int64_t i = 0; i < size; i += low_piece)
        of.piece(begin + i, std::min(low_piece, size - i), nullptr);
    });
    return;
  }
  const std::int64_t columns = call.out[1].elements(), rows = columns == 0 ? 0 : n / columns,
                     run = sum_run(rows), runs = (rows + run - 1) / run;
  float* const partial = call.shared_scratch<float>();  // [runs][columns]
  call.pool.parallel_for(runs, [&](std::int64_t task, int) {
    float* const sums = partial + task * columns;
    vector_fill(sums, columns, 0.0f);
    for (std::int64_t row = task * run, end = std::min(rows, row + run); row < end; ++row)
      for (std::int64_t c = 0; c < columns; c += low_piece)
        of.piece(row * columns + c, std::min(low_piece, columns - c), sums + c);
  });
  vector_column_sum(partial, runs, columns, columns, call.out[1].as<float>());
}

Scratch scratch_gelu_grad(const ir::Attrs&, std::span<const ir::Type> in,
                          std::span<const ir::Type> out) {
  if (out.size() < 2) return {};
  const std::int64_t columns = out[1].elements(),
                     rows = columns == 0 ? 0 : in[0].elements() / columns, run = sum_run(rows);
  return {.shared = sizeof(float) * static_cast<std::size_t>((rows + run - 1) / run * columns)};
}

}  // namespace tessera::exec::cpu
#endif
