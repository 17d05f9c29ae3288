// bf16 tensors in kernels that compute in f32: pieces are widened into a small buffer, and results
// rounded from one, while both are in cache. Convention: a kernel whose row says `low` (kernel.h)
// meets f32 and bf16 in any mixture, and asks each tensor what it is.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "exec/cpu/gemm/micro.h"
#include "exec/cpu/kernel.h"
#include "exec/cpu/simd/convert.h"
#include "exec/cpu/simd/vector.h"

namespace tessera::exec::cpu {

inline bool is_bf16(const Tensor& t) { return t.dtype == ir::DType::bf16; }

// Whether all that are there are bf16.
inline bool all_bf16(std::initializer_list<Tensor> tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [](const Tensor& t) { return !t || is_bf16(t); });
}
inline bool any_bf16(std::span<const ir::Type> in, std::span<const ir::Type> out) {
  const auto low = [](const ir::Type& type) { return type.dtype == ir::DType::bf16; };
  return std::any_of(in.begin(), in.end(), low) || std::any_of(out.begin(), out.end(), low);
}

// Numbers of f32 or bf16; absent: null.
struct Numbers {
  void* data = nullptr;
  bool low = false;

  Numbers() = default;
  explicit Numbers(float* wide) : data(wide) {}
  Numbers(const Tensor& t, std::int64_t begin)
      : data(!t           ? nullptr
             : is_bf16(t) ? static_cast<void*>(t.as<Low>() + begin)
                          : static_cast<void*>(t.as<float>() + begin)),
        low(t && is_bf16(t)) {}
  // The same from number i on.
  Numbers from(std::int64_t i) const {
    Numbers rest = *this;
    if (data != nullptr) rest.data = static_cast<std::byte*>(data) + i * (low ? 2 : 4);
    return rest;
  }
  explicit operator bool() const { return data != nullptr; }
  template <class T>
  T* at(std::int64_t i) const {
    return static_cast<T*>(data) + i;
  }
};

// Elements [begin, begin + n) as f32: where they lie, or widened into `room`.
inline const float* wide(const Tensor& x, std::int64_t begin, std::int64_t n, float* room) {
  if (!x) return nullptr;
  if (!is_bf16(x)) return x.as<float>() + begin;
  widen_bf16(x.as<Low>() + begin, room, n);
  return room;
}
// Where f32 results of [begin, ...) are written before `give`: the tensor itself, or `room`.
inline float* room_for(const Tensor& y, std::int64_t begin, float* room) {
  if (!y) return nullptr;
  return is_bf16(y) ? room : y.as<float>() + begin;
}
inline void give(const Tensor& y, std::int64_t begin, std::int64_t n, const float* room) {
  if (y && is_bf16(y)) round_to_bf16(room, y.as<Low>() + begin, n);
}

// Elements of a piece: buffers of a few of them fit the first-level cache.
inline constexpr std::int64_t low_piece = 1024;
using Piece = std::array<float, low_piece>;

// body(begin, size) over n elements and the threads of the pool, in pieces where a tensor is bf16.
template <class Body>
void for_pieces(const Call& call, std::int64_t n, const Body& body) {
  bool low = false;
  for (const auto& list : {call.in, call.out})
    for (const Tensor& t : list) low = low || (t && is_bf16(t));
  for_chunks(call.pool, n, chunk, [&](std::int64_t begin, std::int64_t size) {
    const std::int64_t step = low ? low_piece : chunk;
    for (std::int64_t i = begin; i < begin + size; i += step)
      body(i, std::min(step, begin + size - i));
  });
}

// y = f(x), or y = f(x, g), of elements at the same place: body(x, g, y, n).
template <class Body>
void same_place(const Call& call, const Body& body) {
  for_pieces(call, call.out[0].elements(), [&](std::int64_t begin, std::int64_t size) {
    Piece x_room, g_room, y_room;
    const float* x = wide(call.in[0], begin, size, x_room.data());
    const float* g = call.in.size() > 1 ? wide(call.in[1], begin, size, g_room.data()) : nullptr;
    float* y = room_for(call.out[0], begin, y_room.data());
    body(x, g, y, size);
    give(call.out[0], begin, size, y);
  });
}

}  // namespace tessera::exec::cpu
