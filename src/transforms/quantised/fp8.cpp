// Products of the blocks in eight bits, after mixed precision and fusion: forward e4m3 by e4m3,
// gradients e5m2 by e4m3, results and everything around them as they were. A factor is quantised
// where it is made, in the order of dims in which a product sums along its last ones, and in the
// turned one where another product wants that; its scale follows from the largest numbers of the
// last 16 steps ("delayed scaling"), which are state of the program. An activation that only such
// products read is quantised by the product that makes it; another one, or its gradient, is made
// while it is quantised. The first and the last layer, norms and attention stay as they are, and so
// does a product whose extents are no multiples of 16.
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/check.h"
#include "ir/builder.h"
#include "ir/signature.h"
#include "transforms/quantised/fp8_reads.h"
#include "transforms/transforms.h"
#include "transforms/uses.h"

namespace tessera::transforms {
namespace {

using namespace ir;

constexpr std::int64_t history_steps = 16;

// Tensors whose scales follow one rule. The start serves the first step alone: activations behind
// a norm stay below 28, weights below 1.7, and gradients between 2^-40 and 2^-8.
struct ScaleKind {
  const char* state;
  DType to;
  double start;
};
enum { of_activations, of_weights, of_gradients };
constexpr std::array<ScaleKind, 3> scale_kinds{{{"amax.activations", DType::f8e4m3, 0x1p-4},
                                                {"amax.weights", DType::f8e4m3, 0x1p-8},
                                                {"amax.gradients", DType::f8e5m2, 0x1p-24}}};

struct EightFactor {
  int kind = of_activations;
  std::int64_t row = 0;  // of its kind's history
  std::string letters;   // as the first product calls its dims
  bool straight = false;
  std::size_t turn = 0;       // dims that go to the end in the turned order; 0: nobody wants it
  int reads = 0;              // by products in eight bits
  const Eqn* act = nullptr;   // the activation, or the product with one, that makes it on the way
  const Eqn* norm = nullptr;  // the norm that quantises its result itself
  const Eqn* sum = nullptr;   // its sum over rows, made on the way
  Var source = none;          // what is read instead of the factor; none: the factor itself
  std::array<Var, 3> made{};  // in the new program: straight, turned, scale

  // An op that quantises its own result turns it as a matrix of its last dim.
  bool turns_columns() const { return turn == 0 || turn + 1 == letters.size(); }
};

// A product in eight bits without its results.
struct EightProduct {
  Contract attrs;
  std::vector<Var> in;
};

class Eights {
 public:
  Eights(const Program& program, bool train) : uses_(program), train_(train), r_(program, false) {
    find_products();
    find_activations();
    find_sums();
  }
  bool empty() const { return factors_.empty(); }
  Program run();

 private:
  void find_products();
  void find_activations();
  void find_sums();
  int kind_of(const Eqn& product, Var v) const;
  bool can_read(const FactorRead& read) const;
  void add(const FactorRead& read);
  void read_history();
  void read_scale(const Eqn& maker, Var v);
  void normalise(const Eqn& e, Var v);
  void quantise(const Eqn& maker, Var v);
  EightProduct product_of(const Eqn& e) const;
  void multiply(const Eqn& e);
  void multiply_into_bytes(const Eqn& e);
  void copy(const Eqn& e);
  void write_history(Program& out);

  const Uses uses_;
  const bool train_;
  Rewriter r_;
  std::map<Var, EightFactor> factors_;
  std::set<int> products_, gone_;
  std::array<std::int64_t, 3> rows_{};
  std::array<Var, 3> history_{}, scales_{};
  std::array<std::vector<Var>, 3> largest_;  // by row
};

int Eights::kind_of(const Eqn& product, Var v) const {
  const Program& p = uses_.program;
  const Eqn* cast = uses_.made_by(v, Op::cast);
  if (cast && p.type(cast->in[0]).dtype == DType::f32) {
    Var from = cast->in[0];
    while (const Eqn* view = uses_.made_by(from, Op::view)) from = view->in[0];
    for (const Input& in : p.inputs)
      if (in.var == from && in.kind == Input::param) return of_weights;
  }
  const bool backward = product.phase == Phase::backward || product.phase == Phase::weight;
  const Phase made = p.eqns[static_cast<std::size_t>(uses_.maker[at(v)])].phase;
  return backward && (made == Phase::backward || made == Phase::weight) ? of_gradients
                                                                        : of_activations;
}

bool Eights::can_read(const FactorRead& read) const {
  const auto known = factors_.find(read.factor);
  return known == factors_.end() || read.turn == 0 || known->second.turn == 0 ||
         known->second.turn == read.turn;
}

void Eights::find_products() {
  const Program& p = uses_.program;
  for (const Eqn& e : p.eqns) {
    const std::optional<FactorReads> reads = reads_in_blocks(p, e);
    if (!reads || uses_.made_at(e.in[0]) < 0 || uses_.made_at(e.in[1]) < 0) continue;
    for (const FactorRead& read : *reads)  // a row each, also where this batch leaves it as it is
      if (const auto [at, fresh] = factors_.try_emplace(read.factor); fresh) {
        at->second.kind = kind_of(e, read.factor);
        at->second.row = rows_[static_cast<std::size_t>(at->second.kind)]++;
        at->second.letters = read.letters;
      }
    if (!in_granules(p, e, *reads) || !can_read((*reads)[0]) || !can_read((*reads)[1])) continue;
    products_.insert(uses_.index(e));
    for (const FactorRead& read : *reads) add(read);
  }
}

void Eights::add(const FactorRead& read) {
  EightFactor& f = factors_.at(read.factor);
  ++f.reads;
  if (read.turn == 0)
    f.straight = true;
  else
    f.turn = read.turn;
  if (f.kind == of_weights) f.source = uses_.made_by(read.factor, Op::cast)->in[0];
}

// An activation that nobody else reads needs no tensor of its own.
void Eights::find_activations() {
  for (auto& [v, f] : factors_) {
    if (f.reads == 0 || uses_.count[at(v)] != f.reads) continue;
    const int made = uses_.made_at(v);
    const Eqn& e = uses_.program.eqns[static_cast<std::size_t>(made)];
    if ((e.op == Op::layer_norm && e.out[0] == v) || (e.op == Op::add_norm && e.out[1] == v))
      if (f.turns_columns() && uses_.program.type(e.in[0]).dtype == DType::f32) f.norm = &e;
    if (e.out[0] != v) continue;
    if (e.op == Op::gelu || (e.op == Op::gelu_grad && f.turns_columns())) {
      f.act = &e;
      f.source = e.in[0];
      gone_.insert(made);
    } else if (e.op == Op::contract && !std::get<Contract>(e.attrs).act.empty()) {
      f.act = &e;
      f.source = e.out[1];
    }
  }
}

// The gradient of a bias: a sum over the dims that go to the end in the turned order.
void Eights::find_sums() {
  for (auto& [v, f] : factors_) {
    if (f.reads == 0 || f.kind != of_gradients || f.turn == 0 || f.act) continue;
    for (const int reader : uses_.readers[at(v)]) {
      const Eqn& e = uses_.program.eqns[static_cast<std::size_t>(reader)];
      if (e.op != Op::sum || std::get<Sum>(e.attrs).out != DType::f32) continue;
      const std::string in = letters_in(std::get<Sum>(e.attrs).sig, 0);
      if (letters_out(std::get<Sum>(e.attrs).sig) != in.substr(f.turn)) continue;
      f.sum = &e;
      gone_.insert(reader);
      break;
    }
  }
}

void Eights::read_history() {
  // Where nothing changes them they are as fixed as weights.
  const Input::Kind kept = train_ ? Input::state : Input::param;
  for (std::size_t k = 0; k < scale_kinds.size(); ++k) {
    if (rows_[k] == 0) continue;
    largest_[k].assign(static_cast<std::size_t>(rows_[k]), none);
    history_[k] =
        r_.to.input(kept, scale_kinds[k].state, {DType::f32, {rows_[k], history_steps}, {}});
  }
  r_.to.set_scope("fp8");
  for (std::size_t k = 0; k < scale_kinds.size(); ++k)
    if (rows_[k] > 0)
      scales_[k] =
          r_.to.emit1(Op::delayed_scale, DelayedScale{scale_kinds[k].to, scale_kinds[k].start},
                      {history_[k]}, std::string(scale_kinds[k].state).substr(5));
}

void Eights::read_scale(const Eqn& maker, Var v) {
  EightFactor& f = factors_.at(v);
  r_.enter(maker);
  const std::string name = uses_.program.name_of(v) + ".scale";
  const Var all = scales_[static_cast<std::size_t>(f.kind)];
  const Var row = r_.to.emit_named(Op::slice, Slice{0, f.row, 1}, {all}, {name + "/row"})[0];
  const Var one = r_.to.emit_named(Op::slice, Slice{1, 0, 1}, {row}, {name + "/1"})[0];
  f.made[2] = r_.to.emit_named(Op::reshape, Reshape{{}}, {one}, {name})[0];
}

void Eights::normalise(const Eqn& e, Var v) {
  EightFactor& f = factors_.at(v);
  const std::string name = uses_.program.name_of(v);
  read_scale(e, v);
  std::vector<Var> in = r_(e.in);
  in.push_back(f.made[2]);
  Norm attrs = std::get<Norm>(e.attrs);
  attrs.to = scale_kinds[static_cast<std::size_t>(f.kind)].to;
  std::vector<std::string> names;
  for (const Var out : e.out)
    names.push_back(out == none ? "_" : out == v ? name + ".f8" : uses_.program.name_of(out));
  if (!f.straight) names[e.op == Op::add_norm ? 1 : 0] = "_";
  names.push_back(f.turn > 0 ? name + ".f8t" : "_");
  names.push_back(train_ ? name + ".amax" : "_");
  const std::vector<Var> out = r_.to.emit_named(e.op, attrs, in, names);
  for (std::size_t i = 0; i < e.out.size(); ++i)
    if (e.out[i] == v)
      f.made[0] = out[i];
    else if (e.out[i] != none)
      r_.set(e.out[i], out[i]);
  f.made[1] = out[e.out.size()];
  if (train_)
    largest_[static_cast<std::size_t>(f.kind)][static_cast<std::size_t>(f.row)] = out.back();
}

void Eights::quantise(const Eqn& maker, Var v) {
  EightFactor& f = factors_.at(v);
  const auto kind = static_cast<std::size_t>(f.kind);
  const std::string name = uses_.program.name_of(v);
  read_scale(maker, v);
  std::vector<Var> in = {r_(f.source == none ? v : f.source), f.made[2]};
  Quantize attrs{{}, scale_kinds[kind].to, {}};
  Var sums = none;
  if (f.act && f.act->op == Op::contract) attrs.act = std::get<Contract>(f.act->attrs).act;
  if (f.act && std::holds_alternative<Gelu>(f.act->attrs)) {
    const Gelu& gelu = std::get<Gelu>(f.act->attrs);
    attrs.act = gelu.tanh ? "gelu_tanh" : "gelu";
    if (f.act->op == Op::gelu_grad) {
      attrs.act += "_grad";
      in.push_back(r_(f.act->in[1]));
      if (gelu.sums && f.act->out.size() > 1) sums = f.act->out[1];
    }
  }
  if (f.sum) sums = f.sum->out[0];
  const std::string turned = f.letters.substr(f.turn) + f.letters.substr(0, f.turn);
  std::vector<std::string> names;
  attrs.sig = f.letters + "," + (in.size() > 2 ? "," + f.letters : "") + "->";
  const auto result = [&](const std::string& letters, const std::string& as) {
    attrs.sig += (names.empty() ? "" : ",") + letters;
    names.push_back(as);
  };
  if (f.straight) result(f.letters, name + ".f8");
  if (f.turn > 0) result(turned, name + ".f8t");
  if (train_) result("", name + ".amax");
  if (sums != none) {
    const std::size_t rows = f.act ? f.letters.size() - 1 : f.turn;
    result(f.letters.substr(rows), uses_.program.name_of(sums));
  }
  const std::vector<Var> out = r_.to.emit_named(Op::quantize, attrs, in, names);
  std::size_t next = 0;
  if (f.straight) f.made[0] = out[next++];
  if (f.turn > 0) f.made[1] = out[next++];
  if (train_) largest_[kind][static_cast<std::size_t>(f.row)] = out[next++];
  if (sums != none) r_.set(sums, out[next]);
}

// A product without the activation that is left to whoever quantises its result.
Eqn without_act(const Eqn& e) {
  Eqn out = e;
  std::get<Contract>(out.attrs).act.clear();
  out.out = {e.out[1] == none ? e.out[0] : e.out[1]};
  return out;
}

EightProduct Eights::product_of(const Eqn& e) const {
  const Contract& a = std::get<Contract>(e.attrs);
  const auto reads = *reads_in_blocks(uses_.program, e);
  std::vector<Var> in, scales;
  Contract attrs{.sig = {}, .act = a.act, .out = {}, .scales = 2};
  for (const FactorRead& read : reads) {
    const EightFactor& f = factors_.at(read.factor);
    in.push_back(f.made[read.turn == 0 ? 0 : 1]);
    scales.push_back(f.made[2]);
    attrs.sig += read.letters.substr(read.turn) + read.letters.substr(0, read.turn) + ",";
  }
  in.insert(in.end(), scales.begin(), scales.end());
  attrs.sig += ",";
  for (std::size_t i = 2; i < e.in.size(); ++i) {
    in.push_back(r_(e.in[i]));
    attrs.sig += "," + letters_in(a.sig, static_cast<int>(i));
  }
  attrs.sig += "->" + letters_out(a.sig);
  attrs.out = uses_.program.type(e.out[0] == none ? e.out[1] : e.out[0]).dtype;
  return {attrs, in};
}

void Eights::multiply(const Eqn& e) {
  const auto [attrs, in] = product_of(e);
  r_.copy_with(e, attrs, in);
}

void Eights::multiply_into_bytes(const Eqn& e) {
  const Var v = e.out[0], before = e.out[1];
  EightFactor& f = factors_.at(v);
  const auto kind = static_cast<std::size_t>(f.kind);
  const std::string name = uses_.program.name_of(v);
  read_scale(e, v);
  auto [attrs, in] = product_of(e);
  attrs.sig.insert(attrs.sig.find("->"), ",");
  attrs.to = scale_kinds[kind].to;
  in.push_back(f.made[2]);
  const std::vector<std::string> names = {
      f.straight ? name + ".f8" : "_", before == none ? "_" : uses_.program.name_of(before),
      f.turn > 0 ? name + ".f8t" : "_", train_ ? name + ".amax" : "_"};
  const std::vector<Var> out = r_.to.emit_named(Op::contract, attrs, in, names);
  f.made[0] = out[0];
  f.made[1] = out[2];
  if (before != none) r_.set(before, out[1]);
  if (train_) largest_[kind][static_cast<std::size_t>(f.row)] = out[3];
}

void Eights::copy(const Eqn& e) {
  const int index = uses_.index(e);
  const auto first = e.out.empty() ? factors_.end() : factors_.find(e.out[0]);
  const bool apart = first != factors_.end() && first->second.act == &e && e.op == Op::contract;
  const bool product = products_.contains(index);
  for (const Var v : e.out)
    if (const auto found = factors_.find(v); found != factors_.end() && found->second.norm == &e)
      return normalise(e, v);
  if (apart && product && first->second.turns_columns() && !factors_.contains(e.out[1]))
    return multiply_into_bytes(e);
  if (apart) {
    const Eqn alone = without_act(e);
    product ? multiply(alone) : (void)r_.copy_with(alone, alone.attrs, r_(e.in));
  } else if (product) {
    multiply(e);
  } else if (!gone_.contains(index)) {
    r_.copy(e);
  }
  for (const Var v : e.out)
    if (const auto found = factors_.find(v); found != factors_.end() && found->second.reads > 0)
      quantise(e, v);
}

void Eights::write_history(Program& out) {
  for (std::size_t k = 0; k < scale_kinds.size(); ++k)
    if (rows_[k] > 0)
      out.outputs.push_back({scale_kinds[k].state, history_[k], scale_kinds[k].state});
}

Program Eights::run() {
  for (const Input& in : uses_.program.inputs) r_.copy_input(in);
  read_history();
  for (const Eqn& e : uses_.program.eqns) copy(e);
  if (!train_) return r_.finish();
  r_.to.set_scope("fp8");
  r_.to.set_phase(Phase::update);
  for (std::size_t k = 0; k < scale_kinds.size(); ++k) {
    if (rows_[k] == 0) continue;
    for (Var& v : largest_[k])  // a product that stayed as it was has measured nothing
      if (v == none) v = r_.to.constant(0, DType::f32);
    const Var all = r_.to.emit1(Op::stack, None{}, largest_[k], "amax");
    history_[k] = r_.to.emit1(Op::amax_history, None{}, {history_[k], all}, "history");
  }
  Program out = r_.finish();
  write_history(out);
  return out;
}

}  // namespace

Program fp8(const Program& program, bool train) {
  CHECK(program.mesh.ranks() == 1, "fp8 is for one rank");
  Eights eights(program, train);
  if (eights.empty())
    throw Error(ErrorKind::usage,
                "precision.dtype = fp8 is for the products in blocks of a transformer, and this "
                "model has none",
                "", "choose bf16");
  return eights.run();
}

}  // namespace tessera::transforms
