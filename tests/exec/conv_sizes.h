// Sizes of convolutions for tests of single ways to compute them, and what every way to the
// gradient of filters must give.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "exec/cpu/images/conv.h"
#include "ir/builder.h"
#include "ops/array.h"
#include "ops/interpret.h"

namespace tessera::test {

struct ConvSizes {
  std::int64_t b, h, w, c, o, k, l, stride, pad;

  ir::Conv attrs() const { return {stride, pad}; }
  ir::Conv gradient_attrs() const { return {stride, pad, k, l}; }
  ir::Shape images() const { return {b, h, w, c}; }
  ir::Shape filters() const { return {k, l, c, o}; }
  ir::Shape results() const {
    return {b, (h + 2 * pad - k) / stride + 1, (w + 2 * pad - l) / stride + 1, o};
  }
  std::string text() const {
    return ir::to_string(images()) + " " + ir::to_string(filters()) + " stride " +
           std::to_string(stride) + " pad " + std::to_string(pad);
  }
};

// Numbers that bf16 has.
inline Array normal_low(const ir::Shape& shape, std::mt19937& random) {
  std::normal_distribution<double> of;
  Array a(ir::DType::bf16, shape);
  for (std::int64_t i = 0; i < a.size(); ++i) a.set(i, of(random));
  return a;
}

// A way to the gradient of filters, and the room that it asks for. Results and scratch begin as
// NaN.
struct FilterGradient {
  exec::cpu::Scratch need;
  void (*kernel)(const exec::cpu::Call&);

  Array of(const ConvSizes& n, const std::vector<Array>& in, ir::DType result, int threads) const {
    const ir::Attrs attrs = n.gradient_attrs();
    const exec::cpu::Scratch room = need.aligned();
    Array dw(result, n.filters()), shared(ir::DType::u8, {static_cast<std::int64_t>(room.shared)}),
        own(ir::DType::u8, {static_cast<std::int64_t>(room.per_thread) * threads});
    for (const Array* a : {&dw, &shared, &own}) std::fill_n(a->data(), a->bytes(), std::byte{0xff});
    ThreadPool pool(threads);
    const std::vector<exec::Tensor> from = {in[0].tensor(), in[1].tensor()}, to = {dw.tensor()};
    kernel({ir::Op::conv_filter_grad, attrs, from, to, pool, room, shared.data(), own.data()});
    EXPECT_TRUE(dw.guards_intact() && shared.guards_intact() && own.guards_intact());
    return dw;
  }
};

// Operands of a gradient of filters, and that gradient in double.
struct ExactGradient {
  std::vector<Array> in;
  Array result;

  explicit ExactGradient(const ConvSizes& n) {
    std::mt19937 random(static_cast<unsigned>(n.h * 31 + n.c * 7 + n.o));
    std::vector<Array> in_double;
    for (const ir::Shape& shape : {n.results(), n.images()}) {
      in.push_back(normal_low(shape, random));
      in_double.push_back(in.back().as(ir::DType::f64));
    }
    ThreadPool pool(2);
    result =
        std::move(run_reference(ir::Op::conv_filter_grad, n.gradient_attrs(), in_double, pool)[0]);
  }
};
// The gradient in f32 against the one in double, and its bits for any number of threads.
inline void expect_exact_in_f32(const ConvSizes& n, const FilterGradient& way,
                                const std::vector<Array>& in, const Array& exact) {
  const Array once = way.of(n, in, ir::DType::f32, 1);
  EXPECT_LE(relative_error(once, exact), 2e-6);  // that of the sums in the op cases
  for (const int threads : {2, 5})
    EXPECT_TRUE(once.same_bits(way.of(n, in, ir::DType::f32, threads)));
}
// The same from operands in f32.
inline void expect_exact_in_f32(const ConvSizes& n, const FilterGradient& way) {
  const ExactGradient exact(n);
  expect_exact_in_f32(n, way, {exact.in[0].as(ir::DType::f32), exact.in[1].as(ir::DType::f32)},
                      exact.result);
}
// And from operands in bf16, with results in f32 and in bf16.
inline void expect_exact(const ConvSizes& n, const FilterGradient& wide,
                         const FilterGradient& low) {
  const ExactGradient exact(n);
  expect_exact_in_f32(n, wide, exact.in, exact.result);
  EXPECT_LE(relative_error(low.of(n, exact.in, ir::DType::bf16, 3), exact.result), 4e-3);
}

}  // namespace tessera::test
