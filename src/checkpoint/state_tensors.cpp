#include "checkpoint/state_tensors.h"

#include <algorithm>

#include "base/check.h"
#include "ir/optimizers.h"

namespace tessera::run {
namespace {

// The prefix of a checkpoint's names for the tensors of a bucket's buffer: "param.", "ema.",
// "adamw.m.".
std::string prefix_of(const ir::Input& buffer, const std::string& optimizer) {
  if (buffer.role == ir::Role::weights) return "param.";
  if (buffer.role == ir::Role::average) return "ema.";
  const std::string_view state = ir::find_optimizer(optimizer)->state_name(buffer.role);
  CHECK(!state.empty(), optimizer + " keeps no " + std::string(name(buffer.role)));
  return optimizer + "." + std::string(state) + ".";
}

// The first of the ranks that hold the same part of a value, or of a sum.
int first_holder(const ir::Type& type, const ir::Mesh& mesh, int rank) {
  for (int axis = 0; axis < static_cast<int>(mesh.axes.size()); ++axis)
    if (place_on(type, axis).kind == ir::Place::R) rank = mesh.group(rank, axis)[0];
  return rank;
}

}  // namespace

std::string stored_name(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::f64:
      return "F64";
    case ir::DType::f32:
      return "F32";
    case ir::DType::bf16:
      return "BF16";
    case ir::DType::f16:
      return "F16";
    case ir::DType::i64:
      return "I64";
    case ir::DType::i32:
      return "I32";
    case ir::DType::u8:
      return "U8";
    case ir::DType::f8e4m3:
      return "F8_E4M3";
    case ir::DType::f8e5m2:
      return "F8_E5M2";
    case ir::DType::i8:
      return "I8";
  }
  CHECK(false, "a dtype that files do not know");
  return {};
}

std::vector<StateTensor> state_tensors(Session& session) {
  const ir::Program& program = session.compiled(Goal::train, session.config().batch.global).program;
  std::vector<StateTensor> out;
  for (const ir::Input& buffer : program.inputs) {
    if (buffer.kind != ir::Input::param && buffer.kind != ir::Input::state) continue;
    if (buffer.role == ir::Role::step) continue;      // Progress has it
    if (buffer.role == ir::Role::pictures) continue;  // the data set has them
    const ir::Type& type = program.type(buffer.var);
    if (!is_here(type, program.mesh, session.rank())) continue;
    if (buffer.role == ir::Role::residual || buffer.role == ir::Role::basis) {
      const int holder = first_holder(type, program.mesh, session.rank());
      const ir::Shape shape = local_shape(type, program.mesh, session.rank());
      if (ir::elements(shape) > 0)
        out.push_back({.name = "rank-" + std::to_string(holder) + "." + buffer.name,
                       .dtype = type.dtype,
                       .shape = shape,
                       .begin = ir::Shape(shape.size()),
                       .extent = shape,
                       .buffer = buffer.name,
                       .offset = 0,
                       .keeps = holder == session.rank(),
                       .own = true,
                       .role = buffer.role});
      continue;
    }
    const bool kept = keeps(type, program.mesh, session.rank());
    const auto add = [&](const std::string& name, const ir::Shape& shape,
                         const std::vector<ShardBox>& boxes) {
      for (const ShardBox& box : boxes)
        out.push_back({.name = name,
                       .dtype = type.dtype,
                       .shape = shape,
                       .begin = box.begin,
                       .extent = box.extent,
                       .buffer = buffer.name,
                       .offset = box.offset * ir::size_of(type.dtype),
                       .keeps = kept,
                       .own = false,
                       .role = buffer.role});
    };
    if (!of_bucket(buffer.role)) {
      add("buffer." + buffer.name, type.shape, boxes_of_whole(type, program.mesh, session.rank()));
      continue;
    }
    const auto bucket =
        std::find_if(session.buckets().begin(), session.buckets().end(),
                     [&](const transforms::Bucket& b) { return b.name == buffer.of; });
    CHECK(bucket != session.buckets().end(), "a buffer of a bucket that is none: " + buffer.of);
    for (const transforms::Bucket::Entry& entry : bucket->entries)
      add(prefix_of(buffer, session.config().optim.name) + entry.param, entry.shape,
          boxes_in_bucket(*bucket, entry, type, program.mesh, session.rank()));
  }
  return out;
}

}  // namespace tessera::run
