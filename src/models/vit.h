// Vision transformer, as torchvision's VisionTransformer; every dimension free.
#pragma once

#include "models/model.h"

namespace tessera::models {

std::vector<Param> vit_parameters(const ModelConfig& config);
ir::Var vit_forward(ir::Builder& b, const ModelConfig& config, ir::Var images, const Mode& mode, const ParamOf& param);

}  // namespace tessera::models
