// The row of a model family: everything about a description that differs from family to family.
// Convention: plain values and functions of a ModelConfig, so that config/ needs nothing of the
// compiler.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/config.h"
#include "models/families.h"

namespace tessera::models {

// Collects the problems of one description.
struct Checks {
  const ModelConfig& c;
  std::vector<std::string> out;

  bool need(bool ok, std::string problem);
  bool in_range(const char* key, std::int64_t v, std::int64_t most);
  bool each_in_range(const char* key, const std::vector<std::int64_t>& list, std::int64_t most);
  bool image_in_range();
};

std::string text(std::int64_t v);
std::string text(const std::vector<std::int64_t>& list);
inline double as_real(std::int64_t v) { return static_cast<double>(v); }
// Parameters of an encoder block of width `c` with hidden width `f`: attention, MLP, their norms
// and biases.
inline double encoder_parameters(double c, double f) { return 4 * c * c + 2 * c * f + 9 * c + f; }

#define X(name) extern const Family name##_family;
TESSERA_FAMILIES(X)
#undef X

}  // namespace tessera::models
