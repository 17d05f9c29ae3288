// Where the optimizer's state rests between updates. Nothing else changes: which bytes come and go,
// and when, follows from it when storage is planned.
#include "base/check.h"
#include "transforms/transforms.h"

namespace tessera::transforms {

using namespace ir;

Program offload(const Program& program, Home home, std::int64_t piece) {
  CHECK(home != Home::device && piece > 0, "offload says where to, and how much at a time");
  Program out = program;
  for (Input& in : out.inputs)
    if (in.role == Role::first_moment || in.role == Role::second_moment)
      in.home = home, in.piece = piece;
  return out;
}

}  // namespace tessera::transforms
