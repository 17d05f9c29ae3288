// The data of a run: the configured source, opened at the model's image size.
#pragma once

#include <memory>

#include "config/config.h"
#include "data/dataset.h"

namespace tessera::run {

std::unique_ptr<data::Dataset> open_data(const config::Config& config, data::Split split);

}  // namespace tessera::run
