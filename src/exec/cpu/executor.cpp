// Runs a plan step by step on the thread pool. f64 programs use the reference kernels; f32 the fast ones; bf16 operands are widened to f32
// around the kernel and results rounded, because no packaged library multiplies bf16 matrices on a CPU.
#include "exec/executor.h"

#include <chrono>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/threads.h"
#include "exec/cpu/convert.h"
#include "exec/cpu/kernel.h"
#include "exec/cpu/memory.h"

namespace tessera::exec {
namespace {

using namespace cpu;

// Casts round themselves, and what crosses ranks crosses as it is.
bool widened(ir::Op op, const ir::Type& type) { return op != ir::Op::cast && !plan::sends(op) && type.dtype == ir::DType::bf16; }

Scratch scratch_of(ir::Op op, const ir::Attrs& attrs, std::span<const ir::Type> in, std::span<const ir::Type> out) {
  for (const ir::Type& type : in)
    if (type.dtype == ir::DType::f64 && !plan::sends(op)) return {};  // reference kernels need none
  const ScratchRule rule = kernel(op).scratch;
  return rule ? rule(attrs, in, out).aligned() : Scratch{};
}

// Which memory collectives read and write: 0 for the arena, i + 1 for persistent buffer i.
std::set<int> bases_sent(const plan::Plan& plan) {
  std::set<int> bases;
  for (const plan::Step& step : plan.steps) {
    if (!plan::sends(step.op)) continue;
    if (step.workspace) bases.insert(step.workspace.base);
    for (const auto* slots : {&step.in, &step.out})
      for (const plan::Slot& slot : *slots)
        if (slot) bases.insert(slot.base);
  }
  return bases;
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

  void prepare(const plan::Plan& plan) override {
    // Pages are given when they are touched: ask first, or the system would end the process in the middle of a step.
    std::int64_t more = std::max<std::int64_t>(0, plan.arena_bytes - arena_.bytes());
    for (const plan::Buffer& buffer : plan.persistent)
      if (!persistent_.contains(buffer.name)) more += buffer.bytes;
    if (const std::int64_t available = available_memory(); more > available) out_of_memory(more, available);
    const std::set<int> sent = bases_sent(plan);
    for (std::size_t i = 0; i < plan.persistent.size(); ++i) {
      const plan::Buffer& buffer = plan.persistent[i];
      const bool shared = sent.contains(static_cast<int>(i) + 1);
      const auto it = persistent_.find(buffer.name);
      if (it == persistent_.end()) {
        persistent_.emplace(buffer.name, pages(shared ? buffer.bytes : 0, shared ? 0 : buffer.bytes));
        continue;
      }
      CHECK(it->second.bytes() == buffer.bytes, "two plans disagree about the size of " + buffer.name);
      if (shared && !groups_.empty() && it->second.shared() < buffer.bytes) {  // an earlier plan did not send it
        Pages reached = pages(buffer.bytes, 0);
        std::memcpy(reached.data(), it->second.data(), static_cast<std::size_t>(buffer.bytes));
        it->second = std::move(reached);
      }
    }
    const std::int64_t shared = sent.contains(0) ? plan.arena_bytes : 0;
    if (arena_.bytes() < plan.arena_bytes || (!groups_.empty() && arena_.shared() < shared)) {
      const std::int64_t all = std::max(arena_.bytes(), plan.arena_bytes), reached = std::max(arena_.shared(), shared);
      arena_ = Pages();  // give back before taking more
      arena_ = pages(reached, all - reached);
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
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    auto since = [&] { return std::chrono::duration<double, std::milli>(Clock::now() - start).count(); };
    Timeline timeline;
    timeline.spans.reserve(plan.steps.size());
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
      const double begin = since();
      execute(plan, plan.steps[i]);
      timeline.spans.push_back({static_cast<int>(i), 0, begin, since()});
      if (observe)
        observe(i, [&](const plan::Slot& slot) {
          return slot ? std::span<const std::byte>(address(plan, slot), static_cast<std::size_t>(slot.type.bytes()))
                      : std::span<const std::byte>();
        });
    }
    timeline.wall_ms = since();
    return timeline;
  }

  std::int64_t allocated_bytes() const override {
    std::int64_t n = arena_.bytes();
    for (const auto& [name, pages] : persistent_) n += pages.bytes();
    return n;
  }

 private:
  // Memory whose first bytes collectives use: any group can make it so that the others of this machine reach it.
  Pages pages(std::int64_t shared, std::int64_t own) const {
    return Pages(shared, own, groups_.empty() ? nullptr : groups_.begin()->second);
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

}  // namespace

std::unique_ptr<Executor> make_cpu_executor(int threads, Groups groups) {
  return std::make_unique<CpuExecutor>(threads, std::move(groups));
}

}  // namespace tessera::exec
