// A plan bound to kernels and addresses of a card. A run is enqueued on the compute stream and
// submit() comes back; the first one step by step, which lets libraries load what they need, later
// ones as graphs that were captured once per copy of what a run is fed with. What crosses ranks
// through the host cuts a run into several graphs, between which the host acts; what NCCL carries
// does not.
#pragma once

#include <memory>
#include <vector>

#include "exec/cuda/crossing.h"
#include "exec/cuda/kernels/results.h"
#include "exec/cuda/machine.h"
#include "exec/cuda/moves.h"
#include "exec/cuda/nccl/carried.h"
#include "exec/executor.h"

namespace tessera::exec::cpu {
class Recorder;
class Flights;
}  // namespace tessera::exec::cpu

namespace tessera::exec::cuda {

class CudaLoaded final : public Loaded {
 public:
  CudaLoaded(const plan::Plan& plan, Machine& machine);
  ~CudaLoaded() override;

  void write(std::string_view input, std::span<const std::byte> bytes) override;
  void choose() override;
  void read(std::string_view output, std::span<std::byte> bytes) override;
  Ticket submit(const RunOptions& options) override;

 private:
  struct Bound {
    Kernel kernel = nullptr;
    std::vector<Tensor> in, out;
    std::byte *workspace = nullptr, *packed = nullptr;
  };
  // Steps [first, last): one that the host does, or several that the card does; once: not in every
  // run (plan/prepare.h).
  struct Segment {
    std::size_t first = 0, last = 0;
    bool by_host = false, once = false;
  };
  enum Form { plain, timed };  // of a graph: timed has an event before every step
  struct Flight;               // a run that was submitted
  struct Run;
  // One copy of the buffers that a run is fed with and leaves, and how it is run there.
  struct Copy {
    std::vector<Bound> steps;
    std::vector<GraphExec> graphs[2];  // by form, per segment
    Event uploading, uploaded, began, done;
    std::vector<Event> ticks;               // before every step, and behind the last of its segment
    std::unique_ptr<Carried::Marks> marks;  // where NCCL carries something
    std::vector<Result> results;
    std::byte *feed = nullptr, *found = nullptr;  // on the host
    std::shared_ptr<Flight> flight;               // the last run here
  };

  bool by_host(const plan::Step& step) const;
  void cut();                        // into segments
  void bind(Copy& copy, int index);  // addresses
  void bind_all();                   // where the memory has moved
  void upload(Copy& copy, int index);
  void execute(Copy& copy, std::size_t step, Form form, bool captured);
  Call call_of(Copy& copy, std::size_t step, Memo* memo);
  void compute(Copy& copy, std::size_t step);
  void pack_weights(Copy& copy);
  void preload(Copy& copy);
  void finish(Copy& copy, bool captured);  // what follows the last step
  void enqueue(Copy& copy, const Segment& segment, Form form, bool captured);
  void launch(Copy& copy, std::size_t segment, Form form);
  void cross(Copy& copy, std::size_t step, cpu::Recorder& record, cpu::Flights& flights);
  Timeline run(Copy& copy, const RunOptions& options);
  void look(Copy& copy, std::size_t step, const Observer& observe);
  void collect(Flight& flight);
  Timeline timeline_of(Flight& flight);

  const plan::Plan& plan_;
  Machine& machine_;
  std::vector<Segment> segments_;
  std::vector<Memo> memos_;  // per step
  // Where there is something that crosses ranks, one of them.
  std::unique_ptr<Crossings> crossings_;
  std::unique_ptr<Carried> carried_;
  std::unique_ptr<Moves> moves_;      // where there is something that rests away from the card
  HostBytes feeds_;                   // of all copies
  PinnedBytes results_;               // of all copies
  std::vector<std::int64_t> places_;  // where outputs lie in a copy of them (host_room.h)
  std::int64_t pinned_bytes_ = 0;
  std::vector<Copy> copies_;
  std::int64_t bound_at_ = -1;     // moves of the memory when addresses were taken
  bool warm_ = false;              // a run was enqueued step by step
  bool updates_ = false;           // a run writes persistent buffers
  std::int64_t prepared_at_ = -1;  // writes of such buffers when what is made once was made
  int next_ = 0;                   // the copy of the next run
  int waited_copy_ = 0;            // of the run that was waited for last
  std::int64_t waited_run_ = -1;
  std::int64_t ended_ns_ = 0;  // the last run that was collected
};

}  // namespace tessera::exec::cuda
