#include "ops/ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/rng.h"
#include "comm/comm.h"
#include "exec/executor.h"
#include "ir/builder.h"
#include "ops/interpret.h"

namespace tessera::test {
namespace {

using ir::Place;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Visits every run of elements of a part that lie together: its place in the part and in the whole,
// and its length.
template <class Visit>
void each_run(const std::vector<ir::Range>& ranges, const ir::Shape& whole, Visit visit) {
  std::int64_t n = 1, run = 1, stride = 1;
  for (const ir::Range& range : ranges) n *= range.size;
  if (n == 0) return;
  std::size_t outer = whole.size();  // the dims before this one are walked
  while (outer > 0 && run == stride) {
    --outer;
    run *= ranges[outer].size;
    stride *= whole[outer];
  }
  for (std::int64_t local = 0; local < n; local += run) {
    std::int64_t rest = local / run, global = 0, step = 1;
    for (std::size_t d = whole.size(); d-- > 0; step *= whole[d]) {
      std::int64_t place = 0;
      if (d < outer) {
        place = rest % ranges[d].size;
        rest /= ranges[d].size;
      }
      global += (ranges[d].begin + place) * step;
    }
    visit(local, global, run);
  }
}

// This rank's number among the ranks that differ on the axes with this kind of place.
int index_among(Place::Kind kind, const ir::Type& type, const ir::Mesh& mesh, int rank) {
  const std::vector<int> where = mesh.coordinates(rank);
  int index = 0;
  for (std::size_t a = 0; a < where.size(); ++a)
    if (ir::place_on(type, static_cast<int>(a)).kind == kind)
      index = index * mesh.axes[a].size + where[a];
  return index;
}

std::vector<Array> shares_of(const Array& whole, int n, const std::string& name) {
  std::vector<Array> shares(at(n), Array(whole.dtype(), whole.shape()));
  const Key key = Key{}.with(name).with("shares");
  const ir::DType dtype = whole.dtype();
  for (std::int64_t i = 0; i < whole.size(); ++i) {
    double left = whole[i];
    for (int r = 0; r + 1 < n; ++r) {
      const auto draw = [&] {
        return std::round(8 * tessera::normal(key, static_cast<std::uint64_t>(i * n + r)));
      };
      const double share = dtype == ir::DType::f32   ? left / 2
                           : dtype == ir::DType::f64 ? draw() / 8
                           : dtype == ir::DType::u8  ? 0
                                                     : draw();
      shares[at((r + i) % n)].set(i, share);
      left -= share;
    }
    shares[at((n - 1 + i) % n)].set(i, left);
  }
  return shares;
}

// A fresh arena holds zeros, which would pass for results that nobody wrote.
void fill_arena(exec::Executor& executor, std::int64_t bytes) {
  ir::Builder b;
  b.output("p", b.constant(std::numeric_limits<double>::quiet_NaN(), ir::DType::f32, {bytes / 4}));
  const plan::Plan plan = plan::lower(b.program(), 0, executor.target());
  executor.load(plan)->run();
}

}  // namespace

Parts hand_out(const Array& whole, const ir::Type& type, const ir::Mesh& mesh,
               const std::string& key) {
  int n = 1;
  for (std::size_t a = 0; a < mesh.axes.size(); ++a)
    if (ir::place_on(type, static_cast<int>(a)).kind == Place::P) n *= mesh.axes[a].size;
  const std::vector<Array> shares = n > 1 ? shares_of(whole, n, key) : std::vector<Array>{whole};
  Parts parts;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    Array& part = parts.emplace_back(whole.dtype(), ir::local_shape(type, mesh, rank));
    const Array& from = shares[at(index_among(Place::P, type, mesh, rank))];
    const std::int64_t size = ir::size_of(whole.dtype());
    each_run(ir::local_ranges(type, mesh, rank), whole.shape(),
             [&](std::int64_t local, std::int64_t global, std::int64_t n) {
               std::copy_n(from.data() + global * size, n * size, part.data() + local * size);
             });
  }
  return parts;
}

Array put_together(const Parts& parts, const ir::Type& type, const ir::Mesh& mesh) {
  Array whole(ir::DType::f64, type.shape);
  std::vector<int> first(
      at(mesh.ranks()));  // the rank with the same place and nothing but zeros on replicated axes
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    first[at(rank)] = rank;
    for (std::size_t a = 0; a < mesh.axes.size(); ++a)
      if (ir::place_on(type, static_cast<int>(a)).kind == Place::R) {
        const std::vector<int> group = mesh.group(first[at(rank)], static_cast<int>(a));
        first[at(rank)] = group[0];
      }
    const Array& part = parts[at(rank)];
    EXPECT_EQ(part.shape(), ir::local_shape(type, mesh, rank)) << "on rank " << rank;
    if (first[at(rank)] != rank) {
      EXPECT_TRUE(part.same_bits(parts[at(first[at(rank)])]))
          << "ranks " << rank << " and " << first[at(rank)] << " hold other copies";
      continue;
    }
    each_run(ir::local_ranges(type, mesh, rank), type.shape,
             [&](std::int64_t local, std::int64_t global, std::int64_t n) {
               for (std::int64_t i = 0; i < n; ++i)
                 whole.set(global + i, whole[global + i] + part[local + i]);
             });
  }
  return whole;
}

std::vector<Parts> run_ranks(const ir::Program& program, const std::vector<Parts>& inputs) {
  const ir::Mesh& mesh = program.mesh;
  std::vector<Parts> outputs(program.outputs.size());
  for (Parts& parts : outputs) parts.resize(at(mesh.ranks()));
  const bool crosses = std::any_of(program.eqns.begin(), program.eqns.end(),
                                   [](const ir::Eqn& e) { return ir::moves(e.attrs); });
  const auto run = [&](exec::Executor& executor, int rank) {
    const plan::Plan plan = plan::lower(program, rank, executor.target());
    const auto loaded = executor.load(plan);
    fill_arena(executor, plan.arena_bytes);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      loaded->write(program.inputs[i].name,
                    {inputs[i][at(rank)].data(), inputs[i][at(rank)].bytes()});
    loaded->run();
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const plan::Binding* binding = plan.output(program.outputs[i].name);
      Array& result = outputs[i][at(rank)] =
          Array(binding->slot.type.dtype, binding->slot.type.shape);
      loaded->read(program.outputs[i].name, {result.data(), result.bytes()});
    }
  };
  if (!crosses) {  // nobody waits for another: one after the other
    static const std::unique_ptr<exec::Executor> one = exec::make_executor("cpu", 1);
    for (int rank = 0; rank < mesh.ranks(); ++rank) run(*one, rank);
    return outputs;
  }
  comm::run_local(mesh.ranks(), [&](comm::Comm& world) {
    std::map<std::string, std::unique_ptr<comm::Comm>> own;
    std::map<std::string, comm::Comm*, std::less<>> groups;
    for (std::size_t a = 0; a < mesh.axes.size(); ++a) {
      const int axis = static_cast<int>(a);
      own[mesh.axes[a].name] =
          world.split(mesh.group(world.rank(), axis)[0], mesh.coordinates(world.rank())[a]);
      groups[mesh.axes[a].name] = own[mesh.axes[a].name].get();
    }
    run(*exec::make_executor("cpu", 1, groups), world.rank());
  });
  return outputs;
}

}  // namespace tessera::test
