// Fast elementwise kernels in f32; broadcasts run as vector operations over merged dims (shape.h,
// Walk). Convention: result 0 may be operand 0's storage (gelu_grad: either operand's), never
// partly overlap it.
#include "exec/cpu/kernel.h"

#include <algorithm>
#include <type_traits>

#include "base/half.h"
#include "base/rng.h"
#include "exec/common/index.h"
#include "exec/cpu/low.h"
#include "exec/cpu/shape.h"
#include "exec/cpu/simd/convert.h"
#include "exec/cpu/simd/vector.h"

namespace tessera::exec::cpu {

namespace {
// y = f(a, b) with b broadcast: `along` for b contiguous in the last merged dim, `against` for one
// b beside many a, `one` for the rest.
template <class Along, class Against, class One>
void broadcast_pointwise(const Call& call, const Along& along, const Against& against,
                         const One& one) {
  const Walk& walk = call.once<Walk>([&] {
    const OperandLetters letters = parse_letters(call.attr<ir::Sig>().sig);
    std::vector<std::int64_t> stride;
    for (char letter : letters.out)
      stride.push_back(stride_of(letters.in[1], call.in[1].shape, letter));
    return Walk(call.out[0].shape, stride);
  });
  const std::int64_t n = call.out[0].elements(), inner = walk.inner(), step = walk.inner_stride();
  for_pieces(call, n, [&](std::int64_t begin, std::int64_t size) {
    Piece a_room, b_room, y_room;
    const float* a = wide(call.in[0], begin, size, a_room.data());
    float* y = room_for(call.out[0], begin, y_room.data());
    for (std::int64_t i = 0; i < size;) {
      const std::int64_t row = (begin + i) / inner, column = (begin + i) % inner,
                         run = std::min(inner - column, size - i);
      const std::int64_t from = walk.offset_of_row(row) + column * step;
      if (step == 1) {
        along(a + i, wide(call.in[1], from, run, b_room.data()), y + i, run);
      } else if (step == 0) {
        against(a + i, *wide(call.in[1], from, 1, b_room.data()), y + i, run);
      } else {
        for (std::int64_t k = 0; k < run; ++k)
          y[i + k] = one(a[i + k], *wide(call.in[1], from + k * step, 1, b_room.data()));
      }
      i += run;
    }
    give(call.out[0], begin, size, y);
  });
}

// y = factor x, or 0, for elements [begin, begin + n).
void scale_or_drop(const Tensor& x, const Tensor& y, std::int64_t begin, std::int64_t n, bool kept,
                   float factor) {
  if (is_bf16(x))
    kept ? scale_bf16(x.as<Low>() + begin, y.as<Low>() + begin, n, factor)
         : static_cast<void>(std::fill_n(y.as<Low>() + begin, n, Low{0}));
  else
    kept ? vector_scale(x.as<float>() + begin, y.as<float>() + begin, n, factor)
         : vector_fill(y.as<float>() + begin, n, 0.0f);
}
// y = x factor_of(k), and 0 where that is 0, for k in [0, n).
template <class FactorOf>
void drop_some(const Tensor& x, const Tensor& y, std::int64_t begin, std::int64_t n,
               const FactorOf& factor_of) {
  Piece x_room, y_room;
  for (std::int64_t i = 0; i < n; i += low_piece) {
    const std::int64_t size = std::min(low_piece, n - i);
    const float* from = wide(x, begin + i, size, x_room.data());
    float* to = room_for(y, begin + i, y_room.data());
    for (std::int64_t k = 0; k < size; ++k) {
      const float factor = factor_of(i + k);
      to[k] = factor != 0.0f ? from[k] * factor : 0.0f;
    }
    give(y, begin + i, size, to);
  }
}

// body(T{}) with the type of one element; bf16 and f16 have types of their own.
struct Bf16 {
  std::uint16_t bits;
  static Bf16 of(float x) { return {round_to_bf16(x)}; }
  float wide() const { return widen_bf16(bits); }
};
struct F16 {
  std::uint16_t bits;
  static F16 of(float x) { return {to_half(x)}; }
  float wide() const { return from_half(bits); }
};
template <class T>
constexpr bool is_narrow = std::is_same_v<T, Bf16> || std::is_same_v<T, F16>;
template <class Body>
void by_dtype(ir::DType dtype, const Body& body) {
  switch (dtype) {
    case ir::DType::f64:
      return body(double{});
    case ir::DType::f32:
      return body(float{});
    case ir::DType::bf16:
      return body(Bf16{});
    case ir::DType::f16:
      return body(F16{});
    case ir::DType::i64:
      return body(std::int64_t{});
    case ir::DType::i32:
      return body(std::int32_t{});
    case ir::DType::u8:
      return body(std::uint8_t{});
    case ir::DType::f8e4m3:
    case ir::DType::f8e5m2:
    case ir::DType::i8:
      CHECK(false, "quantised elements are no numbers without their scale");
  }
}

template <class To, class From>
void convert(const From* x, To* y, std::int64_t n) {
  if constexpr (std::is_same_v<From, Bf16> && std::is_same_v<To, float>) {
    widen_bf16(&x->bits, y, n);
  } else if constexpr (std::is_same_v<From, float> && std::is_same_v<To, Bf16>) {
    round_to_bf16(x, &y->bits, n);
  } else if constexpr (std::is_same_v<From, F16> && std::is_same_v<To, float>) {
    widen_f16(&x->bits, y, n);
  } else if constexpr (std::is_same_v<From, float> && std::is_same_v<To, F16>) {
    round_to_f16(x, &y->bits, n);
  } else if constexpr (std::is_same_v<From, To>) {
    std::copy_n(x, n, y);
  } else if constexpr (is_narrow<From> && is_narrow<To>) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = To::of(x[i].wide());
  } else if constexpr (is_narrow<From>) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<To>(x[i].wide());
  } else if constexpr (is_narrow<To>) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = To::of(static_cast<float>(x[i]));
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<To>(x[i]);
  }
}
}  // namespace

void fast_add(const Call& call) {
  broadcast_pointwise(
      call, vector_add,
      [](const float* a, float b, float* y, std::int64_t n) { vector_add_scalar(a, b, y, n); },
      [](float a, float b) { return a + b; });
}

void fast_mul(const Call& call) {
  broadcast_pointwise(
      call, vector_mul,
      [](const float* a, float b, float* y, std::int64_t n) { vector_scale(a, y, n, b); },
      [](float a, float b) { return a * b; });
}

void fast_scale(const Call& call) {
  const float factor = static_cast<float>(call.attr<ir::Scale>().factor);
  same_place(call, [&](const float* x, const float*, float* y, std::int64_t n) {
    vector_scale(x, y, n, factor);
  });
}

void fast_relu(const Call& call) {
  same_place(call,
             [](const float* x, const float*, float* y, std::int64_t n) { vector_relu(x, y, n); });
}

void fast_relu_grad(const Call& call) {
  same_place(call, [](const float* y, const float* g, float* dx, std::int64_t n) {
    vector_relu_grad(y, g, dx, n);
  });
}

void fast_select(const Call& call) {
  const Tensor& from = *call.in[0].as<float>() != 0.0f ? call.in[1] : call.in[2];
  copy_bytes(call.pool, from.data, call.out[0].data,
             call.out[0].elements() * ir::size_of(call.out[0].dtype));
}

void fast_cast(const Call& call) {
  by_dtype(call.in[0].dtype, [&](auto from) {
    by_dtype(call.out[0].dtype, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      const From* x = call.in[0].as<From>();
      To* y = call.out[0].as<To>();
      if (std::is_same_v<From, To> && call.in[0].data == call.out[0].data) return;
      for_chunks(
          call.pool, call.out[0].elements(), chunk,
          [&](std::int64_t begin, std::int64_t size) { convert(x + begin, y + begin, size); });
    });
  });
}

void fast_dropout(const Call& call) {
  const ir::Dropout& drop = call.attr<ir::Dropout>();
  const Tensor &x = call.in[0], &y = call.out[0];
  const std::int64_t n = x.elements(), samples = x.shape.empty() ? 1 : x.shape[0];
  if (n == 0) return;
  if (drop.rate <= 0.0) return copy_bytes(call.pool, x.data, y.data, n * ir::size_of(x.dtype));
  const std::int64_t* rng = call.in[1].as<std::int64_t>();
  const Key base = Key{static_cast<std::uint64_t>(rng[0])}
                       .with(drop.stream)
                       .with(static_cast<std::uint64_t>(rng[1]));
  const std::int64_t position = rng[2] + drop.base, inner = n / samples;
  const float factor = static_cast<float>(1.0 / (1.0 - drop.rate));
  for_chunks(call.pool, n, chunk, [&](std::int64_t begin, std::int64_t size) {
    for (std::int64_t i = begin, end = begin + size; i < end;) {
      const std::int64_t sample = i / inner, first = i % inner,
                         run = std::min(inner - first, end - i);
      const Key key = base.with(static_cast<std::uint64_t>(position + sample));
      if (drop.per_sample)
        scale_or_drop(x, y, i, run, uniform(key, 0) >= drop.rate, factor);
      else
        drop_some(x, y, i, run, [&](std::int64_t k) {
          const auto at = static_cast<std::uint64_t>(in_whole_sample(drop, x.shape, first + k));
          return uniform(key, at) >= drop.rate ? factor : 0.0f;
        });
      i += run;
    }
  });
}

void fast_mark(const Call& call) {
  copy_bytes(call.pool, call.in[0].data, call.out[0].data,
             call.out[0].elements() * ir::size_of(call.out[0].dtype));
}
void fast_copy(const Call& call) { fast_mark(call); }

}  // namespace tessera::exec::cpu
