// The CPU as a device: loads plans, keeps their memory, runs them on a thread pool.
#include "exec/cpu/cpu.h"

#include "exec/cpu/gemm/i8.h"
#include "exec/cpu/loaded.h"
#include "exec/cpu/peak.h"
#include "exec/cpu/simd/instructions.h"

namespace tessera::exec::cpu {
namespace {

class CpuExecutor final : public Executor {
 public:
  CpuExecutor(int threads, Groups groups, std::string folder, const Liberties& liberties)
      : target_(cpu::target(threads, liberties)),
        machine_(threads, std::move(groups), std::move(folder), liberties) {}

  const plan::Target& target() const override { return target_; }
  std::int64_t more_for(const plan::Footprint& room) const override {
    return machine_.memory.more_for(room);
  }
  void reserve(const plan::Footprint& room) override { machine_.memory.make_room(room); }
  bool fits(const plan::Plan& plan) const override {
    return more_for(plan::footprint_of(plan)) <= available_memory();
  }
  std::unique_ptr<Loaded> load(const plan::Plan& plan) override {
    machine_.memory.make_room(plan::footprint_of(plan));
    return std::make_unique<CpuLoaded>(plan, machine_);
  }
  void write_persistent(std::string_view name, std::int64_t offset,
                        std::span<const std::byte> bytes) override {
    ++machine_.writes;
    machine_.memory.write(name, offset, bytes);
  }
  void read_persistent(std::string_view name, std::int64_t offset,
                       std::span<std::byte> bytes) const override {
    machine_.memory.read(name, offset, bytes);
  }
  std::int64_t allocated_bytes() const override { return machine_.memory.bytes(); }
  std::int64_t away_bytes(ir::Home home) const override {
    return home == ir::Home::host ? machine_.memory.host_bytes() : machine_.file_bytes();
  }
  int runs_ahead() const override { return 0; }

 private:
  plan::Target target_;
  Machine machine_;
};

}  // namespace

plan::Target target(int threads, const Liberties& liberties) {
  return {.device = "cpu",
          .alignment = 64,      // a cache line
          .shared_half = 4096,  // a page
          .workspace =
              [threads](ir::Op op, const ir::Attrs& attrs, const std::vector<ir::Type>& in,
                        const std::vector<ir::Type>& out) {
                return workspace_bytes(op, attrs, in, out, threads);
              },
          .packed =
              [liberties](ir::Op op, const ir::Attrs& attrs, const std::vector<ir::Type>& in,
                          int operand) {
                const PackedFormRule rule = kernel(op).packed;
                return rule ? rule(attrs, in, operand, liberties) : plan::PackedForm{};
              },
          .overwrites = [](ir::Op op, const ir::Attrs&, const std::vector<ir::Type>& in,
                           const ir::OpDef::Alias&) { return overwrites(op, in); },
          .gives_bytes = true,
          .supports = supports};
}

std::string kernel_names(std::string_view dtype) {
  const std::string_view factors = multiplied_in(dtype);
  const std::string_view micro = factors == "bf16"   ? micro_low().name
                                 : factors == "int8" ? i8_micros().front()->name
                                                     : micro_f32().name;
  return instruction_set() + ", " + std::string(micro);
}

DeviceInfo info(int threads) {
  return {.name = "cpu",
          .card = [] { return std::string(); },
          .peak_gflops = [threads](std::string_view dtype) { return measure_peak(threads, dtype); },
          .copy_gbytes = [threads] { return measure_copy_gbytes(threads); },
          // Buffers that rest on the host are copied in memory, one copy after the other.
          .link_gbytes =
              [threads] {
                const double copied = measure_copy_gbytes(threads) / 2;
                return LinkRates{copied, copied, copied / 2};
              },
          .how =
              [](std::string_view dtype) {
                return "measured: independent " + peak_instructions(dtype) +
                       " in registers on all threads, by their CPU time; of one rank";
              },
          .memory = available_memory,
          .count = [] { return 1; }};
}

std::unique_ptr<Executor> make(int threads, Groups groups, std::string folder,
                               const Liberties& liberties) {
  return std::make_unique<CpuExecutor>(threads, std::move(groups), std::move(folder), liberties);
}

}  // namespace tessera::exec::cpu
