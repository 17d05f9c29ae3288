// Numbers in, numbers out: runs a program through plan and executor, or equation by equation
// without a plan. Convention: values are doubles by name; f64, f32, i64 and i32 travel exactly.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "exec/executor.h"
#include "ir/program.h"
#include "plan/plan.h"
#include "transforms/transforms.h"

namespace tessera::test {

using Values = std::map<std::string, std::vector<double>>;

inline std::vector<std::byte> to_bytes(ir::DType dtype, const std::vector<double>& values) {
  std::vector<std::byte> out(values.size() * static_cast<std::size_t>(ir::size_of(dtype)));
  auto fill = [&]<class T>(T) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const T v = static_cast<T>(values[i]);
      std::memcpy(out.data() + i * sizeof(T), &v, sizeof(T));
    }
  };
  switch (dtype) {
    case ir::DType::f64:
      fill(double{});
      break;
    case ir::DType::f32:
      fill(float{});
      break;
    case ir::DType::i64:
      fill(std::int64_t{});
      break;
    case ir::DType::i32:
      fill(std::int32_t{});
      break;
    default:
      CHECK(false, "tests bind f64, f32, i64 and i32");
  }
  return out;
}
inline std::vector<double> to_doubles(ir::DType dtype, const std::vector<std::byte>& bytes) {
  std::vector<double> out(bytes.size() / static_cast<std::size_t>(ir::size_of(dtype)));
  auto read = [&]<class T>(T v) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      std::memcpy(&v, bytes.data() + i * sizeof(T), sizeof(T));
      out[i] = static_cast<double>(v);
    }
  };
  switch (dtype) {
    case ir::DType::f64:
      read(double{});
      break;
    case ir::DType::f32:
      read(float{});
      break;
    case ir::DType::i64:
      read(std::int64_t{});
      break;
    case ir::DType::i32:
      read(std::int32_t{});
      break;
    default:
      CHECK(false, "tests read f64, f32, i64 and i32");
  }
  return out;
}

// Plausible numbers for every input, drawn by name: the same for a parameter in every program that
// has it.
inline Values draw_inputs(const ir::Program& p, int classes, std::int64_t samples) {
  Values out;
  for (const ir::Input& in : p.inputs) {
    std::vector<double>& v = out[in.name];
    const auto n = static_cast<std::size_t>(p.type(in.var).elements());
    for (std::size_t i = 0; i < n; ++i) {
      double x = 0.4 * normal(Key{}.with(in.name), i);
      if (p.type(in.var).dtype == ir::DType::i32)
        x = static_cast<double>(random_bits(Key{}.with(in.name), i) %
                                static_cast<std::uint64_t>(classes));
      if (in.kind == ir::Input::param && p.type(in.var).rank() == 1 && in.name.ends_with("weight"))
        x += 1;  // gains of layer norms
      if (in.kind == ir::Input::state) x = 0.01 * std::abs(x);
      if (in.name == "inv_count") x = 1.0 / static_cast<double>(samples);
      if (in.name == "lr") x = 0.01;
      if (in.name == "step") x = 3;
      if (in.name == "rng") x = i == 0 ? 42 : i == 1 ? 3 : 100;
      v.push_back(static_cast<float>(x));  // exact in f32 too
    }
  }
  return out;
}

inline Values evaluate(const ir::Program& program, const Values& inputs, int threads = 1) {
  const auto executor = exec::make_executor("cpu", threads);
  const plan::Plan plan = plan::lower(program, 0, executor->target());
  const auto loaded = executor->load(plan);
  for (const plan::Binding& in : plan.inputs)
    loaded->write(in.name, to_bytes(in.slot.type.dtype, inputs.at(in.name)));
  loaded->run();
  Values out;
  for (const plan::Binding& o : plan.outputs) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(o.slot.type.bytes()));
    loaded->read(o.name, bytes);
    out[o.name] = to_doubles(o.slot.type.dtype, bytes);
  }
  return out;
}

// Without a plan: every equation is a program of its own whose operands are parameters, so nothing
// shares storage with anything.
inline Values interpret(const ir::Program& program, const Values& inputs) {
  std::map<ir::Var, std::vector<std::byte>> values;
  for (const ir::Input& in : program.inputs)
    values[in.var] = to_bytes(program.type(in.var).dtype, inputs.at(in.name));
  for (const ir::Eqn& e : program.eqns) {
    ir::Program one;
    auto declare = [&](ir::Var v) {
      one.values.push_back({"v" + std::to_string(one.values.size()),
                            {program.type(v).dtype, program.type(v).shape, {}}});
      return static_cast<ir::Var>(one.values.size()) - 1;
    };
    ir::Eqn copy = e;
    for (ir::Var& v : copy.in) {
      one.inputs.push_back(
          {ir::Input::param, declare(v), "in" + std::to_string(one.inputs.size()), {}});
      v = one.inputs.back().var;
    }
    for (ir::Var& v : copy.out)
      if (v != ir::none) {
        one.outputs.push_back({"out" + std::to_string(v), declare(v), {}});
        v = one.outputs.back().var;
      }
    one.eqns = {copy};
    const auto executor = exec::make_executor("cpu", 1);
    const plan::Plan plan = plan::lower(one, 0, executor->target());
    const auto loaded = executor->load(plan);
    for (std::size_t i = 0; i < e.in.size(); ++i)
      loaded->write(one.inputs[i].name, values.at(e.in[i]));
    loaded->run();
    for (ir::Var v : e.out)
      if (v != ir::none) {
        std::vector<std::byte>& bytes = values[v];
        bytes.resize(static_cast<std::size_t>(program.type(v).bytes()));
        loaded->read("out" + std::to_string(v), bytes);
      }
  }
  Values out;
  for (const ir::Output& o : program.outputs)
    out[o.name] = to_doubles(program.type(o.var).dtype, values.at(o.var));
  return out;
}

// norm(a - b) / norm(b)
inline double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return difference == 0 ? 0 : std::sqrt(difference / size);
}

// Every output of `want` is in `got` and agrees: to the bit with tolerance 0.
inline void expect_same(const Values& got, const Values& want, double tolerance) {
  for (const auto& [name, values] : want) {
    ASSERT_TRUE(got.contains(name)) << name;
    if (tolerance == 0)
      EXPECT_TRUE(got.at(name) == values)
          << name << " differs by " << relative_error(got.at(name), values);
    else
      EXPECT_LE(relative_error(got.at(name), values), tolerance) << name;
  }
}

// Parameters gathered into buckets as the program `buckets` expects them.
inline Values into_buckets(const Values& parameters, const std::vector<transforms::Bucket>& list,
                           Values out = {}) {
  for (const transforms::Bucket& bucket : list) {
    std::vector<double>& flat = out["weights." + bucket.name];
    flat.assign(static_cast<std::size_t>(bucket.size), 0.0);
    for (const auto& entry : bucket.entries)
      std::copy(parameters.at(entry.param).begin(), parameters.at(entry.param).end(),
                flat.begin() + static_cast<std::ptrdiff_t>(entry.offset));
  }
  return out;
}

}  // namespace tessera::test
