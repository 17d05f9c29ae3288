// The forward program of a model with its weights as one ONNX file.
#pragma once

#include <string>

#include "checkpoint/weights_open.h"

namespace tessera::run {

struct OnnxOptions {
  std::string dtype = "f32";  // of matrices and filters: f32 | bf16 | f16
  bool preprocess = false;    // the graph reads u8 pixels [batch, height, width, channels]
};
// The bytes of the file. Error(usage) where they would be more than ONNX allows.
std::string onnx_of(const OpenedWeights& weights, const OnnxOptions& options);

}  // namespace tessera::run
