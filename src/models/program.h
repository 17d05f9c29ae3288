// The row of a family's program: the functions behind model.h that write it.
#pragma once

#include "base/check.h"
#include "models/families.h"
#include "models/model.h"

namespace tessera::models {

struct FamilyProgram {
  std::vector<Param> (*parameters)(const ModelConfig&);
  ir::Var (*forward)(ir::Builder&, const ModelConfig&, ir::Var, const Mode&, const ParamOf&);
  std::vector<DerivedTensor> (*derived)(const ModelConfig&) = nullptr;
};

#define X(name) extern const FamilyProgram name##_program;
TESSERA_FAMILIES(X)
#undef X

}  // namespace tessera::models
