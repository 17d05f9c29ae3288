// One comparison of a weight file with a model: every name, dtype and shape, before a number is
// read.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/weights.h"
#include "models/interpolate.h"
#include "models/weights.h"

namespace tessera::run {

// The tensors and notes that a file gives a model once it fits.
struct FittedFile {
  models::NameMap tensors;  // by canonical name; of a parameter in parts the first one's
  // The names of all parts, in order, of parameters that the file keeps in parts.
  std::map<std::string, std::vector<std::string>> parts;
  // Parameters to interpolate, from this grid of patches or this window.
  std::map<std::string, models::Grid> resized;
  bool new_head = false;
  std::vector<std::string> notes;  // a line for each adaptation
};

// Error(weights) with every problem when the file does not fit.
FittedFile compare_weights(const files::Safetensors& file, const models::ModelConfig& model,
                           const Adapt& adapt, const std::string& prefix);

}  // namespace tessera::run
