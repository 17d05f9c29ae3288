// Messages between ranks, staged through the host: operands come down into pinned memory, the
// kernels of the CPU hand them over, results go up again. Convention: messages are handed over in
// the order of the plan, since all ranks of a group call the same verbs in the same order; a
// message owns its operands and results until it is done, so the copies have a stream of their own.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "exec/cpu/kernel.h"
#include "exec/cuda/machine.h"

namespace tessera::exec::cuda {

class Crossings {
 public:
  Crossings(const plan::Plan& plan, Machine& machine);
  ~Crossings();

  std::int64_t bytes() const { return memory_ ? memory_->bytes() : 0; }
  // Brings the operands of a step down, behind what the compute stream has been given so far; the
  // answer is the message: under way when its operands are there and those before it are, done when
  // its results are on their way up, before anything that the compute stream is given next.
  comm::Pending start(std::size_t step, std::span<const Tensor> in, std::span<const Tensor> out);

 private:
  struct Place {  // in the staging memory
    std::vector<cpu::Tensor> in, out;
    cpu::Scratch scratch;
    std::byte* shared = nullptr;
    Event down, up;
    Memo memo;
  };
  class Message;
  void lay_out();
  void hand_over_all(bool wait);  // false: only those whose operands are there

  const plan::Plan& plan_;
  Machine& machine_;
  std::vector<std::unique_ptr<Place>> places_;  // per step; null: it does not cross
  std::unique_ptr<comm::Memory> memory_;
  bool pinned_ = false;
  std::deque<Message*> queue_;  // not handed over yet, in order
};

}  // namespace tessera::exec::cuda
