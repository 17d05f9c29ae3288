#include "exec/cpu/loaded.h"

#include <cstring>
#include <utility>

#include "comm/heartbeat.h"
#include "exec/common/results.h"
#include "exec/cpu/simd/convert.h"

namespace tessera::exec::cpu {
namespace {

// Casts round themselves, what crosses ranks crosses as it is, and a copy (which a plan may add,
// without workspace) moves bytes. Many kernels read bf16 themselves.
bool widened(ir::Op op, const ir::Type& type) {
  if (type.dtype == ir::DType::bf16 && kernel(op).low) return false;
  return op != ir::Op::cast && op != ir::Op::mark && op != ir::Op::copy &&
         !plan::crosses_ranks(op) && ir::is_low(type.dtype);
}

Scratch scratch_of(ir::Op op, const ir::Attrs& attrs, std::span<const ir::Type> in,
                   std::span<const ir::Type> out) {
  for (const ir::Type& type : in)
    if (type.dtype == ir::DType::f64 && !plan::crosses_ranks(op))
      return {};  // reference kernels need none
  const ScratchRule rule = kernel(op).scratch;
  return rule ? rule(attrs, in, out).aligned() : Scratch{};
}

// A place of a plan's workspace: whole lines, as the kernels' scratch.
std::int64_t lines(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

// A run that was over when submit() returned.
struct CpuLoaded::Run final : Ticket::Run {
  Run(CpuLoaded& plan, int of_copy, std::int64_t of_number, Results found)
      : loaded(plan), copy(of_copy), number(of_number), results(std::move(found)) {}
  bool done() override { return true; }
  Results wait() override {
    loaded.waited_copy_ = copy;
    loaded.waited_run_ = number;
    return std::move(results);
  }
  CpuLoaded& loaded;
  int copy;
  std::int64_t number;
  Results results;
};

std::int64_t workspace_bytes(ir::Op op, const ir::Attrs& attrs, std::span<const ir::Type> in,
                             std::span<const ir::Type> out, int threads) {
  const Scratch scratch = scratch_of(op, attrs, in, out);
  auto bytes = static_cast<std::int64_t>(scratch.shared +
                                         static_cast<std::size_t>(threads) * scratch.per_thread);
  for (const auto& list : {in, out})
    for (const ir::Type& type : list)
      if (widened(op, type)) bytes += lines(type.elements() * 4);
  return bytes;
}

CpuLoaded::CpuLoaded(const plan::Plan& plan, Machine& machine)
    : plan_(plan), machine_(machine), steps_(1) {
  for (const plan::Step& step : plan.steps) {
    Bound& bound = steps_[0].emplace_back();
    bound.step = &step;
    bool f64 = false;
    std::vector<ir::Type> in_types, out_types;
    const auto tensor = [&](const plan::Slot& slot, std::vector<Widened>& list, std::size_t index,
                            std::vector<ir::Type>& types) {
      const bool wide = slot && widened(step.op, slot.type);
      if (wide) list.push_back({index, slot.type.dtype});
      f64 |= slot && slot.type.dtype == ir::DType::f64;
      types.push_back(slot.type);
      return Tensor{wide ? ir::DType::f32 : slot.type.dtype, slot.type.shape, nullptr};
    };
    for (const plan::Slot& slot : step.in)
      bound.in.push_back(tensor(slot, bound.widen, bound.in.size(), in_types));
    for (const plan::Slot& slot : step.out)
      bound.out.push_back(tensor(slot, bound.round, bound.out.size(), out_types));
    const bool shared = shared_out(machine.liberties.threading, step.op, step.attrs, in_types);
    bound.pool = shared ? &machine.pool : &machine.alone;
    bound.kernel = f64 ? kernel(step.op).f64 : kernel(step.op).f32;
    if (step.stream == 0) bound.scratch = scratch_of(step.op, step.attrs, in_types, out_types);
    packs_ = packs_ || step.packed;
    if (&step >= plan.steps.data() + plan.prepared)
      for (const plan::Slot& slot : step.out) updates_ = updates_ || slot.base > 0;
    if (step.eqn < 0) continue;
    const ir::Eqn& eqn = plan.program.eqns[static_cast<std::size_t>(step.eqn)];
    const ir::Var first = eqn.out.empty() ? ir::none : eqn.out[0];
    bound.name = first == ir::none ? eqn.scope : plan.program.name_of(first);
  }
  steps_.resize(static_cast<std::size_t>(plan.copies), steps_[0]);
}

void CpuLoaded::bind(Bound& bound, int copy) {
  const plan::Step& step = *bound.step;
  std::byte* workspace = address(step.workspace, copy);
  for (std::size_t i = 0; i < step.in.size(); ++i) bound.in[i].data = address(step.in[i], copy);
  for (std::size_t i = 0; i < step.out.size(); ++i) bound.out[i].data = address(step.out[i], copy);
  const auto place = [&](Widened& widened, Tensor& tensor) {
    widened.narrow = std::exchange(tensor.data, workspace);
    workspace += lines(tensor.elements() * 4);
  };
  for (Widened& w : bound.widen) place(w, bound.in[w.index]);
  for (Widened& w : bound.round) place(w, bound.out[w.index]);
  bound.shared = workspace;
  bound.packed = address(step.packed, copy);
}

void CpuLoaded::prepare() {
  if (prepared_at_ == machine_.writes) return;
  for (std::size_t i = 0; i < plan_.prepared; ++i) execute(steps_[0][i]);
  prepared_at_ = machine_.writes;  // behind what may fail
}

void CpuLoaded::pack_weights() {
  for (Bound& bound : steps_[0]) {
    if (!bound.packed) continue;
    const std::string& buffer =
        plan_.persistent[static_cast<std::size_t>(bound.step->packed.base - 1)].name;
    const auto [at, fresh] = machine_.packed_at.try_emplace(buffer, -1);
    if (std::exchange(at->second, machine_.writes) == machine_.writes) continue;
    kernel(bound.step->op).pack(call_of(bound));
  }
}

void CpuLoaded::write(std::string_view input, std::span<const std::byte> bytes) {
  const plan::Binding* binding = plan_.input(input);
  CHECK(binding, "the plan has no input " + std::string(input));
  CHECK(plan_.home_of(binding->slot) == ir::Home::device,
        std::string(input) + " rests away from the device: write_persistent writes it");
  CHECK(static_cast<std::int64_t>(bytes.size()) == binding->slot.type.bytes(),
        "input " + std::string(input) + " takes " + std::to_string(binding->slot.type.bytes()) +
            " bytes, got " + std::to_string(bytes.size()));
  if (!bytes.empty()) std::memcpy(address(binding->slot, next_), bytes.data(), bytes.size());
  if (binding->slot.base > 0) ++machine_.writes;
}

void CpuLoaded::read(std::string_view output, std::span<std::byte> bytes) {
  const plan::Binding* binding = plan_.output(output);
  CHECK(binding, "the plan has no output " + std::string(output));
  CHECK(plan_.home_of(binding->slot) == ir::Home::device,
        std::string(output) + " rests away from the device: read_persistent reads it");
  CHECK(static_cast<std::int64_t>(bytes.size()) == binding->slot.type.bytes(),
        "output " + std::string(output) + " has another size");
  const bool there = machine_.last == this && waited_run_ >= machine_.since &&
                     machine_.runs - waited_run_ < plan_.copies;
  CHECK(
      there,
      "output " + std::string(output) +
          " is read before its run was waited for, or after another that may have overwritten it");
  if (!bytes.empty()) std::memcpy(bytes.data(), address(binding->slot, waited_copy_), bytes.size());
}

Call CpuLoaded::call_of(Bound& bound) {
  return {.op = bound.step->op,
          .attrs = bound.step->attrs,
          .in = bound.in,
          .out = bound.out,
          .pool = *bound.pool,
          .scratch = bound.scratch,
          .shared = bound.shared,
          .own = bound.shared + bound.scratch.shared,
          .groups = &machine_.groups,
          .memo = &bound.memo,
          .packed = bound.packed,
          .packed_bytes = bound.step->packed.type.bytes(),
          .threading = machine_.liberties.threading,
          .winograd = machine_.liberties.winograd};
}

comm::Pending CpuLoaded::start_move(const plan::Step& step, Bound& bound) {
  const bool fetches = step.move == plan::Move::fetch;
  const plan::Slot& away = fetches ? step.in[0] : step.out[0];
  const Tensor& here = fetches ? bound.out[0] : bound.in[0];
  const std::string& name = plan_.persistent[static_cast<std::size_t>(away.base - 1)].name;
  const std::span<std::byte> bytes(here.data, static_cast<std::size_t>(away.type.bytes()));
  AwayFile& file = machine_.memory.file();
  return fetches ? file.start_read(name, away.offset, bytes)
                 : file.start_write(name, away.offset, bytes);
}

void CpuLoaded::execute(Bound& bound) {
  const plan::Step& step = *bound.step;
  if (step.move != plan::Move::none && Machine::in_file(plan_, step))
    return start_move(step, bound)->wait();
  for (const Widened& w : bound.widen)
    widen_low(w.low, reinterpret_cast<const std::uint16_t*>(w.narrow),
              bound.in[w.index].as<float>(), bound.in[w.index].elements(), *bound.pool);
  bound.kernel(call_of(bound));
  for (const Widened& w : bound.round)
    round_to_low(w.low, bound.out[w.index].as<float>(), reinterpret_cast<std::uint16_t*>(w.narrow),
                 bound.out[w.index].elements(), *bound.pool);
}

Timeline CpuLoaded::run(int copy, const RunOptions& options) {
  const Observer& observe = options.observe;
  std::vector<Bound>& steps = steps_[static_cast<std::size_t>(copy)];
  Recorder record(steps.size(), options.spans);
  Flights flights(record);
  const auto bytes_of = [&](const plan::Slot& slot) {
    const std::byte* const data = address(slot, copy);  // null: absent, or in a file
    return data ? std::span(data, static_cast<std::size_t>(slot.type.bytes()))
                : std::span<const std::byte>();
  };
  for (std::size_t i = plan_.prepared; i < steps.size(); ++i) {
    const plan::Step& step = plan_.steps[i];
    Bound& bound = steps[i];
    const int index = static_cast<int>(i);
    for (const int message : step.waits) flights.finish(message);
    if (observe) flights.finish_near();  // whoever looks sees what has arrived
    flights.poll(index);
    const bool file = step.move != plan::Move::none && Machine::in_file(plan_, step);
    const bool message = plan::crosses_ranks(step.op) || file;
    const Timeline::Kind kind = step.stream == 1 && message ? Timeline::post
                                : message                   ? Timeline::wait
                                                            : Timeline::compute;
    const double begin = record.times(kind) ? record.now() : 0;
    if (step.eqn >= 0)
      comm::Heartbeat::inside(bound.name);  // what this rank is at, for those who look
    if (step.stream == 1 && message)
      flights.add(index, begin, file ? start_move(step, bound) : start_collective(call_of(bound)),
                  plan::is_point_to_point(step.op));
    else  // also a copy to or from memory of the host, which is over when it was made
      execute(bound);
    record(index, kind, begin);
    if (step.stream == 0 && message) record.flight(index, begin);
    if (observe) observe(i, bytes_of);
  }
  flights.finish_all();
  comm::Heartbeat::inside("");  // what follows is no equation's
  return record.finish();
}

Ticket CpuLoaded::submit(const RunOptions& options) {
  if (const std::int64_t moves = machine_.memory.moves(); bound_at_ != moves) {
    for (std::size_t copy = 0; copy < steps_.size(); ++copy)
      for (Bound& bound : steps_[copy]) bind(bound, static_cast<int>(copy));
    bound_at_ = moves;
  }
  const int copy = std::exchange(next_, (next_ + 1) % plan_.copies);
  const std::int64_t number = ++machine_.runs;
  if (std::exchange(machine_.last, this) != this) machine_.since = number;
  if (plan_.prepared > 0) prepare();
  if (packs_) pack_weights();
  Timeline timeline = run(copy, options);
  if (updates_) ++machine_.writes;
  const auto where = [&](const plan::Slot& slot) { return address(slot, copy); };
  return Ticket(std::make_unique<Run>(*this, copy, number,
                                      collect_results(plan_, where, std::move(timeline))));
}

}  // namespace tessera::exec::cpu
