// bf16 products on any machine: panels of B stay bf16, those of A are widened as they are packed,
// and the tile widens B in registers. Also the packing that the micro-kernels of each architecture
// share, and the choice among them.
#include "exec/cpu/simd/vector.h"  // before Highway: the instruction sets we build for

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/gemm/low.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <utility>

#include "exec/cpu/gemm/micro.h"
#include "exec/cpu/gemm/pack_low-inl.h"
#include "exec/cpu/gemm/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {

// [padded][R] in f32, a few dozen numbers of k at a time.
void pack_widened(const Lanes& l, void* panel) {
  constexpr int64_t at_once = 64;
  float* HWY_RESTRICT to = static_cast<float*>(panel);
  const Low* HWY_RESTRICT from = static_cast<const Low*>(l.from);
  const auto wide = [](Low x) { return std::bit_cast<float>(std::uint32_t{x} << 16); };
  HWY_ALIGN float part[R * at_once];
  for (int64_t p = 0; p < l.k; p += at_once, to += at_once * R) {
    const int64_t size = std::min(at_once, l.k - p);
    const Low* HWY_RESTRICT at = from + p * l.k_step;
    if (l.lane_step == 1) {
      for (int64_t q = 0; q < size; ++q)
        for (int64_t lane = 0; lane < l.used; ++lane)
          part[q * R + lane] = wide(at[q * l.k_step + lane]);
      pack<R>(l.used, size, part, 1, R, to);
    } else {
      for (int64_t lane = 0; lane < l.used; ++lane)
        for (int64_t q = 0; q < size; ++q)
          part[lane * at_once + q] = wide(at[lane * l.lane_step + q * l.k_step]);
      pack<R>(l.used, size, part, at_once, 1, to);
    }
  }
  to = static_cast<float*>(panel);
  std::fill(to + l.k * R, to + l.padded * R, 0.0f);
}

// Adds one number of k. Numbers 2p and 2p + 1 of a column lie in one lane of B.
template <int W, bool odd, int... I>
HWY_INLINE void add_products(std::integer_sequence<int, I...>, const float* HWY_RESTRICT a,
                             const std::uint32_t* HWY_RESTRICT b, V* HWY_RESTRICT sum0,
                             V* HWY_RESTRICT sum1) {
  const hn::RebindToUnsigned<D> du;
  V column[3] = {hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  if constexpr (HWY_ARCH_ARM) {
    column[0] = hn::Load(d, a);
    column[1] = hn::Load(d, a + 4);
    column[2] = hn::Load(d, a + 8);
  }
  const auto first = hn::Load(du, b), second = hn::Load(du, b + lanes);
  const auto upper = hn::Set(du, 0xffff0000u);
  const V b0 = hn::BitCast(d, odd ? hn::And(first, upper) : hn::ShiftLeft<16>(first)),
          b1 = hn::BitCast(d, odd ? hn::And(second, upper) : hn::ShiftLeft<16>(second));
  if constexpr (W == 2)
    (add_to_both(element<I>(column, a), b0, b1, sum0[I], sum1[I]), ...);
  else
    ((sum0[I] = hn::MulAdd(element<I>(column, a), b0, sum0[I])), ...);
}
template <int W, int... I>
HWY_INLINE void tile_low(std::integer_sequence<int, I...> all, int64_t k,
                         const float* HWY_RESTRICT a, const std::uint32_t* HWY_RESTRICT b,
                         const TileOut& out) {
  V sum0[R] = {((void)I, hn::Zero(d))...}, sum1[R] = {((void)I, hn::Zero(d))...};
  for (int64_t p = 0; p < k; p += 2, a += 2 * R, b += NR) {
    add_products<W, false>(all, a, b, sum0, sum1);
    add_products<W, true>(all, a + R, b, sum0, sum1);
  }
  store<W>(all, sum0, sum1, out);
}
void tile_of_low(int64_t k, const void* a, const void* b, const TileOut& out) {
  constexpr auto all = std::make_integer_sequence<int, R>();
  if (out.cols > lanes)
    tile_low<2>(all, k, static_cast<const float*>(a), static_cast<const std::uint32_t*>(b), out);
  else
    tile_low<1>(all, k, static_cast<const float*>(a), static_cast<const std::uint32_t*>(b), out);
}

const Micro* low_micro_here() {
  static constexpr Micro micro{.name = "widened",
                               .rows = R,
                               .columns = NR,
                               .group = 2,
                               .a_bytes = R * 4,
                               .b_bytes = NR * 2,
                               .k_block = 384,
                               .turns = true,
                               .pack_a = pack_widened,
                               .pack_b = low::pack_groups<NR, 2>,
                               .tile = tile_of_low};
  return &micro;
}
const LowPacks* low_packs_here() {
  static constexpr LowPacks packs{.pairs_12 = low::pack_groups<12, 2>,
                                  .pairs_32 = low::pack_groups<32, 2>,
                                  .quads_6 = low::pack_groups<6, 4>,
                                  .quads_16 = low::pack_groups<16, 4>,
                                  .rows_32 = low::pack_rows<32>};
  return &packs;
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::exec::cpu {

HWY_EXPORT(low_micro_here);
HWY_EXPORT(low_packs_here);

const Micro* wide_micro() { return HWY_DYNAMIC_DISPATCH(low_micro_here)(); }
const LowPacks& low_packs() { return *HWY_DYNAMIC_DISPATCH(low_packs_here)(); }

std::vector<const Micro*> low_micros() {
  std::vector<const Micro*> out = machine_micros();
  out.push_back(wide_micro());
  return out;
}

namespace {
// Null: the one that widens, of the instruction set that is in use when it is asked for.
std::atomic<const Micro*>& chosen() {
  static std::atomic<const Micro*> micro = [] {
    const std::vector<const Micro*> machine = machine_micros();
    return machine.empty() ? nullptr : machine.front();
  }();
  return micro;
}
}  // namespace

const Micro& micro_low() {
  const Micro* const micro = chosen().load(std::memory_order_relaxed);
  return micro ? *micro : *wide_micro();
}

bool use_low_micro(std::string_view name) {
  const std::vector<const Micro*> machine = machine_micros();
  const Micro* micro = machine.empty() ? nullptr : machine.front();
  if (!name.empty()) {
    const auto named = std::find_if(machine.begin(), machine.end(),
                                    [&](const Micro* m) { return m->name == name; });
    if (named == machine.end() && name != wide_micro()->name) return false;
    micro = named == machine.end() ? nullptr : *named;
  }
  chosen().store(micro, std::memory_order_relaxed);
  return true;
}

}  // namespace tessera::exec::cpu
#endif
