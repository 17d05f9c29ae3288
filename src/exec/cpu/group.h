// The ranks that a call talks to.
#pragma once

#include "base/check.h"
#include "exec/cpu/kernel.h"

namespace tessera::exec::cpu {

inline comm::Comm& group_of(const Call& call) {
  const std::string& axis = ir::axis_of(call.attrs);
  const auto found = call.groups ? call.groups->find(axis) : Groups::const_iterator{};
  CHECK(call.groups && found != call.groups->end(),
        "this executor was given no group for the axis " + axis);
  return *found->second;
}

}  // namespace tessera::exec::cpu
