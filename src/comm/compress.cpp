// Encoders and decoders, block by block. Plain loops without branches inside, which compilers
// vectorise; sums have a fixed order.
#include "comm/compress.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "base/half.h"

namespace tessera::comm {

namespace {

using ir::Wire;
using std::int64_t;

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
template <class T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

std::uint16_t to_bf16(float value) {  // a NaN keeps a set bit
  const auto bits = std::bit_cast<std::uint32_t>(value), kept = bits >> 16;
  return static_cast<std::uint16_t>(value != value ? kept | 0x40u
                                                   : (bits + 0x7fffu + (kept & 1u)) >> 16);
}
float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Magnitudes compare like the whole numbers that their bits are, NaN above infinity: no order of
// operations, no special cases.
template <class T>
using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
template <class T>
constexpr Bits<T> infinite = std::bit_cast<Bits<T>>(std::numeric_limits<T>::infinity());
template <class T>
Bits<T> magnitude(T x) {
  return std::bit_cast<Bits<T>>(x) & (~Bits<T>{0} >> 1);
}

// The step of a block: the largest magnitude is 127 of it. Not finite when an element is not; 0
// when all are 0 (or next to nothing).
template <class T>
float int8_step(const T* x, int64_t n) {
  Bits<T> most = 0;
  for (int64_t i = 0; i < n; ++i) most = std::max(most, magnitude(x[i]));
  return static_cast<float>(std::bit_cast<T>(most) / T{127});
}

template <class T>
void encode_int8(const T* x, int64_t n, std::byte* out) {
  const float step = int8_step(x, n);
  store(out, step);
  auto* to = reinterpret_cast<std::int8_t*>(out + 4);
  if (!(step > 0) || !std::isfinite(step)) {
    std::memset(to, 1, static_cast<std::size_t>(n));  // times what is not finite, or times 0
    return;
  }
  const T unit = static_cast<T>(step);
  for (int64_t i = 0; i < n; ++i) {
    T steps = x[i] / unit;  // a step that was rounded itself may need 128
    steps = steps > 127 ? T{127} : steps < -127 ? T{-127} : steps;
    to[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(std::nearbyint(steps)));
  }
}

template <class T>
void encode_onebit(const T* x, int64_t n, std::byte* out) {
  T sums[8] = {};  // in a fixed order, whatever the machine adds at once
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int k = 0; k < 8; ++k) sums[k] += std::abs(x[i + k]);
  for (; i < n; ++i) sums[0] += std::abs(x[i]);
  const T sum =
      ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
  store(out, static_cast<float>(sum / static_cast<T>(n)));
  const auto signs = [&](int64_t begin, int64_t size) {
    unsigned bits = 0;
    for (int64_t k = 0; k < size; ++k) bits |= static_cast<unsigned>(x[begin + k] < 0) << k;
    out[4 + begin / 8] = static_cast<std::byte>(bits);
  };
  for (i = 0; i + 8 <= n; i += 8) signs(i, 8);
  if (i < n) signs(i, n - i);
}

template <class T, class Code>
void encode_two_bytes(const T* x, int64_t n, std::byte* out, Code code) {
  for (int64_t i = 0; i < n; ++i) store(out + 2 * i, code(static_cast<float>(x[i])));
}

// body(elements before, elements, bytes before) for every block.
template <class Body>
void each_block(Wire wire, int64_t n, Body body) {
  for (int64_t begin = 0; begin < n; begin += ir::wire_block)
    body(begin, std::min(ir::wire_block, n - begin), ir::wire_bytes(wire, begin));
}

struct Set {
  template <class T>
  void operator()(T& y, T x) const {
    y = x;
  }
};
struct Add {
  template <class T>
  void operator()(T& y, T x) const {
    y += x;
  }
};
struct Subtract {
  template <class T>
  void operator()(T& y, T x) const {
    y -= x;
  }
};

template <class T, class Put>
void decode_with(Wire wire, const std::byte* in, int64_t n, T* y, Put put) {
  switch (wire) {
    case Wire::fp16:
      for (int64_t i = 0; i < n; ++i)
        put(y[i], static_cast<T>(from_half(load<std::uint16_t>(in + 2 * i))));
      return;
    case Wire::bf16:
      for (int64_t i = 0; i < n; ++i)
        put(y[i], static_cast<T>(from_bf16(load<std::uint16_t>(in + 2 * i))));
      return;
    case Wire::int8:
      return each_block(wire, n, [&](int64_t begin, int64_t size, int64_t at) {
        const T step = static_cast<T>(load<float>(in + at));
        const auto* from = reinterpret_cast<const std::int8_t*>(in + at + 4);
        for (int64_t i = 0; i < size; ++i) put(y[begin + i], static_cast<T>(from[i]) * step);
      });
    case Wire::onebit:
      return each_block(wire, n, [&](int64_t begin, int64_t size, int64_t at) {
        const T mean = static_cast<T>(load<float>(in + at)), signs[2] = {mean, -mean};
        const auto eight = [&](int64_t first, int64_t count) {
          const auto bits = static_cast<unsigned>(in[at + 4 + first / 8]);
          for (int64_t k = 0; k < count; ++k) put(y[begin + first + k], signs[(bits >> k) & 1u]);
        };
        int64_t i = 0;
        for (; i + 8 <= size; i += 8) eight(i, 8);
        if (i < size) eight(i, size - i);
      });
    case Wire::topk:
      return;  // add_top()
  }
}

// The `count`-th largest magnitude: a histogram by exponent and three bits finds the bin it is in,
// and only that is sorted.
template <class T>
Bits<T> largest(const T* x, int64_t n, int64_t count, T* scratch) {
  constexpr int shift = std::numeric_limits<T>::digits - 1 - 3;
  std::vector<int64_t> bins((infinite<T> >> shift) + 8);
  for (int64_t i = 0; i < n; ++i) ++bins[magnitude(x[i]) >> shift];
  std::size_t bin = bins.size() - 1;
  for (; bins[bin] < count; --bin) count -= bins[bin];
  T* end = scratch;
  for (int64_t i = 0; i < n; ++i)
    if (magnitude(x[i]) >> shift == bin) *end++ = x[i];
  std::nth_element(scratch, scratch + count - 1, end,
                   [](T a, T b) { return magnitude(a) > magnitude(b); });
  return magnitude(scratch[count - 1]);
}

}  // namespace

template <class T>
void encode(Wire wire, const T* x, int64_t n, std::byte* out) {
  switch (wire) {
    case Wire::fp16:
      return encode_two_bytes(x, n, out, to_half);
    case Wire::bf16:
      return encode_two_bytes(x, n, out, to_bf16);
    case Wire::int8:
      return each_block(wire, n, [&](int64_t begin, int64_t size, int64_t at) {
        encode_int8(x + begin, size, out + at);
      });
    case Wire::onebit:
      return each_block(wire, n, [&](int64_t begin, int64_t size, int64_t at) {
        encode_onebit(x + begin, size, out + at);
      });
    case Wire::topk:
      return;  // take_top()
  }
}

template <class T>
void decode(Wire wire, const std::byte* in, int64_t n, T* y, Into how) {
  if (how == Into::set) return decode_with(wire, in, n, y, Set{});
  if (how == Into::add) return decode_with(wire, in, n, y, Add{});
  decode_with(wire, in, n, y, Subtract{});
}

template <class T>
void take_top(T* x, int64_t n, int64_t count, std::byte* out, T* scratch) {
  if (count <= 0) return;
  const Bits<T> least = largest(x, n, count, scratch);
  // Everything above the least of those taken goes, and the first of its equals.
  int64_t equals = count;
  for (int64_t i = 0; i < n; ++i) equals -= magnitude(x[i]) > least;
  std::byte* values = out + 4 * count;
  for (int64_t i = 0, taken = 0; taken < count; ++i) {
    const Bits<T> m = magnitude(x[i]);
    if (m < least || (m == least && equals-- <= 0)) continue;
    store(out + 4 * taken, static_cast<std::uint32_t>(i));
    store(values + static_cast<int64_t>(sizeof(T)) * taken++, x[i]);
    x[i] = 0;
  }
}

template <class T>
void add_top(const std::byte* in, int64_t count, int64_t begin, int64_t n, T* y) {
  const std::byte* values = in + 4 * count;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = load<std::uint32_t>(in + 4 * i) - begin;
    if (at >= 0 && at < n) y[at] += load<T>(values + static_cast<int64_t>(sizeof(T)) * i);
  }
}

#define TESSERA_FOR(T)                                                \
  template void encode<T>(Wire, const T*, int64_t, std::byte*);       \
  template void decode<T>(Wire, const std::byte*, int64_t, T*, Into); \
  template void take_top<T>(T*, int64_t, int64_t, std::byte*, T*);    \
  template void add_top<T>(const std::byte*, int64_t, int64_t, int64_t, T*);
TESSERA_FOR(float)
TESSERA_FOR(double)
#undef TESSERA_FOR

}  // namespace tessera::comm
