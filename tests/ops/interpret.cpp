#include "ops/interpret.h"

#include <algorithm>

#include "base/check.h"

namespace tessera::test {

using exec::cpu::Call;
using exec::cpu::Tensor;

namespace {
constexpr std::size_t gap = 64;  // bytes between the shares of two threads that nobody may write
}

std::vector<ir::Type> types_of(const std::vector<Array>& arrays) {
  std::vector<ir::Type> types;
  for (const Array& a : arrays) types.push_back(a.type());
  return types;
}

void call_kernel(exec::cpu::Kernel kernel, exec::cpu::ScratchRule scratch, ir::Op op,
                 const ir::Attrs& attrs, const std::vector<Tensor>& in,
                 const std::vector<Tensor>& out, ThreadPool& pool) {
  const std::string what(ir::name(op));
  CHECK(kernel != nullptr, what + " has no kernel");
  exec::cpu::Scratch need;
  if (scratch) {
    std::vector<ir::Type> in_types, out_types;
    for (const Tensor& t : in) in_types.push_back({t.dtype, t.shape, {}});
    for (const Tensor& t : out) out_types.push_back({t.dtype, t.shape, {}});
    need = scratch(attrs, in_types, out_types).aligned();
  }
  Array shared(ir::DType::u8, {static_cast<std::int64_t>(need.shared)});
  shared.set_bytes(std::byte{0xff});
  const exec::cpu::Scratch given{need.shared, need.per_thread + gap};
  Array own(ir::DType::u8, {static_cast<std::int64_t>(given.per_thread) * pool.size()});
  own.set_bytes(std::byte{0xff});
  kernel(Call{op, attrs, in, out, pool, given, shared.data(), own.data()});
  CHECK(shared.guards_intact() && own.guards_intact(), what + " wrote outside its scratch");
  for (int thread = 0; thread < pool.size(); ++thread) {
    const std::byte* end =
        own.data() + static_cast<std::size_t>(thread) * given.per_thread + need.per_thread;
    CHECK(std::all_of(end, end + gap, [](std::byte b) { return b == std::byte{0xff}; }),
          what + " wrote past one thread's scratch");
  }
}

std::vector<Array> run_reference(ir::Op op, const ir::Attrs& attrs, const std::vector<Array>& in,
                                 ThreadPool& pool) {
  std::vector<Array> out;
  std::vector<Tensor> operands, results;
  for (const Array& a : in) operands.push_back(a.tensor());
  for (const ir::Type& t : ir::infer(op, attrs, types_of(in)))
    results.push_back(out.emplace_back(t.dtype, t.shape).tensor());
  call_kernel(exec::cpu::kernel(op).f64, nullptr, op, attrs, operands, results, pool);
  return out;
}

std::map<ir::Var, Array> interpret(const ir::Program& program,
                                   const std::map<std::string, Array>& inputs, ThreadPool& pool) {
  std::map<ir::Var, Array> values;
  for (const ir::Input& input : program.inputs) {
    const Array& given = inputs.at(input.name);
    CHECK(given.type() == program.type(input.var), "input " + input.name + " has another type");
    values.emplace(input.var, given);
  }
  for (const ir::Eqn& eqn : program.eqns) {
    std::vector<Tensor> in, out;
    for (ir::Var v : eqn.in) in.push_back(v == ir::none ? Tensor{} : values.at(v).tensor());
    for (ir::Var v : eqn.out) {
      if (v == ir::none) {
        out.emplace_back();
        continue;
      }
      Array& result =
          values.emplace(v, Array(program.type(v).dtype, program.type(v).shape)).first->second;
      result.set_bytes(std::byte{0xff});
      out.push_back(result.tensor());
    }
    call_kernel(exec::cpu::kernel(eqn.op).f64, nullptr, eqn.op, eqn.attrs, in, out, pool);
  }
  return values;
}

}  // namespace tessera::test
