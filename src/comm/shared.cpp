// The verbs of ranks on one machine as jobs of their group; messages go through the base.
#include "comm/shared.h"

#include <exception>
#include <utility>

#include "comm/counts.h"

namespace tessera::comm {

namespace {

using std::int64_t;

class SharedOperation final : public Operation {
 public:
  SharedOperation(std::shared_ptr<SharedGroup> group, SharedEngine engine, std::shared_ptr<Job> job)
      : group_(std::move(group)),
        engine_(std::move(engine)),
        job_(std::move(job)),
        exceptions_(std::uncaught_exceptions()) {}
  ~SharedOperation() override {
    if (job_->complete) return;
    try {
      if (std::uncaught_exceptions() > exceptions_) {
        group_->drop(*job_);
        return;
      }
      wait();
    } catch (...) {  // whoever starts or waits next hears of it
      group_->drop(*job_);
    }
  }
  SharedOperation(const SharedOperation&) = delete;
  SharedOperation& operator=(const SharedOperation&) = delete;

  bool done() override {
    if (job_->complete) return true;
    engine_->step();
    return group_->complete(*job_);
  }
  void wait() override {
    if (!job_->complete) engine_->wait([this] { return group_->complete(*job_); });
  }

 private:
  std::shared_ptr<SharedGroup> group_;
  SharedEngine engine_;
  std::shared_ptr<Job> job_;
  int exceptions_;
};

class SharedComm final : public Wrapped {
 public:
  SharedComm(std::unique_ptr<Comm> base, std::shared_ptr<Node> node, const SharedEngine& engine,
             std::vector<int> ranks, Wrap wrap)
      : Wrapped(std::move(base), engine, std::move(wrap)),
        node_(std::move(node)),
        group_(std::make_shared<SharedGroup>(this->base(), node_, engine, std::move(ranks))) {}

  std::string describe() const override { return "shared memory"; }
  std::unique_ptr<Memory> allocate(int64_t shared, int64_t own) override {
    return node_->allocate(shared, own);
  }

 protected:
  Pending do_all_reduce(Bytes data, ir::DType dtype, Reduction how) override {
    return start({.verb = Verb::all_reduce,
                  .dtype = dtype,
                  .how = how,
                  .total = bytes_of(data),
                  .in = data,
                  .out = data,
                  .stream = data});
  }
  Pending do_reduce_scatter(ConstBytes in, Bytes out, Counts counts, ir::DType dtype,
                            Reduction how) override {
    return start({.verb = Verb::reduce_scatter,
                  .dtype = dtype,
                  .how = how,
                  .total = bytes_of(in),
                  .in = in,
                  .out = out,
                  .in_at = offsets(counts),
                  .stream = in});
  }
  Pending do_all_gather(ConstBytes in, Bytes out, Counts counts) override {
    return start({.verb = Verb::all_gather,
                  .total = bytes_of(out),
                  .in = in,
                  .out = out,
                  .out_at = offsets(counts),
                  .stream = in});
  }
  Pending do_all_to_all(ConstBytes in, Counts send_counts, Bytes out, Counts recv_counts) override {
    return start({.verb = Verb::all_to_all,
                  .in = in,
                  .out = out,
                  .in_at = offsets(send_counts),
                  .out_at = offsets(recv_counts),
                  .stream = in});
  }
  Pending do_broadcast(Bytes data, int root) override {
    return start({.verb = Verb::broadcast,
                  .root = root,
                  .total = bytes_of(data),
                  .in = data,
                  .out = data,
                  .stream = rank() == root ? ConstBytes(data) : ConstBytes()});
  }
  Pending do_barrier() override { return start({.verb = Verb::barrier}); }

 private:
  std::shared_ptr<Node> node_;
  std::shared_ptr<SharedGroup> group_;

  static int64_t bytes_of(ConstBytes data) { return static_cast<int64_t>(data.size()); }
  Pending start(Job job) {
    auto shared = std::make_shared<Job>(std::move(job));
    group_->start(shared);
    return std::make_unique<SharedOperation>(group_, engine(), std::move(shared));
  }
};

}  // namespace

std::unique_ptr<Comm> make_shared(std::unique_ptr<Comm> base, std::shared_ptr<Node> node,
                                  SharedEngine engine, std::vector<int> ranks, Wrap wrap) {
  return std::make_unique<SharedComm>(std::move(base), std::move(node), engine, std::move(ranks),
                                      std::move(wrap));
}

}  // namespace tessera::comm
