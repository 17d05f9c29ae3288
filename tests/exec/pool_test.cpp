// Max pooling: a NaN wins wherever it is in its window, the first of several, and the border never
// does; where somebody asks which pixel won, as a training does, and where nobody does.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "exec/cpu/simd/convert.h"
#include "exec/harness.h"
#include "ops/interpret.h"
#include "ops/on_device.h"

namespace tessera::exec {
namespace {

using std::int64_t;

// Small numbers that bf16 has, and NaNs of either sign in pixels that lie first, last and between
// in windows.
Array images_with_nans(const ir::Shape& shape) {
  Array x{shape, std::vector<float>(static_cast<std::size_t>(ir::elements(shape)))};
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    x.values[i] = static_cast<float>(static_cast<int>(i * 37 % 61) - 70);
    if (i % 23 == 5)
      x.values[i] =
          std::copysign(std::numeric_limits<float>::quiet_NaN(), i % 2 == 0 ? 1.0f : -1.0f);
  }
  return x;
}

float largest(const Array& x, const ir::Pool& attr, int64_t image, int64_t p, int64_t q,
              int64_t c) {
  float best = -std::numeric_limits<float>::infinity();
  for (int64_t row = p * attr.stride - attr.pad; row < p * attr.stride - attr.pad + attr.size;
       ++row)
    for (int64_t col = q * attr.stride - attr.pad; col < q * attr.stride - attr.pad + attr.size;
         ++col) {
      if (row < 0 || row >= x.shape[1] || col < 0 || col >= x.shape[2]) continue;
      const auto at = ((image * x.shape[1] + row) * x.shape[2] + col) * x.shape[3] + c;
      const float v = x.values[static_cast<std::size_t>(at)];
      if (!(v <= best) && !std::isnan(best)) best = v;
    }
  return best;
}

// The first result of a program of one max_pool, whose second one has no reader.
Array pooled(const Array& x, const ir::Pool& attr, ir::DType dtype) {
  const auto executor = make_executor("cpu", 3);
  ir::Builder b;
  const ir::Var in = b.input(ir::Input::batch, "x", {dtype, x.shape, {}});
  b.output("y", b.emit(ir::Op::max_pool, attr, {in})[0]);
  const plan::Plan plan = plan::lower(b.program(), 0, executor->target());
  const auto loaded = executor->load(plan);
  Array y = poisoned(plan.output("y")->slot.type.shape);
  const auto n = static_cast<int64_t>(x.values.size()), m = static_cast<int64_t>(y.values.size());
  if (dtype == ir::DType::f32) {
    loaded->write("x", std::as_bytes(std::span<const float>(x.values)));
    loaded->run();
    loaded->read("y", std::as_writable_bytes(std::span<float>(y.values)));
    return y;
  }
  std::vector<std::uint16_t> low(x.values.size()), result(y.values.size());
  cpu::round_to_bf16(x.values.data(), low.data(), n);
  loaded->write("x", std::as_bytes(std::span<const std::uint16_t>(low)));
  loaded->run();
  loaded->read("y", std::as_writable_bytes(std::span<std::uint16_t>(result)));
  cpu::widen_bf16(result.data(), y.values.data(), m);
  return y;
}

TEST(MaxPool, ANanWinsWhereNobodyAsksWhichPixelDid) {
  const ir::Pool attr{3, 2, 1, 0, 0};
  for (const ir::DType dtype : {ir::DType::f32, ir::DType::bf16})
    for (const int64_t channels : {1, 17, 70}) {
      const Array x = images_with_nans({2, 7, 9, channels});
      const Array y = pooled(x, attr, dtype);
      std::size_t i = 0, nans = 0;
      for (int64_t image = 0; image < y.shape[0]; ++image)
        for (int64_t p = 0; p < y.shape[1]; ++p)
          for (int64_t q = 0; q < y.shape[2]; ++q)
            for (int64_t c = 0; c < channels; ++c, ++i) {
              const float want = largest(x, attr, image, p, q, c);
              nans += std::isnan(want);
              EXPECT_TRUE(std::isnan(want) ? std::isnan(y.values[i]) : y.values[i] == want)
                  << "channels " << channels << ", result " << i << ": " << y.values[i]
                  << ", expected " << want;
            }
      EXPECT_GT(nans, 0u);
      EXPECT_LT(nans, i);
    }
}

TEST(MaxPool, TheFirstNanOfAWindowIsNamed) {
  const ir::Pool attr{3, 2, 1, 0, 0};
  ThreadPool pool(2);
  for (const ir::DType dtype : {ir::DType::f32, ir::DType::bf16})
    for (const int64_t channels : {1, 17, 70}) {
      const Array images = images_with_nans({2, 7, 9, channels});
      test::Array x(dtype, images.shape), wide(ir::DType::f64, images.shape);
      for (int64_t i = 0; i < x.size(); ++i) {
        const float value = images.values[static_cast<std::size_t>(i)];
        x.set(i, value);
        wide.set(i, value);
        if (i % 23 == 6) x.set(i, NAN);  // and one beside it
        if (i % 23 == 6) wide.set(i, NAN);
      }
      ir::Builder b;
      const std::vector<ir::Var> out =
          b.emit(ir::Op::max_pool, attr, {b.input(ir::Input::batch, "x", x.type())});
      b.output("y", out[0]);
      b.output("pixel", out[1]);
      const test::Arrays found =
          test::run_program(*make_executor("cpu", 3), b.program(), {{"x", x}});
      const std::vector<test::Array> want =
          test::run_reference(ir::Op::max_pool, attr, {wide}, pool);
      EXPECT_TRUE(found.at("pixel").same_bits(want[1])) << channels;
      for (int64_t i = 0; i < want[0].size(); ++i) {
        const double y = found.at("y")[i];
        EXPECT_TRUE(std::isnan(want[0][i]) ? std::isnan(y) : y == want[0][i]) << i;
      }
    }
}

}  // namespace
}  // namespace tessera::exec
