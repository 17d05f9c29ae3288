// Decides which values share storage. Explicit aliasing only: views, donated inputs, results in
// place of a dying operand, operands gathered in place.
#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "base/index.h"
#include "plan/plan.h"

namespace tessera::plan {
namespace {

using namespace ir;

struct Assigner {
  const Program& p;
  const Target& target;
  const std::vector<std::string>& kept;  // per Var, or empty
  const int end;
  int last_backward = 0;  // equation
  Assignment out;
  std::vector<int>
      needed;  // last equation that reads the value, itself or through views and gathers
  std::vector<std::pair<Var, std::int64_t>>
      home;                // gathered operands: the result they are produced in, and where
  std::vector<int> group;  // values that share bytes: index into `group_needed`
  std::vector<int> group_needed;
  const std::vector<int>& deadlines;  // per equation
  std::vector<int> held,
      group_held;  // until which equation a message under way reads or writes the value, its bytes
  std::map<Var, std::string> donated;  // result -> the input it updates

  Assigner(const Program& program, const std::vector<int>& deadline, const Target& plan_target,
           const std::vector<std::string>& buffers)
      : p(program),
        target(plan_target),
        kept(buffers),
        end(static_cast<int>(program.eqns.size())),
        needed(p.values.size(), -1),
        home(p.values.size(), {none, 0}),
        group(p.values.size(), -1),
        deadlines(deadline),
        held(p.values.size(), -1) {
    out.values.resize(p.values.size());
    for (int i = 0; i < end; ++i)
      if (const Phase phase = p.eqns[static_cast<std::size_t>(i)].phase;
          phase == Phase::backward || phase == Phase::weight)
        last_backward = i;
    for (const Output& o : p.outputs) {
      needed[at(o.var)] = end;
      if (!o.updates.empty()) donated[o.var] = o.updates;
    }
  }

  bool stays(Var v) const { return at(v) < kept.size() && !kept[at(v)].empty(); }

  std::int64_t view_offset(const Eqn& e, int result) const {
    const OpDef& row = def(e.op);
    return row.view ? row.view(e.attrs, p.types(e.in), result) : -1;
  }

  // Backwards: how long each value is needed, and which operands of a gather can be produced in
  // place.
  void find_lifetimes() {
    std::vector<bool> plain(p.values.size(),
                            false);  // made by an equation that writes fresh storage
    std::vector<bool> viewed(p.values.size(),
                             false);  // has views, which may be read when it is not
    for (const Eqn& e : p.eqns)
      for (std::size_t i = 0; i < e.out.size(); ++i) {
        if (e.out[i] == none) continue;
        const bool is_view = view_offset(e, static_cast<int>(i)) >= 0;
        plain[at(e.out[i])] = !is_view && !gathers(e.op, e.attrs) && !stays(e.out[i]);
        if (is_view) viewed[at(e.in[0])] = true;
      }
    std::set<Var> taken;  // results whose place an operand already has
    for (int i = end; i-- > 0;) {
      const Eqn& e = p.eqns[static_cast<std::size_t>(i)];
      if (gathers(e.op, e.attrs) && e.out[0] != none) {
        std::int64_t offset = 0;
        for (std::size_t k = 0; k < e.in.size(); ++k) {
          const Var v = e.in[k];
          const std::int64_t size = size_of(p.type(v).dtype);
          if (const Pack* pack = std::get_if<Pack>(&e.attrs)) offset = pack->offsets[k] * size;
          const bool once = std::count(e.in.begin(), e.in.end(), v) == 1;
          if (once && plain[at(v)] && home[at(v)].first == none && needed[at(v)] < end) {
            home[at(v)] = {e.out[0], offset};
            needed[at(v)] = std::max(needed[at(v)], needed[at(e.out[0])]);
          }
          offset += p.type(v).bytes();
        }
      }
      // An operand that a gathered result may overwrite is produced at its place too: accumulators
      // live inside the bucket.
      for (const OpDef::Alias& alias : def(e.op).may_alias) {
        const Var v = static_cast<std::size_t>(alias.out) < e.out.size()
                          ? e.out[static_cast<std::size_t>(alias.out)]
                          : none;
        const Var x = static_cast<std::size_t>(alias.in) < e.in.size()
                          ? e.in[static_cast<std::size_t>(alias.in)]
                          : none;
        if (v == none || x == none || home[at(v)].first == none || taken.contains(v)) continue;
        const bool once = std::count(e.in.begin(), e.in.end(), x) == 1,
                   dies = needed[at(x)] < i && !viewed[at(x)];
        if (!once || !dies || !plain[at(x)] || p.type(x).bytes() != p.type(v).bytes()) continue;
        home[at(x)] = home[at(v)];
        needed[at(x)] = needed[at(v)];
        taken.insert(v);
      }
      int through_views = -1;
      for (std::size_t r = 0; r < e.out.size(); ++r)
        if (e.out[r] != none && view_offset(e, static_cast<int>(r)) >= 0)
          through_views = std::max(through_views, needed[at(e.out[r])]);
      for (std::size_t k = 0; k < e.in.size(); ++k)
        if (e.in[k] != none)
          needed[at(e.in[k])] = std::max({needed[at(e.in[k])], i, k == 0 ? through_views : -1});
    }
  }

  void join(Var v, int g) {
    group[at(v)] = g;
    group_needed[static_cast<std::size_t>(g)] =
        std::max(group_needed[static_cast<std::size_t>(g)], needed[at(v)]);
  }
  int new_group() {
    group_needed.push_back(-1);
    group_held.push_back(-1);
    return static_cast<int>(group_needed.size()) - 1;
  }

  void open(Var v, int when, std::int64_t bytes) {
    if (stays(v)) {
      out.persistent.push_back(
          {.name = kept[at(v)], .kind = Input::param, .bytes = target.aligned(bytes)});
      out.values[at(v)] = {static_cast<int>(out.persistent.size()), -1, 0};
      return join(v, new_group());
    }
    out.intervals.push_back({target.aligned(bytes), when, when});
    out.owner.push_back(v);
    out.values[at(v)] = {0, static_cast<int>(out.intervals.size()) - 1, 0};
    join(v, new_group());
  }

  void share(Var v, Var with, std::int64_t offset) {
    out.values[at(v)] = out.values[at(with)];
    out.values[at(v)].offset += offset;
    join(v, group[at(with)]);
  }

  void place_inputs() {
    for (const Input& in : p.inputs) {
      if (in.kind == Input::param || in.kind == Input::state) {
        out.persistent.push_back({.name = in.name,
                                  .kind = in.kind,
                                  .bytes = target.aligned(p.type(in.var).bytes()),
                                  .shared = false,
                                  .home = in.home});
        out.values[at(in.var)] = {static_cast<int>(out.persistent.size()), -1, 0};
        join(in.var, new_group());
      } else {
        out.values[at(in.var)] = {Slot::feed, -1, out.feed_bytes};
        out.feed_bytes += target.aligned(p.type(in.var).bytes());
        join(in.var, new_group());
      }
    }
  }

  // Whether the bytes are free to be written by equation i: nothing needs them later, and no
  // message is under way with them.
  bool free_at(Var v, int i) const {
    const auto g = static_cast<std::size_t>(group[at(v)]);
    return group_needed[g] <= i && group_held[g] <= i;
  }
  // Everything a message touches stays as it is until it has arrived.
  void hold(const Eqn& e, int i) {
    const int until = deadlines[static_cast<std::size_t>(i)];
    if (until == i) return;
    for (const auto* list : {&e.in, &e.out})
      for (Var v : *list) {
        if (v == none || group[at(v)] < 0) continue;
        held[at(v)] = std::max(held[at(v)], until);
        int& bytes = group_held[static_cast<std::size_t>(group[at(v)])];
        bytes = std::max(bytes, until);
      }
  }

  // The pairs of a result and an operand that the kernel of this equation takes in one place.
  std::vector<OpDef::Alias> aliases(const Eqn& e) const {
    std::vector<OpDef::Alias> pairs = def(e.op).may_alias;
    if (target.overwrites)
      for (const OpDef::Alias& alias : def(e.op).some_alias)
        if (target.overwrites(e.op, e.attrs, p.types(e.in), alias)) pairs.push_back(alias);
    return pairs;
  }

  // A result may take a dying operand's bytes: its own donated input, or an arena value that
  // nothing needs any more.
  bool in_place(const Eqn& e, int i, std::size_t r) {
    const Var v = e.out[r];
    for (const OpDef::Alias& alias : aliases(e)) {
      if (static_cast<std::size_t>(alias.out) != r ||
          static_cast<std::size_t>(alias.in) >= e.in.size())
        continue;
      const Var x = e.in[static_cast<std::size_t>(alias.in)];
      if (x == none || p.type(x).bytes() != p.type(v).bytes() ||
          std::count(e.in.begin(), e.in.end(), x) != 1)
        continue;
      if (!free_at(x, i)) continue;
      const Storage& s = out.values[at(x)];
      const auto d = donated.find(v);
      const bool own_input =
          s.base > 0 && d != donated.end() &&
          out.persistent[static_cast<std::size_t>(s.base - 1)].name == d->second && s.offset == 0;
      const bool free_arena = s.base == 0 && d == donated.end();
      // Another operand in the same group may not be overwritten while it is read.
      const auto sharing = std::count_if(e.in.begin(), e.in.end(), [&](Var o) {
        return o != none && group[at(o)] == group[at(x)];
      });
      const bool taken =
          std::any_of(e.out.begin(), e.out.begin() + static_cast<std::ptrdiff_t>(r),
                      [&](Var o) { return o != none && group[at(o)] == group[at(x)]; });
      if ((!own_input && !free_arena) || sharing != 1 || taken) continue;
      share(v, x, 0);
      return true;
    }
    return false;
  }

  // A rank's part of a sum stays inside what it was cut from, once the backward pass is over:
  // before that the rest must be given back, for what is opened next.
  bool in_part(const Eqn& e, int i) {
    if (e.op != Op::reduce_scatter || i < last_backward || donated.contains(e.out[0])) return false;
    const Var x = e.in[0];
    const std::int64_t offset = own_part(std::get<Collective>(e.attrs), p.type(x));
    if (offset < 0 || out.values[at(x)].base != 0 || !free_at(x, i)) return false;
    share(e.out[0], x, offset);
    return true;
  }

  // A donated result takes over its input's buffer when nothing needs what is there any more.
  bool over_own_input(Var v, int i) {
    const auto d = donated.find(v);
    if (d == donated.end()) return false;
    const Var home = p.input(d->second)->var;
    if (group_needed[static_cast<std::size_t>(group[at(home)])] >= i || !free_at(home, i) ||
        out.values[at(home)].base <= 0)
      return false;
    share(v, home, 0);
    return true;
  }

  void place_results(const Eqn& e, int i) {
    for (std::size_t r = 0; r < e.out.size(); ++r) {
      const Var v = e.out[r];
      if (v == none) continue;
      if (const std::int64_t offset = view_offset(e, static_cast<int>(r)); offset >= 0) {
        share(v, e.in[0], offset * size_of(p.type(v).dtype));
      } else if (home[at(v)].first != none) {
        const auto [result, offset2] = home[at(v)];
        if (group[at(result)] < 0) open(result, i, p.type(result).bytes());
        share(v, result, offset2);
      } else if (group[at(v)] < 0 &&
                 (stays(v) || (!in_place(e, i, r) && !in_part(e, i) && !over_own_input(v, i)))) {
        open(v, i, p.type(v).bytes());
      }
    }
  }
};

}  // namespace

std::int64_t own_part(const Collective& a, const Type& whole) {
  std::int64_t bytes = size_of(whole.dtype), offset = 0;
  for (int dim = 0; dim < whole.rank(); ++dim) {
    const std::int64_t extent = whole.shape[static_cast<std::size_t>(dim)];
    if (dim < a.dim && extent != 1) return -1;
    if (dim > a.dim) bytes *= extent;
  }
  for (int i = 0; i < a.index; ++i) offset += a.parts[static_cast<std::size_t>(i)];
  return offset * bytes;
}

Assignment assign(const Program& program, const std::vector<int>& deadlines, const Target& target,
                  const std::vector<std::string>& kept) {
  Assigner a(program, deadlines, target, kept);
  a.find_lifetimes();
  a.place_inputs();
  for (int i = 0; i < a.end; ++i) {
    a.place_results(program.eqns[static_cast<std::size_t>(i)], i);
    a.hold(program.eqns[static_cast<std::size_t>(i)], i);
  }
  for (std::size_t v = 0; v < program.values.size(); ++v)
    if (const Storage& s = a.out.values[v]; s.interval >= 0) {
      int& last = a.out.intervals[static_cast<std::size_t>(s.interval)].last;
      last = std::max({last, a.needed[v], a.held[v]});
    }
  return std::move(a.out);
}

}  // namespace tessera::plan
