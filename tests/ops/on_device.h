// Ops as programs of their own, planned and run by an executor: how tests ask every device of the
// build, by its name.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "exec/executor.h"
#include "ir/program.h"
#include "ops/array.h"

namespace tessera::test {

using Arrays = std::map<std::string, Array>;

// The outputs of a program, by name. Where runs may be submitted ahead it is run twice, since the
// second may be by another way.
Arrays run_program(exec::Executor& executor, const ir::Program& program, const Arrays& inputs);
// The results of one equation on these operands.
std::vector<Array> run_op(exec::Executor& executor, ir::Op op, const ir::Attrs& attrs,
                          const std::vector<Array>& in);

// A test that each device runs; one that is not here is skipped.
class EveryDevice : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const std::string why = exec::missing(GetParam()); !why.empty())
      GTEST_SKIP() << GetParam() << ": no card here: " << why;
    executor_ = exec::make_executor(GetParam(), 2);
  }
  std::vector<Array> run(ir::Op op, const ir::Attrs& attrs, const std::vector<Array>& in) {
    return run_op(*executor_, op, attrs, in);
  }
  std::unique_ptr<exec::Executor> executor_;
};

#define FOR_EVERY_DEVICE(suite)                              \
  INSTANTIATE_TEST_SUITE_P(                                  \
      All, suite, ::testing::ValuesIn(exec::device_names()), \
      [](const ::testing::TestParamInfo<std::string>& info) { return info.param; })

}  // namespace tessera::test
