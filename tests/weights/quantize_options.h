// A file of a model's weights and the words that `tessera quantize` is given with it.
#pragma once

#include "checkpoint/weights.h"
#include "files/scratch.h"
#include "models/weights.h"
#include "session/session.h"
#include "verbs/verbs.h"

namespace tessera::test {

// Writes the weights into `scratch`; the quantised ones go beside them, and both are scored.
inline run::QuantizeOptions quantize_options(const Scratch& scratch, const models::ModelConfig& m,
                                             const run::ParamSource& weights,
                                             const std::string& data) {
  std::map<std::string, models::Param> params;
  for (const models::Param& p : models::parameters(m)) params.emplace(p.name, p);
  run::save_weights(scratch / "w.safetensors", m,
                    [&](const std::string& name) { return weights(params.at(name)); });
  run::QuantizeOptions out;
  out.weights = (scratch / "w.safetensors").string();
  out.out = (scratch / "q.safetensors").string();
  out.data = out.eval = data;
  out.samples = 20;
  out.json = true;
  return out;
}

}  // namespace tessera::test
