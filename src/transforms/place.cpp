// Placement: the strategy has said where inputs live and what marks ask for; this walk decides,
// equation by equation and axis by axis, how the operands must lie, and writes the collectives that
// bring them there. One table holds the whole theory of communication:
//   R->S own   R->P once   S->P widen (nothing is sent)   S->R all_gather   P->R all_reduce   P->S
//   reduce_scatter   S->S' all_to_all
// Rules: on a data axis activations stay, on a model axis parameters stay, otherwise the fewest
// words move; P + P stays P.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/check.h"
#include "base/index.h"
#include "ir/builder.h"
#include "ir/placement.h"
#include "ir/signature.h"
#include "transforms/transforms.h"

namespace tessera::transforms {
namespace {

using namespace ir;

constexpr double never = 1e30;  // dearer than any traffic

struct Choice {
  double cost = 0;
  std::vector<Place> in, out;
};

class Placer {
 public:
  explicit Placer(const Program& program)
      : r_(program), axes_(static_cast<int>(program.mesh.axes.size())) {
    for (const Input& in : program.inputs) {
      is_param_.resize(at(r_(in.var)) + 1);
      is_param_[at(r_(in.var))] = in.kind == Input::param;
      if (in.home != Home::device) away_.insert(r_(in.var));
    }
  }

  Program run() {
    for (const Eqn& eqn : r_.from.eqns) {
      enter(eqn);
      try {
        eqn.op == Op::mark ? mark(eqn) : waits(eqn) ? remember(eqn) : place(eqn);
      } catch (Error& error) {
        throw error.in("in `" + print(r_.from, eqn) + "`");
      }
    }
    Program& p = r_.to.program();
    for (const Output& o : r_.from.outputs) {
      const Var v = r_(o.var), home = o.updates.empty() ? none : p.input(o.updates)->var;
      std::vector<Place> want(static_cast<std::size_t>(axes_));
      for (int a = 0; a < axes_; ++a)
        want[at(a)] = home == none ? whole : place_on(p.type(home), a);
      r_.to.output(o, bring(v, want));
    }
    return r_.to.take();
  }

 private:
  const Type& type(Var v) const { return r_.to.type(v); }
  int size(int axis) const { return r_.from.mesh.axes[at(axis)].size; }
  double words(Var v) const { return static_cast<double>(type(v).elements()); }
  bool is_param(Var v) const { return at(v) < is_param_.size() && is_param_[at(v)]; }

  // A copy made for the forward pass does not wait for the backward pass, nor one micro-batch's for
  // the next, nor any for the update, which may stand in between: `turn` tells them apart.
  void enter(const Eqn& eqn) {
    r_.enter(eqn);
    const bool forward = eqn.phase == Phase::forward;
    updates_ = eqn.phase == Phase::update;
    if (forward != forward_ || eqn.micro != micro_) {
      ++segment_;
      forward_ = forward;
      micro_ = eqn.micro;
    }
  }
  int turn() const { return 2 * segment_ + (updates_ ? 1 : 0); }

  double move_cost(Var v, int axis, Place want) const {
    const Place have = place_on(type(v), axis);
    if (have == want || copies_.contains(key(v, axis, want))) return 0;
    const double n = size(axis), all = words(v), others = all * (n - 1) / n;
    if (have.kind == Place::R || (have.kind == Place::S && want.kind == Place::P)) return 0;
    if (have.kind == Place::P) return want.kind == Place::S ? others : 2 * others;
    const Axis::Kind kind = r_.from.mesh.axes[at(axis)].kind;
    const bool stays = kind == (is_param(v) ? Axis::model : Axis::data) && !statistics_.contains(v);
    return (stays ? never : 0) + (want.kind == Place::R ? others : others / n);
  }

  // Elements a result carries; padding inside a bucket is not counted.
  double words_made(const Eqn& eqn, const std::vector<Var>& in, std::size_t result) const {
    if (eqn.op != Op::pack) return static_cast<double>(r_.from.type(eqn.out[result]).elements());
    double all = 0;
    for (Var v : in) all += words(v);
    return all;
  }

  // Every way in which the equation can work on this axis, priced; the cheapest is taken, the first
  // of equals.
  Choice choose(const Eqn& eqn, const std::vector<Var>& in, int axis) const {
    const OpDef& row = def(eqn.op);
    std::vector<Choice> ways;
    const auto price = [&](std::vector<Place> wants, std::vector<Place> gives) {
      Choice way{0, std::move(wants), std::move(gives)};
      for (std::size_t i = 0; i < in.size(); ++i) way.cost += move_cost(in[i], axis, way.in[i]);
      // Somebody will have to add it up: at best it ends up cut.
      for (std::size_t i = 0; i < eqn.out.size(); ++i)
        if (eqn.out[i] != none && way.out[i] == partial)
          way.cost += words_made(eqn, in, i) * (size(axis) - 1) / size(axis);
      ways.push_back(std::move(way));
    };
    const std::vector<Place> all_whole(in.size()), partials(eqn.out.size(), partial);
    std::vector<Place> have;
    bool any_partial = false, all_partial = true, any_cut = false;
    for (Var v : in) {
      have.push_back(place_on(type(v), axis));
      any_partial |= have.back() == partial;
      all_partial &= have.back() == partial;
      any_cut |= have.back().kind == Place::S;
    }
    if (!any_partial && !any_cut) return {0, all_whole, std::vector<Place>(eqn.out.size())};

    // The class token cut off a sharded token dim: whoever owns it contributes.
    if (const Slice* slice = std::get_if<Slice>(&eqn.attrs);
        slice && have[0] == Place{Place::S, slice->dim})
      return {0, have, partials};
    const Letters letters =
        letters_of(eqn.op, eqn.attrs, r_.from.types(eqn.in), r_.from.types(eqn.out));
    if (any_cut) {
      std::string tried;
      for (std::size_t i = 0; i < in.size(); ++i) {
        if (have[i].kind != Place::S) continue;
        const char letter = letters.in[i][at(have[i].dim)];
        if ((letters.pinned + tried).find(letter) != std::string::npos) continue;
        tried += letter;
        std::vector<Place> wants, gives;
        for (const std::string& operand : letters.in) wants.push_back(place_of(operand, letter));
        for (std::size_t r = 0; r < letters.out.size(); ++r)
          gives.push_back(result_place(eqn.op, letters, r, letter));
        if (!sums_alone(eqn) && std::find(gives.begin(), gives.end(), partial) != gives.end())
          continue;
        price(std::move(wants), std::move(gives));
      }
    }
    if (row.adds && all_partial) return {0, have, partials};
    if (row.adds && adds_up(eqn, in, axis)) price(std::vector<Place>(in.size(), partial), partials);
    for (const int operand : row.linear) {
      if (at(operand) >= in.size() || have[at(operand)] != partial || !sums_alone(eqn)) continue;
      bool others_whole = true;
      for (std::size_t i = 0; i < in.size(); ++i)
        others_whole &= i == at(operand) || have[i] == whole;
      std::vector<Place> wants(in.size());
      wants[at(operand)] = partial;
      if (others_whole) price(std::move(wants), partials);
    }
    price(all_whole, std::vector<Place>(eqn.out.size()));
    return *std::min_element(ways.begin(), ways.end(),
                             [](const Choice& a, const Choice& b) { return a.cost < b.cost; });
  }

  // Partial sums are added, packed and joined as they are. Of two large summands both must be
  // partial: a residual stream stays whole.
  bool adds_up(const Eqn& eqn, const std::vector<Var>& in, int axis) const {
    double largest = -1;
    for (Var v : in)
      if (place_on(type(v), axis) == partial) largest = std::max(largest, words(v));
    if (largest < 0) return false;
    if (eqn.op != Op::add || largest == 1) return true;
    return std::all_of(in.begin(), in.end(), [&](Var v) {
      return place_on(type(v), axis) == partial || words(v) < largest;
    });
  }

  // Weights that are cut (ZeRO 3) or rest away are brought where they are used and again where they
  // are used again: equations that follow from them alone wait until somebody reads them.
  bool waits(const Eqn& eqn) const {
    bool found = false;
    for (Var v : eqn.in) {
      if (v != none && waiting_.contains(v)) {
        found = true;
        continue;
      }
      if (!is_param(r_(v))) return false;
      const Type& bucket = type(r_(v));
      found |= eqn.op == Op::view && away_.contains(r_(v));
      for (int axis = 0; axis < axes_ && eqn.op == Op::view; ++axis)
        found |= place_on(bucket, axis) == Place{Place::S, bucket.rank() - 1};
    }
    return found;
  }
  void remember(const Eqn& eqn) {
    for (Var v : eqn.out)
      if (v != none) waiting_[v] = &eqn;
  }
  Var resolve(Var old, const Eqn& reader) {
    const auto found = old == none ? waiting_.end() : waiting_.find(old);
    if (found == waiting_.end()) return r_(old);
    if (const auto made = made_.find({old, turn()}); made != made_.end()) return made->second;
    Eqn now = *found->second;
    now.scope = reader.scope;
    now.phase = reader.phase;
    now.stage = reader.stage;
    now.micro = reader.micro;
    place(now);
    for (Var v : now.out)
      if (v != none) made_[{v, turn()}] = r_(v);
    return r_(old);
  }

  // A value that rests away is copied to the device before anything but the update reads it.
  Var here(Var v, const Eqn& reader) {
    if (!away_.contains(v) || reader.phase == Phase::update) return v;
    const auto [found, fresh] = here_.try_emplace({v, turn()}, none);
    if (!fresh) return found->second;
    const Var now = r_.to.emit_named(Op::copy, None{}, {v}, {r_.to.name_of(v) + "/here"})[0];
    std::vector<Place> places;
    for (int a = 0; a < axes_; ++a) places.push_back(place_on(type(v), a));
    put(now, places, is_param(v));
    return found->second = now;
  }

  void place(const Eqn& eqn) {
    std::vector<Var> in;
    for (Var v : eqn.in) in.push_back(here(resolve(v, eqn), eqn));
    std::vector<std::vector<Place>> wants(in.size(), std::vector<Place>(at(axes_)));
    std::vector<std::vector<Place>> gives(eqn.out.size(), std::vector<Place>(at(axes_)));
    for (int axis = 0; axis < axes_; ++axis) {
      const Choice choice = choose(eqn, in, axis);
      CHECK(choice.cost < never, "no placement on " + r_.from.mesh.axes[at(axis)].name +
                                     " that leaves data where it must stay");
      for (std::size_t i = 0; i < in.size(); ++i) wants[i][at(axis)] = choice.in[i];
      for (std::size_t i = 0; i < eqn.out.size(); ++i) gives[i][at(axis)] = choice.out[i];
    }
    const bool from_params =
        !in.empty() && std::all_of(in.begin(), in.end(), [&](Var v) { return is_param(v); });
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = bring(in[i], wants[i]);
    r_.enter(eqn);
    const std::vector<Var> out = r_.copy_on(eqn, in);
    if (eqn.op == Op::moments) statistics_.insert(out.begin(), out.end());
    if (eqn.op == Op::constant || eqn.op == Op::broadcast)
      makers_[out[0]] = r_.to.program().eqns.size() - 1;
    for (std::size_t i = 0; i < out.size(); ++i)
      if (out[i] != none) put(out[i], gives[i], from_params);
  }

  // A mark that asks for a place gets it; one that does not keeps what it gets, but never a partial
  // sum.
  void mark(const Eqn& eqn) {
    Var x = resolve(eqn.in[0], eqn);
    const std::string& label = std::get<Mark>(eqn.attrs).label;
    if (r_.from.type(eqn.out[0]).at.empty() && (label == "tokens" || label == "heads"))
      return r_.set(eqn.out[0], x);  // nobody asked
    std::vector<Place> want(at(axes_));
    for (int axis = 0; axis < axes_; ++axis) {
      const Place asked = place_on(r_.from.type(eqn.out[0]), axis), have = place_on(type(x), axis);
      want[at(axis)] = asked != whole ? asked : have == partial ? whole : have;
    }
    const bool from_params = is_param(x);
    x = bring(x, want);
    r_.enter(eqn);
    put(r_.copy_on(eqn, {x})[0], want, from_params);
  }

  void put(Var v, const std::vector<Place>& places, bool from_params) {
    Type& t = r_.to.program().values[at(v)].type;
    t.at.clear();
    for (int axis = 0; axis < axes_; ++axis) set_place(t, r_.from.mesh, axis, places[at(axis)]);
    if (is_param_.size() <= at(v)) is_param_.resize(at(v) + 1);
    is_param_[at(v)] = from_params;
  }

  // First what makes the value smaller, outer cuts before inner ones; then sums, over neighbours
  // first; then what makes it larger, inner cuts first.
  Var bring(Var v, const std::vector<Place>& want) {
    for (int axis = axes_; axis-- > 0;)
      if (want[at(axis)].kind == Place::S) v = move(v, axis, want[at(axis)]);
    for (int axis = axes_; axis-- > 0;)
      if (want[at(axis)] == whole && place_on(type(v), axis) == partial) v = move(v, axis, whole);
    for (int axis = 0; axis < axes_; ++axis) v = move(v, axis, want[at(axis)]);
    return v;
  }

  using Key = std::tuple<Var, int, int, int, int>;
  Key key(Var v, int axis, Place want) const {
    // Gathered copies are made again where they are needed again: keeping them is what sharding
    // avoids.
    const bool gathers = place_on(type(v), axis).kind == Place::S && want.kind == Place::R;
    return {v, axis, want.kind, want.dim, gathers ? turn() : -1};
  }

  Var move(Var v, int axis, Place want) {
    const Place have = place_on(type(v), axis);
    if (have == want) return v;
    const Key k = key(v, axis, want);
    if (const auto copy = copies_.find(k); copy != copies_.end()) return copy->second;
    check_nesting(v, axis, have);
    check_nesting(v, axis, want);
    const bool from_params = is_param(v);
    Type t = type(v);
    set_place(t, r_.from.mesh, axis, want);
    const Var now =
        have == whole && want.kind == Place::S ? part_of(v, axis, want) : emit(v, axis, have, want);
    std::vector<Place> places;
    for (int a = 0; a < axes_; ++a) places.push_back(place_on(t, a));
    put(now, places, from_params);
    return copies_[k] = now;
  }

  // A dim that several axes cut: the later axis cuts first (ir/type.h), so only the innermost cut
  // may be made or undone.
  void check_nesting(Var v, int axis, Place place) const {
    if (place.kind != Place::S) return;
    for (int inner = 0; inner < axis; ++inner)
      CHECK(place_on(type(v), inner) != place,
            r_.to.name_of(v) + " is cut along one dim by two axes in the wrong order");
  }

  // Constants and repeated values are made in parts at once; anything else is cut.
  Var part_of(Var v, int axis, Place want) {
    const auto made = makers_.find(v);
    if (made != makers_.end()) {
      const Eqn eqn = r_.to.program().eqns[made->second];
      const Broadcast* b = std::get_if<Broadcast>(&eqn.attrs);
      if (!b || letters_in(b->sig, 0).find(letters_out(b->sig)[at(want.dim)]) == std::string::npos)
        return make_again(eqn.op, eqn.attrs, eqn.in, r_.to.name_of(v));
    }
    return emit(v, axis, whole, want);
  }
  Var make_again(Op op, const Attrs& attrs, const std::vector<Var>& in, const std::string& name) {
    const Var v = r_.to.emit_named(op, attrs, in, {name})[0];
    makers_[v] = r_.to.program().eqns.size() - 1;
    return v;
  }

  Var emit(Var v, int axis, Place have, Place want) {
    const Op op = have == whole     ? (want == partial ? Op::once : Op::own)
                  : have == partial ? (want == whole ? Op::all_reduce : Op::reduce_scatter)
                  : want == whole   ? Op::all_gather
                  : want == partial ? Op::widen
                                    : Op::all_to_all;
    Collective a{.axis = r_.from.mesh.axes[at(axis)].name,
                 .dim = want.kind == Place::S ? want.dim : have.dim,
                 .from = -1,
                 .parts = {},
                 .from_parts = {},
                 .index = 0};
    if (op == Op::all_to_all) a.from = have.dim;
    return r_.to.emit_named(op, a, {v}, {r_.to.name_of(v) + "/" + a.axis})[0];
  }

  Rewriter r_;
  int axes_;
  std::vector<bool> is_param_;  // follows from parameters alone
  std::set<Var> statistics_;    // of one rank's samples (local batch norm): no activations, a few
                                // numbers that all ranks may have
  std::map<Key, Var> copies_;
  std::map<Var, std::size_t> makers_;  // constants and broadcasts: the equation that makes them
  std::map<Var, const Eqn*>
      waiting_;  // of the program that is read: what follows from cut weights alone
  std::map<std::pair<Var, int>, Var> made_;  // of those: what was made, by turn
  std::set<Var> away_;                       // inputs that rest away from the device
  std::map<std::pair<Var, int>, Var> here_;  // of those: what was copied, by turn
  int segment_ = 0;
  bool forward_ = true, updates_ = false;
  int micro_ = 0;
};

}  // namespace

Program place(const Program& program) { return simplify(Placer(program).run()); }

}  // namespace tessera::transforms
