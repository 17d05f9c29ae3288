// The public verbs: arguments are checked, payload is counted and the rank's heartbeat is kept
// here, once for all back ends; the blocking form starts and waits. Convention: counts are bytes,
// so a reduction also checks that each is a whole number of elements.
#include "comm/comm.h"

#include <utility>

#include "base/check.h"
#include "comm/heartbeat.h"

namespace tessera::comm {

namespace {

using std::int64_t;

int64_t bytes_of(ConstBytes data) { return static_cast<int64_t>(data.size()); }

int64_t total_of(Counts counts, int ranks, std::string_view verb) {
  CHECK(counts.size() == static_cast<std::size_t>(ranks),
        std::string(verb) + ": expected a count for each of " + std::to_string(ranks) +
            " ranks, found " + std::to_string(counts.size()));
  int64_t total = 0;
  for (int64_t count : counts) {
    CHECK(count >= 0, std::string(verb) + ": a count is negative: " + std::to_string(count));
    total += count;
  }
  return total;
}

void check_size(ConstBytes data, int64_t expected, std::string_view what) {
  CHECK(bytes_of(data) == expected, std::string(what) + ": the counts say " +
                                        std::to_string(expected) + " bytes, the buffer has " +
                                        std::to_string(data.size()));
}

void check_whole(int64_t bytes, ir::DType dtype, std::string_view verb) {
  CHECK(bytes % ir::size_of(dtype) == 0, std::string(verb) + ": " + std::to_string(bytes) +
                                             " bytes are no whole number of " +
                                             std::string(ir::name(dtype)));
}

void check_rank(int rank, int ranks, std::string_view verb) {
  CHECK(rank >= 0 && rank < ranks,
        std::string(verb) + ": rank " + std::to_string(rank) + " of " + std::to_string(ranks));
}

// An operation whose end is noted. The scope is that of its start: others may have begun since.
class Noted final : public Operation {
 public:
  Noted(Heartbeat& heartbeat, int group, Verb verb, std::uint64_t number, Pending operation)
      : heartbeat_(heartbeat),
        group_(group),
        verb_(verb),
        number_(number),
        scope_(heartbeat.scope()),
        operation_(std::move(operation)) {}
  ~Noted() override {
    if (left_) return;
    heartbeat_.wait(group_, verb_, number_, scope_);
    operation_.reset();
    leave();
  }
  Noted(const Noted&) = delete;
  Noted& operator=(const Noted&) = delete;

  bool done() override {
    if (!operation_->done()) return false;
    leave();
    return true;
  }
  void wait() override {
    heartbeat_.wait(group_, verb_, number_, scope_);
    operation_->wait();
    leave();
  }

 private:
  Heartbeat& heartbeat_;
  int group_;
  Verb verb_;
  std::uint64_t number_;
  std::string scope_;
  Pending operation_;
  bool left_ = false;

  void leave() {
    if (!std::exchange(left_, true)) heartbeat_.leave(group_, verb_, number_, scope_);
  }
};

}  // namespace

std::string_view name(Verb verb) {
  static constexpr std::array<std::string_view, verb_count> names = {
      "all_reduce", "reduce_scatter", "all_gather", "all_to_all",
      "broadcast",  "send",           "recv",       "barrier"};
  return names.at(static_cast<std::size_t>(verb));
}

Traffic& operator+=(Traffic& a, const Traffic& b) {
  const auto add = [](Traffic::Row& x, const Traffic::Row& y) {
    x.count += y.count;
    x.bytes += y.bytes;
  };
  for (std::size_t i = 0; i < a.rows.size(); ++i) add(a.rows[i], b.rows[i]);
  add(a.messages, b.messages);
  return a;
}

Traffic operator-(const Traffic& a, const Traffic& b) {
  const auto negate = [](Traffic::Row& x) {
    x.count = -x.count;
    x.bytes = -x.bytes;
  };
  Traffic out = b;
  for (Traffic::Row& row : out.rows) negate(row);
  negate(out.messages);
  return out += a;
}

Traffic::Row Traffic::total() const {
  Row sum;
  for (const Row& row : rows) {
    sum.count += row.count;
    sum.bytes += row.bytes;
  }
  return sum;
}

Traffic Comm::traffic() const {
  Traffic out = traffic_;
  out.messages = messages();
  return out;
}

void Comm::watch(Heartbeat* heartbeat, std::string_view name, int color) {
  watched_ = {heartbeat, std::string(name), color};
  group_ = heartbeat ? heartbeat->join(name, color) : -1;
  heartbeat_ = group_ < 0 ? nullptr : heartbeat;
}

void Comm::count(Verb verb, int64_t bytes) {
  ++traffic_[verb].count;
  traffic_[verb].bytes += bytes;
}

std::uint64_t Comm::enter(Verb verb, int64_t bytes) {
  count(verb, bytes);
  return heartbeat_ ? heartbeat_->enter(group_, verb) : 0;
}

Pending Comm::noted(Verb verb, std::uint64_t number, Pending operation) {
  if (!heartbeat_) return operation;
  return std::make_unique<Noted>(*heartbeat_, group_, verb, number, std::move(operation));
}

Pending Comm::start_all_reduce(Bytes data, ir::DType dtype, Reduction how) {
  check_whole(bytes_of(data), dtype, "all_reduce");
  const std::uint64_t number = enter(Verb::all_reduce, bytes_of(data));
  return noted(Verb::all_reduce, number, do_all_reduce(data, dtype, how));
}

Pending Comm::start_reduce_scatter(ConstBytes in, Bytes out, Counts counts, ir::DType dtype,
                                   Reduction how) {
  check_size(in, total_of(counts, size(), "reduce_scatter"), "reduce_scatter: in");
  check_size(out, counts[static_cast<std::size_t>(rank())], "reduce_scatter: out");
  for (int64_t bytes : counts) check_whole(bytes, dtype, "reduce_scatter");
  const std::uint64_t number = enter(Verb::reduce_scatter, bytes_of(in));
  return noted(Verb::reduce_scatter, number, do_reduce_scatter(in, out, counts, dtype, how));
}

Pending Comm::start_all_gather(ConstBytes in, Bytes out, Counts counts) {
  check_size(out, total_of(counts, size(), "all_gather"), "all_gather: out");
  check_size(in, counts[static_cast<std::size_t>(rank())], "all_gather: in");
  const std::uint64_t number = enter(Verb::all_gather, bytes_of(in));
  return noted(Verb::all_gather, number, do_all_gather(in, out, counts));
}

Pending Comm::start_all_to_all(ConstBytes in, Counts send_counts, Bytes out, Counts recv_counts) {
  check_size(in, total_of(send_counts, size(), "all_to_all"), "all_to_all: in");
  check_size(out, total_of(recv_counts, size(), "all_to_all"), "all_to_all: out");
  const std::uint64_t number = enter(Verb::all_to_all, bytes_of(in));
  return noted(Verb::all_to_all, number, do_all_to_all(in, send_counts, out, recv_counts));
}

Pending Comm::start_broadcast(Bytes data, int root) {
  check_rank(root, size(), "broadcast");
  const std::uint64_t number = enter(Verb::broadcast, bytes_of(data));
  return noted(Verb::broadcast, number, do_broadcast(data, root));
}

Pending Comm::start_barrier() {
  const std::uint64_t number = enter(Verb::barrier, 0);
  return noted(Verb::barrier, number, do_barrier());
}

Pending Comm::start_send(ConstBytes data, int to, int tag) {
  check_rank(to, size(), "send");
  CHECK(tag >= 0, "send: a tag is negative: " + std::to_string(tag));
  const std::uint64_t number = enter(Verb::send, bytes_of(data));
  return noted(Verb::send, number, do_send(data, to, tag));
}

Pending Comm::start_recv(Bytes data, int from, int tag) {
  check_rank(from, size(), "recv");
  CHECK(tag >= 0, "recv: a tag is negative: " + std::to_string(tag));
  const std::uint64_t number = enter(Verb::recv, bytes_of(data));
  return noted(Verb::recv, number, do_recv(data, from, tag));
}

void Comm::all_reduce(Bytes data, ir::DType dtype, Reduction how) {
  start_all_reduce(data, dtype, how)->wait();
}
void Comm::reduce_scatter(ConstBytes in, Bytes out, Counts counts, ir::DType dtype, Reduction how) {
  start_reduce_scatter(in, out, counts, dtype, how)->wait();
}
void Comm::all_gather(ConstBytes in, Bytes out, Counts counts) {
  start_all_gather(in, out, counts)->wait();
}
void Comm::all_to_all(ConstBytes in, Counts send_counts, Bytes out, Counts recv_counts) {
  start_all_to_all(in, send_counts, out, recv_counts)->wait();
}
void Comm::send(ConstBytes data, int to, int tag) { start_send(data, to, tag)->wait(); }
void Comm::recv(Bytes data, int from, int tag) { start_recv(data, from, tag)->wait(); }
void Comm::broadcast(Bytes data, int root) { start_broadcast(data, root)->wait(); }
void Comm::barrier() { start_barrier()->wait(); }

}  // namespace tessera::comm
