// Pipeline schedules as data: per rank the order of its turns, a turn being one stage's work for
// one micro-batch. Convention: on every stage the micro-batches of one kind of work come in
// ascending order, because gradients and running statistics are added up in that order; so results
// do not depend on the schedule. Stage s lives on one rank, which builders choose as s % ranks. A
// bubble is the idle share of a step, 1 - busy / (ranks x makespan). Formulas assume stages of
// equal cost, F = 1, B = 2 (input gradients 1, weight gradients 1) and free transfers; under these
// they hold for any number of micro-batches.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::transforms {

// backward: the whole backward pass of the stage; where the schedule has weight turns only what the
// stage before waits for (gradients of inputs). weight: the rest, the gradients of parameters.
enum class Work : std::uint8_t { forward, backward, weight };

struct Turn {
  int stage = 0, micro = 0;
  Work work = Work::forward;
  bool operator==(const Turn&) const = default;
};
std::string name(const Turn& turn);  // "F0.1": work, stage, micro-batch

struct Schedule {
  std::string name;  // letters, digits and _ - .
  int stages = 1, micros = 1;
  std::vector<std::vector<Turn>> ranks;  // of each rank its turns in order

  int home(int stage) const;  // the rank where a stage lives; -1: it has no turn
  bool trains() const;        // has backward turns
  bool splits() const;        // has weight turns
  bool operator==(const Schedule&) const = default;
};
std::vector<int> homes(const Schedule& schedule);  // of every stage
// Without the turns of later micro-batches: nothing waits for them, so what is left of a schedule
// that can run can run.
Schedule first_micros(Schedule schedule, int micros);
// The turns that must be done before this one can begin, besides those before it on its rank: at
// most two.
std::vector<Turn> needs(const Schedule& schedule, const Turn& turn);

// Limits of what text and builders accept.
constexpr int most_ranks = 1024, most_stages = 4096, most_micros = 4096;
constexpr std::int64_t most_turns = 1000000;
constexpr std::size_t most_shown =
    20;  // problems of a schedule; one of a million turns can have as many

// Builders: any number of micro-batches, also fewer than ranks. Where a rank has several stages
// (`stages` a multiple of `ranks`, or `chunks` stages a rank) micro-batches go through in groups:
// as many groups as have at least `ranks` members each (or one), as equal as can be, the larger
// ones first. A group passes a rank's first stage, then its second, ...; on one rank every group is
// one micro-batch.

// Fill and drain: all forward passes, then all backward passes.
Schedule gpipe(int ranks, int stages, int micros);
double gpipe_bubble(int ranks, int stages, int micros);
// After ranks - 1 - r forward passes one backward pass follows each forward pass: min(ranks - r,
// micros) in flight instead of all.
Schedule one_f_one_b(int ranks, int micros);
double one_f_one_b_bubble(int ranks, int micros);
// 1F1B over `chunks` stages a rank, in Megatron's order where micros is a multiple of ranks: fill
// and drain take 1 / chunks of the time, (chunks - 1) x group + 2 (ranks - 1 - r) + 1 pairs of
// stage and micro-batch are in flight. One chunk is 1F1B.
Schedule interleaved(int ranks, int chunks, int micros);
double interleaved_bubble(int ranks, int chunks, int micros);
// 1F1B whose weight gradients wait: r of them on rank r, until they fill the drain (zero bubble,
// H1). On every rank min(ranks, micros) in flight: as many as 1F1B has on its first.
Schedule zb_h1(int ranks, int micros);
double zb_h1_bubble(int ranks, int micros);
// Inference; `home`: the rank of every stage, where a schedule for training has chosen it.
Schedule forward_only(int ranks, int stages, int micros);
Schedule forward_only(int ranks, const std::vector<int>& home, int micros);
double forward_only_bubble(int ranks, int stages, int micros);

// One line per rank, and the way back; errors carry where:line:column, all of them at once. Read
// text is well-formed and within the limits; whether it is a schedule that can run says check().
// Grammar: docs/pipeline.md.
std::string print(const Schedule& schedule);
Schedule parse_schedule(std::string_view text, const std::string& where);

// Throws Error(usage) that names every turn which is missing, doubled, out of range, on a second
// rank or in the wrong order, and the ranks that would wait for each other forever.
void check(const Schedule& schedule, const std::string& where = {});

struct Timed {
  int rank = 0;
  Turn turn;
  double start = 0, end = 0;
};
// When each turn begins and ends if every rank starts its next turn as soon as what it needs is
// there: `cost` of a turn, `transfer` more for what comes from another rank. By start, ties by
// rank; a turn never stands before one that it needs, so this is an order in which one process
// could do everything.
std::vector<Timed> simulate(const Schedule& schedule,
                            const std::function<double(const Turn&)>& cost, double transfer = 0);
double bubble(const std::vector<Timed>& turns, int ranks);
// The most pairs of stage and micro-batch that a rank holds at once between forward and backward
// pass (weight turn, where split).
int in_flight(const Schedule& schedule, int rank);

}  // namespace tessera::transforms
