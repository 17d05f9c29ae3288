// A plan bound to kernels and addresses: what a run would find out again every time is found out
// once. f64 programs use the reference kernels; f32 and bf16 the fast ones; f16 operands, and bf16
// where the kernel does not read it, are widened to f32 around the kernel and results rounded.
#pragma once

#include <memory>
#include <vector>

#include "exec/cpu/flights.h"
#include "exec/cpu/kernel.h"
#include "exec/cpu/memory.h"
#include "exec/executor.h"

namespace tessera::exec::cpu {

// Bytes that a step needs beside its operands on so many threads.
std::int64_t workspace_bytes(ir::Op op, const ir::Attrs& attrs, std::span<const ir::Type> in,
                             std::span<const ir::Type> out, int threads);

// The state that the plans of one executor share.
struct Machine {
  Machine(int threads, Groups given, std::string folder, const Liberties& may)
      : pool(threads),
        liberties(may),
        groups(std::move(given)),
        memory(groups.empty() ? nullptr : groups.begin()->second, std::move(folder)) {}
  std::int64_t file_bytes() const { return memory.file().bytes(); }
  // Whether a copy to or from where a buffer rests is one of a file.
  static bool in_file(const plan::Plan& plan, const plan::Step& step) {
    return plan.home_of(step.move == plan::Move::fetch ? step.in[0] : step.out[0]) ==
           ir::Home::file;
  }
  ThreadPool pool, alone{1};  // of a step that threads do not share out
  Liberties liberties;
  Groups groups;
  Memory memory;
  std::int64_t runs = 0;    // of all plans
  std::int64_t writes = 0;  // of persistent buffers, from outside or by a run
  // Packed weights by their buffer: `writes` when they were packed.
  std::map<std::string, std::int64_t, std::less<>> packed_at{};
  const Loaded* last = nullptr;  // whose run the last one was
  std::int64_t since = 0;        // the first of its runs without another's in between
};

class CpuLoaded final : public Loaded {
 public:
  CpuLoaded(const plan::Plan& plan, Machine& machine);

  void write(std::string_view input, std::span<const std::byte> bytes) override;
  void read(std::string_view output, std::span<std::byte> bytes) override;
  Ticket submit(const RunOptions& options) override;

 private:
  // A bf16 or f16 operand or result of a kernel: where its elements lie, and as f32 in the
  // workspace.
  struct Widened {
    std::size_t index = 0;
    ir::DType low = ir::DType::bf16;
    std::byte* narrow = nullptr;
  };
  struct Bound {
    const plan::Step* step = nullptr;
    Kernel kernel = nullptr;
    ThreadPool* pool = nullptr;
    std::vector<Tensor> in, out;  // as the kernel sees them
    std::vector<Widened> widen, round;
    Scratch scratch;
    std::byte* shared = nullptr;
    std::byte* packed = nullptr;
    std::string_view name;  // of the equation: its first result
    Memo memo;
  };
  void bind(Bound& bound, int copy);  // addresses
  Call call_of(Bound& bound);
  void execute(Bound& bound);
  // A copy to or from a file; under way.
  comm::Pending start_move(const plan::Step& step, Bound& bound);
  void prepare();       // what follows from weights alone, where they were written since
  void pack_weights();  // those that were written since they were packed
  Timeline run(int copy, const RunOptions& options);
  std::byte* address(const plan::Slot& slot, int copy) const {
    return machine_.memory.address(plan_, slot, copy);
  }

  const plan::Plan& plan_;
  Machine& machine_;
  std::vector<std::vector<Bound>> steps_;  // per copy of what a run is fed with and leaves
  bool packs_ = false, updates_ = false;   // reads packed weights; writes persistent buffers
  std::int64_t bound_at_ = -1;             // moves of the memory when addresses were taken
  std::int64_t prepared_at_ = -1;          // writes when the first steps were made
  int next_ = 0;                           // the copy of the next run
  struct Run;
  int waited_copy_ = 0;  // of the run that was waited for last
  std::int64_t waited_run_ = -1;
};

}  // namespace tessera::exec::cpu
