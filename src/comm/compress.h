// Numbers as they cross the wire (ir/wire.h): two bytes, one byte or one bit each, or the largest
// of them alone. Conventions: T is float or double; decoding gives every rank the same bits; what
// is not finite comes out not finite, if not in the same place, so that the step is skipped; bytes
// need no alignment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ir/wire.h"

namespace tessera::comm {

// wire_bytes(wire, n) bytes. int8: each block's largest magnitude is 127 steps, rounded to nearest.
// onebit: a sign each, and each block's mean magnitude.
template <class T>
void encode(ir::Wire wire, const T* x, std::int64_t n, std::byte* out);

enum class Into { set, add, subtract };
template <class T>
void decode(ir::Wire wire, const std::byte* in, std::int64_t n, T* y, Into how = Into::set);

// Moves the `count` elements of the largest magnitude (NaN is the largest; the first of equals)
// from x, where they leave zeros, into a list in the order of their indices: top_bytes() bytes.
// `scratch`: n elements.
template <class T>
void take_top(T* x, std::int64_t n, std::int64_t count, std::byte* out, T* scratch);
// Adds the elements of a list whose indices lie in [begin, begin + n) to y.
template <class T>
void add_top(const std::byte* in, std::int64_t count, std::int64_t begin, std::int64_t n, T* y);

}  // namespace tessera::comm
