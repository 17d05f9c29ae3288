// A Comm that leaves to another one what it does not do itself, while operations of its rank's
// other groups advance. Convention: the base counts its own traffic; what people read is counted by
// the outermost Comm alone.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "comm/comm.h"
#include "comm/progress.h"

namespace tessera::comm {

using Wrap = std::function<std::unique_ptr<Comm>(std::unique_ptr<Comm> base)>;  // what a group of
                                                                                // the base becomes

class Wrapped : public Comm {
 public:
  int rank() const override { return base_->rank(); }
  int size() const override { return base_->size(); }
  std::string describe() const override { return base_->describe(); }
  std::unique_ptr<Memory> allocate(std::int64_t shared, std::int64_t own) override {
    return base_->allocate(shared, own);
  }
  void abort(const std::string& reason, int code) override { base_->abort(reason, code); }
  std::unique_ptr<Comm> split(int color, int key) override {
    do_barrier()->wait();  // while the base splits, nothing advances here
    return wrap_(base_->split(color, key));
  }

 protected:
  Wrapped(std::unique_ptr<Comm> base, SharedEngine engine, Wrap wrap)
      : base_(std::move(base)), engine_(std::move(engine)), wrap_(std::move(wrap)) {}

  Pending do_all_reduce(Bytes data, ir::DType dtype, Reduction how) override {
    return through(base_->start_all_reduce(data, dtype, how));
  }
  Pending do_reduce_scatter(ConstBytes in, Bytes out, Counts counts, ir::DType dtype,
                            Reduction how) override {
    return through(base_->start_reduce_scatter(in, out, counts, dtype, how));
  }
  Pending do_all_gather(ConstBytes in, Bytes out, Counts counts) override {
    return through(base_->start_all_gather(in, out, counts));
  }
  Pending do_all_to_all(ConstBytes in, Counts send_counts, Bytes out, Counts recv_counts) override {
    return through(base_->start_all_to_all(in, send_counts, out, recv_counts));
  }
  Pending do_broadcast(Bytes data, int root) override {
    return through(base_->start_broadcast(data, root));
  }
  Pending do_send(ConstBytes data, int to, int tag) override {
    return through(base_->start_send(data, to, tag));
  }
  Pending do_recv(Bytes data, int from, int tag) override {
    return through(base_->start_recv(data, from, tag));
  }
  Pending do_barrier() override { return through(base_->start_barrier()); }

  Comm& base() const { return *base_; }
  const SharedEngine& engine() const { return engine_; }
  std::unique_ptr<Comm> wrap(std::unique_ptr<Comm> group) const { return wrap_(std::move(group)); }

 private:
  std::unique_ptr<Comm> base_;
  SharedEngine engine_;
  Wrap wrap_;

  Pending through(Pending inner) const { return with_progress(engine_, std::move(inner)); }
};

}  // namespace tessera::comm
