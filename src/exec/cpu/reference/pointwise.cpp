// Element-wise ops by their definitions. Convention: element i is read before result i is written,
// so results may lie over operands.
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/half.h"
#include "base/rng.h"
#include "exec/common/index.h"
#include "exec/cpu/reference/formulas.h"
#include "exec/cpu/reference/instantiate.h"

namespace tessera::exec::cpu {
namespace {

// y[i] = f(a[i], b at the letters that b has)
template <class T, class F>
void broadcast_second(const Call& call, F f) {
  const OperandLetters letters = parse_letters(call.attr<ir::Sig>().sig);
  const Tensor &a = call.in[0], &b = call.in[1];
  CHECK(letters.in[0] == letters.out,
        "the first operand of " + call.attr<ir::Sig>().sig + " must have the result's letters");
  Extents extents;
  extents.bind(letters.in[0], a.shape);
  extents.bind(letters.in[1], b.shape);
  const std::vector<std::int64_t> from = offsets(letters.out, extents, letters.in[1], b.shape);
  for (std::int64_t i = 0; i < a.elements(); ++i)
    call.out[0].as<T>()[i] = f(a.as<T>()[i], b.as<T>()[from[i]]);
}

// bf16 is the upper half of an f32: rounded to nearest, ties to even; a NaN keeps a set bit.
struct Bf16 {
  std::uint16_t bits;
  Bf16() = default;
  explicit Bf16(float x) {
    const auto u = std::bit_cast<std::uint32_t>(x);
    bits = static_cast<std::uint16_t>(x != x ? (u >> 16) | 0x40u
                                             : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

struct F16 {
  std::uint16_t bits;
  F16() = default;
  explicit F16(float x) : bits(to_half(x)) {}
  explicit operator float() const { return from_half(bits); }
};

template <class T>
constexpr bool narrow = std::is_same_v<T, Bf16> || std::is_same_v<T, F16>;

template <class To, class From>
To convert(From x) {
  if constexpr (std::is_same_v<To, From>)
    return x;
  else if constexpr (narrow<From> || narrow<To>)
    return static_cast<To>(static_cast<float>(x));
  else
    return static_cast<To>(x);
}

template <class Visit>
void with_type(ir::DType dtype, Visit visit) {
  switch (dtype) {
    case ir::DType::f64:
      return visit(double{});
    case ir::DType::f32:
      return visit(float{});
    case ir::DType::bf16:
      return visit(Bf16{});
    case ir::DType::f16:
      return visit(F16{});
    case ir::DType::i64:
      return visit(std::int64_t{});
    case ir::DType::i32:
      return visit(std::int32_t{});
    case ir::DType::u8:
      return visit(std::uint8_t{});
    case ir::DType::f8e4m3:
    case ir::DType::f8e5m2:
    case ir::DType::i8:
      CHECK(false, "quantised elements are no numbers without their scale");
  }
}

void copy_tensor(const Tensor& to, const std::byte* from) {
  if (to.data != from && to.elements() > 0)
    std::memmove(to.data, from, static_cast<std::size_t>(to.elements() * ir::size_of(to.dtype)));
}

}  // namespace

template <class T>
void reference_add(const Call& call) {
  broadcast_second<T>(call, [](T a, T b) { return a + b; });
}

template <class T>
void reference_mul(const Call& call) {
  broadcast_second<T>(call, [](T a, T b) { return a * b; });
}

template <class T>
void reference_scale(const Call& call) {
  const T factor = static_cast<T>(call.attr<ir::Scale>().factor);
  for (std::int64_t i = 0; i < call.in[0].elements(); ++i)
    call.out[0].as<T>()[i] = factor * call.in[0].as<T>()[i];
}

template <class T>
void reference_gelu(const Call& call) {
  const auto f = call.attr<ir::Gelu>().tanh ? gelu_tanh : gelu_erf;
  for (std::int64_t i = 0; i < call.in[0].elements(); ++i)
    call.out[0].as<T>()[i] = static_cast<T>(f(call.in[0].as<T>()[i]));
}

// dx = g gelu'(x)
template <class T>
void reference_gelu_grad(const Call& call) {
  const auto slope = call.attr<ir::Gelu>().tanh ? gelu_tanh_slope : gelu_erf_slope;
  const T *x = call.in[0].as<T>(), *g = call.in[1].as<T>();
  for (std::int64_t i = 0; i < call.in[0].elements(); ++i)
    call.out[0].as<T>()[i] = static_cast<T>(g[i] * slope(x[i]));
  if (call.out.size() < 2 || !call.out[1]) return;
  const std::int64_t c = call.out[1].elements();
  for (std::int64_t column = 0; column < c; ++column) {
    double sum = 0;
    for (std::int64_t i = column; i < call.out[0].elements(); i += c) sum += call.out[0].as<T>()[i];
    call.out[1].as<T>()[column] = static_cast<T>(sum);
  }
}

template <class T>
void reference_select(const Call& call) {
  copy_tensor(call.out[0], call.in[call.in[0].as<T>()[0] != T(0) ? 1 : 2].data);
}

// The dtypes of operand and result decide, not T.
template <class T>
void reference_cast(const Call& call) {
  const Tensor &x = call.in[0], &y = call.out[0];
  with_type(x.dtype, [&]<class From>(From) {
    with_type(y.dtype, [&]<class To>(To) {
      for (std::int64_t i = 0; i < x.elements(); ++i) y.as<To>()[i] = convert<To>(x.as<From>()[i]);
    });
  });
}

// y = u >= rate ? x / (1 - rate) : 0, with u drawn for (seed, stream, step, position of the sample
// in the global batch, element in the sample)
template <class T>
void reference_dropout(const Call& call) {
  const auto& attr = call.attr<ir::Dropout>();
  const Tensor& x = call.in[0];
  const auto* rng = call.in[1].as<std::int64_t>();
  const std::int64_t samples = x.shape[0], each = samples == 0 ? 0 : x.elements() / samples;
  const T keep = static_cast<T>(1.0 - attr.rate);
  for (std::int64_t b = 0; b < samples; ++b) {
    const auto position = static_cast<std::uint64_t>(rng[2] + attr.base + b);
    const Key key = Key{static_cast<std::uint64_t>(rng[0])}
                        .with(attr.stream)
                        .with(static_cast<std::uint64_t>(rng[1]))
                        .with(position);
    for (std::int64_t i = 0; i < each; ++i) {
      const double u = uniform(
          key, attr.per_sample ? 0 : static_cast<std::uint64_t>(in_whole_sample(attr, x.shape, i)));
      call.out[0].as<T>()[b * each + i] = u >= attr.rate ? x.as<T>()[b * each + i] / keep : T(0);
    }
  }
}

template <class T>
void reference_mark(const Call& call) {
  copy_tensor(call.out[0], call.in[0].data);
}
template <class T>
void reference_copy(const Call& call) {
  copy_tensor(call.out[0], call.in[0].data);
}

// y = max(x, 0)
template <class T>
void reference_relu(const Call& call) {
  for (std::int64_t i = 0; i < call.out[0].elements(); ++i)
    call.out[0].as<T>()[i] = std::max(call.in[0].as<T>()[i], T(0));
}

// dx = g where y > 0
template <class T>
void reference_relu_grad(const Call& call) {
  for (std::int64_t i = 0; i < call.out[0].elements(); ++i)
    call.out[0].as<T>()[i] = call.in[0].as<T>()[i] > T(0) ? call.in[1].as<T>()[i] : T(0);
}

REFERENCE(relu)
REFERENCE(relu_grad)
REFERENCE(add)
REFERENCE(mul)
REFERENCE(scale)
REFERENCE(gelu)
REFERENCE(gelu_grad)
REFERENCE(select)
REFERENCE(cast)
REFERENCE(dropout)
REFERENCE(mark)
REFERENCE(copy)

}  // namespace tessera::exec::cpu
