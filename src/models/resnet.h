// Residual networks, as torchvision's ResNet (stride on the 3x3 of a bottleneck), with free widths, stages and stem.
#pragma once

#include "models/model.h"

namespace tessera::models {

std::vector<Param> resnet_parameters(const ModelConfig& config);
ir::Var resnet_forward(ir::Builder& b, const ModelConfig& config, ir::Var images, const Mode& mode, const ParamOf& param);

}  // namespace tessera::models
