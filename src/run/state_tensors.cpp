#include "run/state_tensors.h"

#include <algorithm>

#include "base/check.h"

namespace tessera::run {
namespace {

// What a bucket's buffer holds: "weights.decay" -> "param.", "m.decay" -> "adamw.m.", "ema.decay" -> "ema.".
std::string prefix_of(const std::string& role, const std::string& optimizer) {
  if (role == "weights") return "param.";
  if (role == "ema") return "ema.";
  return optimizer + "." + role + ".";
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
    case ir::DType::i64:
      return "I64";
    case ir::DType::i32:
      return "I32";
    case ir::DType::u8:
      return "U8";
  }
  CHECK(false, "a dtype that files do not know");
  return {};
}

std::vector<StateTensor> state_tensors(Session& session) {
  const plan::Plan& plan = session.compiled(Goal::train, session.config().batch.global).plan;
  std::vector<StateTensor> out;
  for (const plan::Buffer& buffer : plan.persistent) {
    const plan::Binding* binding = plan.input(buffer.name);
    CHECK(binding, "a persistent buffer holds an input: " + buffer.name);
    const ir::DType dtype = binding->slot.type.dtype;
    const transforms::Bucket* bucket = nullptr;
    for (const transforms::Bucket& b : session.buckets())
      if (buffer.name.ends_with("." + b.name) && (!bucket || b.name.size() > bucket->name.size())) bucket = &b;
    if (!bucket) {
      out.push_back({"buffer." + buffer.name, dtype, binding->slot.type.shape, buffer.name, 0});
      continue;
    }
    const std::string role = buffer.name.substr(0, buffer.name.size() - bucket->name.size() - 1);
    for (const transforms::Bucket::Entry& entry : bucket->entries)
      out.push_back(
          {prefix_of(role, session.config().optim.name) + entry.param, dtype, entry.shape, buffer.name, entry.offset * ir::size_of(dtype)});
  }
  return out;
}

}  // namespace tessera::run
