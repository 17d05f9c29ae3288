// Tensors inside flat buckets, and the three moves between places that send nothing. A bucket is
// [n] or [parts, n]: row i holds part i of every tensor, cut along its own dim.
#include "exec/cuda/kernels/move.h"

namespace tessera::exec::cuda {
namespace {

// A tensor [outer, parts, run] and its place in a bucket: part i lies in row i from `offset` on.
struct PlaceInBucket {
  std::int64_t outer = 1, parts = 1, run = 0, row = 0, offset = 0;

  PlaceInBucket(const Tensor& t, std::int64_t parts_of, std::int64_t row_of, std::int64_t at,
                int dim)
      : parts(parts_of), row(row_of), offset(at) {
    for (int i = 0; i < dim; ++i) outer *= t.shape[static_cast<std::size_t>(i)];
    run = outer == 0 ? 0 : t.elements() / outer / parts;
  }
  std::vector<MoveDim> to_bucket() const {
    return {{outer, run, parts * run}, {parts, row, run}, {run, 1, 1}};
  }
  std::vector<MoveDim> to_tensor() const {
    return {{outer, parts * run, run}, {parts, run, row}, {run, 1, 1}};
  }
};

void resolved_before() {
  CHECK(false, "own, once and widen are resolved when a program is made local");
}

}  // namespace

void run_view(const Call& call) {
  const auto& attr = call.attr<ir::View>();
  const Tensor &x = call.in[0], &y = call.out[0];
  const std::int64_t size = ir::size_of(x.dtype);
  const PlaceInBucket place(y, attr.parts, x.shape.back(), attr.offset, attr.dim);
  move_block(call.stream, y.data, x.data + attr.offset * size, size, place.to_tensor());
}

// Operands at ascending offsets, zeros between; an operand may already lie at its place, so the
// bucket is never cleared as a whole.
void run_pack(const Call& call) {
  const auto& attr = call.attr<ir::Pack>();
  const Tensor& y = call.out[0];
  const std::int64_t size = ir::size_of(y.dtype);
  std::vector<Segment> segments;
  const auto clear = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = 0; row < attr.parts; ++row)
      segments.push_back(
          {y.data + (row * attr.size + begin) * size, nullptr, (end - begin) * size});
  };
  std::int64_t end = 0;
  for (std::size_t i = 0; i < call.in.size(); ++i) {
    const Tensor& x = call.in[i];
    if (!x) continue;
    CHECK(attr.offsets[i] >= end, "operand " + std::to_string(i) + " of pack starts at " +
                                      std::to_string(attr.offsets[i]) + ", before " +
                                      std::to_string(end));
    clear(end, attr.offsets[i]);
    std::byte* to = y.data + attr.offsets[i] * size;
    if (attr.parts == 1)
      segments.push_back({to, x.data, x.elements() * size});
    else
      move_block(
          call.stream, to, x.data, size,
          PlaceInBucket(x, attr.parts, attr.size, attr.offsets[i], attr.dims[i]).to_bucket());
    end = attr.offsets[i] + x.elements() / attr.parts;
  }
  clear(end, attr.size);
  move_segments(call.stream, segments);
}

void run_own(const Call&) { resolved_before(); }
void run_once(const Call&) { resolved_before(); }
void run_widen(const Call&) { resolved_before(); }

}  // namespace tessera::exec::cuda
