#include "exec/cuda/nccl/carried.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "exec/common/index.h"
#include "exec/cuda/moves.h"
#include "exec/cuda/names.h"
#include "exec/cuda/nccl/parts.h"
#include "exec/cuda/nccl/stalls.h"

namespace tessera::exec::cuda {
namespace {

double ms_between(cudaEvent_t from, cudaEvent_t to) {
  float ms = 0;
  must(::cudaEventElapsedTime(&ms, from, to), "ask how long a message took");
  return static_cast<double>(ms);
}

comm::Verb verb_of(ir::Op op) {
  switch (op) {
    case ir::Op::all_reduce:
      return comm::Verb::all_reduce;
    case ir::Op::all_gather:
      return comm::Verb::all_gather;
    case ir::Op::reduce_scatter:
      return comm::Verb::reduce_scatter;
    case ir::Op::all_to_all:
      return comm::Verb::all_to_all;
    case ir::Op::send:
      return comm::Verb::send;
    case ir::Op::recv:
      return comm::Verb::recv;
    default:
      CHECK(false, "NCCL carries no " + std::string(ir::name(op)));
      return comm::Verb::barrier;
  }
}

}  // namespace

Carried::Carried(const plan::Plan& plan, Machine& machine) : plan_(plan), machine_(machine) {
  machine.channels->prepare(plan);
  std::size_t next = 0;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const plan::Step& step = plan.steps[i];
    const bool crosses = plan::crosses_ranks(step.op);
    const bool waits = std::any_of(step.waits.begin(), step.waits.end(), [&](int other) {
      return plan::crosses_ranks(plan.steps[static_cast<std::size_t>(other)].op);
    });
    // Before what the host does everything was joined.
    if ((waits && !moves_file(plan, step)) || (crosses && step.stream == 0))
      stall_of_.emplace(i, next++);
    if (!crosses) continue;
    Message& message = messages_[i];
    message.channel = &machine.channels->of(step);
    message.ready = make_event();
    message.done = make_event();
    message.near = !plan::is_point_to_point(step.op);
    message.verb = verb_of(step.op);
    message.bytes = (step.op == ir::Op::recv ? step.out : step.in)[0].type.bytes();
    message.scope = name_of(plan, step);
    message.flight = messages_.size() - 1;
  }
  stall_of_.emplace(plan.steps.size(), next);
}

Carried::Marks Carried::make_marks() const {
  Marks out;
  for (std::size_t i = 0; i < 2 * stall_of_.size(); ++i) out.stalls.push_back(make_event(true));
  for (std::size_t i = 0; i < 2 * messages_.size(); ++i) out.flights.push_back(make_event(true));
  return out;
}

void Carried::preload() { count_one(nullptr, machine_.compute); }

void Carried::mark(const Event& event, cudaStream_t stream, bool captured) {
  must(::cudaEventRecordWithFlags(event, stream,
                                  captured ? cudaEventRecordExternal : cudaEventRecordDefault),
       "mark the time of a message");
}

void Carried::wait_for(Message& message) {
  if (!std::exchange(message.under_way, false)) return;
  must(::cudaStreamWaitEvent(machine_.compute, message.done, 0), "wait for a message");
}

void Carried::join(std::size_t i, const Recording& r) {
  const plan::Step& step = plan_.steps[i];
  if (!stalls(i)) return;
  const std::size_t stall = 2 * stall_of_.at(i);
  mark(r.marks.stalls[stall], machine_.compute, r.captured);
  for (const int message : step.waits)
    if (const auto found = messages_.find(static_cast<std::size_t>(message));
        found != messages_.end())  // else what comes from where buffers rest (moves.h)
      wait_for(found->second);
  // That of a message which nothing overlaps with ends behind it.
  if (!plan::crosses_ranks(step.op) || step.stream == 1)
    mark(r.marks.stalls[stall + 1], machine_.compute, r.captured);
}

void Carried::join_near() {
  for (auto& [step, message] : messages_)
    if (message.near) wait_for(message);
}

void Carried::join_all(const Recording& r) {
  const std::size_t stall = 2 * stall_of_.at(plan_.steps.size());
  mark(r.marks.stalls[stall], machine_.compute, r.captured);
  for (auto& [step, message] : messages_) wait_for(message);
  mark(r.marks.stalls[stall + 1], machine_.compute, r.captured);
}

void Carried::message(std::size_t i, std::span<const Tensor> in, std::span<const Tensor> out,
                      std::byte* workspace, const Recording& r) {
  const plan::Step& step = plan_.steps[i];
  Message& message = messages_.at(i);
  Channel& channel = *message.channel;
  const cudaStream_t stream = channel.stream();
  must(::cudaEventRecord(message.ready, machine_.compute), "mark what a message is made of");
  must(::cudaStreamWaitEvent(stream, message.ready, 0), "wait for what a message is made of");
  if (r.timed) mark(r.marks.flights[2 * message.flight], stream, r.captured);
  channel.begun();
  enqueue(step, channel.cards(), stream, in, out, workspace);
  channel.ended();
  if (r.timed) mark(r.marks.flights[2 * message.flight + 1], stream, r.captured);
  must(::cudaEventRecord(message.done, stream), "mark the end of a message");
  message.under_way = true;
  if (step.stream == 1) return;
  wait_for(message);
  mark(r.marks.stalls[2 * stall_of_.at(i) + 1], machine_.compute, r.captured);
}

void Carried::enqueue(const plan::Step& step, Communicator& cards, cudaStream_t stream,
                      std::span<const Tensor> in, std::span<const Tensor> out,
                      std::byte* workspace) {
  if (step.op == ir::Op::send) return cards.send(in[0].data, in[0].bytes(), 1, stream);
  if (step.op == ir::Op::recv) return cards.recv(out[0].data, out[0].bytes(), 0, stream);
  const Tensor &x = in[0], &y = out[0];
  if (step.op == ir::Op::all_reduce)
    return cards.all_reduce(x.data, y.data, x.bytes(), x.dtype, stream);
  const auto& a = std::get<ir::Collective>(step.attrs);
  const std::int64_t width = ir::size_of(x.dtype);
  if (step.op == ir::Op::all_gather) {
    const Around around(y.shape, a.dim, width);
    std::byte* const to = around.outer > 1 ? workspace : y.data;
    cards.all_gather(x.data, to, counts_of(a.parts, around), stream);
    if (to != y.data) by_parts(y.data, to, around, a.parts, true, stream);
    return;
  }
  if (step.op == ir::Op::reduce_scatter) {
    const Around around(x.shape, a.dim, width);
    std::byte* const from = around.outer > 1 ? workspace : x.data;
    if (from != x.data) by_parts(x.data, from, around, a.parts, false, stream);
    return cards.reduce_scatter(from, y.data, counts_of(a.parts, around), x.dtype, stream);
  }
  // Rank r receives its part along `dim`; what comes from rank r is its part along `from`.
  const Around leaving(x.shape, a.dim, width), arriving(y.shape, a.from, width);
  std::byte* const from = leaving.outer > 1 ? workspace : x.data;
  std::byte* const to =
      arriving.outer > 1 ? workspace + (from == workspace ? whole_lines(x.bytes()) : 0) : y.data;
  if (from != x.data) by_parts(x.data, from, leaving, a.parts, false, stream);
  cards.all_to_all(from, counts_of(a.parts, leaving), to, counts_of(a.from_parts, arriving),
                   stream);
  if (to != y.data) by_parts(y.data, to, arriving, a.from_parts, true, stream);
}

void Carried::posted() {
  for (auto& [step, message] : messages_)
    message.channel->log().posted(message.verb, message.bytes, message.scope);
}

double Carried::joined_ms(std::size_t i, const Marks& marks, cudaEvent_t began) const {
  return stalls(i) ? ms_between(began, marks.stalls[2 * stall_of_.at(i) + 1]) : 0;
}

void Carried::add_times(Timeline& timeline, const Marks& marks, cudaEvent_t began,
                        bool spans) const {
  std::map<std::size_t, double> ended;
  for (const auto& [step, message] : messages_) {
    if (!spans) break;
    const double start = ms_between(began, marks.flights[2 * message.flight]);
    ended[step] = ms_between(began, marks.flights[2 * message.flight + 1]);
    timeline.spans.push_back({static_cast<int>(step), 1, start, ended[step], Timeline::flight});
  }
  for (const auto& [step, stall] : stall_of_) {
    const double start = ms_between(began, marks.stalls[2 * stall]),
                 end = ms_between(began, marks.stalls[2 * stall + 1]);
    timeline.messages_ms += end - start;
    if (!spans) continue;
    std::vector<MessageEnd> messages;
    const bool all = step == plan_.steps.size();
    for (const auto& [message, at] : ended)
      if (all || message == step) messages.push_back({static_cast<int>(message), at});
    if (!all)
      for (const int message : plan_.steps[step].waits)
        if (const auto found = ended.find(static_cast<std::size_t>(message)); found != ended.end())
          messages.push_back({message, found->second});
    for (const Timeline::Span& span : waits_in(start, end, std::move(messages)))
      timeline.spans.push_back(span);
  }
}

}  // namespace tessera::exec::cuda
