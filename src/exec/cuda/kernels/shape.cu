// Ops that move elements and compute nothing: each is a run of bytes or a block with strides
// (move.h). Convention: they work on elements of any dtype; only the element's size matters.
#include <cstring>

#include "exec/common/index.h"
#include "exec/cuda/kernels/index.cuh"
#include "exec/cuda/kernels/move.h"

namespace tessera::exec::cuda {
namespace {

// A dim and what lies outside and inside it: x[outer, extent, inner], in elements.
struct AroundDim {
  std::int64_t outer = 1, extent = 1, inner = 1;
  AroundDim(const Tensor& x, int dim) {
    for (int i = 0; i < static_cast<int>(x.shape.size()); ++i)
      (i < dim ? outer : i == dim ? extent : inner) *= x.shape[static_cast<std::size_t>(i)];
  }
  std::int64_t row() const { return extent * inner; }
};

// y[outer, before + extent + after] = 0, x, 0 in units of U.
template <class U>
__global__ void pad_units(const U* x, U* y, std::int64_t n, Divider row, std::int64_t before,
                          std::int64_t extent) {
  for (std::int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const std::int64_t outer = row(i), at = i - outer * row.by - before;
    y[i] = at >= 0 && at < extent ? x[outer * extent + at] : U{};
  }
}

template <class U>
__global__ void fill_units(U* y, std::int64_t n, U value) {
  for (std::int64_t i = grid_thread(); i < n; i += grid_threads()) y[i] = value;
}

// The bits of one element.
struct Element {
  std::byte bits[8] = {};
  template <class T>
  explicit Element(T value) {
    std::memcpy(bits, &value, sizeof(T));
  }
};
Element element_of(double value, ir::DType dtype) {
  switch (dtype) {
    case ir::DType::f64:
      return Element(value);
    case ir::DType::f32:
      return Element(static_cast<float>(value));
    case ir::DType::bf16:
      return Element(__float2bfloat16_rn(static_cast<float>(value)));
    case ir::DType::f16:
      return Element(__float2half_rn(static_cast<float>(value)));
    case ir::DType::i64:
      return Element(static_cast<std::int64_t>(value));
    case ir::DType::i32:
      return Element(static_cast<std::int32_t>(value));
    case ir::DType::u8:
      return Element(static_cast<std::uint8_t>(value));
    default:
      break;
  }
  CHECK(false, "a dtype that nobody knows");
  return Element(value);
}

// image[b, rows p, columns p, c] against patches[b, rows columns, p, p, c]: p c elements lie
// together in both.
void move_patches(const Call& call, const ir::Shape& image, bool to_patches) {
  const std::int64_t p = call.attr<ir::Patch>().size;
  if (call.out[0].elements() == 0) return;
  const std::int64_t rows = image[1] / p, columns = image[2] / p, run = p * image[3];
  const std::int64_t of_image[] = {image[1] * columns * run, p * columns * run, run, columns * run,
                                   1},
                     of_patches[] = {rows * columns * p * run, columns * p * run, p * run, run, 1},
                     extents[] = {image[0], rows, columns, p, run};
  std::vector<MoveDim> dims;
  for (int i = 0; i < 5; ++i)
    dims.push_back({extents[i], to_patches ? of_patches[i] : of_image[i],
                    to_patches ? of_image[i] : of_patches[i]});
  move_block(call.stream, call.out[0].data, call.in[0].data, ir::size_of(call.in[0].dtype), dims);
}

// y is dense; element by element of y, x has these strides.
void gather_strided(const Call& call, const std::vector<std::int64_t>& from) {
  const Tensor& y = call.out[0];
  const std::vector<std::int64_t> to = strides(y.shape);
  std::vector<MoveDim> dims;
  for (std::size_t i = 0; i < to.size(); ++i) dims.push_back({y.shape[i], to[i], from[i]});
  move_block(call.stream, y.data, call.in[0].data, ir::size_of(y.dtype), dims);
}

}  // namespace

void run_constant(const Call& call) {
  const Tensor& y = call.out[0];
  const Element element = element_of(call.attr<ir::Constant>().value, y.dtype);
  const std::int64_t bytes = y.bytes(), size = ir::size_of(y.dtype);
  if (bytes == 0) return;
  if (std::memcmp(element.bits, Element(std::uint64_t{0}).bits, 8) == 0)
    return must(cudaMemsetAsync(y.data, 0, static_cast<std::size_t>(bytes), call.stream),
                "clearing a tensor");
  std::byte pattern[16];
  for (std::int64_t i = 0; i < 16; i += size)
    std::memcpy(pattern + i, element.bits, static_cast<std::size_t>(size));
  with_unit(std::max(static_cast<int>(size), common_unit({y.data}, {bytes})), [&]<class U>(U) {
    U value;
    std::memcpy(&value, pattern, sizeof(U));
    const std::int64_t n = bytes / static_cast<std::int64_t>(sizeof(U));
    fill_units<<<grid_for(n, 256), 256, 0, call.stream>>>(y.as<U>(), n, value);
  });
  launched("fill_units");
}

void run_reshape(const Call& call) {
  copy_bytes(call.stream, call.out[0].data, call.in[0].data, call.out[0].bytes());
}

// dim i of y is dim perm[i] of x
void run_transpose(const Call& call) {
  const std::vector<std::int64_t> of_x = strides(call.in[0].shape);
  std::vector<std::int64_t> from;
  for (const int dim : call.attr<ir::Transpose>().perm)
    from.push_back(of_x[static_cast<std::size_t>(dim)]);
  gather_strided(call, from);
}

void run_broadcast(const Call& call) {
  const OperandLetters letters = parse_letters(call.attr<ir::Broadcast>().sig);
  std::vector<std::int64_t> from;
  for (const char letter : letters.out)
    from.push_back(stride_of(letters.in[0], call.in[0].shape, letter));
  gather_strided(call, from);
}

// y = x[.., start : start + size, ..]
void run_slice(const Call& call) {
  const auto& attr = call.attr<ir::Slice>();
  const Tensor &x = call.in[0], &y = call.out[0];
  const AroundDim a(x, attr.dim);
  const std::int64_t size = ir::size_of(x.dtype), run = attr.size * a.inner;
  move_block(call.stream, y.data, x.data + attr.start * a.inner * size, size,
             {{a.outer, run, a.row()}, {run, 1, 1}});
}

void run_concat(const Call& call) {
  const int dim = call.attr<ir::Dim>().dim;
  const Tensor& y = call.out[0];
  const std::int64_t size = ir::size_of(y.dtype), row = AroundDim(y, dim).row();
  std::vector<Segment> whole;
  std::byte* to = y.data;
  for (const Tensor& x : call.in) {
    const AroundDim a(x, dim);
    if (a.outer == 1)
      whole.push_back({to, x.data, x.bytes()});
    else
      move_block(call.stream, to, x.data, size, {{a.outer, row, a.row()}, {a.row(), 1, 1}});
    to += a.row() * size;
  }
  move_segments(call.stream, whole);
}

void run_pad(const Call& call) {
  const auto& attr = call.attr<ir::Pad>();
  const Tensor &x = call.in[0], &y = call.out[0];
  if (y.elements() == 0) return;
  const AroundDim a(x, attr.dim);
  const std::int64_t size = ir::size_of(x.dtype), before = attr.before * a.inner * size,
                     extent = a.row() * size, after = attr.after * a.inner * size;
  with_unit(common_unit({x.data, y.data}, {before, extent, after}), [&]<class U>(U) {
    constexpr auto unit = static_cast<std::int64_t>(sizeof(U));
    const std::int64_t n = y.bytes() / unit;
    pad_units<<<grid_for(n, 256), 256, 0, call.stream>>>(x.as<U>(), y.as<U>(), n,
                                                         Divider((before + extent + after) / unit),
                                                         before / unit, extent / unit);
  });
  launched("pad_units");
}

// An operand may already lie at its place in the result.
void run_stack(const Call& call) {
  std::byte* to = call.out[0].data;
  std::vector<Segment> segments;
  for (const Tensor& x : call.in) {
    segments.push_back({to, x.data, x.bytes()});
    to += x.bytes();
  }
  move_segments(call.stream, segments);
}

void run_unstack(const Call& call) {
  const Tensor& x = call.in[0];
  const std::int64_t bytes = x.shape[0] == 0 ? 0 : x.bytes() / x.shape[0];
  std::vector<Segment> segments;
  for (std::size_t i = 0; i < call.out.size(); ++i)
    if (call.out[i])
      segments.push_back({call.out[i].data, x.data + static_cast<std::int64_t>(i) * bytes, bytes});
  move_segments(call.stream, segments);
}

void run_patchify(const Call& call) { move_patches(call, call.in[0].shape, true); }
void run_unpatchify(const Call& call) { move_patches(call, call.out[0].shape, false); }

}  // namespace tessera::exec::cuda
