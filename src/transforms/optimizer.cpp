// Buckets and the optimizer. Parameters, gradients and state of one decay group are flat buckets;
// tensors are views of them, so that the update is one equation per bucket and tensor fusion costs
// no copies.
#include <algorithm>
#include <functional>
#include <map>
#include <tuple>

#include "base/check.h"
#include "ir/builder.h"
#include "ir/signature.h"
#include "transforms/transforms.h"
#include "transforms/updates.h"

namespace tessera::transforms {

using namespace ir;

namespace {

// The names of a bucket's dims, which strategies look up.
std::vector<std::string> dims_of(const Bucket& bucket, bool weights) {
  const std::string flat = weights && bucket.resident ? "resident" : "bucket";
  return bucket.parts > 1 ? std::vector<std::string>{"part", flat} : std::vector<std::string>{flat};
}

}  // namespace

std::string buffer_name(Role role, const Bucket& bucket) {
  const char* prefix = role == Role::weights    ? "weights."
                       : role == Role::average  ? "ema."
                       : role == Role::residual ? "residual."
                       : role == Role::basis    ? "powersgd."
                                                : nullptr;
  CHECK(prefix, "a buffer that has no name of its own: " + std::string(name(role)));
  return prefix + bucket.name;
}

std::vector<Bucket> plan_buckets(const Program& program,
                                 const std::function<Group(const std::string&)>& group_of, int tp) {
  constexpr std::int64_t align = 16;  // elements: 64 bytes of f32
  using Kind = std::tuple<bool, double, bool, int, int,
                          bool>;                  // decay, rate, whole, -stage, -block, resident
  std::map<Kind, Bucket, std::greater<>> groups;  // decayed ones first, large rates first
  std::map<bool, std::map<double, int, std::greater<>>> rates;
  for (const Input& in : program.inputs) {
    if (in.kind != Input::param) continue;
    const Group group = group_of(in.name);
    const Shape& shape = program.type(in.var).shape;
    const auto shared = std::find_first_of(in.dims.begin(), in.dims.end(), tensor_dims().begin(),
                                           tensor_dims().end());
    const int dim =
        tp > 1 && shared != in.dims.end() ? static_cast<int>(shared - in.dims.begin()) : -1;
    Bucket& bucket =
        groups[{group.decay, group.lr_scale, dim < 0, -group.stage, -group.block, group.resident}];
    bucket.parts = dim >= 0 ? tp : 1;
    bucket.decay = group.decay;
    bucket.lr_scale = group.lr_scale;
    bucket.resident = group.resident;
    bucket.stage = group.stage;
    bucket.entries.push_back({.param = in.name, .offset = bucket.size, .shape = shape, .dim = dim});
    bucket.size += (elements(shape) / bucket.parts + align - 1) / align * align;
    if (group.lr_scale != 1.0) rates[group.decay].emplace(group.lr_scale, 0);
  }
  for (auto& [decay, list] : rates)
    for (int n = 0; auto& [rate, number] : list) number = n++;
  std::vector<Bucket> out;
  for (auto& [kind, bucket] : groups) {
    const int block = -std::get<4>(kind);
    bucket.name = bucket.decay ? "decay" : "no_decay";
    if (bucket.lr_scale != 1.0)
      bucket.name += "." + std::to_string(rates[bucket.decay][bucket.lr_scale]);
    if (bucket.parts > 1) bucket.name += ".tp";
    if (bucket.stage >= 0) bucket.name += ".stage" + std::to_string(bucket.stage);
    if (block >= 0) bucket.name += ".block" + std::to_string(block);
    out.push_back(std::move(bucket));
  }
  return out;
}

Program buckets(const Program& program, const std::vector<Bucket>& list, Role set) {
  Rewriter r(program, false);
  for (const Bucket& bucket : list) {
    const Input* first = program.input(bucket.entries.at(0).param);
    CHECK(first, "bucket " + bucket.name + " holds a parameter that the program lacks");
    const Var flat = r.to.input(Input::param, buffer_name(set, bucket),
                                {program.type(first->var).dtype, bucket.shape(), {}},
                                dims_of(bucket, set == Role::weights), set, bucket.name);
    r.to.set_stage(std::max(bucket.stage, 0));
    for (const Bucket::Entry& entry : bucket.entries) {
      const Input* in = program.input(entry.param);
      CHECK(in, "bucket " + bucket.name + " holds " + entry.param + ", which the program lacks");
      r.set(in->var, r.to.emit_named(Op::view,
                                     View{.offset = entry.offset,
                                          .shape = entry.shape,
                                          .parts = bucket.parts,
                                          .dim = entry.dim},
                                     {flat}, {entry.param})[0]);
    }
  }
  for (const Input& in : program.inputs) {
    if (in.kind != Input::param)
      r.copy_input(in);
    else
      CHECK(r(in.var) != none, "parameter " + in.name + " is in no bucket");
  }
  for (const Eqn& eqn : program.eqns) r.copy(eqn);
  return r.finish();
}

namespace {

using UpdateRule = std::vector<Var> (*)(Builder&, const Update&);
UpdateRule rule_of(const std::string& name) {
#define X(row, ...) \
  if (name == #row) return updates::row;
  TESSERA_OPTIMIZERS(X)
#undef X
  CHECK(false, "there is no optimizer " + name);
  return nullptr;
}

// Outputs of the backward pass that the update reads.
struct Backward {
  std::map<std::string, std::vector<Var>> grads;  // one, or one per micro-batch
  std::vector<Output> buffers;  // running statistics: a skipped step leaves them alone too
  Var loss = none;
};

// Takes them from the program; its other outputs stay outputs.
Backward take_outputs(Builder& b, const Program& program) {
  Backward out;
  b.program().outputs.clear();
  for (const Output& o : program.outputs) {
    if (o.role == Role::gradient)
      out.grads[o.of].push_back(o.var);
    else if (!o.updates.empty())
      out.buffers.push_back(o);
    else
      b.output(o, o.var);
    if (o.name == "loss") out.loss = o.var;
  }
  CHECK(out.loss != none, "the optimizer needs the output loss");
  return out;
}

void add_to(Builder& b, Var& sum, Var more, const std::string& name) {
  sum = sum == none ? more : b.add(sum, more, name);
}

// The gradient of a whole bucket, micro-batch by micro-batch; divided by the loss scale where
// `unscale` is given. `alarms`: where given, it also counts values that are not finite.
Var flat_gradient(Builder& b, const Bucket& bucket, const Backward& backward, Var unscale,
                  Var* alarms) {
  Pack pack{.offsets = {}, .size = bucket.size, .parts = bucket.parts, .dims = {}};
  std::size_t micro = 1;
  for (const Bucket::Entry& entry : bucket.entries) {
    CHECK(backward.grads.contains(entry.param), "parameter " + entry.param + " has no gradient");
    pack.offsets.push_back(entry.offset);
    if (bucket.parts > 1) pack.dims.push_back(entry.dim);
    micro = backward.grads.at(entry.param).size();
  }
  Var total = none;
  for (std::size_t m = 0; m < micro; ++m) {
    std::vector<Var> parts;
    for (const Bucket::Entry& entry : bucket.entries)
      parts.push_back(backward.grads.at(entry.param)[m]);
    Var g = b.emit1(Op::pack, pack, parts, "grad." + bucket.name);
    if (unscale != none) {
      const std::string dims = alphabet(b.type(g).rank());
      g = b.mul(dims + ",->" + dims, g, unscale, "unscaled." + bucket.name);
    }
    if (alarms)
      add_to(b, *alarms, b.emit1(Op::alarm, None{}, {g}, "alarm." + bucket.name), "alarm");
    // Placed like the optimizer before anything else reads it.
    add_to(b, total, b.mark("grad", g, "pinned." + bucket.name), "total." + bucket.name);
  }
  return total;
}

// Values that the update of a bucket reads beside its weights and state.
struct UpdateInputs {
  Var gradient, factor, lr, step, ok;  // factor: of the clipped gradient; none: not clipped
};

// New weights and state of a bucket. A step that is not ok keeps the old ones.
void update_bucket(Builder& b, const Optimizer& spec, const Bucket& bucket,
                   const UpdateInputs& in) {
  const UpdateRule rule = rule_of(spec.name);
  const Builder::Scope scope = b.scope(bucket.name);
  const Input* weights = b.program().input(Role::weights, bucket.name);
  CHECK(weights, "the optimizer runs after buckets");
  std::vector<Var> kept = {weights->var};
  std::vector<std::string> names = {weights->name};
  const Type type = b.type(weights->var);
  const auto keep = [&](Role role, const std::string& name) {
    names.push_back(name);
    kept.push_back(b.input(Input::state, name, type, dims_of(bucket, false), role, bucket.name));
  };
  for (const OptimizerRow::State& state : find_optimizer(spec.name)->states)
    keep(state.role, std::string(state.name) + "." + bucket.name);
  Var g = in.gradient;
  if (in.factor != none)
    g = b.mul(alphabet(type.rank()) + ",->" + alphabet(type.rank()), g, in.factor, "clipped");
  const Var rate = bucket.lr_scale == 1.0 ? in.lr : b.scale(in.lr, bucket.lr_scale, "lr");
  std::vector<Var> now = rule(
      b, {.spec = spec, .bucket = bucket, .kept = kept, .grad = g, .lr = rate, .step = in.step});
  CHECK(now.size() == kept.size(), spec.name + " gives the weights and every state anew");
  if (spec.ema > 0) {
    keep(Role::average, buffer_name(Role::average, bucket));
    now.push_back(b.emit1(Op::ema, Ema{spec.ema}, {kept.back(), now[0]}, "ema"));
  }
  for (std::size_t k = 0; k < now.size(); ++k)
    b.output(names[k], b.emit1(Op::select, None{}, {in.ok, now[k], kept[k]}, "kept." + names[k]),
             names[k]);
}

}  // namespace

Program optimizer(const Program& program, const Optimizer& spec, const std::vector<Bucket>& list) {
  Builder b(program);
  const Backward backward = take_outputs(b, program);
  const Var loss = backward.loss;
  b.set_phase(Phase::update);
  b.set_scope("optimizer");
  const DType real = b.type(loss).dtype;
  const Var lr = b.input(Input::scalar, "lr", {real, {}, {}}, {}, Role::rate),
            step = b.input(Input::scalar, "step", {DType::i64, {}, {}}, {}, Role::step);
  const bool scaled = program.input(Role::loss_scale, "") != nullptr;
  const Var unscale =
      scaled ? b.input(Input::scalar, "unscale", {real, {}, {}}, {}, Role::unscale) : none;

  const bool early = spec.early && spec.clip == 0;
  std::vector<Var> flat;
  Var squares = none, alarms = none;
  const auto look_at_norm = [&](std::size_t i) {
    add_to(b, squares, b.emit1(Op::sumsq, None{}, {flat[i]}, "sumsq." + list[i].name), "sumsq");
  };
  for (const Bucket& bucket : list) {
    flat.push_back(flat_gradient(b, bucket, backward, unscale, early ? &alarms : nullptr));
    if (!early) look_at_norm(flat.size() - 1);
  }
  std::vector<Var> norm;
  if (!early) norm = b.emit(Op::clip, Clip{spec.clip}, {squares}, {"grad_norm", "factor"});
  const Var ok = b.emit1(Op::finite, None{}, {loss, early ? alarms : norm[0]}, "ok");
  if (!early) b.output("grad_norm", norm[0]);
  b.output("ok", ok);
  if (scaled) b.output("sound", b.emit1(Op::finite, None{}, {loss}, "sound"));
  for (const Output& o : backward.buffers)
    b.output(o.name,
             b.emit1(Op::select, None{}, {ok, o.var, b.program().input(o.updates)->var},
                     "kept." + o.name),
             o.updates);

  for (std::size_t n = 0; n < list.size(); ++n) {
    const std::size_t i =
        early ? list.size() - 1 - n : n;  // late layers come first out of the backward pass
    if (early) look_at_norm(i);
    update_bucket(b, spec, list[i],
                  {.gradient = flat[i],
                   .factor = spec.clip > 0 ? norm[1] : none,
                   .lr = lr,
                   .step = step,
                   .ok = ok});
  }
  if (early) b.output("grad_norm", b.emit(Op::clip, Clip{}, {squares}, {"grad_norm", "factor"})[0]);
  return b.take();
}

}  // namespace tessera::transforms
