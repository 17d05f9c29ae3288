// Every row of the case table as a program of its own, planned and run by every device of this
// build: what a new executor must pass first. run_cases_test.cpp goes on with what only CPU kernels
// promise (bits, poison, absent results).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>

#include "ops/cases.h"
#include "ops/interpret.h"
#include "ops/on_device.h"

namespace tessera::test::device_cases_test {
namespace {

using ir::DType;

std::vector<Array> run_on(exec::Executor& executor, const Case& c, DType element,
                          const std::vector<Array>& in) {
  return run_op(executor, c.op, attrs_for(c, element), in);
}

// Operands that passes after mixed precision add: the scale and offset of a folded batch norm are
// f32, the addend of a layer norm's gradient is of the gradient's own type.
bool low_after_fusing(ir::Op op, std::size_t operand, bool low) {
  if (op == ir::Op::conv && (operand == 2 || operand == 3)) return false;
  return low || (op == ir::Op::layer_norm_grad && operand == 5);
}

// As a program of mixed precision has them: what the op's row marks as low is of the low type, the
// rest f32. Empty: the op runs in f32 there.
std::vector<Array> low_operands(const Case& c, DType type) {
  const std::string_view low = ir::def(c.op).low;
  if (low.empty() || c.fixed) return {};
  std::vector<Array> out;
  for (Array& a : make_operands(c, DType::f32)) {
    const bool marked = low[std::min(out.size(), low.size() - 1)] == 'l';
    const bool down = low_after_fusing(c.op, out.size(), marked) && a.dtype() == DType::f32;
    out.push_back(down ? a.as(type) : std::move(a));
  }
  return out;
}
std::vector<Array> in_doubles(const std::vector<Array>& in) {
  std::vector<Array> out;
  for (const Array& a : in) out.push_back(ir::is_float(a.dtype()) ? a.as(DType::f64) : Array(a));
  return out;
}

class OnDevice : public EveryDevice {
 protected:
  void expect_near(const Case& c, DType element, const std::vector<Array>& got,
                   const std::vector<Array>& want, double tolerance) {
    ASSERT_EQ(got.size(), want.size()) << c.name;
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(relative_error(got[i], want[i]) <= tolerance)  // written so that a NaN fails
          << c.name << " in " << ir::name(element) << ", result " << i << ": relative error "
          << relative_error(got[i], want[i]) << " > " << tolerance << " (" << c.tolerance.reason
          << ")";
  }
  // A case that throws is named, and those after it run too.
  template <class Body>
  void try_case(const Case& c, DType element, const Body& body) {
    try {
      body();
    } catch (const std::exception& e) {
      ADD_FAILURE() << c.name << " in " << ir::name(element) << ": " << e.what();
    }
  }
  ThreadPool pool_{2};
};

// TESSERA_CASE=NAME runs one case alone: on a card a bad access ends all that come after it.
// TESSERA_CASE_OPS=conv=,max_pool runs those of ops whose names begin so, or are so where a '='
// follows; with a '-' in front, all others.
bool wanted(const Case& c) {
  if (const char* only = std::getenv("TESSERA_CASE")) return c.name == std::string_view(only);
  const char* ops = std::getenv("TESSERA_CASE_OPS");
  if (!ops) return true;
  std::string_view rest = ops;
  const bool others = rest.starts_with('-');
  if (others) rest.remove_prefix(1);
  bool named = false;
  for (std::size_t end = 0; !rest.empty(); rest.remove_prefix(std::min(end + 1, rest.size()))) {
    end = std::min(rest.find(','), rest.size());
    const std::string_view word = rest.substr(0, end), name = ir::name(c.op);
    named |= word.ends_with('=') ? name == word.substr(0, end - 1) : name.starts_with(word);
  }
  return named != others;
}

// cuDNN adds a filter's gradient up pixel by pixel: the error grows by the root of their number
// times 6e-8, which is more than blocks of the CPU's kernels leave.
// Tensor cores add up products of eight bits with about 14 bits before they pass the sum on.
double tolerance_on(const std::string& device, const Case& c, const std::vector<Array>& in) {
  if (device == "cpu") return c.tolerance.error;
  if (c.op == ir::Op::contract && ir::is_quantised(in[0].dtype()) && in[0].dtype() != DType::i8)
    return std::max(c.tolerance.error, 0x1p-11);
  if (c.op != ir::Op::conv_filter_grad) return c.tolerance.error;
  const ir::Shape& dy = in[0].shape();
  return std::max(c.tolerance.error, 6e-8 * std::sqrt(static_cast<double>(dy[0] * dy[1] * dy[2])));
}

TEST_P(OnDevice, EveryCaseEqualsTheReference) {
  int seen = 0;
  for (const Case& c : cases()) {
    if (std::getenv("TESSERA_CASE_NAMES")) std::puts(std::string(c.name).c_str());
    if (!wanted(c) || (GetParam() != "cpu" && c.name.starts_with("conv_i8"))) continue;
    seen += 2;
    const std::vector<Array> want =
        run_reference(c.op, attrs_for(c, DType::f64), make_operands(c, DType::f64), pool_);
    for (const DType element : {DType::f32, DType::f64})
      try_case(c, element, [&] {
        const std::vector<Array> in = make_operands(c, element);
        expect_near(c, element, run_on(*executor_, c, element, in), want,
                    tolerance_on(GetParam(), c, in));
      });
  }
  EXPECT_GT(seen, 0);
  RecordProperty("cases", seen);
}

TEST_P(OnDevice, EveryCaseOfMixedPrecisionEqualsTheReference) {
  int seen = 0;
  for (const DType type : {DType::bf16, DType::f16})
    for (const Case& c : cases()) {
      const std::vector<Array> in = low_operands(c, type);
      if (in.empty()) continue;
      ++seen;
      if (!wanted(c)) continue;
      try_case(c, type, [&] {
        const std::vector<Array> want =
            run_reference(c.op, attrs_for(c, DType::f64), in_doubles(in), pool_);
        // Five roundings of 2^-8 or 2^-11; what only moves elements loses nothing.
        const double rounded = type == DType::f16 ? 2.5e-3 : 2e-2;
        expect_near(c, type, run_on(*executor_, c, DType::f32, in), want,
                    c.tolerance.error == 0 ? 0 : rounded);
      });
    }
  EXPECT_GT(seen, 20);
  RecordProperty("cases", seen);
}

FOR_EVERY_DEVICE(OnDevice);

}  // namespace
}  // namespace tessera::test::device_cases_test
