// Attention in windows of an image by way of copies, for kernels that want tokens behind each
// other: what is copied where. Legend: b all leading dims, i j row and column of an image, n
// window, t token of a window.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "exec/common/tensor.h"
#include "ir/op.h"

namespace tessera::exec {

inline bool in_windows(const ir::Attrs& attrs) {
  return !std::get<ir::Attention>(attrs).window.empty();
}
inline ir::Attention without_windows(ir::Attention attr) {
  attr.window.clear();
  attr.shift.clear();
  return attr;
}

// An image of tokens as op window takes it, and the same in windows.
struct CutShapes {
  ir::Shape image, windows;  // [b,i,j,token], [b,n,t,token]
  ir::Shape tokens;          // as attention has it: [b,n,t,..]

  // `lead` dims of x stand before rows and columns.
  CutShapes(const ir::Attention& attr, const ir::Shape& x, std::size_t lead) {
    std::int64_t b = 1, token = 1;
    for (std::size_t i = 0; i < lead; ++i) b *= x[i];
    for (std::size_t i = lead + 2; i < x.size(); ++i) token *= x[i];
    const std::int64_t t = attr.window[0] * attr.window[1], n = x[lead] * x[lead + 1] / t;
    image = {b, x[lead], x[lead + 1], token};
    windows = {b, n, t, token};
    tokens = {b, n, t};
    tokens.insert(tokens.end(), x.begin() + static_cast<std::ptrdiff_t>(lead) + 2, x.end());
  }
  std::int64_t bytes(ir::DType dtype, std::int64_t alignment) const {
    std::int64_t bytes = ir::size_of(dtype);
    for (const std::int64_t extent : windows) bytes *= extent;
    return (bytes + alignment - 1) / alignment * alignment;
  }
};

// Operands that count tokens: q, k and v, and in the gradient o and do.
inline bool counts_tokens(bool gradient, std::size_t operand) {
  return operand < 3 || (gradient && (operand == 3 || operand == 5));
}

// The operands as attention gets them, and the bytes of all copies.
struct TypesInWindows {
  std::vector<ir::Type> in;
  std::int64_t bytes = 0;

  TypesInWindows(const ir::Attention& attr, std::span<const ir::Type> from, bool gradient,
                 std::int64_t alignment)
      : in(from.begin(), from.end()) {
    const std::size_t lead = from[0].shape.size() - 4;
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (!counts_tokens(gradient, i)) continue;
      const CutShapes cut(attr, from[i].shape, lead);
      in[i].shape = cut.tokens;
      bytes += cut.bytes(in[i].dtype, alignment);
    }
    // Results: o, or the gradients of q, k and v.
    bytes +=
        (gradient ? 3 : 1) * CutShapes(attr, from[0].shape, lead).bytes(from[0].dtype, alignment);
  }
};

// Operands and results of a call, those that count tokens copied into `room`.
struct WindowCopies {
  struct Copy {
    Tensor image, windows;
  };
  std::vector<Tensor> in, out;
  std::vector<Copy> cut, put_back;  // before the call, and after it
  std::byte* room;                  // what is left of it

  WindowCopies(const ir::Attention& attr, std::span<const Tensor> operands,
               std::span<const Tensor> results, bool gradient, std::byte* begin,
               std::int64_t alignment)
      : in(operands.begin(), operands.end()), out(results.begin(), results.end()), room(begin) {
    const std::size_t lead = in[0].shape.size() - 4;
    const auto take = [&](Tensor& x) {
      const CutShapes shapes(attr, x.shape, lead);
      Copy copy{.image = x, .windows = x};
      copy.image.shape = shapes.image;
      copy.windows.shape = shapes.windows;
      copy.windows.data = x.data = room;
      x.shape = shapes.tokens;
      room += shapes.bytes(x.dtype, alignment);
      return copy;
    };
    for (std::size_t i = 0; i < in.size(); ++i)
      if (counts_tokens(gradient, i)) cut.push_back(take(in[i]));
    const std::size_t wide = gradient && !attr.packed ? 3 : 1;  // results that count tokens
    for (std::size_t i = 0; i < std::min(wide, out.size()); ++i)
      if (out[i]) put_back.push_back(take(out[i]));
  }
};

}  // namespace tessera::exec
