// The MPI back end: one process per rank. Every verb is one of MPI's non-blocking calls, so MPI
// itself progresses what is in flight. Convention: MPI's calls come from one thread at a time; they
// return their errors, which become Error(rank_lost) in MPI's words. A call moves at most
// `most_bytes`, as MPI counts in int: larger operations are several calls (TESSERA_MPI_CHUNK makes
// it smaller, for tests). bf16 is added pairwise in the order of MPI's algorithm and rounded each
// time, unlike comm/local.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/say.h"
#include "comm/comm.h"
#include "comm/counts.h"
#include "comm/keep_signals.h"
#include "comm/mpi_own.h"
#include "comm/reduce.h"

namespace tessera::comm {

namespace {

using std::int64_t;

// An error is under way in this process: MPI_Finalize would wait for ranks that never come.
bool failing = false;

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "unknown error";
  int length = 0;
  MPI_Error_string(code, text, &length);
  failing = true;
  throw Error(ErrorKind::rank_lost, std::string(call) + ": " + text, "MPI",
              "the output of the rank that stopped first says why");
}

MPI_Datatype type_of(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::f64:
      return MPI_DOUBLE;
    case ir::DType::f32:
      return MPI_FLOAT;
    case ir::DType::bf16:
      return MPI_UINT16_T;
    case ir::DType::i64:
      return MPI_INT64_T;
    case ir::DType::i32:
      return MPI_INT32_T;
    case ir::DType::u8:
      return MPI_UINT8_T;
  }
  return MPI_DATATYPE_NULL;
}

template <ir::DType dtype, Reduction how>
void combine(void* in, void* inout, int* elements, MPI_Datatype*) {
  std::byte* const to = static_cast<std::byte*>(inout);
  const std::byte* const from[] = {static_cast<const std::byte*>(in), to};
  reduce(dtype, how, from, {&to, 1}, *elements);
}

// MPI from its start to its end, once per process.
struct Session {
  int64_t most_bytes = 1 << 30;
  int tag_limit = 32767;
  MPI_Op bf16[3], f32[3], f64[3];  // by Reduction; ours where MPI has none, or one that loses a NaN

  Session() {
    const KeepSignals keep;
    ::setenv("OMPI_MCA_opal_signal", "",
             0);  // Open MPI: nor meanwhile, where its stack of a half-made process would crash
    int provided = 0;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
    CHECK(provided >= MPI_THREAD_FUNNELED, "MPI supports no threads at all");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    create(combine<ir::DType::bf16, Reduction::sum>, bf16[0]);
    create(combine<ir::DType::bf16, Reduction::max>, bf16[1]);
    create(combine<ir::DType::bf16, Reduction::min>, bf16[2]);
    create(combine<ir::DType::f32, Reduction::max>, f32[1]);
    create(combine<ir::DType::f32, Reduction::min>, f32[2]);
    create(combine<ir::DType::f64, Reduction::max>, f64[1]);
    create(combine<ir::DType::f64, Reduction::min>, f64[2]);
    f32[0] = f64[0] = MPI_SUM;
    int found = 0;
    int* limit = nullptr;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&limit), &found);
    if (found) tag_limit = *limit;
    if (const char* text = std::getenv("TESSERA_MPI_CHUNK"))
      most_bytes = std::clamp<int64_t>(std::strtoll(text, nullptr, 10), 8, most_bytes) / 8 *
                   8;  // whole elements
  }
  ~Session() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (!failing && !finalized) MPI_Finalize();
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  MPI_Op op(ir::DType dtype, Reduction how) const {
    const auto i = static_cast<std::size_t>(how);
    if (dtype == ir::DType::bf16) return bf16[i];
    if (dtype == ir::DType::f32) return f32[i];
    if (dtype == ir::DType::f64) return f64[i];
    return how == Reduction::sum ? MPI_SUM : how == Reduction::max ? MPI_MAX : MPI_MIN;
  }

 private:
  static void create(MPI_User_function* function, MPI_Op& op) {
    check(MPI_Op_create(function, 1, &op), "MPI_Op_create");
  }
};

Session& session() {
  static Session once;
  return once;
}

// Several requests that are one operation, and what they need until they end.
class MpiOperation final : public Operation {
 public:
  std::vector<MPI_Request> requests;
  std::vector<std::vector<int>> numbers;  // counts and displacements
  std::vector<MPI_Datatype> types, made;  // all of a call; those to free
  std::vector<std::byte> scratch;
  Bytes scratch_to;       // copied there at the end
  int64_t received = -1;  // bytes that a recv expects
  bool receiving = false;

  MpiOperation() : exceptions_(std::uncaught_exceptions()) {}
  ~MpiOperation() override {
    if (ended_) return;
    if (std::uncaught_exceptions() >
        exceptions_) {  // the others may never come; this process is about to end
      failing = true;
      return;
    }
    try {
      wait();
    } catch (...) {  // the flag is set: the next call says it again
    }
  }
  MpiOperation(const MpiOperation&) = delete;
  MpiOperation& operator=(const MpiOperation&) = delete;

  MPI_Request* next() { return &requests.emplace_back(MPI_REQUEST_NULL); }

  bool done() override {
    if (ended_) return true;
    std::vector<MPI_Status> statuses(requests.size());
    int flag = 0;
    const int code =
        MPI_Testall(static_cast<int>(requests.size()), requests.data(), &flag, statuses.data());
    if (code != MPI_SUCCESS || flag) end(code, statuses);
    return ended_;
  }
  void wait() override {
    if (ended_) return;
    std::vector<MPI_Status> statuses(requests.size());
    const int code =
        MPI_Waitall(static_cast<int>(requests.size()), requests.data(), statuses.data());
    end(code, statuses);
  }

 private:
  bool ended_ = false;
  int exceptions_;

  void end(int code, const std::vector<MPI_Status>& statuses) {
    ended_ = true;
    for (MPI_Datatype& type : made) MPI_Type_free(&type);
    if (code == MPI_ERR_IN_STATUS)
      for (const MPI_Status& status : statuses)
        if (status.MPI_ERROR != MPI_SUCCESS && status.MPI_ERROR != MPI_ERR_PENDING)
          code = status.MPI_ERROR;
    check(code, "waiting for other ranks");
    if (!scratch_to.empty()) std::memcpy(scratch_to.data(), scratch.data(), scratch_to.size());
    if (!receiving) return;
    int64_t arrived = 0;
    for (const MPI_Status& status : statuses) {
      int bytes = 0;
      MPI_Get_count(&status, MPI_BYTE, &bytes);
      arrived += bytes;
    }
    CHECK(arrived == received, "recv: " + std::to_string(arrived) + " bytes sent, " +
                                   std::to_string(received) + " expected");
  }
};
using Started = std::unique_ptr<MpiOperation>;

// body(offset in bytes, elements) for each call that `bytes` need; `even_none`: one call also for
// nothing.
template <class Body>
void in_chunks(int64_t bytes, int64_t width, bool even_none, const Body& body) {
  const int64_t most = session().most_bytes;
  for (int64_t at = 0; at < bytes || (even_none && at == 0); at += most)
    body(at, static_cast<int>(std::min(most, bytes - at) / width));
}

// Divided by the width of an element; the caller knows that they fit.
std::vector<int> as_ints(std::span<const int64_t> values, int64_t width) {
  std::vector<int> ints;
  for (int64_t value : values) ints.push_back(static_cast<int>(value / width));
  return ints;
}

class MpiComm final : public Comm {
 public:
  MpiComm(MPI_Comm comm, bool owned)
      : comm_(comm), owned_(owned), exceptions_(std::uncaught_exceptions()) {
    check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(comm, &size_), "MPI_Comm_size");
  }
  ~MpiComm() override {
    if (std::uncaught_exceptions() > exceptions_) failing = true;
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (owned_ && !failing && !finalized) MPI_Comm_free(&comm_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::unique_ptr<Comm> split(int color, int key) override {
    CHECK(color >= 0, "split: a color is negative: " + std::to_string(color));
    MPI_Comm part = MPI_COMM_NULL;
    check(MPI_Comm_split(comm_, color, key, &part), "MPI_Comm_split");
    return std::make_unique<MpiComm>(part, true);
  }
  std::string describe() const override { return "mpi"; }
  void abort(const std::string& reason, int code) override {
    int world_rank = rank_, length = 0;
    char host[MPI_MAX_PROCESSOR_NAME + 1] = "";
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Get_processor_name(host, &length);
    say_lines(stderr, fmt::format("[rank {} {}] {}\n", world_rank, host, reason));
    std::fflush(nullptr);
    failing = true;
    MPI_Abort(MPI_COMM_WORLD, code);
    std::_Exit(code);
  }

 protected:
  Pending do_all_reduce(Bytes data, ir::DType dtype, Reduction how) override {
    auto op = std::make_unique<MpiOperation>();
    in_chunks(static_cast<int64_t>(data.size()), ir::size_of(dtype), false, [&](int64_t at, int n) {
      check(MPI_Iallreduce(MPI_IN_PLACE, data.data() + at, n, type_of(dtype),
                           session().op(dtype, how), comm_, op->next()),
            "MPI_Iallreduce");
    });
    return op;
  }

  Pending do_reduce_scatter(ConstBytes in, Bytes out, Counts counts, ir::DType dtype,
                            Reduction how) override {
    auto op = std::make_unique<MpiOperation>();
    const int64_t width = ir::size_of(dtype);
    std::byte* to = out.data();
    if (std::less<>()(out.data(), in.data() + in.size()) &&
        std::less<>()(in.data(), out.data() + out.size())) {  // MPI forbids it
      op->scratch.resize(out.size());
      op->scratch_to = out;
      to = op->scratch.data();
    }
    const MPI_Datatype type = type_of(dtype);
    const MPI_Op how_op = session().op(dtype, how);
    if (static_cast<int64_t>(in.size()) <= session().most_bytes) {
      const std::vector<int>& n = op->numbers.emplace_back(as_ints(counts, width));
      check(MPI_Ireduce_scatter(in.data(), to, n.data(), type, how_op, comm_, op->next()),
            "MPI_Ireduce_scatter");
      return op;
    }
    const std::vector<int64_t> begin = offsets(counts);
    for (int r = 0; r < size_; ++r)
      in_chunks(counts[static_cast<std::size_t>(r)], width, false, [&](int64_t at, int n) {
        const std::byte* from = in.data() + begin[static_cast<std::size_t>(r)] + at;
        check(MPI_Ireduce(from, r == rank_ ? to + at : nullptr, n, type, how_op, r, comm_,
                          op->next()),
              "MPI_Ireduce");
      });
    return op;
  }

  Pending do_all_gather(ConstBytes in, Bytes out, Counts counts) override {
    auto op = std::make_unique<MpiOperation>();
    const std::vector<int64_t> begin = offsets(counts);
    // All ranks must call it in place, or none; so all do.
    std::byte* mine = out.data() + begin[static_cast<std::size_t>(rank_)];
    if (!in.empty() && mine != in.data()) std::memcpy(mine, in.data(), in.size());
    if (static_cast<int64_t>(out.size()) <= session().most_bytes) {
      op->numbers = {as_ints(counts, 1), as_ints(begin, 1)};
      check(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_BYTE, out.data(), op->numbers[0].data(),
                            op->numbers[1].data(), MPI_BYTE, comm_, op->next()),
            "MPI_Iallgatherv");
      return op;
    }
    for (int r = 0; r < size_; ++r)
      in_chunks(counts[static_cast<std::size_t>(r)], 1, false, [&](int64_t at, int n) {
        check(MPI_Ibcast(out.data() + begin[static_cast<std::size_t>(r)] + at, n, MPI_BYTE, r,
                         comm_, op->next()),
              "MPI_Ibcast");
      });
    return op;
  }

  Pending do_all_to_all(ConstBytes in, Counts send_counts, Bytes out, Counts recv_counts) override {
    // No rank knows whether others need large parts, so all always make the call that can have
    // them.
    auto op = std::make_unique<MpiOperation>();
    op->numbers.resize(4);
    op->types.resize(2 * static_cast<std::size_t>(size_));
    describe_parts(*op, send_counts, 0);
    describe_parts(*op, recv_counts, 1);
    check(MPI_Ialltoallw(in.data(), op->numbers[0].data(), op->numbers[1].data(), op->types.data(),
                         out.data(), op->numbers[2].data(), op->numbers[3].data(),
                         op->types.data() + size_, comm_, op->next()),
          "MPI_Ialltoallw");
    return op;
  }

  Pending do_broadcast(Bytes data, int root) override {
    auto op = std::make_unique<MpiOperation>();
    in_chunks(static_cast<int64_t>(data.size()), 1, false, [&](int64_t at, int n) {
      check(MPI_Ibcast(data.data() + at, n, MPI_BYTE, root, comm_, op->next()), "MPI_Ibcast");
    });
    return op;
  }

  Pending do_send(ConstBytes data, int to, int tag) override {
    auto op = start_message(tag);
    in_chunks(static_cast<int64_t>(data.size()), 1, true, [&](int64_t at, int n) {
      check(MPI_Isend(data.data() + at, n, MPI_BYTE, to, tag, comm_, op->next()), "MPI_Isend");
    });
    return op;
  }

  Pending do_recv(Bytes data, int from, int tag) override {
    auto op = start_message(tag);
    op->receiving = true;
    op->received = static_cast<int64_t>(data.size());
    in_chunks(op->received, 1, true, [&](int64_t at, int n) {
      check(MPI_Irecv(data.data() + at, n, MPI_BYTE, from, tag, comm_, op->next()), "MPI_Irecv");
    });
    return op;
  }

  Pending do_barrier() override {
    auto op = std::make_unique<MpiOperation>();
    check(MPI_Ibarrier(comm_, op->next()), "MPI_Ibarrier");
    return op;
  }

 private:
  MPI_Comm comm_;
  bool owned_;
  int exceptions_, rank_ = 0, size_ = 1;

  static Started start_message(int tag) {
    CHECK(tag <= session().tag_limit, "tag " + std::to_string(tag) + ": MPI here allows up to " +
                                          std::to_string(session().tag_limit));
    return std::make_unique<MpiOperation>();
  }

  // Parts within reach of int are bytes at a displacement; others are one element of a type that
  // holds the whole part and its place.
  void describe_parts(MpiOperation& op, Counts counts, std::size_t side) {
    const std::vector<int64_t> begin = offsets(counts);
    for (std::size_t r = 0; r < counts.size(); ++r) {
      const bool near = begin[r + 1] <= session().most_bytes;
      MPI_Datatype type = MPI_BYTE;
      if (!near) {
        std::vector<int> lengths;
        std::vector<MPI_Aint> places;
        in_chunks(counts[r], 1, false, [&](int64_t at, int n) {
          lengths.push_back(n);
          places.push_back(static_cast<MPI_Aint>(begin[r] + at));
        });
        check(MPI_Type_create_hindexed(static_cast<int>(lengths.size()), lengths.data(),
                                       places.data(), MPI_BYTE, &type),
              "MPI_Type_create_hindexed");
        op.made.push_back(type);
        check(MPI_Type_commit(&type), "MPI_Type_commit");
      }
      op.numbers[2 * side].push_back(near ? static_cast<int>(counts[r]) : 1);
      op.numbers[2 * side + 1].push_back(near ? static_cast<int>(begin[r]) : 0);
      op.types[side * counts.size() + r] = type;
    }
  }
};

}  // namespace

bool mpi_built() { return true; }

void mpi_own(Verb verb, ConstBytes in, Bytes out) {
  const int n = static_cast<int>((verb == Verb::all_gather ? in.size() : out.size()) / 4);
  if (verb == Verb::all_reduce)
    check(MPI_Allreduce(MPI_IN_PLACE, out.data(), n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD),
          "MPI_Allreduce");
  if (verb == Verb::reduce_scatter)
    check(MPI_Reduce_scatter_block(in.data(), out.data(), n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD),
          "MPI_Reduce_scatter_block");
  if (verb == Verb::all_gather)
    check(MPI_Allgather(in.data(), n, MPI_FLOAT, out.data(), n, MPI_FLOAT, MPI_COMM_WORLD),
          "MPI_Allgather");
}

std::unique_ptr<Comm> make_mpi() {
  session();
  return std::make_unique<MpiComm>(MPI_COMM_WORLD, false);
}

}  // namespace tessera::comm
