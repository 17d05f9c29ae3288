// What kernel tests share: tensors with random values, and a Call with exactly the scratch that the
// rule promises. Convention: results start as NaN and scratch as NaN, so that whatever a kernel
// forgets to write shows.
#pragma once

#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "exec/cpu/contract.h"
#include "exec/cpu/kernel.h"

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
    for (Array& a : in) ins.push_back(a.tensor()), in_types.push_back(a.type());
    for (std::size_t i = 0; i < out.size(); ++i) {
      outs.push_back(out[i].tensor()), out_types.push_back(out[i].type());
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

}  // namespace tessera::exec
