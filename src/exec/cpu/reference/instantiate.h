// REFERENCE(op): the two element types in which every reference kernel exists.
#pragma once

#include "exec/cpu/kernel.h"

#define REFERENCE(op)                                \
  template void reference_##op<double>(const Call&); \
  template void reference_##op<float>(const Call&);
