#include "verbs/export_onnx.h"

#include <map>
#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "base/check.h"
#include "config/reader.h"
#include "input/augment.h"
#include "ir/builder.h"
#include "models/model.h"
#include "onnx/lower.h"

namespace tessera::run {
namespace {

ir::Program forward_program(const models::ModelConfig& m, const data::Normalisation& statistics,
                            bool pixels) {
  ir::Builder b;
  const ir::Shape shape = {onnx::any_batch, m.image_h, m.image_w, m.channels};
  ir::Var images =
      b.input(ir::Input::batch, "images", {pixels ? ir::DType::u8 : ir::DType::f32, shape, {}});
  if (pixels)
    images = b.emit1(ir::Op::normalise,
                     ir::Normalise{statistics.mean, statistics.deviation, ir::DType::f32}, {images},
                     "normalised");
  std::map<std::string, models::Param> params;
  for (models::Param& p : models::parameters(m)) params.emplace(p.name, std::move(p));
  std::map<std::string, ir::Var> made;
  const auto param = [&](const std::string& name) {
    const auto found = made.find(name);
    if (found != made.end()) return found->second;
    const models::Param& p = params.at(name);
    return made[name] = b.input(ir::Input::param, name, {ir::DType::f32, p.shape, {}}, p.dims);
  };
  b.output("logits", models::forward(b, m, images, models::Mode{}, param));
  ir::Program program = b.program();
  program.name = m.name.empty() ? m.family : m.name;
  return program;
}

}  // namespace

std::string onnx_of(const OpenedWeights& w, const OnnxOptions& options) {
  config::Config config = photographs_for(w.model);
  follow_preprocess(w.preprocess, w.from.string(), config);
  const ir::Program program = forward_program(w.model, normalisation(config), options.preprocess);
  std::map<std::string, models::Param> params;
  for (models::Param& p : models::parameters(w.model)) params.emplace(p.name, std::move(p));
  const auto values = [&](const std::string& name) {
    const std::vector<double> all = w.source(params.at(name));
    return std::vector<float>(all.begin(), all.end());
  };
  onnx::LowerOptions lowering;
  lowering.weights = options.dtype == "bf16"  ? onnx::Element::bf16
                     : options.dtype == "f16" ? onnx::Element::f16
                                              : onnx::Element::f32;
  const onnx::Graph graph = onnx::lower(program, values, lowering);
  onnx::About about{"tessera", std::string(version()), {}};
  about.metadata["tessera.model"] = config::model_to_json(w.model);
  about.metadata["tessera.classes"] = nlohmann::json(w.classes).dump();
  about.metadata["tessera.preprocess"] = w.preprocess.dump();
  return onnx::serialise(graph, about);
}

}  // namespace tessera::run
