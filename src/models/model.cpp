#include "models/model.h"

#include "models/families.h"
#include "models/program.h"

namespace tessera::models {
namespace {

const FamilyProgram& program_of(const ModelConfig& config) {
  const std::string_view name = family_of(config).name;
#define X(family) \
  if (name == #family) return family##_program;
  TESSERA_FAMILIES(X)
#undef X
  throw Error(ErrorKind::internal,
              "the family " + config.family + " has a description and no program");
}

}  // namespace

std::vector<Param> parameters(const ModelConfig& config) {
  return program_of(config).parameters(config);
}

std::vector<DerivedTensor> derived_tensors(const ModelConfig& config) {
  const auto of = program_of(config).derived;
  return of ? of(config) : std::vector<DerivedTensor>{};
}

ir::Var forward(ir::Builder& b, const ModelConfig& config, ir::Var images, const Mode& mode,
                const ParamOf& param) {
  return program_of(config).forward(b, config, images, mode, param);
}

}  // namespace tessera::models
