// Numbers as an executor's bytes and back: a run speaks double, a program has its own element type.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ir/type.h"

namespace tessera::run {

std::vector<std::byte> encode(std::span<const double> values,
                              ir::DType dtype);  // f64, f32, i64 or i32
std::vector<double> decode(std::span<const std::byte> bytes, ir::DType dtype);

}  // namespace tessera::run
