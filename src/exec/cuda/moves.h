// Copies from where buffers rest and back there, in the runs of one plan. Between memory of the
// host and the card: copies on two streams of their own, one for each direction, behind what they
// are made of; all of it can be captured, so it cuts no graph. Between a file and the card: through
// pinned memory, by the host, which cuts a graph as a staged message does (crossing.h).
#pragma once

#include <map>
#include <vector>

#include "exec/cuda/machine.h"
#include "plan/staging.h"

namespace tessera::exec::cuda {

class Moves {
 public:
  Moves(const plan::Plan& plan, Machine& machine);
  ~Moves();
  Moves(const Moves&) = delete;
  Moves& operator=(const Moves&) = delete;

  // Memory of the host. Before step i the compute stream waits for copies that the step needs.
  void join(std::size_t i);
  // Step i itself.
  void move(std::size_t i, const Tensor& from, const Tensor& to);
  // All that are under way: where a graph ends, and for who looks.
  void join_all();

  // A file. Under way; whoever waits for a fetch has it before anything that the compute stream is
  // given next.
  comm::Pending start(std::size_t i, const Tensor& here);

 private:
  struct Copy {
    Event ready, done;
    bool under_way = false;
  };
  struct Staging {  // of a file
    PinnedBytes bytes;
    const Copy* last = nullptr;  // that came from here or went here
  };
  class Fetch;
  class Stow;
  const std::string& name_of(const plan::Slot& away) const {
    return plan_.persistent[static_cast<std::size_t>(away.base - 1)].name;
  }
  Staging& staging_of(std::size_t step) { return staging_[places_.place_of.at(step)]; }
  void fork(Copy& copy, cudaStream_t stream);

  const plan::Plan& plan_;
  Machine& machine_;
  const plan::FileStaging places_;
  std::map<std::size_t, Copy> copies_;  // by step
  std::vector<Staging> staging_;        // by place
};

}  // namespace tessera::exec::cuda
