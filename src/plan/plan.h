// A plan: a program with nothing left to decide, for one rank and one whole step. Local shapes,
// order, storage of every value. Convention: weights and state are persistent buffers (shared
// between plans by name); what a run is fed with and what it leaves lie apart, so that the next may
// be fed and the last read while one is under way; everything else lies in one arena at fixed
// offsets.
#pragma once

#include <string>
#include <vector>

#include "ir/program.h"
#include "plan/target.h"

namespace tessera::plan {

// Where a value lies: base 0 is the arena, base i > 0 is persistent[i - 1]; the other bases have
// names.
struct Slot {
  static constexpr int absent = -1, feed = -2, result = -3;
  int base = absent;
  std::int64_t offset = 0;  // bytes
  ir::Type type;            // local shape
  explicit operator bool() const { return base != absent; }
};

// A copy between the arena and a buffer that rests away from the device (offload.h).
enum class Move : std::uint8_t { none, fetch, stow };

struct Step {
  ir::Op op = ir::Op::mark;
  ir::Attrs attrs;
  std::vector<Slot> in, out;
  Slot workspace;  // bytes of scratch in the arena, while this step runs
  Slot packed{};   // operand `packs` as the kernel reads it: made by the executor
  int packs = -1;
  int stream = 0;          // 1: started here, and under way until a step waits for it
  std::vector<int> waits;  // steps of stream 1 that must be done before; what nobody waits for is
                           // done at the end
  int eqn = -1;            // origin in the program; -1: a copy that the plan added
  std::int64_t begin = 0;  // of an equation that is done in pieces: the first element of this one
  Move move = Move::none;
};

// Ops of communication that are left in one rank's program: collectives, and the halves of messages
// between pipeline stages.
inline bool is_point_to_point(ir::Op op) {
  return ir::def(op).crosses == ir::Crossing::point_to_point;
}
inline bool crosses_ranks(ir::Op op) { return ir::def(op).crosses != ir::Crossing::none; }

struct Buffer {
  std::string name;  // of the input it holds
  ir::Input::Kind kind = ir::Input::param;
  std::int64_t bytes = 0;
  bool shared = false;  // ranks hand it to each other
  ir::Home home = ir::Home::device;
  bool aside = false;  // rests on the host since only what is made once reads it (prepare.h)
};

struct Binding {
  std::string name;
  ir::Input::Kind kind = ir::Input::batch;
  Slot slot;
};

// Peak bytes by what they are for. `activations` counts everything live at the peak that is nothing
// else, batches and results too.
struct Memory {
  std::int64_t weights = 0, gradients = 0, optimizer = 0, activations = 0, workspace = 0;
  std::int64_t total() const { return weights + gradients + optimizer + activations + workspace; }
};

// Gradients, the most of them at once: what waits for the update, and whole buckets that are still
// to be cut into the ranks' parts.
struct Gradients {
  std::int64_t kept = 0, in_flight = 0;
};

struct Plan {
  ir::Program program;  // this rank's
  int rank = 0;
  std::vector<Step> steps;
  std::vector<Buffer> persistent;
  std::int64_t arena_bytes = 0;
  std::int64_t shared_bytes =
      0;                        // the first of the arena: what ranks hand to each other lies there
  std::int64_t live_bytes = 0;  // the most that is live at once: the arena cannot be smaller
  std::int64_t feed_bytes = 0, result_bytes = 0;  // of batch and scalar inputs; of outputs that
                                                  // update nothing: one copy of each
  int copies = 1;                                 // of both
  std::size_t prepared = 0;  // the first so many steps are made once (prepare.h)
  std::vector<Binding> inputs, outputs;
  Memory memory;
  Gradients gradients;
  ir::Cost cost;  // recomputation left out (docs/cli.md)

  std::int64_t persistent_bytes() const { return bytes_on(ir::Home::device); }
  std::int64_t bytes_on(ir::Home home) const;  // of persistent buffers
  std::int64_t outside_bytes() const {
    return copies * (feed_bytes + result_bytes);
  }  // of the arena and of persistent buffers
  // Bytes that an executor allocates on its device, exactly.
  std::int64_t peak_bytes() const { return persistent_bytes() + arena_bytes + outside_bytes(); }
  ir::Home home_of(const Slot& slot) const {
    return slot.base <= 0 ? ir::Home::device
                          : persistent[static_cast<std::size_t>(slot.base - 1)].home;
  }
  const Binding* input(std::string_view name) const;
  const Binding* output(std::string_view name) const;
};

// The program as one rank runs it: local shapes, no mesh.
ir::Program localise(const ir::Program& program, int rank);

// Program -> Plan: local shapes, streams and storage; then offsets; then proof. With `overlap`
// messages are under way while later steps run. Error(usage) when the target lacks a kernel; it
// names every op and element type that is missing.
Plan lower(const ir::Program& program, int rank, const Target& target, bool overlap = false);

// One rank's program of a pipeline with its receives one turn earlier, so that what arrives is
// under way while the turn before it computes.
ir::Program receive_early(const ir::Program& program);

// For each equation the one before which it must be done: itself, or for a message under way the
// first that reads what arrives.
std::vector<int> deadlines(const ir::Program& program, bool overlap);

// Throws Error(internal) when a step would read bytes that another value has overwritten since they
// were written.
void verify(const Plan& plan, const Target& target = {});

// The arena's layout: every interval [first, last] of steps gets an offset such that overlapping
// lifetimes never overlap in space.
struct Interval {
  std::int64_t bytes = 0;
  int first = 0, last = 0;
};
struct Layout {
  std::vector<std::int64_t> offsets;
  std::int64_t bytes = 0, live = 0;
  int peak_step = 0;
};
Layout lay_out(const std::vector<Interval>& intervals);

// Operands may be produced inside the result (stack, pack); not in a bucket of several parts, where
// no tensor lies together.
inline bool gathers(ir::Op op, const ir::Attrs& attrs) {
  const ir::Pack* pack = std::get_if<ir::Pack>(&attrs);
  return ir::def(op).gathers && (!pack || pack->parts == 1);
}

// Where values live, decided before offsets: which share storage (views, donated inputs, in-place
// results, gathered operands).
struct Storage {
  int base = Slot::absent;  // as in Slot; for the arena `interval` says which interval
  int interval = -1;
  std::int64_t offset = 0;  // bytes inside the buffer or interval
};
struct Assignment {
  std::vector<Storage> values;  // per Var
  std::vector<Interval> intervals;
  std::vector<ir::Var> owner;  // per interval: the value that opened it
  std::vector<Buffer> persistent;
  std::int64_t feed_bytes = 0;
};
// `kept`: per Var the persistent buffer that its bytes get, where that is none of the inputs';
// empty: none.
Assignment assign(const ir::Program& program, const std::vector<int>& deadlines,
                  const Target& target, const std::vector<std::string>& kept = {});
inline Assignment assign(const ir::Program& program) {
  return assign(program, deadlines(program, false), Target{});
}
// Where this rank's part of a value lies inside of it, in bytes; -1: it is no single range.
std::int64_t own_part(const ir::Collective& cut, const ir::Type& whole);

// A readable listing: one line per step with offsets.
std::string print(const Plan& plan);

}  // namespace tessera::plan
