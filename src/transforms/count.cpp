// Values that change from step to step become state of the program. The number of applied updates
// is kept in a buffer; the rate and the key of random numbers follow from it, and the loss scale is
// kept beside it. So a step can be started before anybody knows whether the one before it was
// applied.
#include <algorithm>

#include "base/check.h"
#include "base/index.h"
#include "ir/builder.h"
#include "transforms/transforms.h"

namespace tessera::transforms {
namespace {

using namespace ir;

// Replaces the inputs lr, step, rng, loss_scale and unscale, and says where their values are first
// wanted.
class Counter {
 public:
  Counter(const Program& program, const LossScale& rule) : r_(program, false), rule_(rule) {
    for (const Input& in : program.inputs) {
      if (Var* const counted = counted_as(in.role)) {
        CHECK(in.kind == Input::scalar, "input " + in.name + " is not a number of the step");
        *counted = in.var;
      } else {
        r_.copy_input(in);
      }
    }
    CHECK(lr_ != none, "only a training step is counted");
    applied_ = r_.to.input(Input::state, "step", {DType::i64, {}, {}}, {}, Role::step);
    rates_ = r_.to.input(Input::scalar, "rates", {program.type(lr_).dtype, {rates_ahead}, {}});
    first_ = r_.to.input(Input::scalar, "first_rate", {DType::i64, {}, {}});
    if (scale_ != none) {
      scale_state_ =
          r_.to.input(Input::state, "loss_scale", program.type(scale_), {}, Role::loss_scale);
      good_ = r_.to.input(Input::state, "good_steps", {DType::i64, {}, {}});
      overflows_ = r_.to.input(Input::state, "overflows", {DType::i64, {}, {}});
    }
    if (rng_ == none) return;
    seed_ = r_.to.input(Input::scalar, "seed", {DType::i64, {}, {}});
    position_ = r_.to.input(Input::scalar, "position", {DType::i64, {}, {}});
  }

  Program run() {
    const Output *ok = nullptr, *sound = nullptr;
    for (const Output& o : r_.from.outputs) {
      if (o.name == "ok") ok = &o;
      if (o.name == "sound") sound = &o;
    }
    CHECK(ok, "a step that is counted says whether it was applied");
    CHECK(sound || scale_ == none, "a step with a loss scale says whether its loss was finite");
    for (const Eqn& eqn : r_.from.eqns) {
      make_what_it_reads(eqn);
      r_.copy(eqn);
    }
    enter();
    const Var next =
        r_.to.emit_named(Op::advance, None{}, {applied_, r_(ok->var)}, {"step/next"})[0];
    std::vector<Output> more = {{"step", next, "step"}};
    if (scale_ != none) {
      make_scale();
      const std::vector<Var> now = r_.to.emit_named(
          Op::rescale, rule_, {scale_state_, good_, overflows_, r_(ok->var), r_(sound->var)},
          {"loss_scale/next", "good_steps/next", "overflows/next", "overflow"});
      more.push_back({"loss_scale", now[0], "loss_scale"});
      more.push_back({"good_steps", now[1], "good_steps"});
      more.push_back({"overflows", now[2], "overflows"});
      more.push_back({"overflow", now[3], ""});
      more.push_back({"scale", r_(scale_), ""});
    }
    Program out = r_.finish();
    for (Output& o : more) out.outputs.push_back(std::move(o));
    return out;
  }

 private:
  Var* counted_as(Role role) {
    switch (role) {
      case Role::rate:
        return &lr_;
      case Role::step:
        return &step_;
      case Role::key:
        return &rng_;
      case Role::loss_scale:
        return &scale_;
      case Role::unscale:
        return &unscale_;
      default:
        return nullptr;
    }
  }
  // The scale in use, and its inverse: one equation.
  void make_scale() {
    if (r_(scale_) != none) return;
    const std::vector<Var> now =
        r_.to.emit_named(Op::loss_scale, rule_, {scale_state_}, {"loss_scale/now", "unscale"});
    r_.set(scale_, now[0]);
    if (unscale_ != none) r_.set(unscale_, now[1]);
  }
  void enter() {
    Eqn update;
    update.phase = Phase::update;
    update.scope = "optimizer";
    r_.enter(update);
  }
  Var number() {
    if (number_ == none)
      number_ = r_.to.emit_named(Op::advance, None{}, {applied_}, {"step/number"})[0];
    return number_;
  }
  void make_what_it_reads(const Eqn& eqn) {
    for (const Var v : eqn.in) {
      if (v == none || r_(v) != none) continue;
      if (v != lr_ && v != step_ && v != rng_ && v != scale_ && v != unscale_) continue;
      enter();
      if (v == scale_ || v == unscale_) make_scale();
      if (v == step_) r_.set(v, number());
      if (v == lr_)
        r_.set(v, r_.to.emit_named(Op::lookup, None{}, {rates_, number(), first_}, {"lr"})[0]);
      if (v == rng_)
        r_.set(v, r_.to.emit_named(Op::stack, None{}, {seed_, number(), position_}, {"rng"})[0]);
    }
  }

  Rewriter r_;
  const LossScale rule_;
  // Values of the given program.
  Var lr_ = none, step_ = none, rng_ = none, scale_ = none, unscale_ = none;
  Var scale_state_ = none, good_ = none, overflows_ = none;
  Var applied_ = none, rates_ = none, first_ = none, seed_ = none, position_ = none, number_ = none;
};

}  // namespace

Program count(const Program& program, const LossScale& rule) {
  return Counter(program, rule).run();
}

}  // namespace tessera::transforms
