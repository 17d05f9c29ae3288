// A ring as a state machine. In the first n-1 steps a slice goes round and every rank adds its own
// numbers to it; it ends with its owner. In the next n-1 steps the sum goes round. What is received
// in one step is what is sent in the next, so the messages of all steps are two queues in the same
// order, and only the slice of step 0 is sent unasked.
#include "comm/ring.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "comm/counts.h"
#include "comm/queue.h"
#include "comm/reduce.h"
#include "comm/wrapped.h"

namespace tessera::comm {

namespace {

using std::int64_t;

constexpr std::size_t window = 4;  // messages under way in each direction
constexpr int tag = 0;             // of a group that nobody else sends in

struct Message {
  int64_t begin = 0, bytes = 0;  // of the slices side by side, unencoded
  int step = 0;
  std::vector<std::byte> buffer{};  // what travels, unless it is part of the result
  Pending pending{};
};

class RingTask final : public Task {
 public:
  struct Call {
    bool reduces = false, gathers = false;
    const std::byte* in = nullptr;  // all slices (reduces)
    std::byte* out = nullptr;       // all slices (gathers), or this rank's alone
    std::vector<int64_t> at;        // offsets of slices
    ir::DType dtype = ir::DType::u8;
    Reduction how = Reduction::sum;
    Wire wire = Wire::f32;
    int64_t chunk = 0;
  };

  RingTask(Comm& channel, Traffic::Row& messages, Call call)
      : channel_(channel), messages_(messages), call_(std::move(call)) {
    const int n = channel.size();
    first_ = call_.reduces ? 0 : n - 1;
    last_ = call_.gathers ? 2 * n - 3 : n - 2;
    for (int step = first_; step <= last_; ++step)
      each_chunk(received(step), [&](Message m) {
        m.step = step;
        expected_.push_back(std::move(m));
      });
    each_chunk(sent(first_), [&](Message m) {
      m.step = first_;
      if (n > 1 && first_ <= last_) to_send_.push_back(std::move(m));
    });
    unasked_ = to_send_.size();
    if (n == 1 && call_.reduces && call_.out != call_.in)
      move_bytes(call_.out, call_.in, call_.at.back());
  }

  State advance() override {
    bool worked = false;
    while (!sending_.empty() && sending_.front().pending->done()) {
      keep(std::move(sending_.front().buffer));
      sending_.pop_front();
      if (unasked_ > 0) --unasked_;
      worked = true;
    }
    while (receiving_.size() < window && !expected_.empty() && may_receive(expected_.front())) {
      receive(std::move(expected_.front()));
      expected_.pop_front();
      worked = true;
    }
    while (sending_.size() < window && !to_send_.empty()) {
      send(std::move(to_send_.front()));
      to_send_.pop_front();
      worked = true;
    }
    if (!receiving_.empty() && receiving_.front().pending->done()) {
      Message message = std::move(receiving_.front());
      receiving_.pop_front();
      take(std::move(message));
      worked = true;
    }
    if (expected_.empty() && receiving_.empty() && to_send_.empty() && sending_.empty())
      return State::complete;
    return worked ? State::worked : State::waiting;
  }

 private:
  Comm& channel_;
  Traffic::Row& messages_;
  Call call_;
  int first_, last_;
  std::deque<Message> expected_, receiving_, to_send_, sending_;
  std::size_t unasked_ =
      0;  // sends of the first step that are not done: they read what the last steps overwrite
  std::vector<std::vector<std::byte>> kept_;

  bool encoded() const { return call_.wire != Wire::f32; }
  int64_t travelling(int64_t bytes) const {
    return encoded() ? bytes / 4 * wire_size(call_.wire) : bytes;
  }
  int slice(int from_me) const {
    return ((channel_.rank() + from_me) % channel_.size() + channel_.size()) % channel_.size();
  }
  bool gathering(int step) const { return step >= channel_.size() - 1; }
  int sent(int step) const {
    return gathering(step) ? slice(-(step - (channel_.size() - 1))) : slice(-1 - step);
  }
  int received(int step) const { return sent(step + 1); }
  bool is_sum(int step) const {
    return step == channel_.size() - 2;
  }  // what arrives in this step lacks only this rank's numbers

  template <class Body>
  void each_chunk(int index, const Body& body) {
    const auto i = static_cast<std::size_t>(index);
    for (int64_t begin = call_.at[i]; begin < call_.at[i + 1]; begin += call_.chunk) {
      Message message;
      message.begin = begin;
      message.bytes = std::min(call_.chunk, call_.at[i + 1] - begin);
      body(std::move(message));
    }
  }

  std::byte* result(const Message& m) const {
    return call_.out + m.begin - (call_.gathers ? 0 : call_.at[std::size_t(channel_.rank())]);
  }

  std::vector<std::byte> room(int64_t bytes) {
    std::vector<std::byte> buffer;
    if (!kept_.empty()) {
      buffer = std::move(kept_.back());
      kept_.pop_back();
    }
    buffer.resize(static_cast<std::size_t>(bytes));
    return buffer;
  }
  void keep(std::vector<std::byte> buffer) {
    if (!buffer.empty()) kept_.push_back(std::move(buffer));
  }

  bool may_receive(const Message& m) const {
    return !gathering(m.step) || unasked_ == 0 || !call_.reduces;
  }

  void receive(Message m) {
    const int before = slice(-1);
    if (gathering(m.step) && !encoded()) {
      m.pending = channel_.start_recv({result(m), static_cast<std::size_t>(m.bytes)}, before, tag);
    } else {
      m.buffer = room(travelling(m.bytes));
      m.pending = channel_.start_recv(m.buffer, before, tag);
    }
    receiving_.push_back(std::move(m));
  }

  void send(Message m) {
    const int next = slice(1);
    const std::byte* data = gathering(m.step) ? result(m) : call_.in + m.begin;
    if (m.buffer.empty() && encoded()) {
      m.buffer = room(travelling(m.bytes));
      encode(call_.wire, data, m.buffer.data(), m.bytes / 4);
    }
    const ConstBytes bytes = m.buffer.empty() ? ConstBytes(data, static_cast<std::size_t>(m.bytes))
                                              : ConstBytes(m.buffer);
    m.pending = channel_.start_send(bytes, next, tag);
    ++messages_.count;
    messages_.bytes += static_cast<int64_t>(bytes.size());
    sending_.push_back(std::move(m));
  }

  void take(Message m) {
    m.pending.reset();
    if (!gathering(m.step))
      add(m);
    else if (encoded())
      decode(call_.wire, m.buffer.data(), result(m), m.bytes / 4);
    if (m.step == last_) return keep(std::move(m.buffer));
    ++m.step;
    to_send_.push_back(std::move(m));
  }

  // This rank's numbers on top of those that arrived; the buffer travels on.
  void add(Message& m) {
    std::byte* sum = is_sum(m.step) ? result(m) : m.buffer.data();
    std::vector<std::byte> wide;
    const std::byte* arrived = m.buffer.data();
    if (encoded()) {
      wide = room(m.bytes);
      decode(call_.wire, arrived, wide.data(), m.bytes / 4);
      arrived = wide.data();
      if (!is_sum(m.step)) sum = wide.data();
    }
    const std::byte* const from[] = {arrived, call_.in + m.begin};
    reduce(call_.dtype, call_.how, from, {&sum, 1}, m.bytes / ir::size_of(call_.dtype));
    if (encoded()) {
      if (m.step != last_) encode(call_.wire, sum, m.buffer.data(), m.bytes / 4);
      if (is_sum(m.step) && m.step != last_)
        decode(call_.wire, m.buffer.data(), sum, m.bytes / 4);  // as all others will have it
      keep(std::move(wide));
    } else if (is_sum(m.step)) {
      keep(std::exchange(m.buffer, {}));  // sent from the result
    }
  }
};

class RingComm final : public Wrapped {
 public:
  RingComm(std::unique_ptr<Comm> base, const SharedEngine& engine, RingOptions options)
      : Wrapped(std::move(base), engine,
                [=](std::unique_ptr<Comm> group) {
                  return make_ring(std::move(group), engine, options);
                }),
        channel_(this->base().split(0, rank())),
        options_(options),
        queue_(std::make_shared<Queue>(engine)) {}

  std::string describe() const override {
    const std::string rounded =
        options_.wire == Wire::f32 ? "" : ", large f32 sums as " + std::string(name(options_.wire));
    return "ring over " + base().describe() + rounded;
  }

 protected:
  Pending do_all_reduce(Bytes data, ir::DType dtype, Reduction how) override {
    const int64_t width = ir::size_of(dtype), elements = static_cast<int64_t>(data.size()) / width;
    std::vector<int64_t> at(1, 0);
    for (int r = 0; r < size(); ++r)
      at.push_back(at.back() + ir::split(elements, size(), r).size * width);
    return start({.reduces = true,
                  .gathers = true,
                  .in = data.data(),
                  .out = data.data(),
                  .at = std::move(at),
                  .dtype = dtype,
                  .how = how,
                  .wire = wire_of(data.size(), dtype, how),
                  .chunk = 0});
  }
  Pending do_reduce_scatter(ConstBytes in, Bytes out, Counts counts, ir::DType dtype,
                            Reduction how) override {
    return start({.reduces = true,
                  .gathers = false,
                  .in = in.data(),
                  .out = out.data(),
                  .at = offsets(counts),
                  .dtype = dtype,
                  .how = how,
                  .wire = wire_of(in.size(), dtype, how),
                  .chunk = 0});
  }
  Pending do_all_gather(ConstBytes in, Bytes out, Counts counts) override {
    std::vector<int64_t> at = offsets(counts);
    move_bytes(out.data() + at[static_cast<std::size_t>(rank())], in.data(),
               static_cast<int64_t>(in.size()));
    return start({.reduces = false,
                  .gathers = true,
                  .in = nullptr,
                  .out = out.data(),
                  .at = std::move(at),
                  .dtype = ir::DType::u8,
                  .how = Reduction::sum,
                  .wire = Wire::f32,
                  .chunk = 0});
  }
  Traffic::Row messages() const override { return messages_; }

 private:
  std::unique_ptr<Comm> channel_;  // for its messages alone
  RingOptions options_;
  std::shared_ptr<Queue> queue_;
  Traffic::Row messages_;

  Wire wire_of(std::size_t bytes, ir::DType dtype, Reduction how) const {
    const bool f32_sum = dtype == ir::DType::f32 && how == Reduction::sum;
    return f32_sum && static_cast<int64_t>(bytes) >= options_.wire_from ? options_.wire : Wire::f32;
  }
  Pending start(RingTask::Call call) {
    call.chunk = std::max<int64_t>(8, options_.chunk / 8 * 8);
    return queue_->start(std::make_shared<RingTask>(*channel_, messages_, std::move(call)));
  }
};

}  // namespace

std::unique_ptr<Comm> make_ring(std::unique_ptr<Comm> base, SharedEngine engine,
                                RingOptions options) {
  return std::make_unique<RingComm>(std::move(base), engine, options);
}

}  // namespace tessera::comm
