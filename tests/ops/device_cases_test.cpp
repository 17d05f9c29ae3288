// Every row of the case table as a program of its own, planned and run by every device of this
// build: what a new executor must pass first. run_cases_test.cpp goes on with what only CPU kernels
// promise (bits, poison, absent results).
#include <gtest/gtest.h>

#include <tuple>

#include "exec/executor.h"
#include "ir/builder.h"
#include "ops/cases.h"
#include "ops/interpret.h"

namespace tessera::test::device_cases_test {
namespace {

using ir::DType;

std::vector<Array> run_on(exec::Executor& executor, const Case& c, DType element) {
  const std::vector<Array> in = make_operands(c, element);
  ir::Builder b;
  std::vector<ir::Var> operands;
  for (const Array& a : in)
    operands.push_back(b.input(ir::Input::batch, "x" + std::to_string(operands.size()), a.type()));
  const std::vector<ir::Var> results = b.emit(c.op, attrs_for(c, element), operands);
  for (std::size_t i = 0; i < results.size(); ++i) b.output("y" + std::to_string(i), results[i]);
  ir::verify(b.program());
  const plan::Plan plan = plan::lower(b.program(), 0, executor.target());
  const auto loaded = executor.load(plan);
  for (std::size_t i = 0; i < in.size(); ++i)
    loaded->write("x" + std::to_string(i), {in[i].data(), in[i].bytes()});
  loaded->run();
  std::vector<Array> out;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const ir::Type& type = plan.output("y" + std::to_string(i))->slot.type;
    Array& y = out.emplace_back(type.dtype, type.shape);
    loaded->read("y" + std::to_string(i), {y.data(), y.bytes()});
  }
  return out;
}

class OnDevice : public ::testing::TestWithParam<std::string> {};

TEST_P(OnDevice, EveryCaseEqualsTheReference) {
  ThreadPool pool(2);
  const std::unique_ptr<exec::Executor> executor = exec::make_executor(GetParam(), 2);
  for (const Case& c : cases()) {
    const std::vector<Array> want =
        run_reference(c.op, attrs_for(c, DType::f64), make_operands(c, DType::f64), pool);
    for (const DType element : {DType::f32, DType::f64}) {
      const std::vector<Array> got = run_on(*executor, c, element);
      ASSERT_EQ(got.size(), want.size()) << c.name;
      for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_TRUE(relative_error(got[i], want[i]) <=
                    c.tolerance.error)  // written so that a NaN fails
            << c.name << " in " << ir::name(element) << ", result " << i << ": relative error "
            << relative_error(got[i], want[i]) << " > " << c.tolerance.error << " ("
            << c.tolerance.reason << ")";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, OnDevice, ::testing::ValuesIn(exec::device_names()),
                         [](const ::testing::TestParamInfo<std::string>& info) {
                           return info.param;
                         });

}  // namespace
}  // namespace tessera::test::device_cases_test
