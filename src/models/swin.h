// Swin Transformer, version 1 (Liu et al. 2021), as torchvision writes it: attention within windows that are shifted in every other block,
// and between stages 2 x 2 tokens merged into one of twice the width. Every size is free; what does not divide is padded as torchvision
// does.
#pragma once

#include "models/model.h"

namespace tessera::models {

std::vector<Param> swin_parameters(const ModelConfig& config);
ir::Var swin_forward(ir::Builder& b, const ModelConfig& config, ir::Var images, const Mode& mode, const ParamOf& param);
// What torchvision stores beside the parameters although it follows from the window: relative_position_index of every block.
std::vector<DerivedTensor> swin_derived(const ModelConfig& config);

}  // namespace tessera::models
