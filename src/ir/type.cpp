#include "ir/type.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace tessera::ir {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  std::int64_t size;
};
constexpr std::array<Row, 10> rows{{{DType::f64, "f64", 8},
                                    {DType::f32, "f32", 4},
                                    {DType::bf16, "bf16", 2},
                                    {DType::f16, "f16", 2},
                                    {DType::i64, "i64", 8},
                                    {DType::i32, "i32", 4},
                                    {DType::u8, "u8", 1},
                                    {DType::f8e4m3, "f8e4m3", 1},
                                    {DType::f8e5m2, "f8e5m2", 1},
                                    {DType::i8, "i8", 1}}};

}  // namespace

std::string_view name(DType dtype) { return rows[static_cast<std::size_t>(dtype)].name; }
std::int64_t size_of(DType dtype) { return rows[static_cast<std::size_t>(dtype)].size; }
bool is_float(DType dtype) { return dtype == DType::f64 || dtype == DType::f32 || is_low(dtype); }

DType parse_dtype(std::string_view text) {
  std::string known;
  for (const Row& row : rows) {
    if (row.name == text) return row.dtype;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  throw Error(ErrorKind::usage, "'" + std::string(text) + "' is not an element type", "",
              "choose one of " + known);
}

std::int64_t elements(const Shape& shape) {
  constexpr std::int64_t most =
      std::int64_t{1}
      << 50;  // far beyond any memory, far below an overflow of bytes and sums of bytes
  std::int64_t n = 1;
  bool empty = false;
  for (std::int64_t extent : shape) {
    CHECK(extent >= 0, to_string(shape) + " has a negative extent");
    empty |= extent == 0;
    CHECK(extent == 0 || (!__builtin_mul_overflow(n, extent, &n) && n <= most),
          to_string(shape) + " has more elements than any memory");
  }
  return empty ? 0 : n;
}

std::string to_string(const Shape& shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) out += (i ? "," : "") + std::to_string(shape[i]);
  return out + "]";
}

int Mesh::find(std::string_view axis) const {
  for (std::size_t i = 0; i < axes.size(); ++i)
    if (axes[i].name == axis) return static_cast<int>(i);
  return -1;
}

int Mesh::ranks() const {
  int n = 1;
  for (const Axis& axis : axes) n *= axis.size;
  return n;
}

std::vector<int> Mesh::coordinates(int rank) const {
  std::vector<int> at(axes.size());
  for (std::size_t i = axes.size(); i-- > 0; rank /= axes[i].size) at[i] = rank % axes[i].size;
  return at;
}

std::vector<int> Mesh::group(int rank, int axis) const {
  int stride = 1;
  for (std::size_t i = axes.size() - 1; i > static_cast<std::size_t>(axis); --i)
    stride *= axes[i].size;
  const int n = axes[static_cast<std::size_t>(axis)].size,
            first = rank - rank / stride % n * stride;
  std::vector<int> out;
  for (int i = 0; i < n; ++i) out.push_back(first + i * stride);
  return out;
}

Range split(std::int64_t extent, int parts, int index) {
  const std::int64_t base = extent / parts, rest = extent % parts;
  return {index * base + std::min<std::int64_t>(index, rest), base + (index < rest ? 1 : 0)};
}

Shape split_by(std::int64_t extent, const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  CHECK(sum > 0, "weights must have a positive sum");
  Shape out;
  std::vector<std::pair<double, std::size_t>> rests;  // less the remainder, place
  std::int64_t rest = extent;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double share = static_cast<double>(extent) * (weights[i] / sum),
                 whole = std::floor(share);
    out.push_back(static_cast<std::int64_t>(whole));
    rests.emplace_back(whole - share, i);
    rest -= out.back();
  }
  std::sort(rests.begin(), rests.end());
  for (std::size_t i = 0; rest > 0; i = (i + 1) % rests.size())
    if (weights[rests[i].second] > 0) {
      ++out[rests[i].second];
      --rest;
    }
  return out;
}

Range Axis::part(std::int64_t extent, int index) const {
  for (const Shape& parts : cuts)
    if (std::accumulate(parts.begin(), parts.end(), std::int64_t{0}) == extent)
      return {std::accumulate(parts.begin(), parts.begin() + index, std::int64_t{0}),
              parts[static_cast<std::size_t>(index)]};
  return split(extent, size, index);
}

std::vector<Range> local_ranges(const Type& type, const Mesh& mesh, int rank) {
  std::vector<Range> out;
  for (const std::int64_t extent : type.shape) out.push_back({0, extent});
  const std::vector<int> at = mesh.coordinates(rank);
  for (std::size_t i = type.at.size(); i-- > 0;)
    if (type.at[i].kind == Place::S) {
      Range& range = out[static_cast<std::size_t>(type.at[i].dim)];
      const Range part = mesh.axes[i].part(range.size, at[i]);
      range = {range.begin + part.begin, part.size};
    }
  return out;
}

Shape local_shape(const Type& type, const Mesh& mesh, int rank) {
  Shape shape;
  for (const Range& range : local_ranges(type, mesh, rank)) shape.push_back(range.size);
  return shape;
}

bool is_here(const Type& type, const Mesh& mesh, int rank) {
  const std::vector<int> coordinates = mesh.coordinates(rank);
  for (std::size_t i = 0; i < type.at.size(); ++i)
    if (type.at[i].kind == Place::O && type.at[i].dim != coordinates[i]) return false;
  return true;
}

Place place_on(const Type& type, int axis) {
  return type.at.empty() ? Place{} : type.at[static_cast<std::size_t>(axis)];
}

void set_place(Type& type, const Mesh& mesh, int axis, Place place) {
  if (type.at.empty()) type.at.resize(mesh.axes.size());
  type.at[static_cast<std::size_t>(axis)] = place;
  if (std::all_of(type.at.begin(), type.at.end(),
                  [](const Place& p) { return p.kind == Place::R; }))
    type.at.clear();
}

}  // namespace tessera::ir
