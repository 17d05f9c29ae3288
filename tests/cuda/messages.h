// Programs of one rank with messages to itself: what one card can try of NCCL.
#pragma once

#include <string>

#include "ir/builder.h"

namespace tessera::test {

// Each message between one rank and itself.
inline ir::Program messages(ir::DType dtype, const ir::Shape& shape) {
  ir::Builder b;
  b.program().mesh.axes.push_back({ir::Axis::data, "dp", 1});
  const ir::Mesh mesh = b.program().mesh;
  const auto type = [&](ir::Place place) {
    ir::Type out{dtype, shape, {}};
    ir::set_place(out, mesh, 0, place);
    return out;
  };
  int next = 0;
  const auto move = [&](ir::Op op, ir::Place have, ir::Place want, int dim, int from = -1) {
    const std::string number = std::to_string(next++);
    const ir::Var x = b.input(ir::Input::batch, "x" + number, type(have));
    const ir::Var y = b.emit1(op, ir::Collective{"dp", dim, from, {}, {}, 0}, {x});
    b.program().values[static_cast<std::size_t>(y)].type = type(want);
    b.output("y" + number, y);
  };
  const ir::Place first{ir::Place::S, 0}, second{ir::Place::S, 1};
  move(ir::Op::all_reduce, ir::partial, ir::whole, -1);
  move(ir::Op::all_gather, first, ir::whole, 0);
  move(ir::Op::all_gather, second, ir::whole, 1);
  move(ir::Op::reduce_scatter, ir::partial, first, 0);
  move(ir::Op::reduce_scatter, ir::partial, second, 1);
  move(ir::Op::all_to_all, first, second, 1, 0);
  return b.take();
}

// Three sums, each of them under way while the next is made.
inline ir::Program sums_under_way() {
  ir::Builder b;
  b.program().mesh.axes.push_back({ir::Axis::data, "dp", 1});
  ir::Type part{ir::DType::f32, {64, 8}, {}}, sum = part;
  ir::set_place(part, b.program().mesh, 0, ir::partial);
  ir::set_place(sum, b.program().mesh, 0, ir::whole);
  for (const std::string number : {"0", "1", "2"}) {
    const ir::Var x = b.input(ir::Input::batch, "x" + number, part);
    const ir::Var y =
        b.emit1(ir::Op::all_reduce, ir::Collective{"dp", -1, -1, {}, {}, 0}, {b.scale(x, 2)});
    b.program().values[static_cast<std::size_t>(y)].type = sum;
    b.output("y" + number, b.scale(y, 0.5));
  }
  return b.take();
}

}  // namespace tessera::test
