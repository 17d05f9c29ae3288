// One rank's part of an equation of all ranks: what an op's rule for local attributes may ask for.
#pragma once

#include "ir/program.h"

namespace tessera::ir {

struct Part {
  const Program& program;
  const Eqn& eqn;
  int rank = 0;

  const Type& type(Var v) const { return program.type(v); }  // global
  std::vector<Range> ranges(Var v) const { return local_ranges(type(v), program.mesh, rank); }
  Shape shape(Var v) const { return local_shape(type(v), program.mesh, rank); }
  // The ranks that differ from this one on `axis` alone, itself included, and its place among them.
  std::vector<int> group(const std::string& axis) const {
    return program.mesh.group(rank, program.mesh.find(axis));
  }
  int index(const std::string& axis) const {
    return program.mesh.coordinates(rank)[static_cast<std::size_t>(program.mesh.find(axis))];
  }
  // The extent of a dim on each of them.
  Shape extents(Var v, const std::string& axis, int dim) const {
    Shape out;
    for (const int other : group(axis))
      out.push_back(local_shape(type(v), program.mesh, other)[static_cast<std::size_t>(dim)]);
    return out;
  }
};

}  // namespace tessera::ir
