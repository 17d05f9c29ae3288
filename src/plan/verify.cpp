// The proof that storage was shared rightly: a replay of every write and read, without running
// anything. Convention: a byte is known by the write that made it and its place in that write;
// views and gathers in place hand bytes on unchanged.
#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "base/index.h"
#include "plan/plan.h"

namespace tessera::plan {
namespace {

using namespace ir;

struct Piece {  // bytes [from, from + bytes) of one write
  std::int64_t bytes = 0;
  int write = 0;  // 0: never written
  std::int64_t from = 0;
  bool operator==(const Piece&) const = default;
};
using Content = std::vector<Piece>;  // neighbours that continue each other are one piece

void append(Content& content, Piece piece) {
  if (piece.bytes == 0) return;
  if (!content.empty() && content.back().write == piece.write &&
      (piece.write == 0 || content.back().from + content.back().bytes == piece.from))
    content.back().bytes += piece.bytes;
  else
    content.push_back(piece);
}

Content part(const Content& whole, std::int64_t offset, std::int64_t bytes) {
  Content out;
  std::int64_t begin = 0;
  for (const Piece& piece : whole) {
    const std::int64_t first = std::max(begin, offset),
                       last = std::min(begin + piece.bytes, offset + bytes);
    if (first < last)
      append(out, {last - first, piece.write, piece.write ? piece.from + first - begin : 0});
    begin += piece.bytes;
  }
  return out;
}

class Bytes {
 public:
  explicit Bytes(const Plan& plan)
      : persistent_(plan.persistent.size()), pieces_(persistent_ + 3) {}

  Content read(const Slot& s) const {
    const auto& pieces = pieces_[place_of(s)];
    Content out;
    std::int64_t reached = s.offset;
    const std::int64_t end = s.offset + s.type.bytes();
    auto it = pieces.upper_bound(s.offset);
    if (it != pieces.begin()) --it;
    for (; it != pieces.end() && it->first < end; ++it) {
      const std::int64_t first = std::max(it->first, reached),
                         last = std::min(it->first + it->second.bytes, end);
      if (first >= last) continue;
      append(out, {first - reached, 0, 0});
      append(out, {last - first, it->second.write, it->second.from + first - it->first});
      reached = last;
    }
    append(out, {end - reached, 0, 0});
    return out;
  }

  void write(const Slot& s, const Content& content) {
    auto& pieces = pieces_[place_of(s)];
    const std::int64_t begin = s.offset, end = begin + s.type.bytes();
    auto it = pieces.upper_bound(begin);
    if (it != pieces.begin()) --it;
    while (it != pieces.end() && it->first < end) {
      const auto [first, old] = *it;
      const std::int64_t last = first + old.bytes;
      if (last <= begin) {
        ++it;
        continue;
      }
      it = pieces.erase(it);
      if (first < begin) pieces.emplace(first, Piece{begin - first, old.write, old.from});
      if (last > end)
        it = pieces.emplace(end, Piece{last - end, old.write, old.from + end - first}).first;
    }
    std::int64_t place = begin;
    for (const Piece& piece : content) {
      if (piece.write) pieces[place] = piece;
      place += piece.bytes;
    }
  }

 private:
  std::size_t place_of(const Slot& s) const {
    return s.base >= 0 ? static_cast<std::size_t>(s.base)
                       : persistent_ + (s.base == Slot::feed ? 1 : 2);
  }

  std::size_t persistent_;
  std::vector<std::map<std::int64_t, Piece>>
      pieces_;  // by base (arena, persistent buffers, feed, result): begin -> piece
};

bool overlap(const Slot& a, const Slot& b) {
  return a && b && a.base == b.base && a.offset < b.offset + b.type.bytes() &&
         b.offset < a.offset + a.type.bytes();
}

// Where operand k of a gather belongs inside the result.
std::int64_t place_in_gather(const Step& step, std::size_t k) {
  if (const Pack* pack = std::get_if<Pack>(&step.attrs))
    return pack->offsets[k] * size_of(step.in[k].type.dtype);
  std::int64_t place = 0;
  for (std::size_t i = 0; i < k; ++i) place += step.in[i].type.bytes();
  return place;
}
bool in_place(const Step& step, std::size_t k) {
  return gathers(step.op, step.attrs) && step.in[k].base == step.out[0].base &&
         step.in[k].offset == step.out[0].offset + place_in_gather(step, k);
}

std::vector<Type> types_of(const std::vector<Slot>& slots) {
  std::vector<Type> types;
  for (const Slot& slot : slots) types.push_back(slot.type);
  return types;
}

// Results may lie over operands only as the op's row or the target says, and never over each other
// or the workspace.
void check_overlaps(const Step& step, const Target& target) {
  const OpDef& row = def(step.op);
  for (std::size_t r = 0; r < step.out.size(); ++r) {
    const Slot& y = step.out[r];
    for (std::size_t other = 0; other < r; ++other)
      CHECK(!overlap(y, step.out[other]), "two results share storage");
    CHECK(!overlap(y, step.workspace), "a result lies in the workspace");
    for (std::size_t k = 0; k < step.in.size(); ++k) {
      const Slot& x = step.in[k];
      if (!overlap(x, y)) continue;
      const auto is_pair = [&](const OpDef::Alias& a) {
        return static_cast<std::size_t>(a.out) == r && static_cast<std::size_t>(a.in) == k;
      };
      const auto on_target = [&](const OpDef::Alias& a) {
        return is_pair(a) && target.overwrites &&
               target.overwrites(step.op, step.attrs, types_of(step.in), a);
      };
      const bool listed = std::any_of(row.may_alias.begin(), row.may_alias.end(), is_pair) ||
                          std::any_of(row.some_alias.begin(), row.some_alias.end(), on_target);
      const bool part = step.op == Op::reduce_scatter &&
                        y.offset == x.offset + own_part(std::get<Collective>(step.attrs), x.type);
      CHECK((listed && x.offset == y.offset && x.type.bytes() == y.type.bytes()) ||
                (row.gathers && in_place(step, k)) || part,
            "result " + std::to_string(r) + " lies over operand " + std::to_string(k) +
                ", which the op does not allow");
    }
  }
  for (const Slot& x : step.in)
    CHECK(!overlap(x, step.workspace), "an operand lies in the workspace");
}

// While a message is under way nobody may write what it reads or touch what it writes.
class UnderWay {
 public:
  void check(const Plan& plan, int now) {
    const Step& step = plan.steps[static_cast<std::size_t>(now)];
    for (const int message : step.waits) {
      CHECK(messages_.erase(message) == 1, "step " + std::to_string(now) + " waits for step " +
                                               std::to_string(message) +
                                               ", which is not under way");
    }
    for (const int message : messages_) {
      const Step& other = plan.steps[static_cast<std::size_t>(message)];
      const auto touches = [&](const Slot& mine) {
        for (const Slot& s : other.in)
          CHECK(!overlap(mine, s), "a message under way reads what is written");
        for (const Slot& s : other.out)
          CHECK(!overlap(mine, s), "a message under way writes what is written");
      };
      for (const Slot& mine : step.in)
        for (const Slot& s : other.out) CHECK(!overlap(mine, s), "what is read has not arrived");
      for (const Slot& s : step.out) touches(s);
      touches(step.workspace);
    }
    if (step.stream == 1) messages_.insert(now);
  }

 private:
  std::set<int> messages_;
};

// The plan over contents instead of numbers: what each value consists of, and what lies where.
class Replay {
 public:
  Replay(const Plan& plan, const Target& target)
      : plan_(plan),
        target_(target),
        p_(plan.program),
        memory_(plan),
        holds_(plan.program.values.size()) {}

  void inputs() {
    for (const Binding& in : plan_.inputs)
      if (in.slot)
        memory_.write(in.slot, holds_[at(p_.input(in.name)->var)] = fresh(in.slot.type.bytes()));
  }

  void step(const Eqn& e, const Step& step) {
    try {
      for (std::size_t k = 0; k < e.in.size(); ++k)
        CHECK(memory_.read(step.in[k]) == part_of(e.in[k], step, step.in[k]),
              "the plan overwrites " + p_.name_of(e.in[k]) + " before it is read");
      check_overlaps(step, target_);
    } catch (Error& error) {
      throw error.in("in `" + print(p_, e) + "`");
    }
    if (step.workspace) memory_.write(step.workspace, fresh(step.workspace.type.bytes()));
    for (std::size_t r = 0; r < e.out.size(); ++r) {
      if (e.out[r] == none || !step.out[r]) continue;
      if (step.begin == 0)  // the first piece, or all of it
        holds_[at(e.out[r])] =
            gathers(e.op, e.attrs) ? gathered(e, step) : fresh(p_.type(e.out[r]).bytes());
      memory_.write(step.out[r], part_of(e.out[r], step, step.out[r]));
    }
  }

  // Bytes as they are: what the plan added, and what comes and goes.
  void copy(const Step& step) { memory_.write(step.out[0], memory_.read(step.in[0])); }

  // An equation without a step: its results are made of what its operands are made of.
  void view(const Eqn& e) {
    const std::vector<Type> in = p_.types(e.in);
    for (std::size_t r = 0; r < e.out.size(); ++r) {
      const Var v = e.out[r];
      if (v == none) continue;
      if (gathers(e.op, e.attrs)) {
        for (Var x : e.in)
          for (const Piece& piece : holds_[at(x)]) append(holds_[at(v)], piece);
      } else {
        const std::int64_t size = size_of(p_.type(v).dtype);
        holds_[at(v)] =
            part(holds_[at(e.in[0])], def(e.op).view(e.attrs, in, static_cast<int>(r)) * size,
                 p_.type(v).bytes());
      }
    }
  }

  // Checks what a run leaves behind, after the copies to where results are read and into donated
  // inputs that could not be written in place: every output where it is read.
  void outputs() {
    for (std::size_t i = 0; i < p_.outputs.size(); ++i)
      CHECK(!plan_.outputs[i].slot ||
                memory_.read(plan_.outputs[i].slot) == holds_[at(p_.outputs[i].var)],
            "the plan overwrites output " + p_.outputs[i].name);
  }

 private:
  Content fresh(std::int64_t bytes) { return bytes ? Content{{bytes, ++writes_, 0}} : Content{}; }

  // The content of a value that a step has at its slot: a part of it for an equation in pieces.
  Content part_of(Var v, const Step& step, const Slot& slot) const {
    const bool cut = slot.type.bytes() != p_.type(v).bytes();
    return cut ? part(holds_[at(v)], step.begin * size_of(slot.type.dtype), slot.type.bytes())
               : holds_[at(v)];
  }

  // Operands in place keep their bytes, the rest is new.
  Content gathered(const Eqn& e, const Step& step) {
    Content out;
    const Content rest = fresh(step.out[0].type.bytes());
    std::int64_t reached = 0;
    for (std::size_t k = 0; k < e.in.size(); ++k) {
      if (!in_place(step, k)) continue;
      for (const Piece& piece : part(rest, reached, place_in_gather(step, k) - reached))
        append(out, piece);
      for (const Piece& piece : holds_[at(e.in[k])]) append(out, piece);
      reached = place_in_gather(step, k) + step.in[k].type.bytes();
    }
    for (const Piece& piece : part(rest, reached, step.out[0].type.bytes() - reached))
      append(out, piece);
    return out;
  }

  const Plan& plan_;
  const Target& target_;
  const Program& p_;
  Bytes memory_;
  std::vector<Content> holds_;  // what each value consists of
  int writes_ = 0;
};

void check_messages(const Plan& plan) {
  const Program& p = plan.program;
  UnderWay under_way;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    try {
      under_way.check(plan, static_cast<int>(i));
    } catch (Error& error) {
      throw error.in(plan.steps[i].eqn < 0
                         ? "in a copy"
                         : "in `" + print(p, p.eqns[static_cast<std::size_t>(plan.steps[i].eqn)]) +
                               "`");
    }
  }
}

}  // namespace

void verify(const Plan& plan, const Target& target) {
  const Program& p = plan.program;
  check_messages(plan);
  Replay replay(plan, target);
  replay.inputs();
  std::size_t next = 0;  // equation; those between the equations of two steps have none
  for (const Step& step : plan.steps) {
    if (step.eqn < 0) {
      replay.copy(step);
      continue;
    }
    const auto now = static_cast<std::size_t>(step.eqn);
    while (next < now) replay.view(p.eqns[next++]);
    replay.step(p.eqns[now], step);
    next = now + 1;
  }
  while (next < p.eqns.size()) replay.view(p.eqns[next++]);
  replay.outputs();
}

}  // namespace tessera::plan
