// Convolution and max pooling as sums over taps, one result (or one term) at a time.
#include <vector>

#include "exec/common/results.h"
#include "exec/cpu/reference/instantiate.h"
#include "exec/cpu/reference/quantised.h"
#include "exec/cpu/simd/convert.h"

namespace tessera::exec::cpu {
namespace {

using std::int64_t;

// body(x, w, y) with element offsets in images, filters and results for every product of the
// convolution.
template <class Body>
void for_each_product(const ir::Shape& x, const ir::Shape& f, const ir::Shape& y,
                      const ir::Conv& attr, const Body& body) {
  for (int64_t b = 0; b < y[0]; ++b)
    for (int64_t p = 0; p < y[1]; ++p)
      for (int64_t q = 0; q < y[2]; ++q)
        for (int64_t k = 0; k < f[0]; ++k)
          for (int64_t l = 0; l < f[1]; ++l) {
            const int64_t row = p * attr.stride + k - attr.pad,
                          col = q * attr.stride + l - attr.pad;
            if (row < 0 || row >= x[1] || col < 0 || col >= x[2]) continue;
            for (int64_t c = 0; c < f[2]; ++c)
              for (int64_t o = 0; o < f[3]; ++o)
                body(((b * x[1] + row) * x[2] + col) * x[3] + c,
                     ((k * f[1] + l) * f[2] + c) * f[3] + o,
                     ((b * y[1] + p) * y[2] + q) * y[3] + o);
          }
}

template <class T>
void write_sums(const std::vector<double>& sums, const Tensor& out) {
  for (std::size_t i = 0; i < sums.size(); ++i) out.as<T>()[i] = static_cast<T>(sums[i]);
}

}  // namespace

// The sum in double, which is exact, times the scales in their order, plus offset and addend.
void conv_quantised(const Call& call) {
  const ir::Conv& attr = call.attr<ir::Conv>();
  const Tensor& y = call.out[0];
  std::vector<double> sums(static_cast<std::size_t>(y.elements()));
  const auto *x = call.in[0].as<std::int8_t>(), *f = call.in[1].as<std::int8_t>();
  for_each_product(call.in[0].shape, call.in[1].shape, y.shape, attr,
                   [&](int64_t i, int64_t j, int64_t k) { sums[k] += x[i] * f[j]; });
  const auto number = [&](std::size_t operand, std::size_t i) {
    const Tensor& t = call.in[operand];
    return number_at(t.data + static_cast<int64_t>(i) * ir::size_of(t.dtype), t.dtype);
  };
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const std::size_t channel = i % static_cast<std::size_t>(y.shape.back());
    double v = sums[i] * number(2, 0) * number(3, channel);
    if (call.in.size() > 4) v = v * number(4, channel) + number(5, channel);
    if (call.in.size() > 6) v += number(6, i);
    const auto value = static_cast<float>(attr.relu && v < 0 ? 0 : v);
    if (y.dtype == ir::DType::f32)
      y.as<float>()[i] = value;
    else
      y.as<std::uint16_t>()[i] = round_to_bf16(value);
  }
}

template <class T>
void reference_conv(const Call& call) {
  if (ir::is_quantised(call.in[0].dtype)) return conv_quantised(call);
  std::vector<double> sums(static_cast<std::size_t>(call.out[0].elements()));
  const T *x = call.in[0].as<T>(), *f = call.in[1].as<T>();
  for_each_product(
      call.in[0].shape, call.in[1].shape, call.out[0].shape, call.attr<ir::Conv>(),
      [&](int64_t i, int64_t j, int64_t k) { sums[k] += static_cast<double>(x[i]) * f[j]; });
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const std::size_t channel = i % static_cast<std::size_t>(call.out[0].shape.back());
    if (call.in.size() > 2)
      sums[i] = sums[i] * call.in[2].as<T>()[channel] + call.in[3].as<T>()[channel];
    if (call.in.size() > 4) sums[i] += call.in[4].as<T>()[i];
    if (call.attr<ir::Conv>().relu && sums[i] < 0) sums[i] = 0;
  }
  write_sums<T>(sums, call.out[0]);
}

template <class T>
void reference_conv_input_grad(const Call& call) {
  std::vector<double> sums(static_cast<std::size_t>(call.out[0].elements()));
  const T *dy = call.in[0].as<T>(), *f = call.in[1].as<T>();
  for_each_product(
      call.out[0].shape, call.in[1].shape, call.in[0].shape, call.attr<ir::Conv>(),
      [&](int64_t i, int64_t j, int64_t k) { sums[i] += static_cast<double>(dy[k]) * f[j]; });
  write_sums<T>(sums, call.out[0]);
}

template <class T>
void reference_conv_filter_grad(const Call& call) {
  std::vector<double> sums(static_cast<std::size_t>(call.out[0].elements()));
  const T *dy = call.in[0].as<T>(), *x = call.in[1].as<T>();
  for_each_product(
      call.in[1].shape, call.out[0].shape, call.in[0].shape, call.attr<ir::Conv>(),
      [&](int64_t i, int64_t j, int64_t k) { sums[j] += static_cast<double>(dy[k]) * x[i]; });
  write_sums<T>(sums, call.out[0]);
}

// The first largest pixel of a window, row by row; a NaN is larger than everything.
template <class T>
void reference_max_pool(const Call& call) {
  const auto& attr = call.attr<ir::Pool>();
  const ir::Shape &x = call.in[0].shape, &y = (call.out[0] ? call.out[0] : call.out[1]).shape;
  const T* from = call.in[0].as<T>();
  int64_t at = 0;
  for (int64_t b = 0; b < y[0]; ++b)
    for (int64_t p = 0; p < y[1]; ++p)
      for (int64_t q = 0; q < y[2]; ++q)
        for (int64_t c = 0; c < y[3]; ++c, ++at) {
          int64_t which = -1;
          T best = 0;
          for (int64_t k = 0; k < attr.size * attr.size; ++k) {
            const int64_t row = p * attr.stride + k / attr.size - attr.pad,
                          col = q * attr.stride + k % attr.size - attr.pad;
            if (row < 0 || row >= x[1] || col < 0 || col >= x[2]) continue;
            const T value = from[((b * x[1] + row) * x[2] + col) * x[3] + c];
            if (which < 0 || value > best || (value != value && best == best)) {
              which = k;
              best = value;
            }
          }
          if (call.out[0]) call.out[0].as<T>()[at] = best;
          if (call.out[1]) call.out[1].as<std::uint8_t>()[at] = static_cast<std::uint8_t>(which);
        }
}

template <class T>
void reference_max_pool_grad(const Call& call) {
  const auto& attr = call.attr<ir::Pool>();
  const ir::Shape &g = call.in[0].shape, &x = call.out[0].shape;
  std::vector<double> sums(static_cast<std::size_t>(call.out[0].elements()));
  int64_t at = 0;
  for (int64_t b = 0; b < g[0]; ++b)
    for (int64_t p = 0; p < g[1]; ++p)
      for (int64_t q = 0; q < g[2]; ++q)
        for (int64_t c = 0; c < g[3]; ++c, ++at) {
          const int64_t which = call.in[1].as<std::uint8_t>()[at];
          const int64_t row = p * attr.stride + which / attr.size - attr.pad,
                        col = q * attr.stride + which % attr.size - attr.pad;
          if (row < 0 || row >= x[1] || col < 0 || col >= x[2]) continue;
          sums[((b * x[1] + row) * x[2] + col) * x[3] + c] += call.in[0].as<T>()[at];
        }
  write_sums<T>(sums, call.out[0]);
}

REFERENCE(conv)
REFERENCE(conv_input_grad)
REFERENCE(conv_filter_grad)
REFERENCE(max_pool)
REFERENCE(max_pool_grad)

}  // namespace tessera::exec::cpu
