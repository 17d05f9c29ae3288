#include "exec/cpu/shape.h"

#include <algorithm>
#include <cstring>

#include "base/half.h"
#include "exec/common/index.h"
#include "exec/cpu/simd/convert.h"
#include "exec/cpu/simd/vector.h"

namespace tessera::exec::cpu {

namespace {
constexpr std::int64_t chunk_bytes = 65536;

// body(T{}) with an unsigned integer of the element's size: moving does not care what the bits
// mean.
template <class Body>
void by_size(ir::DType dtype, const Body& body) {
  switch (ir::size_of(dtype)) {
    case 1:
      return body(std::uint8_t{});
    case 2:
      return body(std::uint16_t{});
    case 4:
      return body(std::uint32_t{});
    default:
      return body(std::uint64_t{});
  }
}

// `rows` runs of `run` bytes from one pitch to another; a null source writes zeros.
void copy_rows(ThreadPool& pool, const std::byte* src, std::int64_t src_pitch, std::byte* dst,
               std::int64_t dst_pitch, std::int64_t run, std::int64_t rows) {
  if (run == 0 || rows == 0) return;
  const auto move = [&](std::int64_t row, std::int64_t begin, std::int64_t size) {
    std::byte* to = dst + row * dst_pitch + begin;
    if (src == nullptr)
      std::memset(to, 0, static_cast<std::size_t>(size));
    else
      std::memcpy(to, src + row * src_pitch + begin, static_cast<std::size_t>(size));
  };
  if (run >= chunk_bytes) {
    const std::int64_t pieces = (run + chunk_bytes - 1) / chunk_bytes;
    pool.parallel_for(rows * pieces, [&](std::int64_t task, int) {
      const std::int64_t begin = task % pieces * chunk_bytes;
      move(task / pieces, begin, std::min(chunk_bytes, run - begin));
    });
  } else {
    for_chunks(pool, rows, chunk_bytes / run, [&](std::int64_t first, std::int64_t count) {
      for (std::int64_t row = first; row < first + count; ++row) move(row, 0, run);
    });
  }
}

// dst[a * dst_pitch + b] = src[a + b * src_pitch], in tiles that stay in the first cache on both
// sides.
template <class T>
void transpose_tile(const T* src, std::int64_t src_pitch, T* dst, std::int64_t dst_pitch,
                    std::int64_t as, std::int64_t bs) {
  constexpr std::int64_t tile = 16;
  for (std::int64_t b0 = 0; b0 < bs; b0 += tile)
    for (std::int64_t a0 = 0; a0 < as; a0 += tile)
      for (std::int64_t a = a0, a1 = std::min(as, a0 + tile); a < a1; ++a)
        for (std::int64_t b = b0, b1 = std::min(bs, b0 + tile); b < b1; ++b)
          dst[a * dst_pitch + b] = src[a + b * src_pitch];
}

// A dense result read through the walk's strides.
template <class T>
void gather(ThreadPool& pool, const Walk& walk, const T* src, T* dst) {
  const std::int64_t inner = walk.inner(), step = walk.inner_stride(), rows = walk.rows();
  if (inner == 0 || rows == 0) return;
  const auto unit = std::find(walk.stride.begin(), walk.stride.end(), 1);
  if (step > 1 && unit != walk.stride.end()) {
    // Some outer dim is contiguous in the source: exchange it with the last one, tile by tile.
    const std::size_t k = static_cast<std::size_t>(unit - walk.stride.begin());
    Walk others = walk;
    others.extent[k] = 1;
    const std::int64_t as = walk.extent[k], strip = 64, strips = (as + strip - 1) / strip;
    std::int64_t pitch = 1, outer = others.rows();
    for (std::size_t i = k + 1; i < walk.rank(); ++i) pitch *= walk.extent[i];
    pool.parallel_for(outer * strips, [&](std::int64_t task, int) {
      const std::int64_t row = task / strips, a = task % strips * strip, after = pitch / inner;
      const std::int64_t to = (row / after * as * after + row % after) * inner;
      transpose_tile(src + others.offset_of_row(row) + a, step, dst + to + a * pitch, pitch,
                     std::min(strip, as - a), inner);
    });
    return;
  }
  if (rows == 1 && step == 1)
    return copy_bytes(pool, reinterpret_cast<const std::byte*>(src),
                      reinterpret_cast<std::byte*>(dst),
                      inner * static_cast<std::int64_t>(sizeof(T)));
  for_chunks(pool, rows, std::max<std::int64_t>(1, chunk / inner),
             [&](std::int64_t first, std::int64_t count) {
               for (std::int64_t row = first; row < first + count; ++row) {
                 const T* from = src + walk.offset_of_row(row);
                 T* to = dst + row * inner;
                 if (step == 1)
                   std::memcpy(to, from, static_cast<std::size_t>(inner) * sizeof(T));
                 else if (step == 0)
                   std::fill_n(to, inner, *from);
                 else
                   for (std::int64_t i = 0; i < inner; ++i) to[i] = from[i * step];
               }
             });
}
void gather(const Call& call, const Walk& walk) {
  by_size(call.out[0].dtype, [&](auto t) {
    using T = decltype(t);
    gather(call.pool, walk, call.in[0].as<T>(), call.out[0].as<T>());
  });
}

template <class T>
void fill(const Call& call, T value) {
  T* y = call.out[0].as<T>();
  for_chunks(call.pool, call.out[0].elements(), chunk,
             [&](std::int64_t begin, std::int64_t size) { std::fill_n(y + begin, size, value); });
}
}  // namespace

void copy_bytes(ThreadPool& pool, const std::byte* src, std::byte* dst, std::int64_t bytes) {
  if (src == dst || dst == nullptr) return;
  copy_rows(pool, src, bytes, dst, bytes, bytes, 1);
}

void fast_constant(const Call& call) {
  const double value = call.attr<ir::Constant>().value;
  switch (call.out[0].dtype) {
    case ir::DType::f64:
      return fill(call, value);
    case ir::DType::f32:
      return fill(call, static_cast<float>(value));
    case ir::DType::bf16:
      return fill(call, round_to_bf16(static_cast<float>(value)));
    case ir::DType::f16:
      return fill(call, to_half(static_cast<float>(value)));
    case ir::DType::i64:
      return fill(call, static_cast<std::int64_t>(value));
    case ir::DType::i32:
      return fill(call, static_cast<std::int32_t>(value));
    case ir::DType::u8:
      return fill(call, static_cast<std::uint8_t>(value));
    case ir::DType::f8e4m3:
    case ir::DType::f8e5m2:
    case ir::DType::i8:
      CHECK(false, "a constant is not quantised");
  }
}

void fast_reshape(const Call& call) {
  copy_bytes(call.pool, call.in[0].data, call.out[0].data,
             call.out[0].elements() * ir::size_of(call.out[0].dtype));
}

void fast_transpose(const Call& call) {
  gather(call, call.once<Walk>([&] {
    const std::vector<std::int64_t> source = strides(call.in[0].shape);
    std::vector<std::int64_t> stride;
    for (int dim : call.attr<ir::Transpose>().perm)
      stride.push_back(source[static_cast<std::size_t>(dim)]);
    return Walk(call.out[0].shape, stride);
  }));
}

void fast_broadcast(const Call& call) {
  gather(call, call.once<Walk>([&] {
    const OperandLetters letters = parse_letters(call.attr<ir::Broadcast>().sig);
    std::vector<std::int64_t> stride;
    for (char letter : letters.out)
      stride.push_back(stride_of(letters.in[0], call.in[0].shape, letter));
    return Walk(call.out[0].shape, stride);
  }));
}

void fast_slice(const Call& call) {
  const ir::Slice& slice = call.attr<ir::Slice>();
  const Around in(call.in[0].shape, slice.dim);
  const std::int64_t unit = in.inner * ir::size_of(call.in[0].dtype);
  copy_rows(call.pool, call.in[0].data + slice.start * unit, in.extent * unit, call.out[0].data,
            slice.size * unit, slice.size * unit, in.outer);
}

void fast_concat(const Call& call) {
  const int dim = call.attr<ir::Dim>().dim;
  const Around out(call.out[0].shape, dim);
  const std::int64_t unit = out.inner * ir::size_of(call.out[0].dtype);
  std::int64_t at = 0;
  for (const Tensor& in : call.in) {
    const std::int64_t run = Around(in.shape, dim).extent * unit;
    copy_rows(call.pool, in.data, run, call.out[0].data + at, out.extent * unit, run, out.outer);
    at += run;
  }
}

void fast_pad(const Call& call) {
  const ir::Pad& pad = call.attr<ir::Pad>();
  const Around in(call.in[0].shape, pad.dim);
  const std::int64_t unit = in.inner * ir::size_of(call.in[0].dtype), run = in.extent * unit,
                     pitch = (pad.before + in.extent + pad.after) * unit;
  std::byte* y = call.out[0].data;
  copy_rows(call.pool, nullptr, 0, y, pitch, pad.before * unit, in.outer);
  copy_rows(call.pool, call.in[0].data, run, y + pad.before * unit, pitch, run, in.outer);
  copy_rows(call.pool, nullptr, 0, y + pad.before * unit + run, pitch, pad.after * unit, in.outer);
}

void fast_stack(const Call& call) {
  std::byte* y = call.out[0].data;
  for (const Tensor& in : call.in) {
    const std::int64_t bytes = in.elements() * ir::size_of(in.dtype);
    copy_bytes(call.pool, in.data, y, bytes);
    y += bytes;
  }
}

void fast_unstack(const Call& call) {
  const std::byte* x = call.in[0].data;
  const std::int64_t bytes = call.in[0].elements() * ir::size_of(call.in[0].dtype) /
                             std::max<std::int64_t>(1, static_cast<std::int64_t>(call.out.size()));
  for (const Tensor& out : call.out) {
    copy_bytes(call.pool, x, out.data, bytes);
    x += bytes;
  }
}

void fast_patchify(const Call& call) {
  const std::int64_t p = call.attr<ir::Patch>().size;
  const ir::Shape& s = call.in[0].shape;  // b h w c
  const std::int64_t b = s[0], h = s[1], w = s[2], c = s[3];
  gather(call, Walk({b, h / p, w / p, p, p * c}, {h * w * c, p * w * c, p * c, w * c, 1}));
}

void fast_unpatchify(const Call& call) {
  const ir::Patch& patch = call.attr<ir::Patch>();
  const ir::Shape& s = call.in[0].shape;  // b t p p c
  const std::int64_t b = s[0], t = s[1], p = s[2], row = p * s[4],
                     columns = patch.rows > 0 ? t / patch.rows : 0;
  gather(call,
         Walk({b, patch.rows, p, columns, row}, {t * p * row, columns * p * row, row, p * row, 1}));
}

// A view of several parts is gathered: rows of one rank's part lie `parts` apart in the tensor.
void fast_view(const Call& call) { reference_view<float>(call); }

// Offsets ascend. Zeros go only between operands: these may already lie in their place.
void fast_pack(const Call& call) {
  const ir::Pack& pack = call.attr<ir::Pack>();
  if (pack.parts > 1) return reference_pack<float>(call);  // only before a program is made local
  const std::int64_t size = ir::size_of(call.out[0].dtype);
  std::byte* y = call.out[0].data;
  std::int64_t at = 0;
  const auto zeros_until = [&](std::int64_t end) {
    copy_rows(call.pool, nullptr, 0, y + at * size, 0, std::max<std::int64_t>(0, end - at) * size,
              1);
  };
  for (std::size_t i = 0; i < call.in.size(); ++i) {
    const std::int64_t begin = pack.offsets[i], n = call.in[i].elements();
    zeros_until(begin);
    copy_bytes(call.pool, call.in[i].data, y + begin * size, n * size);
    at = begin + n;
  }
  zeros_until(pack.size);
}

}  // namespace tessera::exec::cpu
