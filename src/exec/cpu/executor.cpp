// Runs a plan step by step on the thread pool. f64 programs use the reference kernels; f32 the fast ones; bf16 operands are widened to f32
// around the kernel and results rounded, because no packaged library multiplies bf16 matrices on a CPU.
#include "exec/executor.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/control_group.h"
#include "base/threads.h"
#include "comm/pulse.h"
#include "exec/cpu/convert.h"
#include "exec/cpu/flights.h"
#include "exec/cpu/kernel.h"
#include "exec/cpu/memory.h"

namespace tessera::exec {
namespace {

using namespace cpu;

// Casts round themselves, and what crosses ranks crosses as it is.
bool widened(ir::Op op, const ir::Type& type) { return op != ir::Op::cast && !plan::crosses_ranks(op) && type.dtype == ir::DType::bf16; }

Scratch scratch_of(ir::Op op, const ir::Attrs& attrs, std::span<const ir::Type> in, std::span<const ir::Type> out) {
  for (const ir::Type& type : in)
    if (type.dtype == ir::DType::f64 && !plan::crosses_ranks(op)) return {};  // reference kernels need none
  const ScratchRule rule = kernel(op).scratch;
  return rule ? rule(attrs, in, out).aligned() : Scratch{};
}

// What this rank is at, for those who look at its pulse: the equation by its first result.
void note(const plan::Plan& plan, const plan::Step& step) {
  if (step.eqn < 0) return;
  const ir::Eqn& eqn = plan.program.eqns[static_cast<std::size_t>(step.eqn)];
  const ir::Var first = eqn.out.empty() ? ir::none : eqn.out[0];
  comm::Pulse::inside(first == ir::none ? eqn.scope : plan.program.name_of(first));
}

class CpuExecutor final : public Executor {
 public:
  CpuExecutor(int threads, Groups groups) : pool_(threads), groups_(std::move(groups)) {}

  plan::WorkspaceRule workspace_rule() const override {
    return [threads = pool_.size()](ir::Op op, const ir::Attrs& attrs, const std::vector<ir::Type>& in, const std::vector<ir::Type>& out) {
      const Scratch scratch = scratch_of(op, attrs, in, out);
      auto bytes = static_cast<std::int64_t>(scratch.shared + static_cast<std::size_t>(threads) * scratch.per_thread);
      for (const auto* list : {&in, &out})
        for (const ir::Type& type : *list)
          if (widened(op, type)) bytes += plan::aligned(type.elements() * 4);
      return bytes;
    };
  }

  std::int64_t more_for(const plan::Footprint& room) const override {
    std::int64_t more = std::max<std::int64_t>(0, room.arena_bytes() - arena_.bytes());
    for (const auto& [name, buffer] : room.persistent())
      if (!persistent_.contains(name)) more += buffer.bytes;
    return more;
  }

  void reserve(const plan::Footprint& room) override {
    // Pages are given when they are touched: ask first, or the system would end the process in the middle of a step.
    if (const std::int64_t more = more_for(room), available = available_memory(); more > available) out_of_memory(more, available);
    for (const auto& [name, buffer] : room.persistent()) {
      const auto it = persistent_.find(name);
      const std::int64_t shared = buffer.shared && !groups_.empty() ? buffer.bytes : 0;
      if (it == persistent_.end()) {
        persistent_.emplace(name, take(shared, buffer.bytes));
        continue;
      }
      CHECK(it->second.bytes() == buffer.bytes, "two plans disagree about the size of " + name);
      if (it->second.shared() >= shared) continue;
      Pages reached = take(shared, buffer.bytes);  // an earlier plan did not send it
      std::memcpy(reached.data(), it->second.data(), static_cast<std::size_t>(buffer.bytes));
      it->second = std::move(reached);
    }
    if (arena_.bytes() < room.arena_bytes() || (!groups_.empty() && arena_.shared() < room.shared_bytes())) {
      const std::int64_t shared = std::max(arena_.shared(), room.shared_bytes()), bytes = std::max(arena_.bytes(), room.arena_bytes());
      arena_ = {};  // give back before taking more
      arena_ = take(shared, bytes);
    }
  }

  void write(const plan::Plan& plan, std::string_view input, std::span<const std::byte> bytes) override {
    const plan::Binding* binding = plan.input(input);
    CHECK(binding, "the plan has no input " + std::string(input));
    copy_into(binding->slot, plan, input, bytes);
  }
  void read(const plan::Plan& plan, std::string_view output, std::span<std::byte> bytes) override {
    const plan::Binding* binding = plan.output(output);
    CHECK(binding, "the plan has no output " + std::string(output));
    CHECK(static_cast<std::int64_t>(bytes.size()) == binding->slot.type.bytes(), "output " + std::string(output) + " has another size");
    if (!bytes.empty()) std::memcpy(bytes.data(), address(plan, binding->slot), bytes.size());
  }
  void write_persistent(std::string_view name, std::int64_t offset, std::span<const std::byte> bytes) override {
    if (!bytes.empty()) std::memcpy(part_of(name, offset, bytes.size()), bytes.data(), bytes.size());
  }
  void read_persistent(std::string_view name, std::int64_t offset, std::span<std::byte> bytes) const override {
    if (!bytes.empty()) std::memcpy(bytes.data(), part_of(name, offset, bytes.size()), bytes.size());
  }

  Timeline run(const plan::Plan& plan, const Observer& observe) override {
    Recorder record(plan.steps.size());
    Flights flights(record);
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
      const plan::Step& step = plan.steps[i];
      const int number = static_cast<int>(i);
      for (const int message : step.waits) flights.finish(message);
      if (observe) flights.finish_near();  // whoever looks sees what has arrived
      flights.poll(number);
      const double begin = record.now();
      note(plan, step);
      if (step.stream == 1)
        flights.add(number, begin, start(plan, step), plan::is_point_to_point(step.op));
      else
        execute(plan, step);
      record(number, step.stream == 1 ? Timeline::post : plan::crosses_ranks(step.op) ? Timeline::wait : Timeline::compute, begin);
      if (step.stream == 0 && plan::crosses_ranks(step.op)) record.flight(number, begin);
      if (observe)
        observe(i, [&](const plan::Slot& slot) {
          return slot ? std::span<const std::byte>(address(plan, slot), static_cast<std::size_t>(slot.type.bytes()))
                      : std::span<const std::byte>();
        });
    }
    flights.finish_all();
    comm::Pulse::inside("");  // what follows is no equation's
    return record.finish();
  }

  std::int64_t allocated_bytes() const override {
    std::int64_t n = arena_.bytes();
    for (const auto& [name, pages] : persistent_) n += pages.bytes();
    return n;
  }

 private:
  // What any group takes is in the reach of all of them.
  Pages take(std::int64_t shared, std::int64_t bytes) const {
    return Pages(shared, bytes - shared, groups_.empty() ? nullptr : groups_.begin()->second);
  }

  const Pages& buffer(std::string_view name) const {
    const auto it = persistent_.find(name);
    CHECK(it != persistent_.end(), "there is no buffer " + std::string(name));
    return it->second;
  }

  std::byte* part_of(std::string_view name, std::int64_t offset, std::size_t bytes) const {
    const Pages& pages = buffer(name);
    CHECK(offset >= 0 && offset + static_cast<std::int64_t>(bytes) <= pages.bytes(),
          "buffer " + std::string(name) + " is smaller than what was asked for");
    return pages.data() + offset;
  }

  std::byte* address(const plan::Plan& plan, const plan::Slot& slot) const {
    if (!slot) return nullptr;
    const Pages& pages = slot.base == 0 ? arena_ : buffer(plan.persistent[static_cast<std::size_t>(slot.base - 1)].name);
    return pages.data() + slot.offset;
  }

  void copy_into(const plan::Slot& slot, const plan::Plan& plan, std::string_view name, std::span<const std::byte> bytes) {
    CHECK(static_cast<std::int64_t>(bytes.size()) == slot.type.bytes(),
          "input " + std::string(name) + " takes " + std::to_string(slot.type.bytes()) + " bytes, got " + std::to_string(bytes.size()));
    if (!bytes.empty()) std::memcpy(address(plan, slot), bytes.data(), bytes.size());
  }

  // Messages travel as they are, and those of stream 1 without scratch.
  comm::Pending start(const plan::Plan& plan, const plan::Step& step) {
    std::vector<Tensor> in, out;
    for (const plan::Slot& slot : step.in) in.push_back({slot.type.dtype, slot.type.shape, address(plan, slot)});
    for (const plan::Slot& slot : step.out) out.push_back({slot.type.dtype, slot.type.shape, address(plan, slot)});
    return start_collective({step.op, step.attrs, in, out, pool_, {}, nullptr, nullptr, &groups_});
  }

  void execute(const plan::Plan& plan, const plan::Step& step) {
    const KernelRow& row = kernel(step.op);
    std::byte* workspace = address(plan, step.workspace);
    bool f64 = false;
    std::vector<Tensor> in, out;
    std::vector<ir::Type> in_types, out_types;
    std::vector<std::pair<std::size_t, std::byte*>> to_round;  // result, where its bf16 goes
    auto take = [&](std::int64_t bytes) { return std::exchange(workspace, workspace + plan::aligned(bytes)); };
    for (const plan::Slot& slot : step.in) {
      Tensor t{slot.type.dtype, slot.type.shape, address(plan, slot)};
      f64 |= t.dtype == ir::DType::f64;
      in_types.push_back(slot.type);
      if (t && widened(step.op, slot.type)) {
        std::byte* wide = take(slot.type.elements() * 4);
        widen_bf16(t.as<std::uint16_t>(), reinterpret_cast<float*>(wide), t.elements(), pool_);
        t.dtype = ir::DType::f32, t.data = wide;
      }
      in.push_back(std::move(t));
    }
    for (const plan::Slot& slot : step.out) {
      Tensor t{slot.type.dtype, slot.type.shape, address(plan, slot)};
      f64 |= t.dtype == ir::DType::f64 && t;
      out_types.push_back(slot.type);
      if (t && widened(step.op, slot.type)) {
        to_round.emplace_back(out.size(), t.data);
        t.dtype = ir::DType::f32, t.data = take(slot.type.elements() * 4);
      }
      out.push_back(std::move(t));
    }
    const Scratch scratch = scratch_of(step.op, step.attrs, in_types, out_types);
    const Call call{step.op, step.attrs, in, out, pool_, scratch, workspace, workspace + scratch.shared, &groups_};
    (f64 ? row.f64 : row.f32)(call);
    for (const auto& [i, bf16] : to_round)
      round_to_bf16(out[i].as<float>(), reinterpret_cast<std::uint16_t*>(bf16), out[i].elements(), pool_);
  }

  ThreadPool pool_;
  Groups groups_;
  std::map<std::string, Pages, std::less<>> persistent_;
  Pages arena_;
};

plan::Footprint room_of(const plan::Plan& plan) {
  plan::Footprint room;
  room.add(plan);
  return room;
}

}  // namespace

bool Executor::fits(const plan::Plan& plan) const { return more_for(room_of(plan)) <= available_memory(); }
void Executor::prepare(const plan::Plan& plan) { reserve(room_of(plan)); }

// /proc/meminfo, and the limit of the control group; a very large number where neither is known.
std::int64_t available_memory() {
  std::int64_t available = std::int64_t{1} << 60;
  std::ifstream info("/proc/meminfo");
  for (std::string word; info >> word;)
    if (std::int64_t kib = 0; word == "MemAvailable:" && info >> kib) available = kib << 10;
  return std::min(available, memory_left_in_group().value_or(available));
}

std::unique_ptr<Executor> make_cpu_executor(int threads, Groups groups) {
  return std::make_unique<CpuExecutor>(threads, std::move(groups));
}

}  // namespace tessera::exec
