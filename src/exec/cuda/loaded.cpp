#include "exec/cuda/loaded.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "comm/heartbeat.h"
#include "exec/common/host_room.h"
#include "exec/cuda/flight.h"
#include "exec/cuda/names.h"
#include "exec/cuda/products/choose.h"
#include "exec/cuda/ranges.h"

namespace tessera::exec::cuda {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
// TESSERA_CUDA_GRAPHS=0 runs step by step, so that a profiler sees the ranges of every run.
bool graphs_wanted() {
  static const bool wanted = [] {
    const char* given = std::getenv("TESSERA_CUDA_GRAPHS");
    return !given || std::string_view(given) != "0";
  }();
  return wanted;
}

}  // namespace

CudaLoaded::CudaLoaded(const plan::Plan& plan, Machine& machine)
    : plan_(plan),
      machine_(machine),
      memos_(plan.steps.size()),
      copies_(static_cast<std::size_t>(plan.copies)) {
  const bool crosses = std::any_of(plan.steps.begin(), plan.steps.end(),
                                   [](const plan::Step& s) { return plan::crosses_ranks(s.op); });
  if (crosses && machine.channels)
    carried_ = std::make_unique<Carried>(plan, machine);
  else if (crosses)
    crossings_ = std::make_unique<Crossings>(plan, machine);
  if (std::any_of(plan.steps.begin(), plan.steps.end(),
                  [](const plan::Step& s) { return s.move != plan::Move::none; }))
    moves_ = std::make_unique<Moves>(plan, machine);
  const HostRoom room = host_room(plan);
  places_ = room.places;
  feeds_ = pin_if_allowed(plan.copies * room.feed, "pin memory of the host for batches");
  results_ = pin(plan.copies * room.results);
  pinned_bytes_ = plan.copies * (room.results + (feeds_.pageable ? 0 : room.feed));
  machine.pinned += pinned_bytes_;
  if (feeds_.pageable)
    machine.note("batches pass through pageable memory, which is slower and holds the host up: " +
                 std::to_string(plan.copies * room.feed) +
                 " bytes could not be pinned; raise the limit on locked memory (ulimit -l)");
  for (Copy& copy : copies_) {
    const std::int64_t index = &copy - copies_.data();
    copy.feed = feeds_.data() + index * room.feed;
    copy.found = results_.get() + index * room.results;
    copy.uploading = make_event(true);
    copy.uploaded = make_event(true);
    copy.began = make_event(true);
    copy.done = make_event(true);
    if (carried_) copy.marks = std::make_unique<Carried::Marks>(carried_->make_marks());
    for (const plan::Step& step : plan.steps) {
      Bound& bound = copy.steps.emplace_back();
      bound.kernel = kernel(step.op).run;
      for (const plan::Slot& slot : step.in)
        bound.in.push_back({slot.type.dtype, slot.type.shape, nullptr});
      for (const plan::Slot& slot : step.out)
        bound.out.push_back({slot.type.dtype, slot.type.shape, nullptr});
    }
  }
  cut();
}

CudaLoaded::~CudaLoaded() {
  machine_.settle();  // what runs still reads and writes here
  machine_.pinned -= pinned_bytes_;
  if (machine_.last == this) machine_.last = nullptr;
}

bool CudaLoaded::by_host(const plan::Step& step) const {
  return (crossings_ && plan::crosses_ranks(step.op)) || plan::moves_file(plan_, step);
}

void CudaLoaded::cut() {
  for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
    const plan::Step& step = plan_.steps[i];
    const bool host = by_host(step);
    const bool host_waits = std::any_of(step.waits.begin(), step.waits.end(), [&](int other) {
      return by_host(plan_.steps[static_cast<std::size_t>(other)]);
    });
    const bool once = i < plan_.prepared;
    const bool joins = !segments_.empty() && !host && !segments_.back().by_host && !host_waits &&
                       segments_.back().once == once;
    if (joins)
      segments_.back().last = i + 1;
    else
      segments_.push_back({i, i + 1, host, once});
    if (!once)
      for (const plan::Slot& slot : step.out) updates_ = updates_ || slot.base > 0;
  }
}

void CudaLoaded::bind(Copy& copy, int index) {
  const auto address = [&](const plan::Slot& slot) {
    return machine_.memory.address(plan_, slot, index);
  };
  for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
    const plan::Step& step = plan_.steps[i];
    Bound& bound = copy.steps[i];
    for (std::size_t k = 0; k < step.in.size(); ++k) bound.in[k].data = address(step.in[k]);
    for (std::size_t k = 0; k < step.out.size(); ++k) bound.out[k].data = address(step.out[k]);
    bound.workspace = address(step.workspace);
    bound.packed = address(step.packed);
  }
  copy.results.clear();
  for (std::size_t i = 0; i < plan_.outputs.size(); ++i)
    if (const plan::Slot& slot = plan_.outputs[i].slot; places_[i] >= 0)
      copy.results.push_back({address(slot), slot.type.bytes(), places_[i]});
  for (auto& graphs : copy.graphs) {
    graphs.clear();
    graphs.resize(segments_.size());
  }
}

void CudaLoaded::bind_all() {
  const std::int64_t moves = machine_.memory.moves();
  if (bound_at_ == moves) return;
  machine_.settle();
  for (std::size_t i = 0; i < copies_.size(); ++i) bind(copies_[i], static_cast<int>(i));
  bound_at_ = moves;
}

void CudaLoaded::execute(Copy& copy, std::size_t i, Form form, bool captured) {
  const plan::Step& step = plan_.steps[i];
  Bound& bound = copy.steps[i];
  if (carried_) carried_->join(i, {*copy.marks, form == timed, captured});
  if (step.move != plan::Move::none) return moves_->move(i, bound.in[0], bound.out[0]);
  if (moves_) moves_->join(i);
  if (carried_ && plan::crosses_ranks(step.op))
    return carried_->message(i, bound.in, bound.out, bound.workspace,
                             {*copy.marks, form == timed, captured});
  compute(copy, i);
}

Call CudaLoaded::call_of(Copy& copy, std::size_t i, Memo* memo) {
  const plan::Step& step = plan_.steps[i];
  Bound& bound = copy.steps[i];
  return {.op = step.op,
          .attrs = step.attrs,
          .in = bound.in,
          .out = bound.out,
          .stream = machine_.compute,
          .workspace = bound.workspace,
          .workspace_bytes = step.workspace ? step.workspace.type.bytes() : 0,
          .packed = bound.packed,
          .context = machine_.context,
          .memo = memo};
}

void CudaLoaded::compute(Copy& copy, std::size_t i) {
  copy.steps[i].kernel(call_of(copy, i, &memos_[i]));
}

void CudaLoaded::pack_weights(Copy& copy) {
  for (std::size_t i = 0; i < plan_.steps.size(); ++i)
    if (copy.steps[i].packed) kernel(plan_.steps[i].op).pack(call_of(copy, i, nullptr));
}

// Nothing is kept with the steps: other ranks may still have a say in what the table holds.
void CudaLoaded::choose() {
  machine_.here();
  bind_all();
  for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
    const Kernel choose_of = chooser(plan_.steps[i].op);
    if (!choose_of) continue;
    comm::Heartbeat::inside(name_of(plan_, plan_.steps[i]));
    choose_of(call_of(copies_[0], i, nullptr));
  }
  comm::Heartbeat::inside("");
}

// A kernel that is launched for the first time is loaded, and that may wait for everything on the
// card: also for a message that another rank sends once this one has launched the kernel. So all of
// them are loaded before the first message, by a graph that is drawn and never launched.
void CudaLoaded::preload(Copy& copy) {
  cudaGraph_t drawn = nullptr;
  must(::cudaStreamBeginCapture(machine_.compute, cudaStreamCaptureModeRelaxed),
       "begin to load kernels");
  try {
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      comm::Heartbeat::inside(name_of(plan_, plan_.steps[i]));
      const plan::Step& step = plan_.steps[i];
      if (!plan::crosses_ranks(step.op) && step.move == plan::Move::none) compute(copy, i);
    }
    carried_->preload();
    gather_results(copy.results, copy.found, machine_.compute);
  } catch (const Error&) {  // who cannot be captured now is loaded by the first run
  }
  cudaGraphExec_t ready = nullptr;
  if (::cudaStreamEndCapture(machine_.compute, &drawn) == cudaSuccess && drawn &&
      ::cudaGraphInstantiate(&ready, drawn, 0) == cudaSuccess) {
    const GraphExec graph(ready);
    must(::cudaGraphUpload(graph, machine_.compute), "load kernels");
    machine_.wait_for_compute("load kernels");
  }
  if (drawn) (void)::cudaGraphDestroy(drawn);
  (void)::cudaGetLastError();
}

void CudaLoaded::enqueue(Copy& copy, const Segment& segment, Form form, bool captured) {
  const auto tick = [&](std::size_t i) {
    if (form == timed)
      must(::cudaEventRecordWithFlags(copy.ticks[i], machine_.compute,
                                      captured ? cudaEventRecordExternal : cudaEventRecordDefault),
           "mark the time of a step");
  };
  Ranges ranges;
  for (std::size_t i = segment.first; i < segment.last; ++i) {
    ranges.enter(scope_of(plan_, plan_.steps[i]));
    comm::Heartbeat::inside(name_of(plan_, plan_.steps[i]));  // libraries may take their time
    tick(2 * i);
    execute(copy, i, form, captured);
  }
  tick(2 * segment.last - 1);
  // A graph ends with what was forked from its stream in it.
  if (moves_) moves_->join_all();
  if (segment.last == plan_.steps.size())
    finish(copy, captured);
  else if (carried_)
    carried_->join_all({*copy.marks, false, captured});
}

void CudaLoaded::finish(Copy& copy, bool captured) {
  if (carried_) carried_->join_all({*copy.marks, false, captured});
  gather_results(copy.results, copy.found, machine_.compute);
}

void CudaLoaded::launch(Copy& copy, std::size_t index, Form form) {
  GraphExec& graph = copy.graphs[form][index];
  if (!graph) {
    const std::lock_guard lock(one_at_a_time());
    cudaGraph_t drawn = nullptr;
    must(::cudaStreamBeginCapture(machine_.compute, cudaStreamCaptureModeThreadLocal),
         "begin to capture a graph");
    try {
      enqueue(copy, segments_[index], form, true);
    } catch (...) {
      (void)::cudaStreamEndCapture(machine_.compute, &drawn);
      if (drawn) (void)::cudaGraphDestroy(drawn);
      (void)::cudaGetLastError();
      throw;
    }
    must(::cudaStreamEndCapture(machine_.compute, &drawn), "capture a graph");
    const std::int64_t free = room_on_card().free;
    cudaGraphExec_t ready = nullptr;
    const cudaError_t status = ::cudaGraphInstantiate(&ready, drawn, 0);
    (void)::cudaGraphDestroy(drawn);
    must(status, "instantiate a graph");
    graph = GraphExec(ready);
    must(::cudaGraphUpload(graph, machine_.compute), "bring a graph to the card");
    machine_.graph_bytes += std::max<std::int64_t>(0, free - room_on_card().free);
  }
  must(::cudaGraphLaunch(graph, machine_.compute), "launch a graph");
}

void CudaLoaded::cross(Copy& copy, std::size_t i, cpu::Recorder& record, cpu::Flights& flights) {
  const plan::Step& step = plan_.steps[i];
  Bound& bound = copy.steps[i];
  const int index = static_cast<int>(i);
  comm::Heartbeat::inside(name_of(plan_, step));  // what this rank is at, for those who look
  if (step.stream == 0) machine_.wait_for_compute("compute what the host hands on");
  const double begin = record.now();
  const auto start = [&] {
    if (step.move == plan::Move::none) return crossings_->start(i, bound.in, bound.out);
    return moves_->start(i, step.move == plan::Move::fetch ? bound.out[0] : bound.in[0]);
  };
  if (step.stream == 1) {
    flights.add(index, begin, start(), plan::is_point_to_point(step.op));
    return record(index, Timeline::post, begin);
  }
  start()->wait();
  record(index, Timeline::wait, begin);
  record.flight(index, begin);
}

void CudaLoaded::look(Copy& copy, std::size_t step, const Observer& observe) {
  const int index = static_cast<int>(&copy - copies_.data());
  std::deque<std::vector<std::byte>> kept;  // as long as the observer looks
  observe(step, [&](const plan::Slot& slot) -> std::span<const std::byte> {
    if (!slot || plan_.home_of(slot) != ir::Home::device) return {};
    std::vector<std::byte>& bytes = kept.emplace_back(static_cast<std::size_t>(slot.type.bytes()));
    machine_.before_reading(machine_.compute, "look at a step");
    cuda::copy(bytes.data(), machine_.memory.address(plan_, slot, index), slot.type.bytes(),
               cudaMemcpyDeviceToHost, machine_.compute, "look at a step");
    machine_.wait_for_compute("look at a step");
    return bytes;
  });
}

Timeline CudaLoaded::run(Copy& copy, const RunOptions& options) {
  const Form form = options.spans ? timed : plain;
  while (form == timed && copy.ticks.size() < 2 * plan_.steps.size())
    copy.ticks.push_back(make_event(true));
  if (carried_ && !warm_) preload(copy);
  cpu::Recorder record(plan_.steps.size(), options.spans);
  cpu::Flights flights(record);
  const std::int64_t written = machine_.writes;
  const bool prepares = prepared_at_ != written;
  if (updates_) ++machine_.writes;
  bool packs = prepares;  // behind what is made once, which may be what is packed
  for (std::size_t s = 0; s < segments_.size(); ++s) {
    const Segment& segment = segments_[s];
    if (segment.once) {
      if (prepares) enqueue(copy, segment, plain, false);
      continue;
    }
    if (std::exchange(packs, false)) pack_weights(copy);
    for (const int message : plan_.steps[segment.first].waits) flights.finish(message);
    if (options.observe) flights.finish_near();  // whoever looks sees what has arrived
    flights.poll(static_cast<int>(segment.first));
    if (segment.by_host) {
      cross(copy, segment.first, record, flights);
      if (segment.last == plan_.steps.size()) finish(copy, false);
      if (options.observe) look(copy, segment.first, options.observe);
    } else if (options.observe) {
      for (std::size_t i = segment.first; i < segment.last; ++i) {
        if (carried_) carried_->join_near();
        execute(copy, i, plain, false);
        if (moves_) moves_->join_all();
        look(copy, i, options.observe);
      }
      if (segment.last == plan_.steps.size()) finish(copy, false);
    } else if (warm_ && graphs_wanted()) {
      launch(copy, s, form);
    } else {
      enqueue(copy, segment, form, false);
    }
  }
  flights.finish_all();
  comm::Heartbeat::inside("");  // what follows is no equation's
  prepared_at_ = written;       // behind what may fail
  warm_ = true;
  return record.finish();
}

Ticket CudaLoaded::submit(const RunOptions& options) {
  machine_.here();
  bind_all();
  const int index = next_;
  Copy& copy = copies_[static_cast<std::size_t>(index)];
  if (copy.flight) collect(*copy.flight);  // as many runs are under way as there are copies
  next_ = (next_ + 1) % plan_.copies;
  const std::int64_t number = ++machine_.runs;
  if (std::exchange(machine_.last, this) != this) {
    machine_.since = number;
    must(::cudaEventRecord(machine_.before, machine_.compute), "mark the end of another plan");
  }
  upload(copy, index);
  copy.flight = std::make_shared<Flight>(
      Flight{.copy = index, .number = number, .submitted_ns = now_ns(), .spans = options.spans});
  must(::cudaEventRecord(copy.began, machine_.compute), "mark the beginning of a run");
  copy.flight->host = run(copy, options);
  if (carried_) carried_->posted();
  must(::cudaEventRecord(copy.done, machine_.compute), "mark the end of a run");
  copy.flight->observed = static_cast<bool>(options.observe);
  return Ticket(std::make_unique<Run>(*this, copy.flight));
}

}  // namespace tessera::exec::cuda
