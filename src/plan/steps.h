// How the arena is laid out, and how equations become the steps of a plan (lower.cpp).
#pragma once

#include <utility>
#include <vector>

#include "plan/offload.h"
#include "plan/plan.h"

namespace tessera::plan {

// Whether all results of an equation are bytes of its first operand: it takes no step then.
bool is_view(const ir::Program& program, const ir::Eqn& eqn);
// Whether a program changes a buffer that it was given.
bool updates_something(const ir::Program& program);

// The arena: what ranks hand to each other first, then the rest; each half is laid out by itself. A
// target without a shared half has all of it in the other one.
struct Arena {
  std::vector<bool> shared;  // per interval
  Layout halves[2];          // the rest, the shared
  std::int64_t shared_bytes = 0;

  Arena(const ir::Program& p, const Assignment& a, const std::vector<int>& workspace_of,
        const Target& target);
  std::int64_t bytes() const { return shared_bytes + halves[false].bytes; }
  std::int64_t live() const { return halves[false].live + halves[true].live; }
  std::int64_t offset(std::size_t interval) const {
    return shared[interval] ? halves[true].offsets[interval]
                            : shared_bytes + halves[false].offsets[interval];
  }
  bool at_peak(std::size_t interval, const Interval& life) const {
    const int step = halves[shared[interval]].peak_step;
    return life.first <= step && step <= life.last;
  }
};

// Writes the steps of a plan in their order, each with what must be over before it: messages, and
// pieces of buffers that come and go.
class StepWriter {
 public:
  // `staging`: the interval in which pieces come and go, or -1.
  StepWriter(Plan& plan, const Assignment& a, const Arena& arena, const Pieces& pieces, int staging)
      : plan_(plan),
        program_(plan.program),
        a_(a),
        arena_(arena),
        pieces_(pieces),
        staging_(staging),
        stowed_(pieces.list().size()),
        fetched_(pieces.list().size()) {}

  Slot slot(ir::Var v) const;
  // `workspace`: an interval, or -1; `deadline`: the equation before which its message must be
  // over.
  void equation(std::size_t i, int workspace, int deadline);
  // An equation over buffers that are away.
  void in_pieces(std::size_t i, int workspace);
  void copy(const char* label, const Slot& from, const Slot& to);

 private:
  Step step_of(std::size_t i, int workspace) const;
  void wait_for(Step& step, int now);
  void fetch(std::size_t n);
  void work(std::size_t n, int workspace);
  void stow(std::size_t n);
  Slot staged(std::size_t n, std::size_t k, const ir::Type& type) const;
  // Makes the step that takes the place of the n-th piece wait until what lay there has gone.
  void wait_for_place(std::size_t n, Step& step);
  // Makes a step that reads bytes where they rest wait until what goes there has arrived.
  void wait_for_stows(const Slot& away, Step& step);
  // Whether piece n reads what piece `now` is still to stow.
  bool reads_from(std::size_t n, std::size_t now) const;
  int add_move(Move move, const Slot& from, const Slot& to, std::vector<int> waits);

  Plan& plan_;
  const ir::Program& program_;
  const Assignment& a_;
  const Arena& arena_;
  const Pieces& pieces_;
  const int staging_;
  std::vector<std::pair<int, int>> under_way_;      // step, before which equation it must be over
  std::size_t next_ = 0, to_fetch_ = 0;             // pieces
  std::vector<std::vector<int>> stowed_, fetched_;  // per piece: steps that are under way
  std::vector<std::pair<int, Slot>> stows_;         // under way: the step, and where it goes
};

}  // namespace tessera::plan
