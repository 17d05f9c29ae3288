// The type of a value: element type, global shape, and where it lives on each axis of the mesh.
// Convention (two words, never mixed): *axis* is an axis of the mesh, *dim* is a dim of a tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::ir {

enum class DType : std::uint8_t { f64, f32, bf16, f16, i64, i32, u8, f8e4m3, f8e5m2, i8 };
std::string_view name(DType dtype);
DType parse_dtype(std::string_view text);  // Error(usage) when unknown
std::int64_t size_of(DType dtype);
bool is_float(DType dtype);  // kernels compute with its elements; quantised ones are none
// The types of mixed precision, two bytes wide: master weights beside them are f32.
constexpr bool is_low(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }
// One byte wide, and a number only together with a scale: what `quantize` gives and `contract`
// multiplies.
constexpr bool is_quantised(DType dtype) {
  return dtype == DType::f8e4m3 || dtype == DType::f8e5m2 || dtype == DType::i8;
}
// The dtype of statistics and sums beside values of this dtype: f64 stays f64, everything else is
// kept in f32.
constexpr DType statistics_of(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

using Shape = std::vector<std::int64_t>;
std::int64_t elements(const Shape& shape);  // CHECKs extents and overflow
std::string to_string(const Shape& shape);  // [2,3]

// The part of `extent` that falls to part `index` of `parts`: contiguous, extents differ by at most
// one, larger ones first.
struct Range {
  std::int64_t begin = 0, size = 0;
};
Range split(std::int64_t extent, int parts, int index);
// In proportion to weights, of which one at least is positive: the rest goes to the largest
// remainders, the first of equals.
Shape split_by(std::int64_t extent, const std::vector<double>& weights);

struct Axis {
  enum Kind {
    data,
    model,
    sequence,
    stage
  } kind = data;  // what stays where it is: activations, parameters, neither; both of one stage
  std::string name;
  int size = 1;
  std::vector<Shape>
      cuts{};  // an extent that is the sum of one of them is cut like it, every other one evenly
  bool operator==(const Axis&) const = default;
  Range part(std::int64_t extent, int index) const;
};
struct Mesh {
  std::vector<Axis> axes;  // the last is the fastest
  bool operator==(const Mesh&) const = default;
  int find(std::string_view axis) const;  // -1 when absent
  int ranks() const;
  std::vector<int> group(
      int rank, int axis) const;  // the ranks that differ from `rank` on this axis alone, in order
  std::vector<int> coordinates(int rank) const;
};

// Replicated, sharded on a tensor dim, a partial sum that is still to be added over the axis, or
// only on one index of the axis (a pipeline stage), where it is whole.
struct Place {
  enum Kind { R, S, P, O } kind = R;
  int dim = -1;  // S: of the tensor; O: the index
  bool operator==(const Place&) const = default;
};
inline constexpr Place whole{},
    partial{Place::P, -1};          // all of it on every rank; a summand on every rank
using Places = std::vector<Place>;  // one per axis of the mesh; empty when replicated everywhere

struct Type {
  DType dtype = DType::f32;
  Shape shape;  // global
  Places at;
  bool operator==(const Type&) const = default;
  std::int64_t elements() const { return ir::elements(shape); }
  std::int64_t bytes() const { return elements() * size_of(dtype); }
  int rank() const { return static_cast<int>(shape.size()); }
};

// The part of a value that one rank holds: a range of every dim; uneven splits allowed, also empty
// ones. Where several axes cut one dim, the later axis of the mesh cuts first: a sequence axis
// divides what a tensor axis left, a data axis what both left.
std::vector<Range> local_ranges(const Type& type, const Mesh& mesh, int rank);
Shape local_shape(const Type& type, const Mesh& mesh, int rank);
bool is_here(const Type& type, const Mesh& mesh, int rank);  // false: only on other ranks

// The placement on one axis, also when none is written down; and written down (empty again when all
// are replicated).
Place place_on(const Type& type, int axis);
void set_place(Type& type, const Mesh& mesh, int axis, Place place);

}  // namespace tessera::ir
