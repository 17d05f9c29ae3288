#include "session/shard_boxes.h"

#include <algorithm>

#include "base/check.h"
#include "base/index.h"

namespace tessera::run {
namespace {

// The flat range [first, last) of a row-major box as boxes of it, in order: what is left of a row,
// whole rows, what a last row has.
void add_boxes(const ir::Shape& shape, std::size_t dim, ir::Shape begin, ir::Shape extent,
               std::int64_t first, std::int64_t last, std::int64_t offset,
               std::vector<ShardBox>& out) {
  if (first >= last) return;
  if (dim == shape.size()) return out.push_back({begin, extent, offset});
  std::int64_t row = 1;
  for (std::size_t i = dim + 1; i < shape.size(); ++i) row *= shape[i];
  const auto inside = [&](std::int64_t index, std::int64_t from,
                          std::int64_t to) {  // a part of one row
    ir::Shape b = begin, e = extent;
    b[dim] = index;
    e[dim] = 1;
    add_boxes(shape, dim + 1, b, e, from, to, offset, out);
    offset += to - from;
  };
  const std::int64_t head = first / row, tail = last / row;
  if (head == tail) return inside(head, first - head * row, last - head * row);
  std::int64_t whole = head;
  if (first > head * row) {
    inside(head, first - head * row, row);
    whole = head + 1;
  }
  if (whole < tail) {
    ir::Shape b = begin, e = extent;
    b[dim] = whole;
    e[dim] = tail - whole;
    for (std::size_t i = dim + 1; i < shape.size(); ++i) {
      b[i] = 0;
      e[i] = shape[i];
    }
    out.push_back({b, e, offset});
    offset += (tail - whole) * row;
  }
  if (last > tail * row) inside(tail, 0, last - tail * row);
}

// Calls visit(offset in the whole, offset in the part, length) for every run of elements that lies
// together.
template <class Visit>
void each_run(const ir::Shape& shape, const ShardBox& box, Visit visit) {
  if (ir::elements(box.extent) == 0) return;
  if (shape.empty()) return visit(std::int64_t{0}, std::int64_t{0}, std::int64_t{1});
  const std::int64_t run = box.extent.back();
  ir::Shape index(shape.size(), 0);
  for (std::int64_t done = 0;; done += run) {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < shape.size(); ++i)
      offset = offset * shape[i] + box.begin[i] + index[i];
    visit(offset, done, run);
    std::size_t dim = shape.size() - 1;
    while (dim-- > 0 && ++index[dim] == box.extent[dim]) index[dim] = 0;
    if (dim == std::size_t(-1)) return;
  }
}

}  // namespace

std::vector<ShardBox> boxes_in_bucket(const transforms::Bucket& bucket,
                                      const transforms::Bucket::Entry& entry, const ir::Type& type,
                                      const ir::Mesh& mesh, int rank) {
  if (!is_here(type, mesh, rank)) return {};
  const std::vector<ir::Range> here = local_ranges(type, mesh, rank);
  const ir::Range flat = here.back();
  ir::Shape shape = entry.shape;  // of one part
  if (bucket.parts > 1) shape[at(entry.dim)] /= bucket.parts;
  const std::int64_t size = ir::elements(shape), first = std::max(entry.offset, flat.begin),
                     last = std::min(entry.offset + size, flat.begin + flat.size);
  std::vector<ShardBox> out;
  for (std::int64_t row = 0; row < (bucket.parts > 1 ? here[0].size : 1); ++row) {
    std::vector<ShardBox> part;
    if (shape.empty()) {
      if (first < last) part.push_back({{}, {}, first - flat.begin});
    } else {
      add_boxes(shape, 0, ir::Shape(shape.size()), ir::Shape(shape.size()), first - entry.offset,
                last - entry.offset, first - flat.begin, part);
    }
    for (ShardBox& box : part) {
      if (bucket.parts > 1)
        box.begin[at(entry.dim)] += (here[0].begin + row) * shape[at(entry.dim)];
      box.offset += row * flat.size;
      out.push_back(std::move(box));
    }
  }
  return out;
}

std::vector<ShardBox> boxes_of_whole(const ir::Type& type, const ir::Mesh& mesh, int rank) {
  if (!is_here(type, mesh, rank)) return {};
  ShardBox box;
  for (const ir::Range& range : local_ranges(type, mesh, rank)) {
    box.begin.push_back(range.begin);
    box.extent.push_back(range.size);
  }
  if (ir::elements(box.extent) == 0) return {};
  return {box};
}

bool keeps(const ir::Type& type, const ir::Mesh& mesh, int rank) {
  if (!is_here(type, mesh, rank)) return false;
  const std::vector<int> here = mesh.coordinates(rank);
  for (int axis = 0; axis < static_cast<int>(here.size()); ++axis)
    if (const ir::Place::Kind kind = place_on(type, axis).kind;
        here[at(axis)] != 0 && kind != ir::Place::S && kind != ir::Place::O)
      return false;
  return true;
}

std::vector<double> cut_out(const std::vector<double>& whole, const ir::Shape& shape,
                            const ShardBox& box) {
  std::vector<double> out(static_cast<std::size_t>(ir::elements(box.extent)));
  each_run(shape, box, [&](std::int64_t from, std::int64_t to, std::int64_t n) {
    std::copy_n(whole.begin() + from, n, out.begin() + to);
  });
  return out;
}

void put_back(std::vector<double>& whole, const ir::Shape& shape, const ShardBox& box,
              const std::vector<double>& part) {
  each_run(shape, box, [&](std::int64_t to, std::int64_t from, std::int64_t n) {
    std::copy_n(part.begin() + from, n, whole.begin() + to);
  });
}

}  // namespace tessera::run
