// An executor runs plans and keeps their memory: persistent buffers by name, shared between plans,
// and one arena as large as the largest plan needs. A plan is loaded once, which binds it to
// kernels and addresses, and then run as often as it is wanted. Convention: bytes in, bytes out;
// what the bytes mean is in the plan's bindings.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exec/choices.h"
#include "exec/device.h"
#include "plan/footprint.h"
#include "plan/plan.h"

namespace tessera::exec {

// The work of each stream, in milliseconds from the start of the run. Stream 0 computes, hands
// messages over (post), moves those on that are under way (poll) and waits for them, one after the
// other; stream 1 holds every message from hand-over to arrival (flight), and these may overlap.
struct Timeline {
  enum Kind : std::uint8_t { compute, post, poll, wait, flight };
  struct Span {
    int step = 0, stream = 0;  // poll: the step that comes next
    double start = 0, end = 0;
    Kind kind = compute;
  };
  std::vector<Span> spans;    // empty where nobody asked for them
  std::int64_t began_ns = 0;  // of the steady clock
  double wall_ms = 0;
  double messages_ms = 0;  // of stream 0: handing over, polling and waiting, all together
  double copy_ms = 0;  // of what it was fed with, to a device that has memory of its own: beside
                       // the run before it, where that was still under way
};

// Called after each step of a run with its index and a way to see the bytes of its slots.
using Observer = std::function<void(
    std::size_t step, const std::function<std::span<const std::byte>(const plan::Slot&)>& bytes)>;

// How one run is to be made.
struct RunOptions {
  Observer observe{};
  bool spans = false;  // a timeline with a span for every step
};

// The results of a run that is done: its outputs that are single numbers, and where its time went.
// They are copies: later runs do not change them.
struct Results {
  std::map<std::string, double, std::less<>> scalars;
  Timeline timeline;

  double scalar(std::string_view output) const;  // CHECKs that there is one
};

// A run that was submitted. Its results come when it is done, which may be long after submit()
// returned.
class Ticket {
 public:
  struct Run {
    virtual ~Run() = default;
    virtual bool done() = 0;
    virtual Results wait() = 0;
  };
  explicit Ticket(std::unique_ptr<Run> run) : run_(std::move(run)) {}

  bool done() const { return run_->done(); }
  Results wait() {
    return std::exchange(run_, nullptr)->wait();
  }  // once; throws what the run threw

 private:
  std::unique_ptr<Run> run_;
};

// A plan in an executor, which must outlive it; so must the plan.
class Loaded {
 public:
  virtual ~Loaded() = default;

  // Feeds the next run, while earlier ones may be under way: write all batch and scalar inputs
  // before every run. A persistent input is changed for all runs that follow.
  virtual void write(std::string_view input, std::span<const std::byte> bytes) = 0;
  // Puts what a run would choose from libraries into the executor's table, without running.
  virtual void choose() {}
  // Runs of one executor happen in the order in which they were submitted. Where plan.copies of
  // them are under way, it waits for the first. The ticket must not outlive the loaded plan.
  virtual Ticket submit(const RunOptions& options = {}) = 0;
  // Reads an output of the run that was waited for last. It is refused once another plan of the
  // executor, or plan.copies further runs of this one, were submitted.
  virtual void read(std::string_view output, std::span<std::byte> bytes) = 0;
  Results run(const RunOptions& options = {}) { return submit(options).wait(); }
};

class Executor {
 public:
  virtual ~Executor() = default;

  virtual const plan::Target& target() const = 0;
  // Bytes that reserve() would take beyond those that are held already.
  virtual std::int64_t more_for(const plan::Footprint& room) const = 0;
  // Makes room for several plans at once: persistent buffers that are new (zeroed) and the arena.
  // Error(memory) when there is none.
  virtual void reserve(const plan::Footprint& room) = 0;
  virtual bool fits(
      const plan::Plan& plan) const = 0;  // whether the system could give what load() would take
  // Makes room (persistent buffers that are new, zeroed, and the arena) and binds the plan.
  // Error(memory) when there is no room.
  virtual std::unique_ptr<Loaded> load(const plan::Plan& plan) = 0;
  // Persistent buffers by name, from `offset` bytes on; in the order of the runs that were
  // submitted.
  virtual void write_persistent(std::string_view name, std::int64_t offset,
                                std::span<const std::byte> bytes) = 0;
  virtual void read_persistent(std::string_view name, std::int64_t offset,
                               std::span<std::byte> bytes) const = 0;
  virtual std::int64_t allocated_bytes() const = 0;
  // Bytes of persistent buffers that rest away from the device: in the host's memory, in files.
  virtual std::int64_t away_bytes(ir::Home home) const = 0;
  // Further bytes of the host: what batches and results pass through on their way to a device and
  // back.
  virtual std::int64_t pinned_bytes() const { return 0; }
  // Further bytes of the device: what its driver took for graphs, as far as it could be seen.
  virtual std::int64_t graph_bytes() const { return 0; }
  // Notes about how a run runs here, for who starts it; sentences.
  virtual std::vector<std::string> notes() const { return {}; }
  // The table of what it chose from libraries and takes again where it has an entry; null: it
  // chooses nothing.
  virtual Choices* choices() { return nullptr; }
  // How many runs are worth submitting before the first of them is waited for, beyond one. 0:
  // submit() returns when all is done.
  virtual int runs_ahead() const = 0;
};

}  // namespace tessera::exec
