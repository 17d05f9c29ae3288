// The alarm that lets a step be judged before its gradients are added up: silent for any gradient,
// loud for what is none.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "exec/cpu/kernel.h"

namespace tessera::exec::cpu::alarm_test {
namespace {

template <class T>
T alarm(std::vector<T> x, Kernel kernel) {
  T y = 1;
  ThreadPool pool(1);
  std::vector<std::byte> scratch(1 << 20);
  const ir::DType dtype = sizeof(T) == 8 ? ir::DType::f64 : ir::DType::f32;
  const Tensor in[] = {
      {dtype, {static_cast<std::int64_t>(x.size())}, reinterpret_cast<std::byte*>(x.data())}};
  const Tensor out[] = {{dtype, {}, reinterpret_cast<std::byte*>(&y)}};
  const ir::Attrs none = ir::None{};
  kernel({ir::Op::alarm, none, in, out, pool, {scratch.size(), 0}, scratch.data(), scratch.data()});
  return y;
}

TEST(Alarm, HearsWhatIsNoGradient) {
  const KernelRow& row = cpu::kernel(ir::Op::alarm);
  for (const double bad :
       {std::nan(""), static_cast<double>(INFINITY), -static_cast<double>(INFINITY), 1e13, -3e30}) {
    EXPECT_TRUE(std::isnan(alarm<double>({1, 2, bad, 3}, row.f64))) << bad;
    EXPECT_TRUE(std::isnan(alarm<float>({1, 2, static_cast<float>(bad), 3}, row.f32))) << bad;
  }
  EXPECT_EQ(alarm<double>({1e11, -1e11, 0}, row.f64), 0);
  EXPECT_EQ(alarm<float>({1e11f, -1e11f, 0}, row.f32), 0);
}

}  // namespace
}  // namespace tessera::exec::cpu::alarm_test
