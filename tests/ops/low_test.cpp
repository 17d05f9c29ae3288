// bf16 products: every micro-kernel of this machine gives what an f64 sum of the same numbers
// gives, from any strides, and packed or not the same bits; weights behind a cast are packed once.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>

#include "exec/cpu/gemm/gemm.h"
#include "exec/cpu/simd/convert.h"
#include "exec/executor.h"
#include "ir/builder.h"
#include "ops/cases.h"
#include "portable/micros_in_use.h"

namespace tessera::test::low_test {
namespace {

using exec::cpu::Low;
using std::int64_t;

struct Bytes {
  explicit Bytes(std::size_t bytes)
      : at(static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)), std::free) {}
  std::unique_ptr<std::byte, void (*)(void*)> at;
};

struct Size {
  int64_t m, n, k;
};
// Some have more rows than a block of A.
Size any_size(std::mt19937& random) {
  const auto below = [&](std::uint32_t end) { return static_cast<int64_t>(random() % end); };
  const int64_t m = 1 + below(below(6) == 0 ? 600 : 70), n = 1 + below(m > 70 ? 20 : 70);
  return {m, n, 1 + below(below(8) == 0 ? 1700 : 90)};
}

// A product of random numbers and strides.
struct Product {
  int64_t m, n, k;
  bool turned_a, turned_b, turned_c;
  float alpha, beta;
  std::vector<Low> a, b;
  std::vector<float> c;

  explicit Product(std::mt19937& random) : Product(random, any_size(random)) {}
  Product(std::mt19937& random, Size size) : m(size.m), n(size.n), k(size.k) {
    const auto below = [&](std::uint32_t end) { return static_cast<int64_t>(random() % end); };
    turned_a = below(2) == 0;
    turned_b = below(2) == 0;
    turned_c = below(2) == 0;
    alpha = below(2) == 0 ? 1.0f : 0.5f;
    beta = 0.5f * static_cast<float>(below(3));
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < m * k; ++i) a.push_back(exec::cpu::round_to_bf16(normal(random)));
    for (int64_t i = 0; i < k * n; ++i) b.push_back(exec::cpu::round_to_bf16(normal(random)));
    for (int64_t i = 0; i < m * n; ++i) c.push_back(normal(random));
  }
  int64_t rs_a() const { return turned_a ? 1 : k; }
  int64_t cs_a() const { return turned_a ? m : 1; }
  int64_t rs_b() const { return turned_b ? 1 : n; }
  int64_t cs_b() const { return turned_b ? k : 1; }
  // The largest error of any element, in units of the root of k.
  double error(const std::vector<float>& got) const {
    double worst = 0;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        const auto at = static_cast<std::size_t>(turned_c ? i + j * m : i * n + j);
        double sum = 0;
        for (int64_t p = 0; p < k; ++p)
          sum += static_cast<double>(
                     exec::cpu::widen_bf16(a[static_cast<std::size_t>(i * rs_a() + p * cs_a())])) *
                 static_cast<double>(
                     exec::cpu::widen_bf16(b[static_cast<std::size_t>(p * rs_b() + j * cs_b())]));
        sum = static_cast<double>(alpha) * sum +
              (beta == 0 ? 0.0 : static_cast<double>(beta) * static_cast<double>(c[at]));
        const double off =
            std::abs(sum - static_cast<double>(got[at])) / (1 + std::sqrt(static_cast<double>(k)));
        worst = off <= worst ? worst : off;  // written so that a NaN stays
      }
    return worst;
  }
};

class EveryMicro : public ::testing::Test {
 protected:
  MicrosInUse kept_;
};

TEST_F(EveryMicro, MultipliesAnyShapeAndStrides) {
  for (const exec::cpu::Micro* micro : exec::cpu::low_micros()) {
    ASSERT_TRUE(exec::cpu::use_low_micro(micro->name));
    std::mt19937 random(7);
    const Bytes room(exec::cpu::gemm_scratch_bytes);
    for (int i = 0; i < 60; ++i) {
      const Product p(random);
      std::vector<float> c = p.c;
      exec::cpu::gemm<Low>(p.m, p.n, p.k, p.alpha, p.a.data(), p.rs_a(), p.cs_a(), p.b.data(),
                           p.rs_b(), p.cs_b(), p.beta, c.data(), p.turned_c ? 1 : p.n,
                           p.turned_c ? p.m : 1, room.at.get());
      EXPECT_TRUE(p.error(c) <= 2e-6)
          << micro->name << ": " << p.m << " x " << p.n << " x " << p.k << ": " << p.error(c);
    }
  }
}

TEST_F(EveryMicro, GivesTheSameBitsFromPackedPanels) {
  for (const exec::cpu::Micro* micro : exec::cpu::low_micros()) {
    ASSERT_TRUE(exec::cpu::use_low_micro(micro->name));
    std::mt19937 random(8);
    const Bytes room(exec::cpu::gemm_scratch_bytes);
    for (int i = 0; i < 30; ++i) {
      // The last ones have more columns than are packed at once beside a block of A.
      const Product p =
          i < 20 ? Product(random) : Product(random, {190 + i, 147, 1020 - i % 3 * 4});
      const Bytes packed(sizeof(Low) *
                         static_cast<std::size_t>(exec::cpu::packed_b_elements<Low>(p.k, p.n)));
      Low* const panels = reinterpret_cast<Low*>(packed.at.get());
      // A panel after the other, or some rows of all after those before them.
      const int64_t columns = i % 3 == 0 ? exec::cpu::panel_columns : p.n,
                    rows = i % 3 == 0 ? p.k : i % 3 * exec::cpu::low_group;
      for (int64_t n0 = 0; n0 < p.n; n0 += columns)
        for (int64_t k0 = 0; k0 < p.k; k0 += rows)
          exec::cpu::gemm_pack_b<Low>(p.k, n0, std::min(columns, p.n - n0), p.b.data(), p.rs_b(),
                                      p.cs_b(), panels, {k0, rows});
      std::vector<float> plain(p.c.size()), from_panels(p.c.size());
      exec::cpu::gemm<Low>(p.m, p.n, p.k, 1, p.a.data(), p.rs_a(), p.cs_a(), p.b.data(), p.rs_b(),
                           p.cs_b(), 0, plain.data(), p.n, 1, room.at.get());
      exec::cpu::gemm_packed<Low>(p.m, p.n, p.k, p.a.data(), p.rs_a(), p.cs_a(),
                                  {panels, p.k, 0, 0}, 0, from_panels.data(), p.n, room.at.get());
      EXPECT_EQ(std::memcmp(plain.data(), from_panels.data(), plain.size() * sizeof(float)), 0)
          << micro->name << ": " << p.m << " x " << p.n << " x " << p.k;
    }
  }
}

// y = x w with w cast down from an f32 weight, as mixed precision writes it.
struct CastWeight {
  ir::Program program;
  Array x, w;

  CastWeight(ir::Op op, const ir::Attrs& attrs, const ir::Shape& x_shape, const ir::Shape& w_shape)
      : x(make_normal(ir::DType::bf16, x_shape, "x")),
        w(make_normal(ir::DType::f32, w_shape, "w")) {
    ir::Builder b;
    const ir::Var in = b.input(ir::Input::batch, "x", x.type()),
                  weight = b.input(ir::Input::param, "w", w.type());
    const ir::Var low = b.emit(ir::Op::cast, ir::Cast{ir::DType::bf16}, {weight})[0];
    b.output("y", b.emit(op, attrs, {in, low})[0]);
    program = b.program();
  }
  // The result, and how many steps are made once for all runs.
  std::pair<Array, int> run(bool packs, int threads) const {
    const auto executor = exec::make_executor("cpu", threads);
    plan::Target target = executor->target();
    target.packs = packs;
    const plan::Plan plan = plan::lower(program, 0, target);
    const auto loaded = executor->load(plan);
    executor->write_persistent("w", 0, {w.data(), w.bytes()});
    loaded->write("x", {x.data(), x.bytes()});
    loaded->run();
    const ir::Type& type = plan.output("y")->slot.type;
    Array y(type.dtype, type.shape);
    loaded->read("y", {y.data(), y.bytes()});
    return {y, static_cast<int>(plan.prepared)};
  }
};

TEST_F(EveryMicro, PacksAWeightBehindItsCastOnce) {
  const CastWeight linear(ir::Op::contract, ir::Contract{.sig = "bi,io->bo", .act = "", .out = {}},
                          {67, 75}, {75, 45});
  const CastWeight images(ir::Op::conv, ir::Conv{.stride = 1, .pad = 1}, {2, 9, 7, 5},
                          {3, 3, 5, 37});
  for (const exec::cpu::Micro* micro : exec::cpu::low_micros()) {
    ASSERT_TRUE(exec::cpu::use_low_micro(micro->name));
    for (const CastWeight* c : {&linear, &images}) {
      const auto [plain, none] = c->run(false, 2);
      EXPECT_EQ(none, 0);
      for (const int threads : {1, 3}) {
        const auto [packed, once] = c->run(true, threads);
        EXPECT_EQ(once, 1) << "the cast of a weight";
        EXPECT_TRUE(packed.same_bits(plain)) << micro->name << ", " << threads << " threads";
      }
    }
  }
}

}  // namespace
}  // namespace tessera::test::low_test
