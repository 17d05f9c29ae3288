// Reductions in blocks that stay in cache: a block is accumulated over all sources, then stored to
// every destination. Two sources, the usual case on a small machine, need no accumulator.
// Convention: a destination is one of the sources or apart from all of them, so each element is
// read before it is written.
#include "comm/reduce.h"

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "base/half.h"
#include "comm/wide_sum.h"

namespace tessera::comm {

namespace {

using std::int64_t;

struct Bf16 {
  std::uint16_t bits;
};

struct F16 {
  std::uint16_t bits;
};

float widen(F16 x) { return from_half(x.bits); }
float widen(Bf16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }
template <class T>
T widen(T x) {
  return x;
}

template <class T, class Wide>
T narrow(Wide x) {
  if constexpr (std::same_as<T, Bf16>) {  // to nearest, ties to even; a NaN keeps a set bit
    const auto bits = std::bit_cast<std::uint32_t>(x), kept = bits >> 16;
    return {
        static_cast<std::uint16_t>(x != x ? kept | 0x40u : (bits + 0x7fffu + (kept & 1u)) >> 16)};
  } else if constexpr (std::same_as<T, F16>) {
    return {to_half(x)};
  } else {
    return x;
  }
}

struct Sum {
  template <class W>
  W operator()(W a, W b) const {
    if constexpr (std::integral<W>) {
      using U = std::make_unsigned_t<W>;  // wraps instead of undefined overflow
      return static_cast<W>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    } else {
      return a + b;
    }
  }
};
struct Max {
  template <class W>
  W operator()(W a, W b) const {
    return a != a || a > b ? a : b;  // a NaN in b loses no comparison: it falls through
  }
};
struct Min {
  template <class W>
  W operator()(W a, W b) const {
    return a != a || a < b ? a : b;
  }
};

template <class T>
T load(const std::byte* at, int64_t i) {
  T x;
  std::memcpy(&x, at + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return x;
}

template <class T>
void store(std::byte* at, int64_t i, T x) {
  std::memcpy(at + i * static_cast<int64_t>(sizeof(T)), &x, sizeof(T));
}

#if defined(__clang__)
#define NO_DEPENDENCE _Pragma("clang loop vectorize(assume_safety)")
#else
#define NO_DEPENDENCE _Pragma("GCC ivdep")
#endif

template <class T, class How>
void reduce_pair(How combine, const std::byte* a, const std::byte* b,
                 std::span<std::byte* const> to, int64_t elements) {
  std::byte* const x = to[0];
  if (to.size() == 1) {
    NO_DEPENDENCE
    for (int64_t i = 0; i < elements; ++i) store<T>(x, i, combine(load<T>(a, i), load<T>(b, i)));
    return;
  }
  std::byte* const y = to[1];
  NO_DEPENDENCE
  for (int64_t i = 0; i < elements; ++i) {
    const T sum = combine(load<T>(a, i), load<T>(b, i));
    store<T>(x, i, sum);
    store<T>(y, i, sum);
  }
}

template <class T, class How>
void reduce_as(How combine, std::span<const std::byte* const> from, std::span<std::byte* const> to,
               int64_t elements) {
  using Wide = decltype(widen(T{}));
  if constexpr (std::same_as<T, Wide>)
    if (from.size() == 2 && (to.size() == 1 || to.size() == 2))
      return reduce_pair<T>(combine, from[0], from[1], to, elements);
  constexpr int64_t block = 1024, size = sizeof(T);
  std::array<Wide, block> sum;
  std::array<T, std::same_as<T, Wide> ? 1 : block> rounded;
  for (int64_t begin = 0; begin < elements; begin += block) {
    const int64_t n = std::min(block, elements - begin);
    const auto source = [&](std::size_t i) { return from[i] + begin * size; };
    Wide* const s = sum.data();
    if (from.size() == 1) {
      for (int64_t i = 0; i < n; ++i) s[i] = widen(load<T>(source(0), i));
    } else {
      const std::byte *const a = source(0), *const b = source(1);
      for (int64_t i = 0; i < n; ++i) s[i] = combine(widen(load<T>(a, i)), widen(load<T>(b, i)));
    }
    for (std::size_t k = 2; k < from.size(); ++k) {
      const std::byte* const at = source(k);
      for (int64_t i = 0; i < n; ++i) s[i] = combine(s[i], widen(load<T>(at, i)));
    }
    const void* result = s;
    if constexpr (!std::same_as<T, Wide>) {
      for (int64_t i = 0; i < n; ++i) rounded[static_cast<std::size_t>(i)] = narrow<T>(s[i]);
      result = rounded.data();
    }
    for (std::byte* target : to)
      std::memcpy(target + begin * size, result, static_cast<std::size_t>(n * size));
  }
}

template <class T>
void reduce_by(Reduction how, std::span<const std::byte* const> from,
               std::span<std::byte* const> to, int64_t elements) {
  switch (how) {
    case Reduction::sum:
      return reduce_as<T>(Sum{}, from, to, elements);
    case Reduction::max:
      return reduce_as<T>(Max{}, from, to, elements);
    case Reduction::min:
      return reduce_as<T>(Min{}, from, to, elements);
  }
}

}  // namespace

void reduce(ir::DType dtype, Reduction how, std::span<const std::byte* const> from,
            std::span<std::byte* const> to, int64_t elements) {
  CHECK(!from.empty(), "reduce: no sources");
  switch (dtype) {
    case ir::DType::f64:
      return reduce_by<double>(how, from, to, elements);
    case ir::DType::f32:
      if (how == Reduction::sum && wide::sum(from, to, elements)) return;
      return reduce_by<float>(how, from, to, elements);
    case ir::DType::bf16:
      return reduce_by<Bf16>(how, from, to, elements);
    case ir::DType::f16:
      return reduce_by<F16>(how, from, to, elements);
    case ir::DType::i64:
      return reduce_by<std::int64_t>(how, from, to, elements);
    case ir::DType::i32:
      return reduce_by<std::int32_t>(how, from, to, elements);
    case ir::DType::u8:
      return reduce_by<std::uint8_t>(how, from, to, elements);
    case ir::DType::f8e4m3:
    case ir::DType::f8e5m2:
    case ir::DType::i8:
      CHECK(false, "quantised elements have no sum without their scales");
  }
}

}  // namespace tessera::comm
