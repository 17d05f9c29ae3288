// The meaning of ops in double is tested here, by every device, against values worked out by hand
// or by another route. The CPU's answers are those of its reference kernels, the oracle for
// everything else.
#include <bit>
#include <cmath>
#include <limits>

#include "base/rng.h"
#include "ops/on_device.h"

namespace tessera::test::reference_test {
namespace {

using ir::DType;
using ir::Op;

Array values(ir::Shape shape, const std::vector<double>& v, DType dtype = DType::f64) {
  Array a(dtype, std::move(shape));
  EXPECT_EQ(a.size(), static_cast<std::int64_t>(v.size()));
  for (std::size_t i = 0; i < v.size(); ++i) a.set(static_cast<std::int64_t>(i), v[i]);
  return a;
}
Array scalar(double v, DType dtype = DType::f64) { return values({}, {v}, dtype); }

class Reference : public EveryDevice {};
FOR_EVERY_DEVICE(Reference);

void expect_values(const Array& got, const std::vector<double>& want, double tolerance = 1e-12) {
  ASSERT_EQ(got.size(), static_cast<std::int64_t>(want.size()));
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[static_cast<std::int64_t>(i)], want[i], tolerance) << "element " << i;
}

TEST_P(Reference, ContractIsAMatrixProduct) {
  const Array x = values({2, 3}, {1, 2, 3, 4, 5, 6}), w = values({2, 3}, {1, 0, -1, 2, 1, 0});
  expect_values(run(Op::contract, ir::Contract{"ac,bc->ab", {}, {}}, {x, w})[0], {-2, 4, -2, 13});
  expect_values(run(Op::contract, ir::Contract{"ac,bc->ba", {}, {}}, {x, w})[0], {-2, -2, 4, 13});
  expect_values(
      run(Op::contract, ir::Contract{"ac,bc,b->ab", {}, {}}, {x, w, values({2}, {10, 20})})[0],
      {8, 24, 8, 33});
  expect_values(run(Op::contract, ir::Contract{"ac,ac->a", {}, {}}, {x, w})[0],
                {-2, 13});  // a is a batch letter
}

TEST_P(Reference, ContractEqualsFiveNestedLoops) {
  const std::int64_t B = 2, T = 3, C = 4, N = 3, H = 2, D = 5;
  Array x(DType::f64, {B, T, C}), w(DType::f64, {N, H, D, C});
  for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, std::sin(static_cast<double>(i)));
  for (std::int64_t i = 0; i < w.size(); ++i) w.set(i, std::cos(static_cast<double>(i)));
  const Array y = run(Op::contract, ir::Contract{"btc,nhdc->nbthd", {}, {}}, {x, w})[0];
  for (std::int64_t n = 0; n < N; ++n)
    for (std::int64_t b = 0; b < B; ++b)
      for (std::int64_t t = 0; t < T; ++t)
        for (std::int64_t h = 0; h < H; ++h)
          for (std::int64_t d = 0; d < D; ++d) {
            double sum = 0;
            for (std::int64_t c = 0; c < C; ++c)
              sum += x[(b * T + t) * C + c] * w[((n * H + h) * D + d) * C + c];
            EXPECT_NEAR(y[(((n * B + b) * T + t) * H + h) * D + d], sum, 1e-12);
          }
}

TEST_P(Reference, ContractWithGeluGivesBothValues) {
  const auto out = run(Op::contract, ir::Contract{"ac,bc,b->ab", "gelu", {}},
                       {values({1, 1}, {2}), values({1, 1}, {0.25}), values({1}, {0.5})});
  expect_values(out[0], {0.841344746068543});  // gelu(1)
  expect_values(out[1], {1});
}

TEST_P(Reference, Gelu) {
  expect_values(run(Op::gelu, ir::Gelu{}, {values({3}, {1, 0, -1})})[0],
                {0.841344746068543, 0, -0.158655253931457});
  expect_values(run(Op::gelu, ir::Gelu{true}, {values({1}, {1})})[0], {0.841191990608276}, 1e-9);
  // Phi(1) + phi(1)
  expect_values(run(Op::gelu_grad, ir::Gelu{}, {values({1}, {1}), values({1}, {2})})[0],
                {2 * (0.841344746068543 + 0.241970724519143)});
}

TEST_P(Reference, LayerNormOfOneTwoThree) {
  const auto out = run(Op::layer_norm, ir::Norm{0},
                       {values({1, 3}, {1, 2, 3}), values({3}, {1, 2, 1}), values({3}, {0, 7, 1})});
  const double r = 1 / std::sqrt(2.0 / 3.0);
  expect_values(out[0], {-r, 7, r + 1});
  expect_values(out[1], {2});
  expect_values(out[2], {r});
  const auto sum = run(Op::add_norm, ir::Norm{0},
                       {values({1, 3}, {1, 1, 1}), values({1, 3}, {0, 1, 2}),
                        values({3}, {1, 2, 1}), values({3}, {0, 7, 1})});
  expect_values(sum[0], {1, 2, 3});
  expect_values(sum[1], {-r, 7, r + 1});
}

TEST_P(Reference, SoftmaxOfEqualAndOfHugeLogits) {
  expect_values(run(Op::softmax, ir::None{}, {values({1, 4}, {5, 5, 5, 5})})[0],
                {0.25, 0.25, 0.25, 0.25});
  expect_values(run(Op::softmax, ir::None{}, {values({1, 2}, {1e5, 0})})[0], {1, 0});
  expect_values(run(Op::log_softmax, ir::None{}, {values({1, 2}, {std::log(3.0), 0})})[0],
                {std::log(0.75), std::log(0.25)});
}

TEST_P(Reference, AttentionWithOneKeyReturnsItsValue) {
  const Array q = values({1, 2, 1, 2}, {1, 2, 3, 4}), k = values({1, 1, 1, 2}, {0.5, -1}),
              v = values({1, 1, 1, 2}, {7, -8});
  const auto out = run(Op::attention, ir::Attention{2.0}, {q, k, v});
  expect_values(out[0], {7, -8, 7, -8});
  expect_values(out[1],
                {2 * (0.5 - 2), 2 * (1.5 - 4)});  // the log-sum-exp of one score is the score
}

TEST_P(Reference, AttentionOfTwoKeysWithBiasAndMask) {
  // scores 0 + bias log 3 against 0: probabilities 3/4 and 1/4; sample 1 takes mask 1, which hides
  // key 0
  const Array q = values({2, 1, 1, 1}, {0, 0}), k = values({2, 2, 1, 1}, {1, 2, 3, 4}),
              v = values({2, 2, 1, 1}, {8, 4, 8, 4});
  const auto out = run(Op::attention, ir::Attention{1.0, true, true},
                       {q, k, v, values({1, 1, 2}, {std::log(3.0), 0}),
                        values({2, 1, 2}, {0, 0, -std::numeric_limits<double>::infinity(), 0})});
  expect_values(out[0], {7, 4});
  expect_values(out[1], {std::log(4.0), 0});
}

TEST_P(Reference, CrossEntropyOfUniformLogitsIsLogClasses) {
  const Array logits = values({1, 10}, std::vector<double>(10, 3.0)),
              label = values({1}, {4}, DType::i32);
  expect_values(run(Op::cross_entropy, ir::Loss{0}, {logits, label})[0], {std::log(10.0)});
  expect_values(run(Op::cross_entropy, ir::Loss{0.1}, {logits, label})[0], {std::log(10.0)});
  std::vector<double> gradient(10, 0.1);
  gradient[4] = -0.9;
  expect_values(run(Op::cross_entropy_grad, ir::Loss{0}, {logits, label, values({1}, {1})})[0],
                gradient);
}

TEST_P(Reference, LabelSmoothingByHand) {
  // q = 0.8 (1, 0) + 0.1: 0.9 and 0.1
  const Array logp = values({1, 2}, {-1, -3}), label = values({1}, {0}, DType::i32);
  expect_values(run(Op::nll, ir::Loss{0.2}, {logp, label})[0], {0.9 + 0.3});
  expect_values(run(Op::nll, ir::Loss{0.2}, {logp, values({1, 2}, {1, 0})})[0], {0.9 + 0.3});
  expect_values(run(Op::nll_grad, ir::Loss{0.2}, {logp, label, values({1}, {2})})[0], {-1.8, -0.2});
}

TEST_P(Reference, CorrectBreaksTiesByIndex) {
  const Array x = values({3, 3}, {1, 1, 0, 1, 1, 0, 1, 1, 0}),
              label = values({3}, {0, 1, 2}, DType::i32);
  expect_values(run(Op::correct, ir::TopK{1}, {x, label})[0], {1, 0, 0});
  expect_values(run(Op::correct, ir::TopK{2}, {x, label})[0], {1, 1, 0});
  expect_values(
      run(Op::correct, ir::TopK{1}, {values({1, 2}, {0, 1}), values({1, 2}, {0.5, 0.5})})[0],
      {0});  // a tied target is its first class
}

TEST_P(Reference, DropoutIsKeyedByGlobalPosition) {
  const ir::Dropout attr{0.5, false, "s", 3};
  const Array x = values({2, 64}, std::vector<double>(128, 1.0));
  const Array whole = run(Op::dropout, attr, {x, values({3}, {1, 2, 10}, DType::i64)})[0];
  int kept = 0;
  for (std::int64_t i = 0; i < whole.size(); ++i) {
    const Key key = Key{1}.with("s").with(2).with(static_cast<std::uint64_t>(10 + 3 + i / 64));
    EXPECT_EQ(whole[i], uniform(key, static_cast<std::uint64_t>(i % 64)) >= 0.5f ? 2.0 : 0.0);
    kept += whole[i] != 0;
  }
  EXPECT_GT(kept, 40);
  EXPECT_LT(kept, 88);
  // The second sample alone, as another rank or micro-batch would see it.
  const Array second =
      run(Op::dropout, ir::Dropout{0.5, false, "s", 4},
          {values({1, 64}, std::vector<double>(64, 1.0)), values({3}, {1, 2, 10}, DType::i64)})[0];
  for (std::int64_t i = 0; i < 64; ++i) EXPECT_EQ(second[i], whole[64 + i]);
  const Array path =
      run(Op::dropout, ir::Dropout{0.5, true, "s", 3}, {x, values({3}, {1, 2, 10}, DType::i64)})[0];
  for (std::int64_t i = 0; i < 128; ++i) EXPECT_EQ(path[i], path[i / 64 * 64]);
}

TEST_P(Reference, CastToBf16RoundsToNearestEven) {
  const auto cast = [&](float x) {
    Array a(DType::f32, {1});
    a.set(0, x);
    return run(Op::cast, ir::Cast{DType::bf16}, {a})[0][0];
  };
  EXPECT_EQ(cast(1.0f), 1.0);
  EXPECT_EQ(cast(1.0f + 0x1p-8f), 1.0);               // a tie: to even
  EXPECT_EQ(cast(1.0f + 3 * 0x1p-8f), 1.0 + 0x1p-6);  // a tie: to even, up
  EXPECT_EQ(cast(1.0f + 0x1.1p-8f), 1.0 + 0x1p-7);
  EXPECT_EQ(cast(std::numeric_limits<float>::infinity()), std::numeric_limits<double>::infinity());
  EXPECT_EQ(cast(std::numeric_limits<float>::max()), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(
      std::isnan(cast(std::bit_cast<float>(0x7f800001u))));  // the payload lies in the lower half
}

// 11 bits, infinite from 65520 on, multiples of 2^-24 below 2^-14.
TEST_P(Reference, CastToF16RoundsToNearestEven) {
  const auto cast = [this](float x) {
    Array a(DType::f32, {1});
    a.set(0, x);
    return run(Op::cast, ir::Cast{DType::f16}, {a})[0][0];
  };
  EXPECT_EQ(cast(1.0f + 0x1p-11f), 1.0);               // a tie: to even
  EXPECT_EQ(cast(1.0f + 3 * 0x1p-11f), 1.0 + 0x1p-9);  // a tie: to even, up
  EXPECT_EQ(cast(1.0f + 0x1.1p-11f), 1.0 + 0x1p-10);
  EXPECT_EQ(cast(65519.996f), 65504);
  EXPECT_EQ(cast(-65520.0f), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(cast(0x1.8p-24f), 0x1p-23);  // a tie between subnormals
  EXPECT_EQ(cast(0x1p-25f), 0);
  EXPECT_TRUE(std::isnan(cast(std::bit_cast<float>(0x7f800001u))));
}

TEST_P(Reference, MovesElements) {
  const Array x = values({2, 3}, {1, 2, 3, 4, 5, 6});
  expect_values(run(Op::transpose, ir::Transpose{{1, 0}}, {x})[0], {1, 4, 2, 5, 3, 6});
  expect_values(run(Op::slice, ir::Slice{1, 1, 2}, {x})[0], {2, 3, 5, 6});
  expect_values(run(Op::pad, ir::Pad{1, 1, 0}, {x})[0], {0, 1, 2, 3, 0, 4, 5, 6});
  expect_values(run(Op::concat, ir::Dim{1}, {x, values({2, 1}, {8, 9})})[0],
                {1, 2, 3, 8, 4, 5, 6, 9});
  expect_values(run(Op::broadcast, ir::Broadcast{"a->ab", {2, 3}}, {values({2}, {1, 2})})[0],
                {1, 1, 1, 2, 2, 2});
  expect_values(run(Op::sum, ir::Sum{"ab->b", {}}, {x})[0], {5, 7, 9});
  expect_values(
      run(Op::pack, ir::Pack{{1, 4}, 8}, {values({2}, {1, 2}), values({3}, {3, 4, 5})})[0],
      {0, 1, 2, 0, 3, 4, 5, 0});
  expect_values(run(Op::view, ir::View{2, {2, 2}}, {values({6}, {1, 2, 3, 4, 5, 6})})[0],
                {3, 4, 5, 6});
  // a 2 x 4 image of one channel in patches of 2: left square, then right square
  const Array image = values({1, 2, 4, 1}, {1, 2, 3, 4, 5, 6, 7, 8});
  const Array patches = run(Op::patchify, ir::Patch{2, 0}, {image})[0];
  expect_values(patches, {1, 2, 5, 6, 3, 4, 7, 8});
  expect_values(run(Op::unpatchify, ir::Patch{2, 1}, {patches})[0], {1, 2, 3, 4, 5, 6, 7, 8});
}

TEST_P(Reference, SgdByHand) {
  // g = 3 * 0.5 + 0.1 * 2 = 1.7, m = 0.9 * 1 + 1.7 = 2.6
  const std::vector<Array> in = {values({1}, {2}), values({1}, {1}), values({1}, {3}), scalar(0.1),
                                 scalar(0.5)};
  const auto heavy = run(Op::sgd, ir::Sgd{0.9, 0.1, false, true, false}, in);
  expect_values(heavy[0], {2 - 0.1 * 2.6});
  expect_values(heavy[1], {2.6});
  expect_values(run(Op::sgd, ir::Sgd{0.9, 0.1, true, true, false}, in)[0],
                {2 - 0.1 * (1.7 + 0.9 * 2.6)});
}

TEST_P(Reference, AdamWByHand) {
  // The first step moves every weight by lr, whatever the gradient's size; decay comes first.
  const std::vector<Array> in = {values({1}, {2}), values({1}, {0}), values({1}, {0}),
                                 values({1}, {4}), scalar(0.1),      scalar(1, DType::i64)};
  const auto first = run(Op::adamw, ir::AdamW{0.9, 0.999, 0, 0.5}, in);
  expect_values(first[0], {2 * (1 - 0.1 * 0.5) - 0.1});
  expect_values(first[1], {0.4});
  expect_values(first[2], {0.016});
  // The second: m = 0.9 * 0.4 + 0.1 * 2 = 0.56, v = 0.999 * 0.016 + 0.001 * 4 = 0.019984
  const auto second = run(
      Op::adamw, ir::AdamW{0.9, 0.999, 1e-8, 0},
      {values({1}, {1}), first[1], first[2], values({1}, {2}), scalar(0.1), scalar(2, DType::i64)});
  expect_values(second[0], {1 - 0.1 * (0.56 / 0.19) / (std::sqrt(0.019984 / 0.001999) + 1e-8)});
}

TEST_P(Reference, ClipAndFinite) {
  const auto clipped = run(Op::clip, ir::Clip{1.0}, {scalar(16)});
  expect_values(clipped[0], {4});
  expect_values(clipped[1], {1 / (4 + 1e-6)});
  expect_values(run(Op::clip, ir::Clip{0}, {scalar(16)})[1], {1});
  expect_values(run(Op::clip, ir::Clip{100}, {scalar(16)})[1], {1});
  expect_values(run(Op::finite, ir::None{}, {scalar(1), scalar(-2)})[0], {1});
  expect_values(run(Op::finite, ir::None{}, {scalar(1), scalar(std::nan(""))})[0], {0});
  expect_values(
      run(Op::finite, ir::None{}, {scalar(std::numeric_limits<double>::infinity()), scalar(0)})[0],
      {0});
}

// The scale follows the documents: halved by an overflow, doubled after a window of good steps, and
// a loss that is not finite is no business of the scale.
TEST_P(Reference, ALossScaleFollowsOverflows) {
  const auto count = [](double n) { return scalar(n, DType::i64); };
  const ir::LossScale rule{
      .first = 64, .least = 16, .most = 256, .window = 3, .hysteresis = 2, .fixed = false};
  expect_values(run(Op::loss_scale, rule, {scalar(0)})[0], {64});
  expect_values(run(Op::loss_scale, rule, {scalar(32)})[1], {1.0 / 32});
  struct Row {
    double scale, good, overflows;
    bool ok, sound;
    double next, next_good, next_overflows;
    bool answered;
  };
  for (const Row& r :
       {Row{0, 0, 0, true, true, 64, 1, 0, false},    // the first step
        Row{64, 2, 1, true, true, 128, 0, 0, false},  // a window is full
        Row{256, 2, 0, true, true, 256, 0, 0, false},
        Row{64, 2, 0, false, true, 64, 0, 1, true},  // the first is tolerated
        Row{64, 2, 1, false, true, 32, 0, 1, true}, Row{32, 0, 1, false, true, 16, 0, 1, true},
        Row{16, 0, 1, false, true, 16, 0, 1, false},      // the minimum: a bad step
        Row{64, 2, 1, false, false, 64, 2, 1, false}}) {  // the loss is not finite
    const auto got = run(Op::rescale, rule,
                         {scalar(r.scale), count(r.good), count(r.overflows), scalar(r.ok ? 1 : 0),
                          scalar(r.sound ? 1 : 0)});
    expect_values(got[0], {r.next});
    expect_values(got[1], {r.next_good});
    expect_values(got[2], {r.next_overflows});
    expect_values(got[3], {r.answered ? 1.0 : 0.0});
  }
  ir::LossScale fixed = rule;
  fixed.fixed = true;
  const auto got = run(Op::rescale, fixed, {scalar(0), count(0), count(0), scalar(0), scalar(1)});
  expect_values(got[0], {64});
  expect_values(got[3], {0});
}

TEST_P(Reference, AStepCountsAndLooksUpItsRate) {
  const auto count = [](double n) { return scalar(n, DType::i64); };
  expect_values(run(Op::advance, ir::None{}, {count(4)})[0], {5});
  expect_values(run(Op::advance, ir::None{}, {count(4), scalar(1)})[0], {5});
  expect_values(run(Op::advance, ir::None{}, {count(4), scalar(0)})[0], {4});
  const Array rates = values({3}, {0.5, 0.25, 0.125});
  expect_values(run(Op::lookup, ir::None{}, {rates, count(8), count(7)})[0], {0.25});
  expect_values(run(Op::lookup, ir::None{}, {rates, count(6), count(7)})[0], {0.5});
  expect_values(run(Op::lookup, ir::None{}, {rates, count(70), count(7)})[0], {0.125});
}

}  // namespace
}  // namespace tessera::test::reference_test
