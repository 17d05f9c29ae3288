// Quantities that a claim may ask of a run: metrics by name, and the values of a quantity over the
// repeats of its point.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "record/study.h"
#include "study/claim_expression.h"

namespace tessera::study {

// Why `quantity` cannot be asked of `study`, with a hint at what can; "": it can, and `point` is
// where.
std::string find_point(const Quantity& quantity, const report::Study& study,
                       const report::Point** point);

// (repeat, value) of the repeats that are done and have this number.
std::vector<std::pair<int, double>> values_of(const Quantity& quantity, const report::Point& point);

}  // namespace tessera::study
