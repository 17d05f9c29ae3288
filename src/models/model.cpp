#include "models/model.h"

#include "base/check.h"
#include "models/resnet.h"
#include "models/swin.h"
#include "models/vit.h"

namespace tessera::models {
namespace {

struct Family {
  std::string name;
  std::vector<Param> (*parameters)(const ModelConfig&);
  ir::Var (*forward)(ir::Builder&, const ModelConfig&, ir::Var, const Mode&, const ParamOf&);
  std::vector<DerivedTensor> (*derived)(const ModelConfig&) = nullptr;
};

const Family& family(const std::string& name) {
  static const std::vector<Family> families = {
      {"vit", vit_parameters, vit_forward},
      {"swin", swin_parameters, swin_forward, swin_derived},
      {"resnet", resnet_parameters, resnet_forward},
  };
  for (const Family& f : families)
    if (f.name == name) return f;
  throw Error(ErrorKind::usage, "there is no model family '" + name + "'", "model.family", "choose vit, swin or resnet");
}

}  // namespace

std::vector<Param> parameters(const ModelConfig& config) { return family(config.family).parameters(config); }

std::vector<DerivedTensor> derived_tensors(const ModelConfig& config) {
  const auto of = family(config.family).derived;
  return of ? of(config) : std::vector<DerivedTensor>{};
}

ir::Var forward(ir::Builder& b, const ModelConfig& config, ir::Var images, const Mode& mode, const ParamOf& param) {
  return family(config.family).forward(b, config, images, mode, param);
}

}  // namespace tessera::models
