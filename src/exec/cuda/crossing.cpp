#include "exec/cuda/crossing.h"

#include <algorithm>

#include "base/check.h"

namespace tessera::exec::cuda {
namespace {

std::int64_t lines(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

std::vector<ir::Type> types_of(const std::vector<plan::Slot>& slots) {
  std::vector<ir::Type> out;
  for (const plan::Slot& slot : slots) out.push_back(slot.type);
  return out;
}

// When each message is done at the latest: the first step that waits for it, or the end.
std::vector<int> last_steps(const plan::Plan& plan) {
  const int end = static_cast<int>(plan.steps.size());
  std::vector<int> out(plan.steps.size());
  for (int i = 0; i < end; ++i)
    out[static_cast<std::size_t>(i)] =
        plan.steps[static_cast<std::size_t>(i)].stream == 1 ? end : i;
  for (int i = 0; i < end; ++i)
    for (const int message : plan.steps[static_cast<std::size_t>(i)].waits) {
      int& last = out[static_cast<std::size_t>(message)];
      last = std::min(last, i);
    }
  return out;
}

}  // namespace

class Crossings::Message final : public comm::Operation {
 public:
  Message(Crossings& all, std::size_t step, std::span<const Tensor> in, std::span<const Tensor> out)
      : all_(all), step_(step), place_(*all.places_[step]), out_(out.begin(), out.end()) {
    const cudaStream_t compute = all_.machine_.compute, transfer = all_.machine_.transfer;
    must(::cudaEventRecord(place_.up, compute), "mark what a message is made of");
    must(::cudaStreamWaitEvent(transfer, place_.up, 0), "wait for what a message is made of");
    for (std::size_t i = 0; i < in.size(); ++i)
      if (in[i])
        copy(place_.in[i].data, in[i].data, in[i].bytes(), cudaMemcpyDeviceToHost, transfer,
             "bring a message down");
    must(::cudaEventRecord(place_.down, transfer), "mark that a message is down");
    all_.queue_.push_back(this);
  }
  ~Message() override { std::erase(all_.queue_, this); }

  bool done() override {
    all_.hand_over_all(false);
    if (!handed_over_ || (pending_ && !pending_->done())) return false;
    go_up();
    return true;
  }
  void wait() override {
    all_.hand_over_all(true);
    if (pending_) pending_->wait();
    go_up();
  }
  bool is_down() const { return ::cudaEventQuery(place_.down) != cudaErrorNotReady; }
  void hand_over() {
    wait_for(place_.down, "bring a message down");
    const plan::Step& step = all_.plan_.steps[step_];
    bool f64 = false;
    for (const auto* list : {&place_.in, &place_.out})
      for (const cpu::Tensor& t : *list) f64 |= t && t.dtype == ir::DType::f64;
    const cpu::Call call{step.op,
                         step.attrs,
                         place_.in,
                         place_.out,
                         *all_.machine_.pool,
                         place_.scratch,
                         place_.shared,
                         place_.shared + place_.scratch.shared,
                         &all_.machine_.groups,
                         &place_.memo};
    handed_over_ = true;
    if (step.stream == 1)
      pending_ = cpu::start_collective(call);
    else
      (f64 ? cpu::kernel(step.op).f64 : cpu::kernel(step.op).f32)(call);
  }

 private:
  void go_up() {
    if (std::exchange(is_up_, true)) return;
    const cudaStream_t transfer = all_.machine_.transfer;
    for (std::size_t i = 0; i < out_.size(); ++i)
      if (out_[i])
        copy(out_[i].data, place_.out[i].data, out_[i].bytes(), cudaMemcpyHostToDevice, transfer,
             "send a message up");
    must(::cudaEventRecord(place_.up, transfer), "mark that a message is up");
    must(::cudaStreamWaitEvent(all_.machine_.compute, place_.up, 0), "wait for a message");
  }

  Crossings& all_;
  std::size_t step_;
  Place& place_;
  std::vector<Tensor> out_;
  comm::Pending pending_;
  bool handed_over_ = false, is_up_ = false;
};

Crossings::Crossings(const plan::Plan& plan, Machine& machine)
    : plan_(plan), machine_(machine), places_(plan.steps.size()) {
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const plan::Step& step = plan.steps[i];
    if (!plan::crosses_ranks(step.op)) continue;
    CHECK(machine.pool, "a plan of several ranks needs an executor that was given their groups");
    places_[i] = std::make_unique<Place>();
    Place& place = *places_[i];
    place.down = make_event();
    place.up = make_event();
    const cpu::ScratchRule rule = cpu::kernel(step.op).scratch;
    if (rule && step.stream == 0)
      place.scratch = rule(step.attrs, types_of(step.in), types_of(step.out)).aligned();
  }
  lay_out();
}

void Crossings::lay_out() {
  const std::vector<int> last = last_steps(plan_);
  const auto threads = static_cast<std::size_t>(machine_.pool ? machine_.pool->size() : 0);
  std::vector<plan::Interval> intervals;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (!places_[i]) continue;
    const plan::Step& step = plan_.steps[i];
    const cpu::Scratch& scratch = places_[i]->scratch;
    std::int64_t bytes =
        lines(static_cast<std::int64_t>(scratch.shared + threads * scratch.per_thread));
    for (const auto* list : {&step.in, &step.out})
      for (const plan::Slot& slot : *list)
        if (slot) bytes += lines(slot.type.bytes());
    intervals.push_back({bytes, static_cast<int>(i), last[i]});
  }
  if (intervals.empty()) return;
  const plan::Layout layout = plan::lay_out(intervals);
  // Where other ranks of the machine reach it too, so that the verbs copy nothing on the way.
  memory_ = machine_.groups.begin()->second->allocate(std::max<std::int64_t>(layout.bytes, 256));
  {
    const std::lock_guard lock(one_at_a_time());
    pinned_ =
        !refused(::cudaHostRegister(memory_->data(), static_cast<std::size_t>(memory_->bytes()),
                                    cudaHostRegisterPortable),
                 "pin memory of the host for messages");
  }
  if (pinned_)
    machine_.pinned += memory_->bytes();
  else
    machine_.note("messages between ranks pass through pageable memory, which is slower: " +
                  std::to_string(memory_->bytes()) + " bytes could not be pinned");
  std::size_t next = 0;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (!places_[i]) continue;
    const plan::Step& step = plan_.steps[i];
    std::byte* at = memory_->data() + layout.offsets[next++];
    const auto place = [&](const std::vector<plan::Slot>& slots, std::vector<cpu::Tensor>& list) {
      for (const plan::Slot& slot : slots) {
        list.push_back({slot.type.dtype, slot.type.shape, slot ? at : nullptr});
        if (slot) at += lines(slot.type.bytes());
      }
    };
    place(step.in, places_[i]->in);
    place(step.out, places_[i]->out);
    // Summed up where they came down.
    if (step.op == ir::Op::all_reduce) places_[i]->out[0].data = places_[i]->in[0].data;
    places_[i]->shared = at;
  }
}

Crossings::~Crossings() {
  if (!memory_) return;
  if (!pinned_) return;
  machine_.pinned -= memory_->bytes();
  const std::lock_guard lock(one_at_a_time());
  (void)::cudaHostUnregister(memory_->data());
}

void Crossings::hand_over_all(bool wait) {
  while (!queue_.empty() && (wait || queue_.front()->is_down())) {
    Message& next = *queue_.front();
    queue_.pop_front();
    next.hand_over();
  }
}

comm::Pending Crossings::start(std::size_t step, std::span<const Tensor> in,
                               std::span<const Tensor> out) {
  return std::make_unique<Message>(*this, step, in, out);
}

}  // namespace tessera::exec::cuda
