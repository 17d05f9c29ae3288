// Initial weights, distributed as torchvision's and drawn from nothing but (seed, parameter name,
// element). Convention: the key is (seed, "init", canonical name), the counter is the element index
// in our row-major layout of the whole tensor; so neither the order of parameters, nor threads, nor
// a mesh changes a number.
#pragma once

#include <cstdint>

#include "session/session.h"

namespace tessera::run {

ParamSource initial_weights(std::uint64_t seed);

}  // namespace tessera::run
