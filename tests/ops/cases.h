// The op case table: one row says what an op is tried on; every mode of run_cases_test.cpp takes
// its rows from here. Convention: dtype f32 stands for the kernel's element type, so that one row
// serves f32 and f64 (except where `fixed`).
#pragma once

#include <string>
#include <vector>

#include "ir/op.h"
#include "ops/array.h"

namespace tessera::test {

enum class Fill {
  normal,         // standard normal
  wide,           // 30 x normal: saturates exp, tanh and erf
  positive,       // 0.5 + |normal|
  labels,         // classes 0 .. classes-1
  probabilities,  // rows that sum to 1
  log_sum,        // about 4: a plausible log-sum-exp of a few dozen scores
  masked,         // 0 or -100, never a whole row
  rng,            // (seed, step, position)
  count,          // 3: an optimizer step
  rate,           // 0.01: a learning rate
  ties,           // small integers: many equal values
  one,
  zero,
  picture_draws,  // rows of base/picture_draw.h for a picture of about 9 x 9
};

struct Operand {
  ir::Shape shape;
  Fill fill = Fill::normal;
  ir::DType dtype = ir::DType::f32;
};

struct Tolerance {
  double error = 0;  // norm(difference) / norm(reference)
  const char* reason = "";
};

// Why a fast f32 kernel may differ from the f64 reference.
inline constexpr Tolerance exact{0, "moves, compares or counts elements: no rounding"};
inline constexpr Tolerance rounding{3e-7, "a few roundings per element, 6e-8 each"};
inline constexpr Tolerance curve{1e-6,
                                 "exp, erf or tanh by polynomial, some units in the last place"};
inline constexpr Tolerance sums{
    2e-6, "a sum of up to a few thousand f32 terms grows by the root of their number times 6e-8"};
inline constexpr Tolerance chain{5e-6, "two sums and an exponential in a row"};

struct Case {
  std::string name;
  ir::Op op;
  ir::Attrs attrs;
  std::vector<Operand> in;
  Tolerance tolerance;
  std::vector<int> grad = {};  // operands to differentiate
  int classes = 0;             // for Fill::labels
  int cotangents = 1;          // the first results that carry a gradient
  bool fixed = false;          // dtypes are meant literally, also by the f64 kernel
};

const std::vector<Case>& cases();

// Operands of a case with f32 replaced by `element`; values are the same numbers in both, all exact
// in f32.
std::vector<Array> make_operands(const Case& c, ir::DType element);
ir::Attrs attrs_for(const Case& c, ir::DType element);
Array make_normal(ir::DType dtype, const ir::Shape& shape, const std::string& name);

}  // namespace tessera::test
