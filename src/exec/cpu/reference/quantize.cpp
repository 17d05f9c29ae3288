// Quantisation by its definition, products of quantised factors, and scales that follow from past
// steps. Convention: tensors here have several types at once, so elements are read and written as
// numbers by the type of their tensor.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "exec/common/index.h"
#include "exec/common/quantised.h"
#include "exec/common/results.h"
#include "exec/cpu/reference/formulas.h"
#include "exec/cpu/reference/instantiate.h"
#include "exec/cpu/reference/quantised.h"
#include "exec/cpu/simd/convert.h"

namespace tessera::exec::cpu {
namespace {

using std::int64_t;

constexpr int64_t task_size = 4096;

template <class Body>
void for_tasks(ThreadPool& pool, int64_t n, const Body& body) {
  pool.parallel_for((n + task_size - 1) / task_size, [&](int64_t task, int) {
    for (int64_t i = task * task_size; i < std::min(n, (task + 1) * task_size); ++i) body(i);
  });
}

double read_number(const Tensor& t, int64_t i) {
  return number_at(t.data + i * ir::size_of(t.dtype), t.dtype);
}

void write_number(const Tensor& t, int64_t i, double value) {
  if (t.dtype == ir::DType::f32)
    t.as<float>()[i] = static_cast<float>(value);
  else
    t.as<std::uint16_t>()[i] = round_to_bf16(static_cast<float>(value));
}

// Where an operand keeps what belongs to each element of a tensor whose dims have these letters;
// empty: one number serves all.
std::vector<int64_t> places(const std::string& over, const Extents& extents,
                            const std::string& letters, const Tensor& operand) {
  if (letters.empty()) return {};
  return offsets(over, extents, letters, operand.shape);
}
int64_t place(const std::vector<int64_t>& of, int64_t i) {
  return of.empty() ? 0 : of[static_cast<std::size_t>(i)];
}

// A factor in doubles, its scale left aside.
std::vector<double> numbers(const Tensor& factor, ThreadPool& pool) {
  std::vector<double> out(static_cast<std::size_t>(factor.elements()));
  for_tasks(pool, factor.elements(), [&](int64_t i) {
    out[static_cast<std::size_t>(i)] =
        static_cast<double>(from_quantised(factor.as<std::uint8_t>()[i], factor.dtype));
  });
  return out;
}

Tensor in_doubles(const ir::Shape& shape, std::vector<double>& numbers) {
  return {ir::DType::f64, shape, reinterpret_cast<std::byte*>(numbers.data())};
}

double activated(const std::string& act, double x) {
  return act == "gelu" ? gelu_erf(x) : act == "gelu_tanh" ? gelu_tanh(x) : x;
}

double value_to_quantise(const Call& call, int64_t i) {
  const std::string& act = call.attr<ir::Quantize>().act;
  const double x = read_number(call.in[0], i);
  if (!act.ends_with("_grad")) return activated(act, x);
  const double g = read_number(call.in[2], i);
  return g * (act == "gelu_grad" ? gelu_erf_slope(x) : gelu_tanh_slope(x));
}

// Values over their scales, read as a matrix of so many rows and written turned; one row stays as
// it is. `inverse` says by what value i is multiplied.
template <class Inverse>
void write_bytes(ThreadPool& pool, const std::vector<float>& values, int64_t rows,
                 const Inverse& inverse, const Tensor& out) {
  const auto n = static_cast<int64_t>(values.size());
  const int64_t columns = rows > 0 ? n / rows : 0;
  for_tasks(pool, n, [&](int64_t i) {
    const int64_t from = i % rows * columns + i / rows;
    out.as<std::uint8_t>()[i] =
        to_quantised(values[static_cast<std::size_t>(from)] * inverse(from), out.dtype);
  });
}

void write_largest(const std::vector<float>& values, const Tensor& out) {
  float most = 0;
  for (const float value : values)
    if (!(std::abs(value) <= most)) {  // a NaN is kept
      most = std::abs(value);
      if (std::isnan(most)) break;
    }
  out.as<float>()[0] = most;
}

void write_sums(const std::vector<float>& values, const Tensor& out) {
  const int64_t columns = out.elements();
  std::vector<double> sums(static_cast<std::size_t>(columns));
  for (std::size_t i = 0; i < values.size(); ++i)
    sums[i % sums.size()] += static_cast<double>(values[i]);
  for (int64_t c = 0; c < columns; ++c)
    out.as<float>()[c] = static_cast<float>(sums[static_cast<std::size_t>(c)]);
}

}  // namespace

// The sum in double (of integers it is exact), times the scales in their order, plus the addends;
// with `to` its activation as reference_quantize gives it.
void contract_quantised(const Call& call) {
  const auto& attr = call.attr<ir::Contract>();
  const Tensor y = call.out[0], z = call.out.size() > 1 ? call.out[1] : Tensor{};
  if (!attr.to && !y && !z) return;
  const OperandLetters letters = parse_letters(attr.sig);
  Extents extents;
  for (std::size_t i = 0; i < call.in.size(); ++i) extents.bind(letters.in[i], call.in[i].shape);
  ir::Shape shape;
  for (const char letter : letters.out) shape.push_back(extents[letter]);
  std::vector<double> x = numbers(call.in[0], call.pool), w = numbers(call.in[1], call.pool);
  const int64_t n = ir::elements(shape);
  std::vector<double> sums(static_cast<std::size_t>(n));
  const std::vector<Tensor> factors = {in_doubles(call.in[0].shape, x),
                                       in_doubles(call.in[1].shape, w)};
  const std::vector<Tensor> sum = {in_doubles(shape, sums)};
  const ir::Attrs plain =
      ir::Contract{letters.in[0] + "," + letters.in[1] + "->" + letters.out, {}, ir::DType::f64};
  reference_contract<double>(Call{
      .op = call.op, .attrs = plain, .in = factors, .out = sum, .pool = call.pool, .scratch = {}});

  std::vector<std::vector<int64_t>> at;
  for (std::size_t i = 2; i < call.in.size() - (attr.to ? 1 : 0); ++i)
    at.push_back(places(letters.out, extents, letters.in[i], call.in[i]));
  std::vector<float> v(attr.to ? sums.size() : 0);
  for_tasks(call.pool, n, [&](int64_t i) {
    double value = sums[static_cast<std::size_t>(i)];
    for (std::size_t a = 0; a < at.size(); ++a) {
      const double number = read_number(call.in[a + 2], place(at[a], i));
      value = static_cast<int>(a) < attr.scales ? value * number : value + number;
    }
    if (z) write_number(z, i, value);
    value = activated(attr.act, value);
    if (attr.to)
      v[static_cast<std::size_t>(i)] = static_cast<float>(value);
    else if (y)
      write_number(y, i, value);
  });
  if (!attr.to) return;
  const float inverse = 1 / call.in.back().as<float>()[0];
  const auto by = [&](int64_t) { return inverse; };
  const int64_t width = shape.empty() ? 1 : shape.back();
  if (y) write_bytes(call.pool, v, 1, by, y);
  if (call.out[2]) write_bytes(call.pool, v, width > 0 ? n / width : 0, by, call.out[2]);
  if (call.out[3]) write_largest(v, call.out[3]);
}

// s = x + r, y = (s - mean) rstd gain + bias, and y as reference_quantize gives it.
void norm_quantised(const Call& call, bool adds) {
  const std::size_t first = adds ? 2 : 1, result = adds ? 1 : 0;
  const Tensor &x = call.in[0], &gain = call.in[first], &bias = call.in[first + 1];
  const int64_t width = x.shape.back(), rows = width == 0 ? 0 : x.elements() / width;
  const ir::Norm& attr = call.attr<ir::Norm>();
  const float inverse = 1 / call.in[first + 2].as<float>()[0];
  std::vector<float> s(static_cast<std::size_t>(width)), largest;
  for (int64_t row = 0; row < rows; ++row) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < width; ++i) {
      float& at = s[static_cast<std::size_t>(i)];
      at = x.as<float>()[row * width + i];
      if (adds) at += static_cast<float>(read_number(call.in[1], row * width + i));
      sum += static_cast<double>(at);
    }
    const double mean = sum / static_cast<double>(width);
    for (const float at : s) squares += (at - mean) * (at - mean);
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(width) + attr.eps);
    if (adds && call.out[0]) std::copy(s.begin(), s.end(), call.out[0].as<float>() + row * width);
    if (const Tensor& out = call.out[result + 1]) out.as<float>()[row] = static_cast<float>(mean);
    if (const Tensor& out = call.out[result + 2]) out.as<float>()[row] = static_cast<float>(rstd);
    for (int64_t i = 0; i < width; ++i) {
      const auto y = static_cast<float>((s[static_cast<std::size_t>(i)] - mean) * rstd *
                                            static_cast<double>(gain.as<float>()[i]) +
                                        static_cast<double>(bias.as<float>()[i]));
      const std::uint8_t q = to_quantised(y * inverse, *attr.to);
      if (const Tensor& out = call.out[result]) out.as<std::uint8_t>()[row * width + i] = q;
      if (const Tensor& out = call.out[result + 3]) out.as<std::uint8_t>()[i * rows + row] = q;
      largest.push_back(y);
    }
  }
  if (const Tensor& out = call.out[result + 4]) write_largest(largest, out);
}

template <class T>
void reference_quantize(const Call& call) {
  const auto& attr = call.attr<ir::Quantize>();
  const ir::Signature& sig = ir::parsed_signature(attr.sig);
  const Tensor &x = call.in[0], &scale = call.in[1];
  const std::string& letters = sig.in[0].letters;
  const int64_t n = x.elements();
  Extents extents;
  extents.bind(letters, x.shape);
  const std::vector<int64_t> scales = places(letters, extents, sig.in[1].letters, scale);
  std::vector<float> v(static_cast<std::size_t>(n));
  for_tasks(call.pool, n, [&](int64_t i) {
    v[static_cast<std::size_t>(i)] = static_cast<float>(value_to_quantise(call, i));
  });
  for (std::size_t r = 0; r < call.out.size(); ++r) {
    const Tensor& out = call.out[r];
    const std::string& order = sig.out[r].letters;
    if (!out) continue;
    if (out.dtype == ir::DType::f32) {
      order.empty() ? write_largest(v, out) : write_sums(v, out);
      continue;
    }
    // A rotation of the dims turns a matrix: its rows are the dims that go to the end.
    const int64_t rows =
        order == letters ? 1 : extents.product(letters.substr(0, letters.find(order[0])));
    write_bytes(
        call.pool, v, rows, [&](int64_t i) { return 1 / scale.as<float>()[place(scales, i)]; },
        out);
  }
}
REFERENCE(quantize)

template <class T>
void reference_delayed_scale(const Call& call) {
  const auto& attr = call.attr<ir::DelayedScale>();
  const int64_t steps = call.in[0].shape[1];
  for (int64_t i = 0; i < call.in[0].shape[0]; ++i) {
    const float* row = call.in[0].as<float>() + i * steps;
    const float amax = steps > 0 ? *std::max_element(row, row + steps) : 0.0f;
    std::fill_n(call.out[0].as<float>() + i * attr.copies, attr.copies,
                delayed_scale(amax, attr.to, static_cast<float>(attr.start)));
  }
}
REFERENCE(delayed_scale)

template <class T>
void reference_amax_history(const Call& call) {
  const int64_t steps = call.in[0].shape[1];
  for (int64_t i = 0; i < call.in[0].shape[0]; ++i) {
    const float *from = call.in[0].as<float>() + i * steps, amax = call.in[1].as<float>()[i];
    float* to = call.out[0].as<float>() + i * steps;
    if (std::isfinite(amax)) {
      std::memmove(to + 1, from, static_cast<std::size_t>(steps - 1) * sizeof(float));
      to[0] = amax;
    } else if (to != from) {
      std::memcpy(to, from, static_cast<std::size_t>(steps) * sizeof(float));
    }
  }
}
REFERENCE(amax_history)

}  // namespace tessera::exec::cpu
