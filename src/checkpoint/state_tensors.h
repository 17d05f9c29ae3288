// The persistent buffers of a training as named global tensors: param.<name>, adamw.m.<name>,
// adamw.v.<name>, sgd.momentum.<name>, ema.<name>, buffer.<name>. Convention: a checkpoint knows
// these names and nothing of buckets, so it outlives any layout. The exception is what compression
// keeps, rank-R.residual.<bucket> and rank-R.powersgd.<bucket>: each rank's own, of use to the same
// layout alone.
#pragma once

#include <string>
#include <vector>

#include "session/session.h"

namespace tessera::run {

// A box of one of them, on this rank.
struct StateTensor {
  std::string name;
  ir::DType dtype = ir::DType::f32;
  ir::Shape shape;          // global
  ir::Shape begin, extent;  // of the box
  std::string buffer;       // the persistent buffer that holds it ...
  std::int64_t offset = 0;  // ... from this byte on, row-major
  bool keeps = true;        // of all ranks that hold it, this one writes it
  bool own = false;         // what compression keeps: not a part of something that all layouts have
  ir::Role role = ir::Role::none;  // of the buffer
  std::int64_t bytes() const { return ir::elements(extent) * ir::size_of(dtype); }
};
std::vector<StateTensor> state_tensors(Session& session);

// The dtype's name in a safetensors file.
std::string stored_name(ir::DType dtype);

}  // namespace tessera::run
