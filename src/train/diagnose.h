// Where a step first became NaN or infinite: the step is run once more with every result of its
// plan looked at. Convention: the step must be one that was skipped; running it again changes
// nothing and gives the same bits. All ranks look, and all say what the one found where it began.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/check.h"
#include "session/session.h"

namespace tessera::run {

// One or two sentences: bad inputs (images, parameters, state), then the first equation whose
// result is not finite, with its name, scope, op, shapes and how many elements are bad.
std::string first_bad_tensor(Session& session, const StepInputs& inputs);
// The error that ends a run after `tries` such steps in a row; `saved`: where the state before them
// is, good or not.
Error not_finite(Session& session, const StepInputs& inputs, const StepResult& last,
                 std::int64_t tries, const std::filesystem::path& saved);

// NaN and infinite elements of a float tensor's bytes; integers have none.
struct BadElements {
  std::int64_t nan = 0, inf = 0, all = 0;
  bool any() const { return nan + inf > 0; }
};
BadElements count_bad(std::span<const std::byte> bytes, ir::DType dtype);

}  // namespace tessera::run
