// Messages between ranks in the runs of one plan, carried by NCCL from card to card: each message
// goes on the stream of its channel, behind what it is made of, and the compute stream waits for it
// where the plan says so. All of it can be captured, so a step is one graph. Convention: streams
// are forked and joined by events; events with times are of one copy of a plan, because each copy
// has graphs of its own.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exec/cuda/machine.h"
#include "exec/cuda/nccl/channels.h"

namespace tessera::exec::cuda {

class Carried {
 public:
  // Marks of one copy: when the compute stream waited, and when messages were under way.
  struct Marks {
    std::vector<Event> stalls, flights;
  };
  struct Recording {
    Marks& marks;
    bool timed = false;  // when messages were under way is marked, too
    bool captured = false;
  };

  Carried(const plan::Plan& plan, Machine& machine);  // makes the channels that are missing

  Marks make_marks() const;
  void preload();  // on the compute stream, which is captured: its own kernels
  // Before step i: the compute stream waits for what the step needs.
  void join(std::size_t i, const Recording& recording);
  // Step i itself, which crosses ranks.
  void message(std::size_t i, std::span<const Tensor> in, std::span<const Tensor> out,
               std::byte* workspace, const Recording& recording);
  void join_near();                           // collectives that are under way, for who looks
  void join_all(const Recording& recording);  // at the end of a run
  void posted();                              // a run was submitted
  // Adds how long the compute stream waited, in ms, and with spans where that was and what messages
  // took.
  void add_times(Timeline& timeline, const Marks& marks, cudaEvent_t began, bool spans) const;
  // When step i had what it waits for; 0: it waits for nothing.
  double joined_ms(std::size_t i, const Marks& marks, cudaEvent_t began) const;

 private:
  struct Message {
    Channel* channel = nullptr;
    Event ready, done;
    bool near = false, under_way = false;
    comm::Verb verb = comm::Verb::barrier;
    std::int64_t bytes = 0;
    std::string scope;
    std::size_t flight = 0;  // in the marks
  };
  void wait_for(Message& message);
  void enqueue(const plan::Step& step, Communicator& cards, cudaStream_t stream,
               std::span<const Tensor> in, std::span<const Tensor> out, std::byte* workspace);
  void mark(const Event& event, cudaStream_t stream, bool captured);
  bool stalls(std::size_t i) const { return stall_of_.contains(i); }

  const plan::Plan& plan_;
  Machine& machine_;
  std::map<std::size_t, Message> messages_;      // by step
  std::map<std::size_t, std::size_t> stall_of_;  // by step; that of the end is behind the last
};

}  // namespace tessera::exec::cuda
