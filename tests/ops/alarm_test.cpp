// The alarm that lets a step be judged before its gradients are added up: silent for any gradient,
// loud for what is none.
#include <cmath>

#include "ops/on_device.h"

namespace tessera::test::alarm_test {
namespace {

using ir::DType;

class Alarm : public EveryDevice {
 protected:
  double of(DType dtype, const std::vector<double>& numbers) {
    Array x(dtype, {static_cast<std::int64_t>(numbers.size())});
    for (std::size_t i = 0; i < numbers.size(); ++i)
      x.set(static_cast<std::int64_t>(i), numbers[i]);
    return run(ir::Op::alarm, ir::None{}, {x})[0][0];
  }
};

TEST_P(Alarm, HearsWhatIsNoGradient) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    for (const double bad :
         {std::nan(""), static_cast<double>(INFINITY), -static_cast<double>(INFINITY), 1e13, -3e30})
      EXPECT_TRUE(std::isnan(of(dtype, {1, 2, bad, 3}))) << bad << " in " << ir::name(dtype);
    EXPECT_EQ(of(dtype, {1e11, -1e11, 0}), 0) << ir::name(dtype);
  }
}

FOR_EVERY_DEVICE(Alarm);

}  // namespace
}  // namespace tessera::test::alarm_test
