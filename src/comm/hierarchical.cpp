// An all_reduce as three stages, each an operation of a smaller group.
#include "comm/hierarchical.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "comm/queue.h"

namespace tessera::comm {

namespace {

using std::int64_t;

// One operation after the other.
class Stages final : public Task {
 public:
  using Stage = std::function<Pending()>;
  explicit Stages(std::vector<Stage> stages) : stages_(std::move(stages)) {}

  State advance() override {
    if (!current_) current_ = stages_[next_++]();
    if (!current_->done()) return State::waiting;
    current_.reset();
    return next_ == stages_.size() ? State::complete : State::worked;
  }

 private:
  std::vector<Stage> stages_;
  std::size_t next_ = 0;
  Pending current_;
};

class HierarchicalComm final : public Wrapped {
 public:
  HierarchicalComm(std::unique_ptr<Comm> base, const SharedEngine& engine, int machine,
                   Wrap wrapping, HierarchicalOptions options)
      : Wrapped(std::move(base), engine, std::move(wrapping)),
        options_(options),
        queue_(std::make_shared<Queue>(engine)),
        local_(wrap(this->base().split(machine, rank()))) {
    std::int32_t sizes[2] = {local_->size(), -local_->size()};
    this->base().all_reduce(std::as_writable_bytes(std::span(sizes)), ir::DType::i32,
                            Reduction::max);
    even_ = sizes[0] == -sizes[1];
    // Without equal numbers the first ranks form one group; the others one that is not used.
    across_ = this->base().split(even_ ? local_->rank() : std::min(local_->rank(), 1), rank());
    ring_ = make_ring(across_->split(0, across_->rank()), engine, options_.ring);
    if (options_.ring.wire != Wire::f32)
      whole_ = make_ring(this->base().split(0, rank()), engine, options_.ring);
  }

  std::string describe() const override {
    return local_->describe() + " within a machine (" + std::to_string(local_->size()) +
           " ranks here), " + ring_->describe() + " between";
  }
  std::unique_ptr<Memory> allocate(int64_t shared, int64_t own) override {
    return local_->allocate(shared, own);
  }

 protected:
  Pending do_all_reduce(Bytes data, ir::DType dtype, Reduction how) override {
    return queue_->start(std::make_shared<Stages>(even_ ? by_slices(data, dtype, how)
                                                        : by_first_ranks(data, dtype, how)));
  }
  Pending do_reduce_scatter(ConstBytes in, Bytes out, Counts counts, ir::DType dtype,
                            Reduction how) override {
    if (!whole_ || static_cast<int64_t>(in.size()) < options_.ring.wire_from)
      return Wrapped::do_reduce_scatter(in, out, counts, dtype, how);
    return whole_->start_reduce_scatter(in, out, counts, dtype, how);
  }
  Traffic::Row messages() const override {
    Traffic::Row sum = ring_->traffic().messages;
    if (whole_) {
      sum.count += whole_->traffic().messages.count;
      sum.bytes += whole_->traffic().messages.bytes;
    }
    return sum;
  }

 private:
  HierarchicalOptions options_;
  std::shared_ptr<Queue> queue_;
  std::unique_ptr<Comm> local_, across_, ring_, whole_;
  bool even_ = true;

  Pending between_machines(Bytes part, ir::DType dtype, Reduction how) {
    const bool ring = static_cast<int64_t>(part.size()) >= options_.ring_from * across_->size();
    return ring ? ring_->start_all_reduce(part, dtype, how)
                : across_->start_all_reduce(part, dtype, how);
  }

  std::vector<Stages::Stage> by_slices(Bytes data, ir::DType dtype, Reduction how) {
    if (local_->size() == 1) return {[=, this] { return between_machines(data, dtype, how); }};
    std::vector<int64_t> counts;
    const int64_t width = ir::size_of(dtype), elements = static_cast<int64_t>(data.size()) / width;
    for (int r = 0; r < local_->size(); ++r)
      counts.push_back(ir::split(elements, local_->size(), r).size * width);
    const ir::Range range = ir::split(elements, local_->size(), local_->rank());
    const Bytes mine = data.subspan(static_cast<std::size_t>(range.begin * width),
                                    static_cast<std::size_t>(range.size * width));
    return {[=, this] { return local_->start_reduce_scatter(data, mine, counts, dtype, how); },
            [=, this] { return between_machines(mine, dtype, how); },  //
            [=, this] { return local_->start_all_gather(mine, data, counts); }};
  }

  std::vector<Stages::Stage> by_first_ranks(Bytes data, ir::DType dtype, Reduction how) {
    std::vector<int64_t> counts(static_cast<std::size_t>(local_->size()), 0);
    counts[0] = static_cast<int64_t>(data.size());
    const bool first = local_->rank() == 0;
    std::vector<Stages::Stage> stages;
    stages.push_back([=, this] {
      return local_->start_reduce_scatter(data, first ? data : Bytes(), counts, dtype, how);
    });
    if (first) stages.push_back([=, this] { return between_machines(data, dtype, how); });
    stages.push_back([=, this] { return local_->start_broadcast(data, 0); });
    return stages;
  }
};

}  // namespace

std::unique_ptr<Comm> make_hierarchical(std::unique_ptr<Comm> base, SharedEngine engine,
                                        int machine, Wrap wrap, HierarchicalOptions options) {
  return std::make_unique<HierarchicalComm>(std::move(base), engine, machine, std::move(wrap),
                                            options);
}

}  // namespace tessera::comm
