// Pipelines: one program of all stages and micro-batches, in the order of a schedule. Every value
// gets a place on the axis pp: on one stage's ranks only (@i), or everywhere. What a later turn on
// another stage reads is transferred as soon as it is made; numbers of all stages (norms, loss) are
// summed up over pp. Convention: equations know their stage (cut) and their micro-batch
// (accumulate); the order of all turns is one that a single process could follow, and every rank
// follows its part of it, so nobody can wait for each other in a circle.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/check.h"
#include "base/index.h"
#include "transforms/transforms.h"
#include "transforms/uses.h"

namespace tessera::transforms {
namespace {

using namespace ir;

constexpr const char* axis_name = "pp";
const Place everywhere{};

bool updates(const Eqn& e) { return e.phase == Phase::update; }

// Equations that the stage before waits for, directly or not, make the backward turn; the others
// only make gradients of parameters.
std::vector<bool> waited_for(const Program& p, const Uses& uses) {
  std::vector<bool> out(p.eqns.size());
  for (std::size_t i = p.eqns.size(); i-- > 0;)
    for (Var v : p.eqns[i].out)
      for (const int reader : v == none ? std::vector<int>{} : uses.readers[at(v)]) {
        const Eqn& r = p.eqns[at(reader)];
        if (!updates(r))
          out[i] =
              out[i] || out[at(reader)] || r.stage != p.eqns[i].stage || r.phase == Phase::forward;
      }
  return out;
}

class Pipeliner {
 public:
  Pipeliner(const Program& program, const Schedule& schedule,
            const std::function<int(const Input&)>& stage_of)
      : from_(program),
        uses_(program),
        schedule_(schedule),
        homes_(homes(schedule)),
        out_(program) {
    out_.eqns.clear();
    out_.outputs.clear();
    settle_constants();
    if (schedule.ranks.size() == 1) return;
    out_.mesh.axes.insert(out_.mesh.axes.begin(),
                          {Axis::stage, axis_name, static_cast<int>(schedule.ranks.size()), {}});
    for (Value& value : out_.values)
      if (!value.type.at.empty()) value.type.at.insert(value.type.at.begin(), Place{});
    for (const Input& in : out_.inputs) place_input(in, stage_of(in));
  }

  Program run() {
    std::map<std::tuple<int, int, Work>, std::vector<std::size_t>> turns;
    const std::vector<bool> first_half = waited_for(from_, uses_);
    std::vector<std::size_t> update;
    for (std::size_t i = 0; i < from_.eqns.size(); ++i) {
      const Eqn& e = from_.eqns[i];
      const Work work = e.phase == Phase::forward   ? Work::forward
                        : splits_ && !first_half[i] ? Work::weight
                                                    : Work::backward;
      if (updates(e))
        update.push_back(i);
      else
        turns[{stages_[i], e.micro, work}].push_back(i);
    }
    for (const Timed& timed : simulate(schedule_, [&](const Turn& turn) {
           return turn.work == Work::backward && !splits_ ? 2.0 : 1.0;
         })) {
      const auto found = turns.find({timed.turn.stage, timed.turn.micro, timed.turn.work});
      if (found == turns.end())
        continue;  // a first stage's backward turn without its weights has nothing to do
      for (const std::size_t i : found->second) turn(i, timed.turn.work);
      turns.erase(found);
    }
    CHECK(turns.empty(), "the schedule has no turn for an equation of stage " +
                             std::to_string(std::get<0>(turns.begin()->first)) + ", micro-batch " +
                             std::to_string(std::get<1>(turns.begin()->first)));
    // Values that the last stage knows before the update are sent with the norm.
    for (const Output& o : from_.outputs)
      if (o.updates.empty() && !made_by_update(o.var)) whole(o.var);
    for (const std::size_t i : update) add_update(from_.eqns[i]);
    for (const Output& o : from_.outputs)
      out_.outputs.push_back({.name = o.name,
                              .var = o.updates.empty() ? whole(o.var) : o.var,
                              .updates = o.updates,
                              .role = o.role,
                              .of = o.of});
    return std::move(out_);
  }

 private:
  bool placed() const { return schedule_.ranks.size() > 1; }
  Place place(Var v) const { return placed() ? place_on(out_.type(v), 0) : everywhere; }
  void put(Var v, Place place) {
    if (placed()) set_place(out_.values[at(v)].type, out_.mesh, 0, place);
  }
  int home(int stage) const { return homes_[at(stage)]; }

  // Constants stand with their first reader.
  void settle_constants() {
    for (const Eqn& e : from_.eqns) stages_.push_back(e.stage);
    for (std::size_t i = from_.eqns.size(); i-- > 0;) {
      const Eqn& e = from_.eqns[i];
      if (!e.in.empty() || updates(e)) continue;
      for (Var v : e.out)
        for (const int reader : v == none ? std::vector<int>{} : uses_.readers[at(v)])
          if (!updates(from_.eqns[at(reader)])) {
            stages_[i] = stages_[at(reader)];
            break;
          }
    }
  }

  // Samples, labels and the like go to the stage that reads them; where several do, to all.
  void place_input(const Input& in, int stage) {
    if (in.kind == Input::scalar) return;
    std::set<int> ranks;
    if (stage >= 0) {
      ranks = {home(stage)};
    } else {
      for (const int reader : uses_.readers[at(in.var)])
        if (!updates(from_.eqns[at(reader)])) ranks.insert(home(stages_[at(reader)]));
      CHECK(in.kind == Input::batch || ranks.size() <= 1,
            "input " + in.name + " is read by several stages");
    }
    if (ranks.size() == 1) put(in.var, {Place::O, *ranks.begin()});
  }

  bool made_by_update(Var v) const {
    return uses_.made_at(v) >= 0 && updates(from_.eqns[at(uses_.made_at(v))]);
  }

  Var fresh(const std::string& name, Var like, Place where) {
    std::string unique = name;
    for (int n = 2; !names_.insert(unique).second; ++n) unique = name + "~" + std::to_string(n);
    out_.values.push_back({unique, out_.type(like)});
    const auto v = static_cast<Var>(out_.values.size()) - 1;
    put(v, where);
    return v;
  }
  Var emit(Op op, Attrs attrs, Var in, Place where, const std::string& suffix, const Eqn& near) {
    const Var v = fresh(out_.name_of(in) + "/" + suffix, in, where);
    out_.eqns.push_back({.op = op,
                         .attrs = std::move(attrs),
                         .in = {in},
                         .out = {v},
                         .scope = near.scope,
                         .phase = near.phase,
                         .stage = near.stage,
                         .micro = near.micro});
    return v;
  }

  void turn(std::size_t i, Work work) {
    Eqn e = from_.eqns[i];
    e.stage = stages_[i];
    if (work == Work::weight && e.phase == Phase::backward) e.phase = Phase::weight;
    const int rank = home(e.stage);
    for (Var& v : e.in)
      if (const Place have = place(v); have.kind == Place::O && have.dim != rank) {
        const auto copy = copies_.find({v, rank});
        CHECK(copy != copies_.end(), out_.name_of(v) + " was not sent to the stage that reads it");
        v = copy->second;
      }
    for (Var v : e.out)
      if (v != none) put(v, {Place::O, rank});
    out_.eqns.push_back(e);
    if (!placed()) return;
    for (Var v : e.out) {
      std::set<int> readers;
      for (const int reader : v == none ? std::vector<int>{} : uses_.readers[at(v)])
        if (!updates(from_.eqns[at(reader)])) readers.insert(home(stages_[at(reader)]));
      for (const int to : readers)
        if (to != rank)
          copies_[{v, to}] = emit(Op::transfer, Message{axis_name, rank, to}, v, {Place::O, to},
                                  "to" + std::to_string(to), e);
    }
  }

  // The update works on its own stage's buckets; numbers are added up over all stages before
  // anybody decides by them.
  void add_update(const Eqn& eqn) {
    Eqn e = eqn;
    int rank = -1;
    std::set<int> numbers;  // the ranks of scalars
    bool any_partial = false;
    for (Var v : e.in) {
      const Place have = place(v);
      any_partial |= have == partial;
      if (have.kind == Place::O && out_.type(v).rank() == 0) numbers.insert(have.dim);
      if (have.kind != Place::O || out_.type(v).rank() == 0) continue;
      CHECK(rank < 0 || rank == have.dim,
            "an update reads buckets of two stages, in `" + print(from_, eqn) + "`");
      rank = have.dim;
    }
    Place where = rank >= 0 ? Place{Place::O, rank} : everywhere;
    if (moves(e.attrs)) {  // over another axis, among the ranks of a stage
      where = place(e.in[0]);
    } else if (rank < 0 && !any_partial && numbers.size() == 1 && e.op == Op::add) {
      where = {Place::O, *numbers.begin()};
    } else if (rank < 0 && (any_partial || !numbers.empty()) && e.op == Op::add) {
      where = partial;
      for (Var& v : e.in) v = share(v, e);
    } else {
      for (Var& v : e.in)
        if (place(v) != where) v = whole(v);
    }
    for (Var v : e.out)
      if (v != none) put(v, where);
    out_.eqns.push_back(std::move(e));
  }

  Eqn near_update(Var v) const {
    Eqn near;
    near.phase = schedule_.trains() ? Phase::update : Phase::forward;
    near.scope = uses_.made_at(v) >= 0 ? from_.eqns[at(uses_.made_at(v))].scope : "";
    return near;
  }
  // As a sum over all stages that is still to be added up.
  Var share(Var v, const Eqn& near) {
    const Place have = place(v);
    if (have == partial) return v;
    if (const auto found = parts_.find(v); found != parts_.end()) return found->second;
    CHECK(have.kind == Place::O,
          out_.name_of(v) + " is on all stages already and would be added up once for each");
    return parts_[v] = emit(Op::widen, Collective{.axis = axis_name}, v, partial, "part", near);
  }
  Var whole(Var v) {
    if (place(v) == everywhere) return v;
    if (const auto found = wholes_.find(v); found != wholes_.end()) return found->second;
    const Eqn near = near_update(v);
    return wholes_[v] = emit(Op::all_reduce, Collective{.axis = axis_name}, share(v, near),
                             everywhere, axis_name, near);
  }

  const Program& from_;
  const Uses uses_;
  const Schedule& schedule_;
  const bool splits_ = schedule_.splits();
  const std::vector<int> homes_;
  Program out_;
  std::vector<int> stages_;  // per equation
  std::set<std::string> names_ = [this] {
    std::set<std::string> taken;
    for (const Value& value : from_.values) taken.insert(value.name);
    return taken;
  }();
  std::map<std::pair<Var, int>, Var> copies_;  // on another rank
  std::map<Var, Var> parts_, wholes_;
};

}  // namespace

Program pipeline(const Program& program, const Schedule& schedule,
                 const std::function<int(const Input&)>& stage_of) {
  return Pipeliner(program, schedule, stage_of).run();
}

}  // namespace tessera::transforms
