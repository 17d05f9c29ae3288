// Ops that move elements and compute nothing. Convention: they work on elements of any dtype, so
// only the element's size matters, not T.
#include <cstring>

#include "exec/common/index.h"
#include "exec/cpu/reference/instantiate.h"

namespace tessera::exec::cpu {
namespace {

using std::int64_t;

void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes) {
  if (to != from && bytes > 0) std::memmove(to, from, static_cast<std::size_t>(bytes));
}
void zero_bytes(std::byte* to, int64_t bytes) {
  if (bytes > 0) std::memset(to, 0, static_cast<std::size_t>(bytes));
}

// Around a dim of a tensor, `inner` in bytes.
Around around(const Tensor& x, int dim) { return Around(x.shape, dim, ir::size_of(x.dtype)); }

// y[i] = x[from[i]]
void gather(const Tensor& y, const Tensor& x, const std::vector<int64_t>& from) {
  const auto move = [&]<class Element>(Element) {
    for (std::size_t i = 0; i < from.size(); ++i) y.as<Element>()[i] = x.as<Element>()[from[i]];
  };
  switch (ir::size_of(x.dtype)) {
    case 8:
      return move(std::uint64_t{});
    case 4:
      return move(std::uint32_t{});
    case 2:
      return move(std::uint16_t{});
    default:
      return move(std::uint8_t{});
  }
}

void copy_all(const Call& call) {
  copy_bytes(call.out[0].data, call.in[0].data,
             call.out[0].elements() * ir::size_of(call.out[0].dtype));
}

// image[b,h,w,c] against patches[b, h/p * w/p, p, p, c]: visit(element of the image, element of the
// patches) for each run of p*c elements
template <class Visit>
void each_patch_row(const ir::Shape& image, int64_t p, Visit visit) {
  const int64_t b = image[0], rows = image[1] / p, columns = image[2] / p, c = image[3];
  int64_t patches = 0;
  for (int64_t ib = 0; ib < b; ++ib)
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column)
        for (int64_t y = 0; y < p; ++y, patches += p * c)
          visit(((ib * image[1] + row * p + y) * image[2] + column * p) * c, patches);
}

// A tensor and its place in a bucket [parts, row]: part i, cut along `dim`, lies in row i from
// `offset` on.
void by_parts(const Tensor& t, std::byte* bucket, int64_t offset, int64_t parts, int64_t row,
              int dim, bool to_tensor) {
  const int64_t size = ir::size_of(t.dtype);
  int64_t outer = 1;
  for (int i = 0; i < dim; ++i) outer *= t.shape[static_cast<std::size_t>(i)];
  const int64_t run =
      outer == 0 ? 0 : t.elements() / outer / parts * size;  // bytes of one part that lie together
  for (int64_t part = 0; part < parts; ++part)
    for (int64_t o = 0; o < outer; ++o) {
      std::byte *in_tensor = t.data + (o * parts + part) * run,
                *in_bucket = bucket + (part * row + offset) * size + o * run;
      copy_bytes(to_tensor ? in_tensor : in_bucket, to_tensor ? in_bucket : in_tensor, run);
    }
}

}  // namespace

template <class T>
void reference_constant(const Call& call) {
  const double value = call.attr<ir::Constant>().value;
  const Tensor& y = call.out[0];
  const auto fill = [&]<class Element>(Element element) {
    for (int64_t i = 0; i < y.elements(); ++i) y.as<Element>()[i] = element;
  };
  switch (y.dtype) {
    case ir::DType::f64:
      return fill(value);
    case ir::DType::f32:
      return fill(static_cast<float>(value));
    case ir::DType::i64:
      return fill(static_cast<int64_t>(value));
    case ir::DType::i32:
      return fill(static_cast<std::int32_t>(value));
    case ir::DType::u8:
      return fill(static_cast<std::uint8_t>(value));
    case ir::DType::bf16:
    case ir::DType::f16:
      CHECK(false, "a bf16 or f16 result reaches kernels widened");
      break;
    case ir::DType::f8e4m3:
    case ir::DType::f8e5m2:
    case ir::DType::i8:
      CHECK(false, "a constant is not quantised");
  }
}

template <class T>
void reference_reshape(const Call& call) {
  copy_all(call);
}

// y = elements [offset, offset + n) of the bucket
template <class T>
void reference_view(const Call& call) {
  const auto& attr = call.attr<ir::View>();
  by_parts(call.out[0], call.in[0].data, attr.offset, attr.parts, call.in[0].shape.back(), attr.dim,
           true);
}

// dim i of y is dim perm[i] of x
template <class T>
void reference_transpose(const Call& call) {
  const std::vector<int>& perm = call.attr<ir::Transpose>().perm;
  const Tensor& x = call.in[0];
  std::string of_x, of_y;
  for (std::size_t i = 0; i < perm.size(); ++i) of_x += static_cast<char>('a' + i);
  for (int dim : perm) of_y += static_cast<char>('a' + dim);
  Extents extents;
  extents.bind(of_x, x.shape);
  gather(call.out[0], x, offsets(of_y, extents, of_x, x.shape));
}

template <class T>
void reference_broadcast(const Call& call) {
  const OperandLetters letters = parse_letters(call.attr<ir::Broadcast>().sig);
  Extents extents;
  extents.bind(letters.out, call.out[0].shape);
  gather(call.out[0], call.in[0], offsets(letters.out, extents, letters.in[0], call.in[0].shape));
}

// y = x[.., start : start + size, ..]
template <class T>
void reference_slice(const Call& call) {
  const auto& attr = call.attr<ir::Slice>();
  const Around a = around(call.in[0], attr.dim);
  for (int64_t i = 0; i < a.outer; ++i)
    copy_bytes(call.out[0].data + i * attr.size * a.inner,
               call.in[0].data + (i * a.extent + attr.start) * a.inner, attr.size * a.inner);
}

template <class T>
void reference_concat(const Call& call) {
  const int dim = call.attr<ir::Dim>().dim;
  const Around y = around(call.out[0], dim);
  int64_t start = 0;
  for (const Tensor& operand : call.in) {
    const Around x = around(operand, dim);
    for (int64_t i = 0; i < x.outer; ++i)
      copy_bytes(call.out[0].data + (i * y.extent + start) * y.inner,
                 operand.data + i * x.extent * x.inner, x.extent * x.inner);
    start += x.extent;
  }
}

template <class T>
void reference_pad(const Call& call) {
  const auto& attr = call.attr<ir::Pad>();
  const Around x = around(call.in[0], attr.dim);
  std::byte* y = call.out[0].data;
  for (int64_t i = 0; i < x.outer; ++i) {
    zero_bytes(y, attr.before * x.inner);
    y += attr.before * x.inner;
    copy_bytes(y, call.in[0].data + i * x.extent * x.inner, x.extent * x.inner);
    y += x.extent * x.inner;
    zero_bytes(y, attr.after * x.inner);
    y += attr.after * x.inner;
  }
}

// An operand may already lie at its place in the result.
template <class T>
void reference_stack(const Call& call) {
  std::byte* y = call.out[0].data;
  for (const Tensor& x : call.in) {
    const int64_t bytes = x.elements() * ir::size_of(x.dtype);
    copy_bytes(y, x.data, bytes);
    y += bytes;
  }
}

template <class T>
void reference_unstack(const Call& call) {
  const Tensor& x = call.in[0];
  const int64_t bytes = x.shape[0] == 0 ? 0 : x.elements() / x.shape[0] * ir::size_of(x.dtype);
  for (std::size_t i = 0; i < call.out.size(); ++i)
    if (call.out[i]) copy_bytes(call.out[i].data, x.data + static_cast<int64_t>(i) * bytes, bytes);
}

template <class T>
void reference_patchify(const Call& call) {
  const int64_t p = call.attr<ir::Patch>().size, size = ir::size_of(call.in[0].dtype);
  const ir::Shape& image = call.in[0].shape;
  each_patch_row(image, p, [&](int64_t of_image, int64_t of_patches) {
    copy_bytes(call.out[0].data + of_patches * size, call.in[0].data + of_image * size,
               p * image[3] * size);
  });
}

template <class T>
void reference_unpatchify(const Call& call) {
  const int64_t p = call.attr<ir::Patch>().size, size = ir::size_of(call.in[0].dtype);
  const ir::Shape& image = call.out[0].shape;
  each_patch_row(image, p, [&](int64_t of_image, int64_t of_patches) {
    copy_bytes(call.out[0].data + of_image * size, call.in[0].data + of_patches * size,
               p * image[3] * size);
  });
}

// Operands at ascending offsets, zeros between; an operand may already lie at its place, so the
// bucket is never cleared as a whole.
template <class T>
void reference_pack(const Call& call) {
  const auto& attr = call.attr<ir::Pack>();
  const int64_t size = ir::size_of(call.out[0].dtype);
  std::byte* y = call.out[0].data;
  int64_t end = 0;
  for (std::size_t i = 0; i < call.in.size(); ++i) {
    if (!call.in[i]) continue;
    CHECK(attr.offsets[i] >= end, "operand " + std::to_string(i) + " of pack starts at " +
                                      std::to_string(attr.offsets[i]) + ", before " +
                                      std::to_string(end));
    for (int64_t row = 0; row < attr.parts; ++row)
      zero_bytes(y + (row * attr.size + end) * size, (attr.offsets[i] - end) * size);
    by_parts(call.in[i], y, attr.offsets[i], attr.parts, attr.size,
             attr.parts > 1 ? attr.dims[i] : -1, false);
    end = attr.offsets[i] + call.in[i].elements() / attr.parts;
  }
  for (int64_t row = 0; row < attr.parts; ++row)
    zero_bytes(y + (row * attr.size + end) * size, (attr.size - end) * size);
}

REFERENCE(constant)
REFERENCE(reshape)
REFERENCE(view)
REFERENCE(transpose)
REFERENCE(broadcast)
REFERENCE(slice)
REFERENCE(concat)
REFERENCE(pad)
REFERENCE(stack)
REFERENCE(unstack)
REFERENCE(patchify)
REFERENCE(unpatchify)
REFERENCE(pack)

}  // namespace tessera::exec::cpu
