#include "plan/steps.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/index.h"

namespace tessera::plan {

using namespace ir;

bool is_view(const Program& program, const Eqn& e) {
  const OpDef& row = def(e.op);
  if (!row.view) return false;
  const std::vector<Type> in = program.types(e.in);
  for (std::size_t r = 0; r < e.out.size(); ++r)
    if (e.out[r] != none && row.view(e.attrs, in, static_cast<int>(r)) < 0) return false;
  return true;
}
bool updates_something(const Program& program) {
  return std::any_of(program.outputs.begin(), program.outputs.end(),
                     [](const Output& o) { return !o.updates.empty(); });
}

Arena::Arena(const Program& p, const Assignment& a, const std::vector<int>& workspace_of,
             const Target& target)
    : shared(a.intervals.size()) {
  const auto share = [&](int interval) {
    if (interval >= 0 && target.shared_half > 0) shared[static_cast<std::size_t>(interval)] = true;
  };
  for (std::size_t i = 0; i < p.eqns.size(); ++i) {
    if (!crosses_ranks(p.eqns[i].op) || is_point_to_point(p.eqns[i].op)) continue;
    share(workspace_of[i]);
    for (const auto* list : {&p.eqns[i].in, &p.eqns[i].out})
      for (Var v : *list)
        if (v != none) share(a.values[at(v)].interval);
  }
  for (const bool half : {false, true}) {
    std::vector<Interval> own = a.intervals;  // those of the other half take no room
    for (std::size_t i = 0; i < own.size(); ++i)
      if (shared[i] != half) own[i].bytes = 0;
    halves[half] = lay_out(own);
  }
  if (const std::int64_t unit = target.shared_half; unit > 0)
    shared_bytes = (halves[true].bytes + unit - 1) / unit * unit;
}

Slot StepWriter::slot(Var v) const {
  if (v == none || a_.values[at(v)].base == Slot::absent) return Slot{};
  const Storage& s = a_.values[at(v)];
  return Slot{s.base,
              s.offset + (s.interval < 0 ? 0 : arena_.offset(static_cast<std::size_t>(s.interval))),
              program_.type(v)};
}

Step StepWriter::step_of(std::size_t i, int workspace) const {
  const Eqn& e = program_.eqns[i];
  Step step{.op = e.op, .attrs = e.attrs, .in = {}, .out = {}, .workspace = {}, .waits = {}};
  step.eqn = static_cast<int>(i);
  for (Var v : e.in) step.in.push_back(slot(v));
  for (Var v : e.out) step.out.push_back(slot(v));
  if (workspace >= 0) {
    const auto w = static_cast<std::size_t>(workspace);
    step.workspace = {0, arena_.offset(w), {DType::u8, {a_.intervals[w].bytes}, {}}};
  }
  return step;
}

void StepWriter::equation(std::size_t i, int workspace, int deadline) {
  Step step = step_of(i, workspace);
  wait_for(step, static_cast<int>(i));
  if (step.op == Op::copy && plan_.home_of(step.in[0]) != Home::device) {
    step.move = Move::fetch;
    wait_for_stows(step.in[0], step);
  } else if (step.op == Op::copy && plan_.home_of(step.out[0]) != Home::device) {
    step.move = Move::stow;
  }
  if (deadline > static_cast<int>(i) && (step.op != Op::copy || step.move != Move::none)) {
    step.stream = 1;
    if (step.move == Move::stow)
      stows_.emplace_back(static_cast<int>(plan_.steps.size()), step.out[0]);
    under_way_.emplace_back(static_cast<int>(plan_.steps.size()), deadline);
  }
  if (crosses_ranks(step.op) && !is_point_to_point(step.op))
    for (const auto* list : {&step.in, &step.out})
      for (const Slot& s : *list)
        if (s.base > 0) plan_.persistent[static_cast<std::size_t>(s.base - 1)].shared = true;
  plan_.steps.push_back(std::move(step));
}

// The pieces of several equations are one row: the first piece of the next one comes while the last
// of this one is worked on.
void StepWriter::in_pieces(std::size_t i, int workspace) {
  const std::vector<Piece>& all = pieces_.list();
  for (; next_ < all.size() && all[next_].eqn == i; ++next_) {
    while (to_fetch_ < all.size() && to_fetch_ <= next_ + pieces_.ahead() &&
           (to_fetch_ <= next_ || !reads_from(to_fetch_, next_)))
      fetch(to_fetch_++);
    work(next_, workspace);
    stow(next_);
  }
}

Slot StepWriter::staged(std::size_t n, std::size_t k, const Type& type) const {
  return {0, arena_.offset(static_cast<std::size_t>(staging_)) + pieces_.place(n, k), type};
}

void StepWriter::wait_for_place(std::size_t n, Step& step) {
  if (n < pieces_.places()) return;
  std::vector<int>& gone = stowed_[n - pieces_.places()];
  std::erase_if(stows_, [&](const auto& stow) {
    const bool waits = std::find(gone.begin(), gone.end(), stow.first) != gone.end();
    if (waits) step.waits.push_back(stow.first);
    return waits;
  });
  gone.clear();
}

void StepWriter::wait_for_stows(const Slot& away, Step& step) {
  std::erase_if(stows_, [&](const auto& stow) {
    const Slot& to = stow.second;
    const bool waits = to.base == away.base && to.offset < away.offset + away.type.bytes() &&
                       away.offset < to.offset + to.type.bytes();
    if (!waits) return false;
    step.waits.push_back(stow.first);
    std::erase_if(under_way_, [&](const auto& other) { return other.first == stow.first; });
    return true;
  });
}

bool StepWriter::reads_from(std::size_t n, std::size_t now) const {
  const Piece &later = pieces_.list()[n], &piece = pieces_.list()[now];
  if (later.eqn == piece.eqn) return false;  // another part of the same buffers
  for (const Pieces::Away& read : pieces_.of(later.eqn)->away)
    for (const Pieces::Away& written : pieces_.of(piece.eqn)->away)
      if (read.read && written.written && read.base == written.base) return true;
  return false;
}

int StepWriter::add_move(Move move, const Slot& from, const Slot& to, std::vector<int> waits) {
  Step step{.op = Op::mark,
            .attrs = Mark{move == Move::fetch ? "fetch" : "stow"},
            .in = {from},
            .out = {to},
            .workspace = {},
            .waits = std::move(waits)};
  step.move = move;
  step.stream = pieces_.places() > 1 ? 1 : 0;
  plan_.steps.push_back(std::move(step));
  return static_cast<int>(plan_.steps.size()) - 1;
}

// Where the k-th buffer of an equation lies there: the operand's or result's own slot, cut.
static Slot part_of(const Slot& whole, const Piece& piece) {
  return {whole.base,
          whole.offset + piece.begin * size_of(whole.type.dtype),
          {whole.type.dtype, {piece.size}, {}}};
}

void StepWriter::fetch(std::size_t n) {
  const Piece& piece = pieces_.list()[n];
  const Pieces::Cut& cut = *pieces_.of(piece.eqn);
  if (piece.size == 0) return;
  for (std::size_t k = 0; k < cut.away.size(); ++k) {
    if (!cut.away[k].read) continue;
    const Eqn& e = program_.eqns[piece.eqn];
    const auto v = std::find_if(e.in.begin(), e.in.end(), [&](Var x) {
      return x != none && cut.away[k] == a_.values[at(x)];
    });
    const Slot from = part_of(slot(*v), piece);
    Step place;
    wait_for_place(n, place);
    wait_for_stows(from, place);
    const int step = add_move(Move::fetch, from, staged(n, k, from.type), std::move(place.waits));
    if (plan_.steps.back().stream == 1) fetched_[n].push_back(step);
  }
}

void StepWriter::work(std::size_t n, int workspace) {
  const Piece& piece = pieces_.list()[n];
  const Pieces::Cut& cut = *pieces_.of(piece.eqn);
  Step step = step_of(piece.eqn, workspace);
  step.begin = piece.begin;
  const Eqn& e = program_.eqns[piece.eqn];
  const auto narrow = [&](Slot& s, Var v) {
    if (!s || s.type.rank() == 0) return;
    s = part_of(s, piece);
    for (std::size_t k = 0; k < cut.away.size(); ++k)
      if (cut.away[k] == a_.values[at(v)]) s = staged(n, k, s.type);
  };
  for (std::size_t i = 0; i < step.in.size(); ++i) narrow(step.in[i], e.in[i]);
  for (std::size_t i = 0; i < step.out.size(); ++i) narrow(step.out[i], e.out[i]);
  wait_for(step, static_cast<int>(piece.eqn));
  wait_for_place(n, step);  // where nothing was fetched
  step.waits.insert(step.waits.end(), fetched_[n].begin(), fetched_[n].end());
  plan_.steps.push_back(std::move(step));
}

void StepWriter::stow(std::size_t n) {
  const Piece& piece = pieces_.list()[n];
  const Pieces::Cut& cut = *pieces_.of(piece.eqn);
  if (piece.size == 0) return;
  const Eqn& e = program_.eqns[piece.eqn];
  for (std::size_t k = 0; k < cut.away.size(); ++k) {
    if (!cut.away[k].written) continue;
    const auto v = std::find_if(e.out.begin(), e.out.end(), [&](Var x) {
      return x != none && cut.away[k] == a_.values[at(x)];
    });
    const Slot to = part_of(slot(*v), piece);
    const int step = add_move(Move::stow, staged(n, k, to.type), to, {});
    if (plan_.steps.back().stream != 1) continue;
    stowed_[n].push_back(step);
    stows_.emplace_back(step, to);
  }
}

void StepWriter::copy(const char* label, const Slot& from, const Slot& to) {
  plan_.steps.push_back({.op = Op::mark,
                         .attrs = Mark{label},
                         .in = {from},
                         .out = {to},
                         .workspace = {},
                         .waits = {}});
  const bool away = plan_.home_of(to) != Home::device;
  CHECK(plan_.home_of(from) == Home::device, "what rests away from the device is no result");
  if (away) plan_.steps.back().move = Move::stow;
  wait_for(plan_.steps.back(), static_cast<int>(program_.eqns.size()));
}

void StepWriter::wait_for(Step& step, int now) {
  std::erase_if(under_way_, [&](const auto& message) {
    if (message.second > now) return false;
    step.waits.push_back(message.first);
    std::erase_if(stows_, [&](const auto& stow) { return stow.first == message.first; });
    return true;
  });
}

}  // namespace tessera::plan
