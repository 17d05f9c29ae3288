// Norms, convolutions, sums, products and attention of random shapes on every device, in f32 and in
// bf16, against the double reference on the same operands: odd and even widths, one token, three
// channels, batches without a sample. Attention of many tokens in bf16 and f16.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "ops/interpret.h"
#include "ops/on_device.h"

namespace tessera::test::random_ops_test {
namespace {

using ir::DType;
using ir::Op;
using ir::Shape;

// Numbers of one trial, one after the other.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : key_(Key{17}.with(seed)) {}
  std::int64_t between(std::int64_t low, std::int64_t high) {
    const auto range = static_cast<std::uint64_t>(high - low + 1);
    return low + static_cast<std::int64_t>(random_bits(key_, next_++) % range);
  }
  std::int64_t one_of(const std::vector<std::int64_t>& all) {
    return all[static_cast<std::size_t>(between(0, static_cast<std::int64_t>(all.size()) - 1))];
  }
  std::int64_t batch() { return between(0, 9) == 0 ? 0 : between(1, 4); }
  // Channels: a multiple of what is read at once, or anything.
  std::int64_t width() { return one_of({1, 3, 7, 8, 16, 24, 31, 32, 40, 64, 65, 96, 130}); }
  Array normal(const Shape& shape, bool positive = false) {
    Array out(DType::f32, shape);
    const Key key = key_.with(next_++);
    for (std::int64_t i = 0; i < out.size(); ++i) {
      const double x = tessera::normal(key, static_cast<std::uint64_t>(i));
      out.set(i, static_cast<float>(positive ? 0.5 + std::abs(x) : x));
    }
    return out;
  }

 private:
  Key key_;
  std::uint64_t next_ = 0;
};

struct Trial {
  Op op;
  ir::Attrs attrs;
  std::vector<Array> in;
  double terms = 1;  // of the longest sum, one after the other
  double width = 1;  // of a head: the gradient of a softmax takes differences of sums over it
  bool cancels = true;
  // Results are about as large as this when nothing cancels out; those of a softmax never do.
  double size() const {
    if (op == Op::softmax || !cancels) return 0;
    if (op == Op::attention_grad) return std::sqrt(width);
    const bool adds_up = op != Op::layer_norm_grad && op != Op::attention;
    return adds_up ? std::sqrt(std::max(1.0, terms)) : 1;
  }
};

std::vector<Array> in_doubles(const std::vector<Array>& in) {
  std::vector<Array> out;
  for (const Array& a : in) out.push_back(a.as(DType::f64));
  return out;
}

void add_norms(Draws& d, std::vector<Trial>& out) {
  const std::int64_t c = d.width();
  const Shape outer = {d.batch(), d.one_of({1, 2, 5, 17, 50})}, x = {outer[0], outer[1], c};
  const double rows = static_cast<double>(outer[0] * outer[1]);
  const ir::Attrs norm = ir::Norm{1e-5};
  out.push_back({Op::layer_norm, norm, {d.normal(x), d.normal({c}), d.normal({c})}});
  out.push_back({Op::add_norm, norm, {d.normal(x), d.normal(x), d.normal({c}), d.normal({c})}});
  out.push_back({Op::layer_norm_grad,
                 norm,
                 {d.normal(x), d.normal(x), d.normal(outer), d.normal(outer, true), d.normal({c})},
                 rows});
  out.push_back({Op::softmax, ir::None{}, {d.normal(x)}});
}

// Elements that are left of a sum.
std::int64_t out_of(const std::string& sig, const Shape& x) {
  std::int64_t left = 1;
  for (const char letter : sig.substr(sig.find('>') + 1))
    left *= std::max<std::int64_t>(1, x[sig.find(letter)]);
  return left;
}

void add_sums(Draws& d, std::vector<Trial>& out) {
  const Shape x = {d.batch(), d.between(1, 40), d.width()};
  const std::vector<std::string> sigs = {"btc->c", "btc->bt", "btc->tc", "btc->bc", "btc->"};
  const auto sig = static_cast<std::size_t>(d.between(0, 4));
  out.push_back({Op::sum,
                 ir::Sum{sigs[sig], {}},
                 {d.normal(x)},
                 static_cast<double>(ir::elements(x)) / static_cast<double>(out_of(sigs[sig], x))});
}

void add_convolutions(Draws& d, std::vector<Trial>& out) {
  const std::int64_t k = d.one_of({1, 2, 3, 3, 5, 7}), stride = d.between(1, 2),
                     pad = d.between(0, k / 2), b = d.batch(), h = d.between(k, k + 9),
                     w = d.between(k, k + 9), c = d.one_of({1, 3, 8, 13, 16, 32}),
                     o = d.one_of({1, 5, 8, 16, 24, 33});
  const Shape x = {b, h, w, c}, f = {k, k, c, o},
              y = {b, (h + 2 * pad - k) / stride + 1, (w + 2 * pad - k) / stride + 1, o};
  out.push_back({Op::conv,
                 ir::Conv{stride, pad, 0, 0},
                 {d.normal(x), d.normal(f)},
                 static_cast<double>(k * k * c)});
  out.push_back({Op::conv_input_grad,
                 ir::Conv{stride, pad, h, w},
                 {d.normal(y), d.normal(f)},
                 static_cast<double>(k * k * o)});
  out.push_back({Op::conv_filter_grad,
                 ir::Conv{stride, pad, k, k},
                 {d.normal(y), d.normal(x)},
                 static_cast<double>(y[0] * y[1] * y[2])});
}

// Three of four pixels are read by no tap.
void add_untouched(Draws& d, std::vector<Trial>& out) {
  out.push_back({Op::conv_input_grad,
                 ir::Conv{2, 0, 7, 6},
                 {d.normal({2, 4, 3, 24}), d.normal({1, 1, 72, 24})},
                 24});
}

void add_products(Draws& d, std::vector<Trial>& out) {
  const std::int64_t b = d.batch(), t = d.one_of({1, 3, 8, 17, 50}), c = d.width(), f = d.width();
  const std::vector<std::string> acts = {"", "gelu", "gelu_tanh"};
  const std::string& act = acts[static_cast<std::size_t>(d.between(0, 2))];
  out.push_back({Op::contract,
                 ir::Contract{"btc,fc,f->btf", act, {}},
                 {d.normal({b, t, c}), d.normal({f, c}), d.normal({f})},
                 static_cast<double>(c)});
  out.push_back({Op::contract,
                 ir::Contract{"btf,fc->btc", "", {}},
                 {d.normal({b, t, f}), d.normal({f, c})},
                 static_cast<double>(f)});
  out.push_back({Op::contract,
                 ir::Contract{"btf,btc->fc", "", {}},
                 {d.normal({b, t, f}), d.normal({b, t, c})},
                 static_cast<double>(b * t)});
}

struct Heads {
  std::int64_t windows, b, t, s, h, e;
  bool bias;
};

Heads small_heads(Draws& d) {
  Heads n{};
  n.windows = d.between(0, 1) * d.between(1, 3);
  n.b = d.batch();
  n.t = d.one_of({1, 2, 9, 16, 49, 65});
  n.s = d.between(0, 3) > 0 ? n.t : d.one_of({1, 11, 33});
  n.h = d.between(1, 3);
  n.e = d.one_of({1, 7, 8, 16, 32, 32, 64, 64});
  n.bias = d.between(0, 1) == 1;
  return n;
}

// The gradient is told the results of the forward pass, as they would be without rounding.
void add_attention(Draws& d, const Heads& n, std::vector<Trial>& out, ThreadPool& pool) {
  const auto [windows, b, t, s, h, e, bias] = n;
  const ir::Attrs attrs = ir::Attention{1 / std::sqrt(static_cast<double>(e)), bias, windows > 0};
  const Shape q = windows > 0 ? Shape{b, windows, t, h, e} : Shape{b, t, h, e},
              k = windows > 0 ? Shape{b, windows, s, h, e} : Shape{b, s, h, e};
  std::vector<Array> in = {d.normal(q), d.normal(k), d.normal(k)};
  std::vector<Array> extras;
  if (bias) extras.push_back(d.normal({h, t, s}));
  if (windows > 0) extras.push_back(d.normal({windows, t, s}));
  in.insert(in.end(), extras.begin(), extras.end());
  const std::vector<Array> forward = run_reference(Op::attention, attrs, in_doubles(in), pool);
  std::vector<Array> back = {in[0], in[1], in[2]};
  for (const Array& result : forward) back.push_back(result.as(DType::f32));
  back.push_back(d.normal(q));
  back.insert(back.end(), extras.begin(), extras.end());
  out.push_back({Op::attention, attrs, std::move(in), static_cast<double>(s)});
  out.push_back({Op::attention_grad, attrs, std::move(back),
                 static_cast<double>(t * (b + 1) * (windows + 1)), static_cast<double>(e)});
}

// As a program of mixed precision has them.
std::vector<Array> operands_in(const Trial& trial, DType element) {
  const std::string_view low = ir::def(trial.op).low;
  std::vector<Array> out;
  for (const Array& a : trial.in) {
    const bool down = !low.empty() && low[std::min(out.size(), low.size() - 1)] == 'l';
    out.push_back(down ? a.as(element) : Array(a));
  }
  return out;
}

// Norm of the difference against the norm of what is expected; where nearly all of that cancels
// out, against that of numbers of a third of the usual size, which are what is left over from.
double error_of(const Array& got, const Array& want, double size) {
  double difference = 0, norm = 0;
  for (std::int64_t i = 0; i < want.size(); ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  const double least = 0.3 * size * std::sqrt(static_cast<double>(want.size()));
  return want.size() == 0 ? 0 : std::sqrt(difference) / std::max(std::sqrt(norm), least);
}

class RandomOps : public EveryDevice {
 protected:
  void try_one(const Trial& trial, DType element, const std::string& what) {
    const std::vector<Array> in = operands_in(trial, element);
    const std::vector<Array> want = run_reference(trial.op, trial.attrs, in_doubles(in), pool_);
    // Five roundings of 2^-8; in f32 a library may add one term after the other.
    const double tolerance = element == DType::f32   ? std::max(5e-6, 1e-7 * std::sqrt(trial.terms))
                             : element == DType::f16 ? 2.5e-3
                                                     : 2e-2;
    std::string shapes;
    for (const Array& a : in) shapes += " " + ir::to_string(a.shape());
    try {
      const std::vector<Array> got = run(trial.op, trial.attrs, in);
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_TRUE(error_of(got[i], want[i], trial.size()) <=
                    tolerance)  // written so that a NaN fails
            << what << " " << ir::name(trial.op) << " in " << ir::name(element) << shapes
            << ", result " << i << ": error " << error_of(got[i], want[i], trial.size()) << " > "
            << tolerance;
    } catch (const std::exception& e) {
      ADD_FAILURE() << what << " " << ir::name(trial.op) << " in " << ir::name(element) << shapes
                    << ": " << e.what();
    }
    ++cases_;
  }
  ThreadPool pool_{2};
  int cases_ = 0;
};

TEST_P(RandomOps, MatchTheReference) {
  constexpr std::uint64_t trials = 40;
  for (std::uint64_t seed = 0; seed < trials; ++seed) {
    Draws draws(seed);
    std::vector<Trial> all;
    add_norms(draws, all);
    add_sums(draws, all);
    add_convolutions(draws, all);
    add_products(draws, all);
    add_attention(draws, small_heads(draws), all, pool_);
    if (seed == 0) add_untouched(draws, all);
    for (const Trial& trial : all)
      for (const DType element : {DType::f32, DType::bf16})
        try_one(trial, element, "trial " + std::to_string(seed));
  }
  EXPECT_GT(cases_, 1000);
  RecordProperty("cases", cases_);
}

// More tokens than fit into a block: a device walks over them. Of so many the results are small,
// but nothing else cancels out.
TEST_P(RandomOps, AttentionOfManyTokensMatchesTheReference) {
  const Heads all[] = {{0, 1, 785, 785, 1, 64, false}, {0, 2, 300, 300, 3, 64, false},
                       {0, 1, 640, 257, 2, 64, true},  {2, 1, 257, 400, 2, 64, false},
                       {3, 2, 290, 290, 1, 32, true},  {0, 1, 31, 513, 2, 32, false},
                       {0, 1, 385, 40, 2, 64, false},  {0, 1, 1, 300, 2, 64, false},
                       {0, 1, 320, 384, 1, 32, true}};
  Draws draws(1000);
  for (const Heads& n : all) {
    std::vector<Trial> both;
    add_attention(draws, n, both, pool_);
    for (Trial& trial : both) {
      trial.cancels = false;
      for (const DType element : {DType::bf16, DType::f16}) try_one(trial, element, "many tokens");
    }
  }
}

FOR_EVERY_DEVICE(RandomOps);

}  // namespace
}  // namespace tessera::test::random_ops_test
