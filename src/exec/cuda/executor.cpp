// CUDA as a device: loads plans, keeps their memory, runs them on one card.
#include "exec/cuda/cuda.h"

#include <algorithm>
#include <cstring>

#include "exec/cuda/card.h"
#include "exec/cuda/loaded.h"
#include "exec/cuda/nccl/nccl.h"
#include "exec/cuda/peak.h"

namespace tessera::exec::cuda {
namespace {

plan::Target target_for(const Limits& limits) {
  return {.device = "cuda",
          .alignment = 256,
          .shared_half = 0,  // other ranks reach what is staged on the host
          .copies = 2,
          .workspace =
              [limits](ir::Op op, const ir::Attrs& attrs, const std::vector<ir::Type>& in,
                       const std::vector<ir::Type>& out) {
                const WorkspaceRule rule = kernel(op).workspace;
                return rule ? rule(attrs, in, out, limits) : 0;
              },
          .packed =
              [limits](ir::Op op, const ir::Attrs& attrs, const std::vector<ir::Type>& in,
                       int operand) {
                const PackedFormRule rule = kernel(op).packed;
                return rule ? rule(attrs, in, operand, limits) : plan::PackedForm{};
              },
          .reaches_host = true,
          .overwrites = [](ir::Op op, const ir::Attrs& attrs, const std::vector<ir::Type>& in,
                           const ir::OpDef::Alias&) { return overwrites(op, attrs, in); },
          .cuts_windows = [limits](const ir::Attention& attrs,
                                   const ir::Type& q) { return cuts_windows(attrs, q, limits); },
          .supports =
              [arch = limits.arch](ir::Op op, ir::DType dtype) {
                expect_dtype(arch, dtype);
                return supports(op, dtype);
              }};
}

class CudaExecutor final : public Executor {
 public:
  CudaExecutor(int threads, Groups groups, Carrier carrier, std::string folder, Liberties liberties)
      : machine_(threads, std::move(groups), carrier, std::move(folder), liberties),
        target_(target_for(machine_.context.limits)) {}

  const plan::Target& target() const override { return target_; }
  std::int64_t more_for(const plan::Footprint& room) const override {
    return machine_.memory.more_for(room);
  }
  void reserve(const plan::Footprint& room) override {
    machine_.here();
    if (more_for(room) > 0) machine_.wait_for_compute("wait for what runs in the arena");
    machine_.memory.make_room(room);
    if (machine_.memory.kept_weights())
      machine_.note(
          "weights that are read once stay on the card, beyond what was planned: memory of the "
          "host could not be pinned for them; raise the limit on locked memory (ulimit -l)");
  }
  bool fits(const plan::Plan& plan) const override {
    machine_.here();
    return more_for(plan::footprint_of(plan)) <= room_on_card().free;
  }
  std::unique_ptr<Loaded> load(const plan::Plan& plan) override {
    reserve(plan::footprint_of(plan));
    return std::make_unique<CudaLoaded>(plan, machine_);
  }
  void write_persistent(std::string_view name, std::int64_t offset,
                        std::span<const std::byte> bytes) override {
    machine_.here();
    ++machine_.writes;
    if (machine_.memory.home_of(name) != ir::Home::device) return write_away(name, offset, bytes);
    copy(machine_.memory.part_of(name, offset, bytes.size()), bytes.data(),
         static_cast<std::int64_t>(bytes.size()), cudaMemcpyHostToDevice, machine_.compute,
         "write a buffer");
  }
  void read_persistent(std::string_view name, std::int64_t offset,
                       std::span<std::byte> bytes) const override {
    machine_.here();
    if (machine_.memory.home_of(name) != ir::Home::device) return read_away(name, offset, bytes);
    machine_.before_reading(machine_.compute, "read a buffer");
    copy(bytes.data(), machine_.memory.part_of(name, offset, bytes.size()),
         static_cast<std::int64_t>(bytes.size()), cudaMemcpyDeviceToHost, machine_.compute,
         "read a buffer");
    machine_.wait_for_compute("read a buffer");
  }
  std::int64_t allocated_bytes() const override { return machine_.memory.bytes(); }
  std::int64_t away_bytes(ir::Home home) const override {
    return home == ir::Home::host ? machine_.memory.host_bytes() : machine_.memory.file().bytes();
  }
  std::int64_t pinned_bytes() const override { return machine_.pinned; }
  std::int64_t graph_bytes() const override { return machine_.graph_bytes; }
  std::vector<std::string> notes() const override { return machine_.notes; }
  Choices* choices() override { return &machine_.choices; }
  int runs_ahead() const override { return 1; }

 private:
  // Once the runs that were submitted are over: what they stow is joined to the compute stream.
  void write_away(std::string_view name, std::int64_t offset, std::span<const std::byte> bytes) {
    machine_.wait_for_compute("write a buffer that rests on the host");
    if (machine_.memory.home_of(name) == ir::Home::file)
      machine_.memory.file().write(name, offset, bytes);
    else if (!bytes.empty())
      std::memcpy(machine_.memory.part_of(name, offset, bytes.size()), bytes.data(), bytes.size());
  }
  void read_away(std::string_view name, std::int64_t offset, std::span<std::byte> bytes) const {
    machine_.wait_for_compute("read a buffer that rests on the host");
    if (machine_.memory.home_of(name) == ir::Home::file)
      machine_.memory.file().read(name, offset, bytes);
    else if (!bytes.empty())
      std::memcpy(bytes.data(), machine_.memory.part_of(name, offset, bytes.size()), bytes.size());
  }

  mutable Machine machine_;  // who reads a buffer waits for its streams
  plan::Target target_;
};

}  // namespace

plan::Target target(int) { return target_for(limits()); }

DeviceInfo info(int) {
  return {
      .name = "cuda",
      .card = [] { return machinery().cards.empty() ? std::string() : own_card().name; },
      .peak_gflops =
          [](std::string_view dtype) { return MeasuredPeak(measure_peak_gflops(dtype)); },
      .copy_gbytes = measure_copy_gbytes,
      .link_gbytes = measure_link_gbytes,
      .how = how_peak_is_measured,
      .memory =
          [] {
            must(::cudaSetDevice(own_card().index), "take hold of the card");
            return room_on_card().free;
          },
      .own_card = [] { return machinery().cards.empty() ? std::string() : own_card().identity; },
      .without_nccl = [] { return nccl_missing(); },
      .nccl = [] { return nccl_version(); },
      .count = [] { return std::max(1, static_cast<int>(machinery().cards.size())); }};
}

std::unique_ptr<Executor> make(int threads, Groups groups, Carrier carrier, std::string folder,
                               Liberties liberties) {
  return std::make_unique<CudaExecutor>(threads, std::move(groups), carrier, std::move(folder),
                                        liberties);
}

}  // namespace tessera::exec::cuda
