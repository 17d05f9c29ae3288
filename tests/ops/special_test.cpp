// Numbers that are none: a NaN must not vanish in a fast kernel, or a diverged run would go
// unnoticed.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/half.h"
#include "ops/cases.h"
#include "ops/interpret.h"
#include "ops/on_device.h"

namespace tessera::test::special_test {
namespace {

using ir::DType;
using ir::Op;

constexpr double nan = std::numeric_limits<double>::quiet_NaN(),
                 infinity = std::numeric_limits<double>::infinity();

ThreadPool& pool() {
  static ThreadPool threads(2);
  return threads;
}

class Special : public EveryDevice {};
FOR_EVERY_DEVICE(Special);

std::vector<std::int64_t> nans(const Array& a) {
  std::vector<std::int64_t> at;
  for (std::int64_t i = 0; i < a.size(); ++i)
    if (std::isnan(a[i])) at.push_back(i);
  return at;
}

// In every case: a NaN in the middle of each float operand in turn reaches the results that it
// reaches in the reference, and no other element. A kernel may write 0 where the reference has 0 *
// NaN, as long as the NaN shows somewhere. The fast convolution multiplies the zeros of the border,
// which the reference leaves out: there a NaN may spread further.
TEST_P(Special, NansSpreadAsInTheReference) {
  for (const Case& c : cases()) {
    if (c.fixed) continue;
    for (std::size_t n = 0; n < c.in.size(); ++n) {
      std::vector<Array> wide = make_operands(c, DType::f64), narrow = make_operands(c, DType::f32);
      if (!ir::is_float(narrow[n].dtype()) || narrow[n].size() == 0) continue;
      wide[n].set(wide[n].size() / 2, nan);
      narrow[n].set(narrow[n].size() / 2, nan);
      const std::vector<Array> want = run_reference(c.op, attrs_for(c, DType::f64), wide, pool());
      const std::vector<Array> got = run(c.op, attrs_for(c, DType::f32), narrow);
      for (std::size_t i = 0; i < want.size(); ++i) {
        const std::vector<std::int64_t> here = nans(got[i]), there = nans(want[i]);
        EXPECT_EQ(here.empty(), there.empty()) << c.name << ", operand " << n << ", result " << i;
        if (std::holds_alternative<ir::Conv>(c.attrs)) continue;
        EXPECT_TRUE(std::includes(there.begin(), there.end(), here.begin(), here.end()))
            << c.name << ", operand " << n << ", result " << i;
      }
    }
  }
}

TEST_P(Special, FiniteSeesEveryOperand) {
  for (double bad : {nan, infinity, -infinity})
    for (std::int64_t at = 0; at < 3; ++at) {
      std::vector<Array> in(3, Array(DType::f32, {}));
      EXPECT_EQ(run(Op::finite, ir::None{}, in)[0][0], 1);
      in[static_cast<std::size_t>(at)].set(0, bad);
      EXPECT_EQ(run(Op::finite, ir::None{}, in)[0][0], 0) << bad << " at " << at;
    }
}

TEST_P(Special, CastToBf16IsBitForBit) {
  std::vector<float> x = {0.0f,
                          -0.0f,
                          1.0f,
                          1.0f + 0x1p-8f,
                          1.0f + 3 * 0x1p-8f,
                          -1.0f - 0x1.1p-8f,
                          1e-40f,
                          std::numeric_limits<float>::max()};
  for (std::uint32_t bits :
       {0x7f800000u, 0xff800000u, 0x7f800001u, 0xff80ffffu, 0x7fc00000u, 0x7fffffffu})
    x.push_back(std::bit_cast<float>(bits));
  Array in(DType::f32, {static_cast<std::int64_t>(x.size())});
  std::copy(x.begin(), x.end(), reinterpret_cast<float*>(in.data()));
  const Array got = run(Op::cast, ir::Cast{DType::bf16}, {in})[0],
              want = run_reference(Op::cast, ir::Cast{DType::bf16}, {in}, pool())[0];
  for (std::int64_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])))
        << x[static_cast<std::size_t>(i)] << " became " << got[i];
}

// Every f16 there and back, and both neighbours of every one and of every tie in f32.
TEST_P(Special, CastToF16IsBitForBit) {
  std::vector<float> x;
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const float value = from_half(static_cast<std::uint16_t>(bits));
    x.push_back(value);
    if (std::isnan(value)) continue;
    const std::uint32_t tie = std::bit_cast<std::uint32_t>(value) + 0x1000u;
    for (const std::uint32_t near : {tie - 1, tie, tie + 1})
      x.push_back(std::bit_cast<float>(near));
  }
  Array in(DType::f32, {static_cast<std::int64_t>(x.size())});
  std::copy(x.begin(), x.end(), reinterpret_cast<float*>(in.data()));
  const Array got = run(Op::cast, ir::Cast{DType::f16}, {in})[0],
              want = run_reference(Op::cast, ir::Cast{DType::f16}, {in}, pool())[0];
  const auto same = [this](const Array& a, const Array& b) {
    if (GetParam() == "cpu") return std::memcmp(a.data(), b.data(), a.bytes()) == 0;
    for (std::int64_t i = 0; i < a.size(); ++i)  // of a NaN a card keeps nothing
      if (!(std::isnan(a[i]) && std::isnan(b[i])) &&
          (a[i] != b[i] || std::signbit(a[i]) != std::signbit(b[i])))
        return false;
    return true;
  };
  EXPECT_TRUE(same(got, want));
  const Array back = run(Op::cast, ir::Cast{DType::f32}, {got})[0],
              meant = run_reference(Op::cast, ir::Cast{DType::f32}, {want}, pool())[0];
  EXPECT_TRUE(same(back, meant));
}

// A NaN is not below zero: relu keeps it, also at the end of a convolution in bf16.
TEST_P(Special, ReluBehindAConvolutionKeepsNaN) {
  for (const std::int64_t taps : {3, 7}) {
    ir::Conv attrs{taps == 3 ? 1 : 2, taps / 2};
    attrs.relu = true;
    Array x(DType::bf16, {1, 8, 16, 3}), f(DType::bf16, {taps, taps, 3, 64}), one(DType::f32, {64});
    for (std::int64_t i = 0; i < f.size(); ++i) f.set(i, 0.5);
    for (std::int64_t i = 0; i < 64; ++i) one.set(i, 1);
    x.set(x.size() / 2, nan);
    EXPECT_FALSE(nans(run(Op::conv, attrs, {x, f, one, one})[0]).empty()) << taps;
  }
}

// Keys that a mask removes with minus infinity have no weight.
TEST_P(Special, AttentionTakesInfiniteMasks) {
  const Array q = make_normal(DType::f32, {2, 1, 3, 2, 4}, "q"),
              k = make_normal(DType::f32, {2, 1, 5, 2, 4}, "k"),
              v = make_normal(DType::f32, {2, 1, 5, 2, 4}, "v");
  Array mask(DType::f32, {1, 3, 5});
  for (std::int64_t i = 0; i < mask.size(); ++i) mask.set(i, i % 5 > i / 5 ? -infinity : 0);
  const std::vector<Array> got =
      run(Op::attention, ir::Attention{0.5, false, true}, {q, k, v, mask});
  const std::vector<Array> want = run_reference(
      Op::attention, ir::Attention{0.5, false, true},
      {q.as(DType::f64), k.as(DType::f64), v.as(DType::f64), mask.as(DType::f64)}, pool());
  EXPECT_LT(relative_error(got[0], want[0]), 1e-6);
  EXPECT_LT(relative_error(got[1], want[1]), 1e-6);
  for (std::int64_t i = 0; i < 8; ++i)
    EXPECT_NEAR(got[0][i], v[i], 1e-6);  // the first query sees the first key alone
}

// A device that keeps few blocks, each of which walks over many heads, gives each head what it
// gives a head alone.
TEST_P(Special, AttentionOfManyHeadsIsThatOfEachSample) {
  const std::int64_t batch = 20, tokens = 100, heads = 7,
                     width = 64;  // more heads than a card has blocks
  const ir::Attrs attrs = ir::Attention{0.125};
  const auto part = [](const Array& whole, std::int64_t sample) {
    ir::Shape shape = whole.shape();
    const std::int64_t size = whole.size() / std::exchange(shape[0], 1);
    Array out(whole.dtype(), shape);
    for (std::int64_t i = 0; i < size; ++i) out.set(i, whole[sample * size + i]);
    return out;
  };
  std::vector<Array> in;
  for (const char* name : {"q", "k", "v"})
    in.push_back(make_normal(DType::bf16, {batch, tokens, heads, width}, name));
  const std::vector<Array> forward = run(Op::attention, attrs, in);
  in.push_back(forward[0]);
  in.push_back(forward[1]);
  in.push_back(make_normal(DType::bf16, {batch, tokens, heads, width}, "do"));
  const std::vector<Array> all = run(Op::attention_grad, attrs, in);
  for (const std::int64_t sample : {0, 11, 19}) {
    std::vector<Array> alone;
    for (const Array& operand : in) alone.push_back(part(operand, sample));
    const std::vector<Array> one = run(Op::attention_grad, attrs, alone);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(one[i].same_bits(part(all[i], sample)));
  }
}

// A block that walks over the images of a window gives each what it gives one image alone, and the
// gradient of the bias is the sum over all.
TEST_P(Special, AttentionInWindowsOfManyImagesIsThatOfEachImage) {
  const std::int64_t images = 15, windows = 8, tokens = 17, heads = 24, width = 32;
  const ir::Attrs attrs = ir::Attention{0.2, true, true};
  const auto part = [&](const Array& whole, std::int64_t first, std::int64_t count) {
    ir::Shape shape = whole.shape();
    if (shape[0] != images) return whole;  // bias and mask
    const std::int64_t size = whole.size() / std::exchange(shape[0], count);
    Array out(whole.dtype(), shape);
    for (std::int64_t i = 0; i < count * size; ++i) out.set(i, whole[first * size + i]);
    return out;
  };
  const auto gradients = [&](const std::vector<Array>& in, std::int64_t first, std::int64_t count) {
    std::vector<Array> some;
    for (const Array& operand : in) some.push_back(part(operand, first, count));
    return run(Op::attention_grad, attrs, some);
  };
  const ir::Shape shape = {images, windows, tokens, heads, width};
  std::vector<Array> in;
  for (const char* name : {"q", "k", "v"}) in.push_back(make_normal(DType::bf16, shape, name));
  const Array bias = make_normal(DType::f32, {heads, tokens, tokens}, "bias"),
              mask = make_normal(DType::f32, {windows, tokens, tokens}, "mask");
  const std::vector<Array> o = run(Op::attention, attrs, {in[0], in[1], in[2], bias, mask});
  in.insert(in.end(), {o[0], o[1], make_normal(DType::bf16, shape, "do"), bias, mask});
  const std::vector<Array> all = gradients(in, 0, images);
  for (const std::int64_t image : {0, 1, 14}) {
    const std::vector<Array> one = gradients(in, image, 1),
                             one_o = run(Op::attention, attrs,
                                         {part(in[0], image, 1), part(in[1], image, 1),
                                          part(in[2], image, 1), bias, mask});
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_TRUE(one[i].same_bits(part(all[i], image, 1))) << i << " of image " << image;
    for (std::size_t i = 0; i < 2; ++i)
      EXPECT_TRUE(one_o[i].same_bits(part(o[i], image, 1))) << i << " of image " << image;
  }
  const Array some = gradients(in, 0, 7)[3], others = gradients(in, 7, images - 7)[3];
  for (std::int64_t i = 0; i < bias.size(); ++i)
    ASSERT_NEAR(all[3][i], some[i] + others[i], 1e-4) << i;
}

// The packed gradient of attention holds, token by token, what the three gradients hold.
TEST_P(Special, PackedGradientsOfAttentionAreTheThreeSideBySide) {
  struct Sizes {
    std::int64_t batch, tokens, heads, width;
    bool bias;
    DType dtype;
  };
  for (const Sizes& n :
       {Sizes{3, 7, 2, 5, true, DType::f32}, Sizes{2, 49, 3, 32, true, DType::bf16},
        Sizes{2, 100, 3, 64, false, DType::bf16}, Sizes{1, 300, 2, 64, true, DType::f16}}) {
    const ir::Shape shape = {n.batch, n.tokens, n.heads, n.width};
    std::vector<Array> in;
    for (const char* name : {"q", "k", "v"}) in.push_back(make_normal(n.dtype, shape, name));
    ir::Attention attrs{0.25, n.bias, false};
    std::vector<Array> more;
    if (n.bias) more.push_back(make_normal(DType::f32, {n.heads, n.tokens, n.tokens}, "bias"));
    std::vector<Array> forward_in = in;
    forward_in.insert(forward_in.end(), more.begin(), more.end());
    const std::vector<Array> forward = run(Op::attention, attrs, forward_in);
    in.insert(in.end(), {forward[0], forward[1], make_normal(n.dtype, shape, "do")});
    in.insert(in.end(), more.begin(), more.end());
    const std::vector<Array> three = run(Op::attention_grad, attrs, in);
    attrs.packed = true;
    const std::vector<Array> one = run(Op::attention_grad, attrs, in);
    ASSERT_EQ(one[0].shape(), (ir::Shape{n.batch, n.tokens, 3, n.heads, n.width}));
    const std::int64_t row = n.heads * n.width;
    for (std::int64_t i = 0; i < one[0].size(); ++i)
      ASSERT_EQ(one[0][i], three[i / row % 3][i / (3 * row) * row + i % row]) << i;
    if (n.bias) {
      EXPECT_TRUE(one[1].same_bits(three[3]));
    }
  }
}

}  // namespace
}  // namespace tessera::test::special_test
