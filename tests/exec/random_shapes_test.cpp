// Compares the contraction and attention kernels of every device with naive loops in double over
// many random shapes; those of the CPU also their bits over thread counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>

#include "base/check.h"
#include "exec/harness.h"

namespace tessera::exec::random_shapes_test {
namespace {

int failures = 0, cases = 0, refused = 0;
std::vector<std::unique_ptr<Runner>> runners;  // 1, 2, 3 and 5 threads
std::unique_ptr<Executor> executor;            // of a device that is no CPU; then no runners

// Programs are checked as kernels are not: a shape that no program can have is counted, and told
// from a result by being empty.
std::vector<Array> run_on_executor(const std::string& what, ir::Op op, const ir::Attrs& attrs,
                                   std::vector<Array>& in, std::size_t results, unsigned absent) {
  try {
    return run_program(*executor, op, attrs, in, absent);
  } catch (const Error& e) {
    const bool no_program = e.kind == ErrorKind::usage || e.kind == ErrorKind::internal;
    ++(no_program ? refused : failures);
    std::printf("%s %s: %s\n", no_program ? "no program" : "FAIL", what.c_str(), e.what());
    return std::vector<Array>(results);
  }
}

double gelu(double x, bool tanh) {
  return tanh ? 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
              : 0.5 * x * (1 + std::erf(x * 0.7071067811865476));
}

void compare(const std::string& what, const std::vector<float>& got,
             const std::vector<double>& want, double tolerance) {
  if (got.size() != want.size()) return;  // it was refused, and counted
  double worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(got[i] - want[i]) / std::max(1.0, std::abs(want[i]));
    if (!(error <= worst)) {
      worst = error;
      at = i;
    }
    if (std::isnan(error)) break;
  }
  ++cases;
  if (worst <= tolerance) return;
  ++failures;
  std::printf("FAIL %s: at %zu got %g, expected %g (tolerance %g)\n", what.c_str(), at,
              static_cast<double>(got[at]), want[at], tolerance);
}

// Runs on every pool, demands equal bits, returns the results.
std::vector<Array> run_all(const std::string& what, exec::cpu::Kernel kernel,
                           exec::cpu::ScratchRule rule, ir::Op op, const ir::Attrs& attrs,
                           std::vector<Array>& in, const std::vector<ir::Shape>& shapes,
                           unsigned absent = 0) {
  if (executor) return run_on_executor(what, op, attrs, in, shapes.size(), absent);
  std::vector<Array> first;
  for (auto& runner : runners) {
    std::vector<Array> out;
    for (const ir::Shape& shape : shapes) out.push_back(poisoned(shape));
    runner->run(kernel, rule, op, attrs, in, out, absent);
    if (first.empty()) first = out;
    for (std::size_t i = 0; i < out.size(); ++i)
      if (!out[i].values.empty() && std::memcmp(out[i].values.data(), first[i].values.data(),
                                                out[i].values.size() * 4) != 0) {
        ++failures;
        std::printf("FAIL %s: result %zu differs between 1 and %d threads\n", what.c_str(), i,
                    runner->pool.size());
      }
  }
  return first;
}

// Adds the product of x and y at every index over the letters of `all` to its element of `sums`.
// The three tensors' letters are in `of`: those of the sums, of x and of y.
void sum_products(const std::string& all, const std::map<char, std::int64_t>& extents,
                  const std::array<std::string, 3>& of, const std::vector<float>& x,
                  const std::vector<float>& y, std::vector<double>& sums) {
  std::vector<std::int64_t> extent, index(all.size());
  for (char c : all) extent.push_back(extents.at(c));
  std::array<std::vector<std::int64_t>, 3> strides;  // of each letter of `all`
  for (std::size_t tensor = 0; tensor < 3; ++tensor) {
    strides[tensor].resize(all.size());
    std::int64_t stride = 1;
    for (std::size_t i = of[tensor].size(); i-- > 0; stride *= extents.at(of[tensor][i]))
      strides[tensor][all.find(of[tensor][i])] += stride;
  }
  std::array<std::int64_t, 3> at{};
  for (bool more = true; more;) {
    sums[static_cast<std::size_t>(at[0])] +=
        static_cast<double>(x[static_cast<std::size_t>(at[1])]) *
        static_cast<double>(y[static_cast<std::size_t>(at[2])]);
    more = false;
    for (std::size_t i = all.size(); i-- > 0 && !more;) {
      more = ++index[i] < extent[i];
      for (std::size_t t = 0; t < 3; ++t)
        at[t] += more ? strides[t][i] : -strides[t][i] * (extent[i] - 1);
      if (!more) index[i] = 0;
    }
  }
}

void check_contract(const std::string& sig, const std::map<char, std::int64_t>& extents,
                    const std::string& act, std::uint64_t seed) {
  std::vector<std::string> letters{""};
  std::string out;
  for (std::size_t i = 0; i < sig.size(); ++i) {
    if (sig[i] == ',') {
      letters.emplace_back();
    } else if (sig[i] == '-') {
      out = sig.substr(i + 2);
      break;
    } else {
      letters.back() += sig[i];
    }
  }
  const auto shape_of = [&](const std::string& l) {
    ir::Shape s;
    for (char c : l) s.push_back(extents.at(c));
    return s;
  };
  std::vector<Array> in;
  for (std::size_t i = 0; i < letters.size(); ++i)
    in.push_back(random_array(shape_of(letters[i]), seed * 31 + i));
  std::string all = out;
  for (char c : letters[0] + letters[1])
    if (all.find(c) == all.npos) all += c;
  const auto offset = [&](const std::string& l, const std::map<char, std::int64_t>& at) {
    std::int64_t o = 0;
    for (char c : l) o = o * extents.at(c) + at.at(c);
    return static_cast<std::size_t>(o);
  };
  double steps = 1, k = 1;
  for (char c : all) steps *= static_cast<double>(extents.at(c));
  std::vector<double> want(static_cast<std::size_t>(ir::elements(shape_of(out))), 0.0);
  std::map<char, std::int64_t> at;
  for (char c : all) at[c] = 0;
  for (char c : all)
    if (out.find(c) == out.npos) k *= static_cast<double>(extents.at(c));
  if (steps > 0)
    sum_products(all, extents, {out, letters[0], letters[1]}, in[0].values, in[1].values, want);
  for (std::size_t i = 0; i < want.size(); ++i) {
    std::size_t rest = i;
    for (std::size_t d = out.size(); d-- > 0;) {
      const auto e = static_cast<std::size_t>(extents.at(out[d]));
      at[out[d]] = static_cast<std::int64_t>(rest % e);
      rest /= e;
    }
    for (std::size_t a = 2; a < letters.size(); ++a)
      want[i] += static_cast<double>(in[a].values[offset(letters[a], at)]);
  }
  std::string what = sig + " " + act;
  for (auto [c, e] : extents) what += std::string(" ") + c + "=" + std::to_string(e);
  const ir::Attrs attrs = ir::Contract{sig, act, {}};
  // The CPU's kernels add blocks, and their error grows with the root of the number of terms. A
  // library may add one term after the other: the running sum of k products of numbers in [-1, 1]
  // is about sqrt(k)/3, each addition rounds it by up to 6e-8 of that, and five times the standard
  // deviation of all these roundings together is 4e-8 k.
  const double blocks = 1e-6 * std::sqrt(std::max(k, 1.0));
  const double tolerance = executor ? std::max(blocks, 4e-8 * k) : blocks;
  const auto run = [&](unsigned absent) {
    return run_all(what, exec::cpu::fast_contract, exec::cpu::scratch_contract, ir::Op::contract,
                   attrs, in,
                   act.empty() ? std::vector<ir::Shape>{shape_of(out)}
                               : std::vector<ir::Shape>{shape_of(out), shape_of(out)},
                   absent);
  };
  if (act.empty()) return compare(what, run(0)[0].values, want, tolerance);
  std::vector<double> acted = want;
  for (double& v : acted) v = gelu(v, act == "gelu_tanh");
  const std::vector<Array> both = run(0);
  compare(what + " y", both[0].values, acted, tolerance);
  compare(what + " z", both[1].values, want, tolerance);
  compare(what + " y alone", run(2)[0].values, acted, tolerance);
  compare(what + " z alone", run(1)[1].values, want, tolerance);
}

void check_attention(std::int64_t b, std::int64_t t, std::int64_t s, std::int64_t h, std::int64_t d,
                     bool bias, std::int64_t windows) {
  const double scale = 1 / std::sqrt(static_cast<double>(d));
  std::vector<Array> in{random_array({b, t, h, d}, 1), random_array({b, s, h, d}, 2),
                        random_array({b, s, h, d}, 3)};
  for (std::size_t i = 0; i < 2; ++i)
    for (float& v : in[i].values) v *= 3;
  if (bias) in.push_back(random_array({h, t, s}, 4));
  if (windows) in.push_back(random_array({windows, t, s}, 5));
  const ir::Attrs attrs = ir::Attention{scale, bias, windows > 0};
  char what[120];
  std::snprintf(what, sizeof what, "attention b%ld t%ld s%ld h%ld d%ld bias%d mask%ld", long(b),
                long(t), long(s), long(h), long(d), bias, long(windows));
  std::vector<Array> fwd = run_all(what, exec::cpu::fast_attention, exec::cpu::scratch_attention,
                                   ir::Op::attention, attrs, in, {{b, t, h, d}, {b, h, t}});

  const Array d_o = random_array({b, t, h, d}, 6);
  std::vector<double> o(d_o.values.size()), lse(static_cast<std::size_t>(b * h * t)), dq(o.size()),
      dk(in[1].values.size()), dv(dk.size());
  std::vector<double> dbias(static_cast<std::size_t>(h * t * s)), p(static_cast<std::size_t>(s));
  const auto q_at = [&](std::int64_t i, std::int64_t j, std::int64_t l, std::int64_t m) {
    return static_cast<std::size_t>(((i * t + j) * h + l) * d + m);
  };
  const auto k_at = [&](std::int64_t i, std::int64_t j, std::int64_t l, std::int64_t m) {
    return static_cast<std::size_t>(((i * s + j) * h + l) * d + m);
  };
  const auto f = [](const Array& a, std::size_t i) { return static_cast<double>(a.values[i]); };
  for (std::int64_t i = 0; i < b; ++i)
    for (std::int64_t l = 0; l < h; ++l)
      for (std::int64_t j = 0; j < t; ++j) {
        double max = -1e300, sum = 0, row_d = 0;
        for (std::int64_t c = 0; c < s; ++c) {
          double v = 0;
          for (std::int64_t m = 0; m < d; ++m)
            v += f(in[0], q_at(i, j, l, m)) * f(in[1], k_at(i, c, l, m));
          v *= scale;
          if (bias) v += f(in[3], static_cast<std::size_t>((l * t + j) * s + c));
          if (windows)
            v += f(in[bias ? 4 : 3], static_cast<std::size_t>((i % windows * t + j) * s + c));
          p[static_cast<std::size_t>(c)] = v;
          max = std::max(max, v);
        }
        for (double& v : p) {
          v = std::exp(v - max);
          sum += v;
        }
        lse[static_cast<std::size_t>((i * h + l) * t + j)] = max + std::log(sum);
        for (std::int64_t c = 0; c < s; ++c) {
          p[static_cast<std::size_t>(c)] /= sum;
          for (std::int64_t m = 0; m < d; ++m)
            o[q_at(i, j, l, m)] += p[static_cast<std::size_t>(c)] * f(in[2], k_at(i, c, l, m));
        }
        for (std::int64_t m = 0; m < d; ++m)
          row_d += f(d_o, q_at(i, j, l, m)) * o[q_at(i, j, l, m)];
        for (std::int64_t c = 0; c < s; ++c) {
          double dp = 0;
          const double pc = p[static_cast<std::size_t>(c)];
          for (std::int64_t m = 0; m < d; ++m)
            dp += f(d_o, q_at(i, j, l, m)) * f(in[2], k_at(i, c, l, m));
          const double ds = pc * (dp - row_d);
          dbias[static_cast<std::size_t>((l * t + j) * s + c)] += ds;
          for (std::int64_t m = 0; m < d; ++m) {
            dq[q_at(i, j, l, m)] += scale * ds * f(in[1], k_at(i, c, l, m));
            dk[k_at(i, c, l, m)] += scale * ds * f(in[0], q_at(i, j, l, m));
            dv[k_at(i, c, l, m)] += pc * f(d_o, q_at(i, j, l, m));
          }
        }
      }
  compare(std::string(what) + " o", fwd[0].values, o, 5e-6);
  compare(std::string(what) + " lse", fwd[1].values, lse, 5e-6);
  std::vector<Array> back{in[0], in[1], in[2], fwd[0], fwd[1], d_o};
  for (std::size_t i = 3; i < in.size(); ++i) back.push_back(in[i]);
  std::vector<ir::Shape> shapes{{b, t, h, d}, {b, s, h, d}, {b, s, h, d}};
  if (bias) shapes.push_back({h, t, s});
  const auto run = [&](unsigned absent) {
    return run_all(what, exec::cpu::fast_attention_grad, exec::cpu::scratch_attention_grad,
                   ir::Op::attention_grad, attrs, back, shapes, absent);
  };
  const std::vector<Array> grad = run(0), dv_only = run(0b1011);
  compare(std::string(what) + " dq", grad[0].values, dq, 2e-5);
  compare(std::string(what) + " dk", grad[1].values, dk, 2e-5);
  compare(std::string(what) + " dv", grad[2].values, dv, 2e-5);
  compare(std::string(what) + " dv alone", dv_only[2].values, dv, 2e-5);
  if (bias) compare(std::string(what) + " dbias", grad[3].values, dbias, 2e-5);
}

class RandomShapes : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    failures = cases = refused = 0;
    if (const std::string why = missing(GetParam()); !why.empty())
      GTEST_SKIP() << GetParam() << ": no card here: " << why;
    if (GetParam() != "cpu") executor = make_executor(GetParam(), 2);
    if (!executor)
      for (int threads : {1, 2, 3, 5}) runners.push_back(std::make_unique<Runner>(threads));
  }
  void TearDown() override {
    runners.clear();
    executor.reset();
  }
};
INSTANTIATE_TEST_SUITE_P(All, RandomShapes, testing::ValuesIn(device_names()),
                         [](const auto& info) { return info.param; });

TEST_P(RandomShapes, ContractAndAttentionMatchNaiveLoops) {
  const char* sigs[] = {"btc,nhdc->nbthd",     "nbthd,nhdc->btc",
                        "btc,nbthd->nhdc",     "nbthd,btc->nhdc",
                        "btc,fc->btf",         "btf,cf->btc",
                        "bthd,chd->btc",       "btpqc,pqcd->btd",
                        "btc,btd->cd",         "bc,kc->bk",
                        "btc,btc->c",          "btc,btc->bt",
                        "btc,btc->",           "btc,btc->btc",
                        "btc,c->btc",          "btc,c->bt",
                        "bc,bd->bcd",          "c,fc->f",
                        "bhtd,bhsd->bhts",     "bhts,bhsd->bhtd",
                        "bthd,bshd->bhts",     "btc,tbd->cd",
                        "btc,fd->bf",          "btc,fc->fbt",
                        "btc,fc->ftb",         "bt,c->btc",
                        "tcb,fc->btf",         "b,->b",
                        "btf,btc->fc",         "cbt,cdf->dtbf",
                        "btc,fc,f->btf",       "btf,cf,c,btc->btc",
                        "btc,nhdc,nhd->nbthd", "btpqc,pqcd,d,td->btd",
                        "btc,fc,b,t->btf",     "btc,nhdc,nd,bt->nbthd",
                        "btc,btc,c->c",        "btc,fc,f->ftb",
                        "bc,kc,k->bk",         "c,fc,f,->f",
                        "btd,btc,cd->dc"};
  std::uint64_t seed = 1;
  for (const char* sig : sigs) {
    for (int trial = 0; trial < 10; ++trial) {
      std::map<char, std::int64_t> extents;
      for (const char* c = sig; *c; ++c)
        if (*c >= 'a' && *c <= 'z' && !extents.count(*c))
          extents[*c] =
              1 + static_cast<std::int64_t>(random_bits({seed}, static_cast<std::uint64_t>(*c)) %
                                            (trial < 8 ? 13 : 22));
      if (trial >= 8 && std::strlen(sig) < 15)
        for (auto& [c, e] : extents)
          if (c == 'f' || c == 'c') e = 70 + e;
      if (trial % 8 == 7) extents[extents.begin()->first] = 0;
      if (trial % 8 == 6) extents.rbegin()->second = 0;
      if (trial % 8 == 5) extents.begin()->second = 1;
      if (trial % 8 == 4) extents.rbegin()->second = 1;
      ++seed;
      check_contract(sig, extents,
                     trial % 3 == 0   ? ""
                     : trial % 3 == 1 ? "gelu"
                                      : "gelu_tanh",
                     seed);
    }
  }
  // Several tiles, and chunks of k.
  check_contract("btc,fc,f,btf->btf", {{'b', 4}, {'t', 131}, {'c', 96}, {'f', 411}}, "gelu", 7);
  check_contract("btc,nbthd->nhdc",
                 {{'b', 40}, {'t', 65}, {'c', 50}, {'n', 3}, {'h', 3}, {'d', 20}}, "", 8);
  check_contract("btc,btd,d->cd", {{'b', 40}, {'t', 65}, {'c', 100}, {'d', 101}}, "gelu", 9);
  check_contract("btc,fc->btf", {{'b', 2}, {'t', 7}, {'c', 3001}, {'f', 51}}, "", 10);
  // Gradients of weights, whose two factors are packed at the beginning.
  check_contract("btc,btd->cd", {{'b', 4}, {'t', 211}, {'c', 293}, {'d', 131}}, "", 11);
  check_contract("btc,btd,d->cd", {{'b', 2}, {'t', 61}, {'c', 407}, {'d', 70}}, "", 12);

  check_attention(2, 65, 65, 3, 64, false, 0);
  check_attention(1, 197, 197, 2, 64, false, 0);
  check_attention(1, 300, 270, 1, 16, true, 0);
  check_attention(8, 49, 49, 3, 32, true, 4);
  check_attention(70, 9, 9, 2, 8, true, 7);
  check_attention(3, 5, 11, 2, 7, false, 2);
  check_attention(2, 1, 1, 1, 1, true, 1);
  check_attention(1, 513, 33, 2, 4, false, 0);
  check_attention(0, 5, 5, 2, 4, true, 1);
  check_attention(2, 0, 5, 2, 4, true, 1);
  EXPECT_GT(cases, 1000);
  EXPECT_EQ(failures, 0);
  EXPECT_LT(refused, cases / 10);
  RecordProperty("cases", cases);
}

}  // namespace
}  // namespace tessera::exec::random_shapes_test
