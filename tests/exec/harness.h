// This header has what kernel tests share: tensors with random values, and a Call with exactly the
// scratch that the rule promises. Convention: results start as NaN and scratch as NaN, so that
// whatever a kernel forgets to write shows.
#pragma once

#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "exec/cpu/contract.h"
#include "exec/cpu/kernel.h"
#include "exec/executor.h"
#include "ir/builder.h"

namespace tessera::exec {

using cpu::Call;
using cpu::Tensor;

struct Array {
  ir::Shape shape;
  std::vector<float> values;
  Tensor tensor() {
    return {ir::DType::f32, shape,
            values.empty() ? dummy() : reinterpret_cast<std::byte*>(values.data())};
  }
  ir::Type type() const { return {ir::DType::f32, shape, {}}; }

 private:
  static std::byte* dummy() {
    static std::byte nothing[64];
    return nothing;
  }
};

inline Array random_array(ir::Shape shape, std::uint64_t seed) {
  Array array{shape, std::vector<float>(static_cast<std::size_t>(ir::elements(shape)))};
  for (std::size_t i = 0; i < array.values.size(); ++i)
    array.values[i] = 2 * uniform(Key{seed}, i) - 1;
  return array;
}
inline Array poisoned(ir::Shape shape) {
  const auto n = static_cast<std::size_t>(ir::elements(shape));
  return {std::move(shape), std::vector<float>(n, std::numeric_limits<float>::quiet_NaN())};
}

struct Runner {
  explicit Runner(int threads) : pool(threads) {}
  ThreadPool pool;
  std::vector<float> scratch;

  // `absent`: bit i set means that nobody reads result i.
  void run(exec::cpu::Kernel kernel, exec::cpu::ScratchRule rule, ir::Op op, const ir::Attrs& attrs,
           std::vector<Array>& in, std::vector<Array>& out, unsigned absent = 0) {
    std::vector<Tensor> ins, outs;
    std::vector<ir::Type> in_types, out_types;
    for (Array& a : in) {
      ins.push_back(a.tensor());
      in_types.push_back(a.type());
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
      outs.push_back(out[i].tensor());
      out_types.push_back(out[i].type());
      if (absent >> i & 1u) outs.back().data = nullptr;
    }
    const cpu::Scratch need = rule(attrs, in_types, out_types).aligned();
    const std::size_t floats =
        (need.shared + need.per_thread * static_cast<std::size_t>(pool.size())) / 4;
    if (scratch.size() < floats + 32)
      scratch.assign(floats + 32, std::numeric_limits<float>::quiet_NaN());
    auto* aligned = reinterpret_cast<std::byte*>(
        (reinterpret_cast<std::uintptr_t>(scratch.data()) + 63) / 64 * 64);
    float* end = reinterpret_cast<float*>(aligned) + floats;
    *end = 12345.0f;
    kernel(Call{op, attrs, ins, outs, pool, need, aligned, aligned + need.shared});
    CHECK(*end == 12345.0f, "a kernel wrote past its scratch");
  }
};

// The same as a program of one equation, planned and run by an executor: twice, since its second
// run may be by another way. `absent` as above; what is absent stays empty.
inline std::vector<Array> run_program(Executor& executor, ir::Op op, const ir::Attrs& attrs,
                                      std::vector<Array>& in, unsigned absent = 0) {
  ir::Builder b;
  std::vector<ir::Var> operands;
  for (const Array& a : in)
    operands.push_back(b.input(ir::Input::batch, "x" + std::to_string(operands.size()), a.type()));
  const std::vector<ir::Var> results = b.emit(op, attrs, operands);
  for (std::size_t i = 0; i < results.size(); ++i)
    if (!(absent >> i & 1u)) b.output("y" + std::to_string(i), results[i]);
  ir::verify(b.program());
  const plan::Plan plan = plan::lower(b.program(), 0, executor.target());
  const auto loaded = executor.load(plan);
  for (int turn = 0; turn < 2; ++turn) {
    for (std::size_t i = 0; i < in.size(); ++i)
      loaded->write("x" + std::to_string(i), std::as_bytes(std::span<const float>(in[i].values)));
    loaded->run();
  }
  std::vector<Array> out(results.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (absent >> i & 1u) continue;
    out[i] = poisoned(plan.output("y" + std::to_string(i))->slot.type.shape);
    loaded->read("y" + std::to_string(i), std::as_writable_bytes(std::span<float>(out[i].values)));
  }
  return out;
}

}  // namespace tessera::exec
