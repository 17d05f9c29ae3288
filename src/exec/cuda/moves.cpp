#include "exec/cuda/moves.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tessera::exec::cuda {
namespace {

// The end of a copy that is where a buffer rests.
const plan::Slot& away_of(const plan::Step& step) {
  return step.move == plan::Move::fetch ? step.in[0] : step.out[0];
}

}  // namespace

Moves::Moves(const plan::Plan& plan, Machine& machine)
    : plan_(plan), machine_(machine), places_(plan::file_staging(plan)) {
  for (std::size_t i = 0; i < plan.steps.size(); ++i)
    if (plan.steps[i].move != plan::Move::none) copies_[i] = {make_event(), make_event(), false};
  for (const std::int64_t bytes : places_.bytes) staging_.push_back({pin(bytes), nullptr});
  machine.pinned += places_.total();
}

Moves::~Moves() { machine_.pinned -= places_.total(); }

void Moves::fork(Copy& copy, cudaStream_t stream) {
  must(::cudaEventRecord(copy.ready, machine_.compute), "mark what a copy is made of");
  must(::cudaStreamWaitEvent(stream, copy.ready, 0), "wait for what a copy is made of");
}

void Moves::join(std::size_t i) {
  for (const int other : plan_.steps[i].waits) {
    const auto found = copies_.find(static_cast<std::size_t>(other));
    if (found == copies_.end() || !std::exchange(found->second.under_way, false)) continue;
    must(::cudaStreamWaitEvent(machine_.compute, found->second.done, 0), "wait for a copy");
  }
}

void Moves::move(std::size_t i, const Tensor& from, const Tensor& to) {
  const plan::Step& step = plan_.steps[i];
  const bool fetches = step.move == plan::Move::fetch;
  const cudaStream_t stream = fetches ? machine_.fetch : machine_.stow;
  Copy& copy = copies_.at(i);
  fork(copy, stream);
  // The place is free once what lay there has gone. The compute stream need not wait for that.
  for (const int other : step.waits) {
    const auto found = copies_.find(static_cast<std::size_t>(other));
    if (found == copies_.end() || !found->second.under_way) continue;
    must(::cudaStreamWaitEvent(stream, found->second.done, 0), "wait for a place");
  }
  cuda::copy(to.data, from.data, to.bytes(),
             fetches ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, stream,
             fetches ? "fetch state" : "stow state");
  must(::cudaEventRecord(copy.done, stream), "mark the end of a copy");
  copy.under_way = true;
  if (step.stream == 1) return;
  copy.under_way = false;
  must(::cudaStreamWaitEvent(machine_.compute, copy.done, 0), "wait for a copy");
}

void Moves::join_all() {
  for (auto& [step, copy] : copies_)
    if (std::exchange(copy.under_way, false))
      must(::cudaStreamWaitEvent(machine_.compute, copy.done, 0), "wait for a copy");
}

// The file is read first. done() sends what was read up as soon as it is there and says no, so that
// the compute stream waits for it where the plan does, and not before.
class Moves::Fetch final : public comm::Operation {
 public:
  Fetch(Moves& all, std::size_t step, const Tensor& to)
      : all_(all), copy_(all.copies_.at(step)), to_(to) {
    const plan::Step& of = all_.plan_.steps[step];
    Staging& staging = all_.staging_of(step);
    staging_ = staging.bytes;
    // The next read would overwrite what the card has not got yet: the host may be far ahead.
    if (staging.last) wait_for(staging.last->done, "wait until staged state is up");
    staging.last = &copy_;
    must(::cudaEventRecord(copy_.ready, all_.machine_.compute), "mark that a place is free");
    read_ =
        all_.machine_.memory.file().start_read(all_.name_of(away_of(of)), away_of(of).offset,
                                               {staging_, static_cast<std::size_t>(to.bytes())});
  }
  bool done() override {
    if (read_ && read_->done()) go_up();
    return false;
  }
  void wait() override {
    if (read_) {
      read_->wait();
      go_up();
    }
    must(::cudaStreamWaitEvent(all_.machine_.compute, copy_.done, 0), "wait for state");
  }

 private:
  void go_up() {
    read_.reset();
    const cudaStream_t stream = all_.machine_.fetch;
    must(::cudaStreamWaitEvent(stream, copy_.ready, 0), "wait for a place");
    copy(to_.data, staging_, to_.bytes(), cudaMemcpyHostToDevice, stream, "fetch state");
    must(::cudaEventRecord(copy_.done, stream), "mark that state is up");
  }

  Moves& all_;
  Copy& copy_;
  const Tensor to_;
  std::byte* staging_ = nullptr;
  comm::Pending read_;  // null: it is on its way up
};

class Moves::Stow final : public comm::Operation {
 public:
  Stow(Moves& all, std::size_t step, const Tensor& from)
      : all_(all), step_(all.plan_.steps[step]), copy_(all.copies_.at(step)) {
    Staging& staging = all_.staging_of(step);
    staging_ = std::span(staging.bytes.get(), static_cast<std::size_t>(from.bytes()));
    staging.last = &copy_;
    const cudaStream_t stream = all_.machine_.stow;
    all_.fork(copy_, stream);
    copy(staging_.data(), from.data, from.bytes(), cudaMemcpyDeviceToHost, stream, "stow state");
    must(::cudaEventRecord(copy_.done, stream), "mark that state is down");
  }
  bool done() override {
    if (!written_ && ::cudaEventQuery(copy_.done) != cudaErrorNotReady) hand_over();
    return written_ && written_->done();
  }
  void wait() override {
    if (!written_) hand_over();
    written_->wait();
  }

 private:
  void hand_over() {
    wait_for(copy_.done, "bring state down");
    written_ = all_.machine_.memory.file().start_write(all_.name_of(away_of(step_)),
                                                       away_of(step_).offset, staging_);
  }

  Moves& all_;
  const plan::Step& step_;
  Copy& copy_;
  std::span<std::byte> staging_;
  comm::Pending written_;  // null: not down yet
};

comm::Pending Moves::start(std::size_t i, const Tensor& here) {
  if (plan_.steps[i].move == plan::Move::fetch) return std::make_unique<Fetch>(*this, i, here);
  return std::make_unique<Stow>(*this, i, here);
}

}  // namespace tessera::exec::cuda
