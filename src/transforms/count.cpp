// What changes from step to step becomes state of the program. The number of applied updates is
// kept in a buffer; the rate and the key of random numbers follow from it. So a step can be started
// before anybody knows whether the one before it was applied.
#include <algorithm>

#include "base/check.h"
#include "base/index.h"
#include "ir/builder.h"
#include "transforms/transforms.h"

namespace tessera::transforms {
namespace {

using namespace ir;

// Replaces the inputs lr, step and rng, and says where their values are first wanted.
class Counter {
 public:
  explicit Counter(const Program& program) : r_(program, false) {
    for (const Input& in : program.inputs) {
      if (in.role == Role::rate || in.role == Role::step || in.role == Role::key) {
        CHECK(in.kind == Input::scalar, "input " + in.name + " is not a number of the step");
        (in.role == Role::rate ? lr_ : in.role == Role::step ? step_ : rng_) = in.var;
      } else {
        r_.copy_input(in);
      }
    }
    CHECK(lr_ != none, "only a training step is counted");
    applied_ = r_.to.input(Input::state, "step", {DType::i64, {}, {}}, {}, Role::step);
    rates_ = r_.to.input(Input::scalar, "rates", {program.type(lr_).dtype, {rates_ahead}, {}});
    first_ = r_.to.input(Input::scalar, "first_rate", {DType::i64, {}, {}});
    if (rng_ == none) return;
    seed_ = r_.to.input(Input::scalar, "seed", {DType::i64, {}, {}});
    position_ = r_.to.input(Input::scalar, "position", {DType::i64, {}, {}});
  }

  Program run() {
    const Output* ok = nullptr;
    for (const Output& o : r_.from.outputs)
      if (o.name == "ok") ok = &o;
    CHECK(ok, "a step that is counted says whether it was applied");
    for (const Eqn& eqn : r_.from.eqns) {
      make_what_it_reads(eqn);
      r_.copy(eqn);
    }
    enter();
    const Var next =
        r_.to.emit_named(Op::advance, None{}, {applied_, r_(ok->var)}, {"step/next"})[0];
    Program out = r_.finish();
    out.outputs.push_back({"step", next, "step"});
    return out;
  }

 private:
  void enter() {
    Eqn update;
    update.phase = Phase::update, update.scope = "optimizer";
    r_.enter(update);
  }
  Var number() {
    if (number_ == none)
      number_ = r_.to.emit_named(Op::advance, None{}, {applied_}, {"step/number"})[0];
    return number_;
  }
  void make_what_it_reads(const Eqn& eqn) {
    for (const Var v : eqn.in) {
      if (v == none || r_(v) != none || (v != lr_ && v != step_ && v != rng_)) continue;
      enter();
      if (v == step_) r_.set(v, number());
      if (v == lr_)
        r_.set(v, r_.to.emit_named(Op::lookup, None{}, {rates_, number(), first_}, {"lr"})[0]);
      if (v == rng_)
        r_.set(v, r_.to.emit_named(Op::stack, None{}, {seed_, number(), position_}, {"rng"})[0]);
    }
  }

  Rewriter r_;
  Var lr_ = none, step_ = none, rng_ = none;  // of the given program
  Var applied_ = none, rates_ = none, first_ = none, seed_ = none, position_ = none, number_ = none;
};

}  // namespace

Program count(const Program& program) { return Counter(program).run(); }

}  // namespace tessera::transforms
