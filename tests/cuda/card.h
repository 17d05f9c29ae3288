// This header has what tests on a card share. Convention: suites that need one are called
// OnCard...; without a card they are skipped, and say so in words that ctest knows
// (tests/gpu.cmake).
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "exec/device.h"
#include "parallel/world.h"

namespace tessera::test {

class OnCard : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = exec::missing("cuda"); !why.empty())
      GTEST_SKIP() << "no card here: " << why;
  }
};

// A preset of the model zoo, for a session on the device.
inline config::Config preset_on(const std::string& device, const std::string& model,
                                const std::string& dtype, std::int64_t batch) {
  config::Config c;
  c.model = models::preset(model);
  c.model.head_init = "normal";  // a head of zeros would hide every difference
  c.precision.dtype = dtype;
  c.batch = {batch, batch, 1};
  c.optim.clip = 1.0;
  c.run.threads = 2;
  c.run.seed = 3;
  c.run.device = device;
  return c;
}

}  // namespace tessera::test
