#include "ops/on_device.h"

#include "ir/builder.h"

namespace tessera::test {

Arrays run_program(exec::Executor& executor, const ir::Program& program, const Arrays& inputs) {
  ir::verify(program);
  const plan::Plan plan = plan::lower(program, 0, executor.target());
  const auto loaded = executor.load(plan);
  for (int turn = executor.runs_ahead() > 0 ? 0 : 1; turn < 2; ++turn) {
    for (const plan::Binding& in : plan.inputs) {
      const Array& given = inputs.at(in.name);
      loaded->write(in.name, {given.data(), given.bytes()});
    }
    loaded->run();
  }
  Arrays out;
  for (const plan::Binding& o : plan.outputs) {
    Array result(o.slot.type.dtype, o.slot.type.shape);
    loaded->read(o.name, {result.data(), result.bytes()});
    out.emplace(o.name, std::move(result));
  }
  return out;
}

std::vector<Array> run_op(exec::Executor& executor, ir::Op op, const ir::Attrs& attrs,
                          const std::vector<Array>& in) {
  ir::Builder b;
  std::vector<ir::Var> operands;
  Arrays inputs;
  for (const Array& a : in) {
    const std::string name = "x" + std::to_string(operands.size());
    operands.push_back(b.input(ir::Input::batch, name, a.type()));
    inputs.emplace(name, a);
  }
  const std::vector<ir::Var> results = b.emit(op, attrs, operands);
  for (std::size_t i = 0; i < results.size(); ++i) b.output("y" + std::to_string(i), results[i]);
  Arrays found = run_program(executor, b.program(), inputs);
  std::vector<Array> out;
  for (std::size_t i = 0; i < results.size(); ++i)
    out.push_back(std::move(found.at("y" + std::to_string(i))));
  return out;
}

}  // namespace tessera::test
