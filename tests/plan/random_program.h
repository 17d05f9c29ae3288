// Random straight-line programs that lean on what a plan decides: views, gathers, in-place results,
// donated inputs, absent results.
#pragma once

#include <algorithm>
#include <vector>

#include "base/index.h"
#include "base/rng.h"
#include "ir/builder.h"

namespace tessera::test {

class RandomProgram {
 public:
  RandomProgram(std::uint64_t seed, ir::DType real)
      : key_(Key{}.with("random program").with(seed)), real_(real) {}

  ir::Program write(int equations) {
    using namespace ir;
    for (int i = 0; i < 2 + pick(3); ++i)
      values_.push_back(
          b_.input(Input::batch, "x" + std::to_string(i), {real_, shapes_[at(pick(3))], {}}));
    for (int i = 0; i < 2; ++i)
      values_.push_back(
          b_.input(Input::param, "w" + std::to_string(i), {real_, shapes_[at(i)], {}}));
    flag_ = b_.input(Input::scalar, "flag", {real_, {}, {}});
    for (int i = 0; i < equations; ++i) step();
    update();
    // A third of the values leave; the rest lives and dies inside.
    int outputs = 0;
    for (const Var v : values_)
      if (!is_input(v) && (pick(3) == 0 || (v == values_.back() && outputs == 0)))
        b_.output("out" + std::to_string(outputs++),
                  float_of(lies_in_weights(v) ? b_.scale(v, 0.5) : v));
    return b_.take();
  }

 private:
  int pick(int limit) {
    return static_cast<int>(random_bits(key_, draw_++) % static_cast<std::uint64_t>(limit));
  }
  bool is_input(ir::Var v) const {
    for (const ir::Input& in : b_.program().inputs)
      if (in.var == v) return true;
    return false;
  }
  // Views of a parameter cannot leave: the update overwrites them (the plan refuses such programs).
  bool lies_in_weights(ir::Var v) const {
    const ir::Program& p = b_.program();
    for (std::size_t i = p.eqns.size(); i-- > 0;)
      if (ir::def(p.eqns[i].op).view && std::count(p.eqns[i].out.begin(), p.eqns[i].out.end(), v))
        v = p.eqns[i].in[0];
    return v == p.input("w0")->var || v == p.input("w1")->var;
  }
  // Recent values more often: chains are what shares storage.
  ir::Var value() {
    const int n = static_cast<int>(values_.size());
    return values_[at(pick(2) ? n - 1 - pick(std::min(n, 4)) : pick(n))];
  }
  ir::Var like(ir::Var x) {
    for (int tries = 0; tries < 8; ++tries)
      if (const ir::Var v = value(); b_.type(v) == b_.type(x)) return v;
    return x;
  }
  ir::Var float_of(ir::Var v) {
    return b_.type(v).dtype == ir::DType::bf16 ? b_.cast(v, real_) : v;
  }
  void keep(const std::vector<ir::Var>& vars) {
    for (const ir::Var v : vars)
      if (v != ir::none && b_.type(v).rank() > 0 && b_.type(v).elements() > 0 &&
          b_.type(v).elements() < 4096)
        values_.push_back(v);
  }
  std::vector<ir::Var> emit(ir::Op op, ir::Attrs attrs, std::vector<ir::Var> in) {
    const std::size_t results = ir::infer(op, attrs, b_.program().types(in)).size();
    std::vector<std::string> names(results, "v");
    if (results > 1)
      for (std::string& name : names)
        if (pick(4) == 0) name = "_";
    return b_.emit(op, std::move(attrs), std::move(in), names);
  }

  void step() {
    using namespace ir;
    const Var x = value();
    const Shape shape = b_.type(x).shape;
    const int rank = b_.type(x).rank();
    const std::string letters = std::string("abcdefgh").substr(0, at(rank));
    switch (pick(22)) {
      case 0:
        return keep(emit(Op::scale, Scale{0.75}, {x}));
      case 1:
        return keep(emit(Op::gelu, Gelu{pick(2) == 1}, {x}));
      case 2:
        return keep(emit(Op::gelu_grad, Gelu{}, {x, like(x)}));
      case 3:
        return keep(emit(Op::add, Sig{letters + "," + letters + "->" + letters}, {x, like(x)}));
      case 4:
        return keep(emit(Op::mul, Sig{letters + "," + letters + "->" + letters},
                         {emit(Op::softmax, None{}, {x})[0], like(x)}));
      case 5:
        return keep(emit(Op::softmax, None{}, {x}));
      case 6:
        return keep(emit(Op::log_softmax_grad, None{}, {x, like(x)}));
      case 7:
        return keep(emit(Op::mark, Mark{"here"}, {x}));
      case 8:
        return keep(emit(Op::reshape, Reshape{{b_.type(x).elements()}}, {x}));
      case 9:
        return keep(emit(Op::slice, Slice{0, shape[0] / 2, shape[0] - shape[0] / 2}, {x}));
      case 10:
        return keep(
            emit(Op::slice, Slice{rank - 1, 0, std::max<std::int64_t>(1, shape.back() - 1)}, {x}));
      case 11: {  // made here, so that they can be made in place
        const Var a = emit(Op::scale, Scale{0.5}, {x})[0],
                  c = pick(2) ? like(x) : emit(Op::gelu, Gelu{}, {like(x)})[0];
        if (pick(3) == 0) values_.push_back(a);
        return keep(emit(Op::stack, None{}, {a, c}));
      }
      case 12:
        return shape[0] <= 8 ? keep(emit(Op::unstack, None{}, {x})) : void();
      case 13: {
        const Var y = emit(Op::scale, Scale{1.25}, {value()})[0],
                  z = float_like(emit(Op::gelu, Gelu{}, {x})[0], y);
        const std::int64_t gap = pick(20), first = b_.type(y).elements();
        return keep(emit(
            Op::pack,
            Pack{{pick(3), 3 + first + gap}, 3 + first + gap + b_.type(z).elements() + pick(5)},
            {y, z}));
      }
      case 14:
        return rank == 1 && shape[0] >= 4
                   ? keep(emit(Op::view, View{1, {(shape[0] - 2) / 2, 2}}, {x}))
                   : void();
      case 15:
        return rank > 1 ? keep(emit(Op::sum, Sum{letters + "->" + letters.substr(1), {}}, {x}))
                        : void();
      case 16:
        return keep(emit(Op::select, None{}, {flag_of(x), x, like(x)}));
      case 17: {
        const Var gain = b_.constant(1.5, statistics(x), {shape.back()});
        return keep(emit(Op::layer_norm, Norm{}, {x, gain, gain}));
      }
      case 18:
        return rank > 1 ? keep(emit(Op::contract,
                                    Contract{letters + ",z" + letters.substr(1) + "->" +
                                                 letters.substr(0, 1) + "z",
                                             {},
                                             {}},
                                    {x, like(x)}))
                        : void();
      case 19:
        return keep(emit(Op::concat, Dim{0}, {x, like(x)}));
      case 20:
        return keep(emit(Op::pad, Pad{rank - 1, pick(2), pick(3)}, {x}));
      case 21:
        return real_ == DType::f32
                   ? keep({b_.cast(x, b_.type(x).dtype == DType::f32 ? DType::bf16 : DType::f32)})
                   : void();
    }
  }
  ir::DType statistics(ir::Var x) const { return ir::statistics_of(b_.type(x).dtype); }
  ir::Var flag_of(ir::Var x) {
    return b_.type(x).dtype == ir::DType::bf16 ? b_.cast(flag_, ir::DType::bf16) : flag_;
  }
  ir::Var float_like(ir::Var v, ir::Var y) {
    return b_.type(v).dtype == b_.type(y).dtype ? v : b_.cast(v, b_.type(y).dtype);
  }

  // Both parameters are updated: one by an optimizer, one by whatever of its type is at hand.
  void update() {
    using namespace ir;
    for (int i = 0; i < 2; ++i) {
      const Input& in = *b_.program().input("w" + std::to_string(i));
      const Var w = in.var;
      const Type type = b_.type(w);
      const Var g = like(w);
      const Var now = pick(2)
                          ? emit(Op::select, None{}, {flag_, emit(Op::gelu, Gelu{}, {g})[0], w})[0]
                          : emit(Op::add, Sig{b_.same(w, 2)}, {w, g})[0];
      if (pick(3))
        b_.output("w" + std::to_string(i), now, "w" + std::to_string(i));
      else
        values_.push_back(now);
    }
  }

  const Key key_;
  const ir::DType real_;
  std::uint64_t draw_ = 0;
  ir::Builder b_;
  std::vector<ir::Var> values_;
  ir::Var flag_ = ir::none;
  const std::vector<ir::Shape> shapes_ = {{4, 6}, {3, 2, 5}, {24}};
};

}  // namespace tessera::test
