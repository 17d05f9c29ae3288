// An executor runs plans and keeps their memory: persistent buffers by name, shared between plans, and one arena as large as the largest
// plan needs. Convention: bytes in, bytes out; what the bytes mean is in the plan's bindings.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/comm.h"
#include "plan/footprint.h"
#include "plan/plan.h"

namespace tessera::exec {

// What each stream did, in milliseconds from the start of the run. Stream 0 computes, hands messages over (post), moves those on that are
// under way (poll) and waits for them, one after the other; stream 1 holds every message from hand-over to arrival (flight), and these
// may overlap.
struct Timeline {
  enum Kind : std::uint8_t { compute, post, poll, wait, flight };
  struct Span {
    int step = 0, stream = 0;  // poll: the step that comes next
    double start = 0, end = 0;
    Kind kind = compute;
  };
  std::vector<Span> spans;
  std::int64_t began_ns = 0;  // of the steady clock
  double wall_ms = 0;
};

// Called after each step of a run with its index and a way to see the bytes of its slots.
using Observer = std::function<void(std::size_t step, const std::function<std::span<const std::byte>(const plan::Slot&)>& bytes)>;

class Executor {
 public:
  virtual ~Executor() = default;

  // What a step needs beside its operands; lowering asks, so that the peak is known before anything runs.
  virtual plan::WorkspaceRule workspace_rule() const = 0;
  // Bytes that reserve() would take beyond those that are held already.
  virtual std::int64_t more_for(const plan::Footprint& room) const = 0;
  // Makes room: persistent buffers that are new (zeroed) and the arena. Error(memory) when there is none.
  virtual void reserve(const plan::Footprint& room) = 0;
  bool fits(const plan::Plan& plan) const;  // whether the system could give what prepare() would take
  void prepare(const plan::Plan& plan);     // reserve() for one plan
  // Batch and scalar inputs lie in the arena, where a run may overwrite them: write all of them before every run.
  virtual void write(const plan::Plan& plan, std::string_view input, std::span<const std::byte> bytes) = 0;
  virtual void read(const plan::Plan& plan, std::string_view output, std::span<std::byte> bytes) = 0;
  // Persistent buffers by name, from `offset` bytes on.
  virtual void write_persistent(std::string_view name, std::int64_t offset, std::span<const std::byte> bytes) = 0;
  virtual void read_persistent(std::string_view name, std::int64_t offset, std::span<std::byte> bytes) const = 0;
  virtual Timeline run(const plan::Plan& plan, const Observer& observe = {}) = 0;
  virtual std::int64_t allocated_bytes() const = 0;
};

std::int64_t available_memory();  // bytes that the system could still give

// `groups`: by axis of the mesh, the ranks that this one shares the axis with; they must outlive the executor.
std::unique_ptr<Executor> make_cpu_executor(int threads, std::map<std::string, comm::Comm*, std::less<>> groups = {});

}  // namespace tessera::exec
