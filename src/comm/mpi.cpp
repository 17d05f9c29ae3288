// The MPI back end: one process per rank. Every verb is one of MPI's non-blocking calls, so MPI
// itself progresses what is in flight. Convention: MPI's calls come from one thread at a time; they
// return their errors, which become Error(rank_lost) in MPI's words. A call moves at most
// `most_bytes`, as MPI counts in int: larger operations are several calls (TESSERA_MPI_CHUNK makes
// it smaller, for tests). bf16 is added pairwise in the order of MPI's algorithm and rounded each
// time, unlike comm/local.
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
#include "comm/mpi_own.h"
#include "comm/mpi_session.h"

namespace tessera::comm {

namespace {

using std::int64_t;

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
      mpi_failing = true;
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
    mpi_check(code, "waiting for other ranks");
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
  const int64_t most = mpi_session().most_bytes;
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
    mpi_check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    mpi_check(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
    mpi_check(MPI_Comm_size(comm, &size_), "MPI_Comm_size");
  }
  ~MpiComm() override {
    if (std::uncaught_exceptions() > exceptions_) mpi_failing = true;
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (owned_ && !mpi_failing && !finalized) MPI_Comm_free(&comm_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::unique_ptr<Comm> split(int color, int key) override {
    CHECK(color >= 0, "split: a color is negative: " + std::to_string(color));
    MPI_Comm part = MPI_COMM_NULL;
    mpi_check(MPI_Comm_split(comm_, color, key, &part), "MPI_Comm_split");
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
    mpi_failing = true;
    MPI_Abort(MPI_COMM_WORLD, code);
    std::_Exit(code);
  }

 protected:
  Pending do_all_reduce(Bytes data, ir::DType dtype, Reduction how) override {
    auto op = std::make_unique<MpiOperation>();
    in_chunks(static_cast<int64_t>(data.size()), ir::size_of(dtype), false, [&](int64_t at, int n) {
      mpi_check(MPI_Iallreduce(MPI_IN_PLACE, data.data() + at, n, mpi_type(dtype),
                               mpi_session().op(dtype, how), comm_, op->next()),
                "MPI_Iallreduce");
    });
    return op;
  }

  Pending do_reduce_scatter(ConstBytes in, Bytes out, Counts counts, ir::DType dtype,
                            Reduction how) override {
    auto op = std::make_unique<MpiOperation>();
    const int64_t width = ir::size_of(dtype);
    std::byte* to = out.data();
    // MPI forbids buffers that share memory; MPICH also those of no bytes at one address.
    if (out.empty() || (std::less<>()(out.data(), in.data() + in.size()) &&
                        std::less<>()(in.data(), out.data() + out.size()))) {
      op->scratch.resize(std::max<std::size_t>(out.size(), 1));
      op->scratch_to = out;
      to = op->scratch.data();
    }
    const MPI_Datatype type = mpi_type(dtype);
    const MPI_Op how_op = mpi_session().op(dtype, how);
    if (static_cast<int64_t>(in.size()) <= mpi_session().most_bytes) {
      const std::vector<int>& n = op->numbers.emplace_back(as_ints(counts, width));
      mpi_check(MPI_Ireduce_scatter(in.data(), to, n.data(), type, how_op, comm_, op->next()),
                "MPI_Ireduce_scatter");
      return op;
    }
    const std::vector<int64_t> begin = offsets(counts);
    for (int r = 0; r < size_; ++r)
      in_chunks(counts[static_cast<std::size_t>(r)], width, false, [&](int64_t at, int n) {
        const std::byte* from = in.data() + begin[static_cast<std::size_t>(r)] + at;
        mpi_check(MPI_Ireduce(from, r == rank_ ? to + at : nullptr, n, type, how_op, r, comm_,
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
    if (static_cast<int64_t>(out.size()) <= mpi_session().most_bytes) {
      op->numbers = {as_ints(counts, 1), as_ints(begin, 1)};
      mpi_check(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_BYTE, out.data(), op->numbers[0].data(),
                                op->numbers[1].data(), MPI_BYTE, comm_, op->next()),
                "MPI_Iallgatherv");
      return op;
    }
    for (int r = 0; r < size_; ++r)
      in_chunks(counts[static_cast<std::size_t>(r)], 1, false, [&](int64_t at, int n) {
        mpi_check(MPI_Ibcast(out.data() + begin[static_cast<std::size_t>(r)] + at, n, MPI_BYTE, r,
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
    mpi_check(MPI_Ialltoallw(in.data(), op->numbers[0].data(), op->numbers[1].data(),
                             op->types.data(), out.data(), op->numbers[2].data(),
                             op->numbers[3].data(), op->types.data() + size_, comm_, op->next()),
              "MPI_Ialltoallw");
    return op;
  }

  Pending do_broadcast(Bytes data, int root) override {
    auto op = std::make_unique<MpiOperation>();
    in_chunks(static_cast<int64_t>(data.size()), 1, false, [&](int64_t at, int n) {
      mpi_check(MPI_Ibcast(data.data() + at, n, MPI_BYTE, root, comm_, op->next()), "MPI_Ibcast");
    });
    return op;
  }

  Pending do_send(ConstBytes data, int to, int tag) override {
    auto op = start_message(tag);
    in_chunks(static_cast<int64_t>(data.size()), 1, true, [&](int64_t at, int n) {
      mpi_check(MPI_Isend(data.data() + at, n, MPI_BYTE, to, tag, comm_, op->next()), "MPI_Isend");
    });
    return op;
  }

  Pending do_recv(Bytes data, int from, int tag) override {
    auto op = start_message(tag);
    op->receiving = true;
    op->received = static_cast<int64_t>(data.size());
    in_chunks(op->received, 1, true, [&](int64_t at, int n) {
      mpi_check(MPI_Irecv(data.data() + at, n, MPI_BYTE, from, tag, comm_, op->next()),
                "MPI_Irecv");
    });
    return op;
  }

  Pending do_barrier() override {
    auto op = std::make_unique<MpiOperation>();
    mpi_check(MPI_Ibarrier(comm_, op->next()), "MPI_Ibarrier");
    return op;
  }

 private:
  MPI_Comm comm_;
  bool owned_;
  int exceptions_, rank_ = 0, size_ = 1;

  static Started start_message(int tag) {
    CHECK(tag <= mpi_session().tag_limit, "tag " + std::to_string(tag) +
                                              ": MPI here allows up to " +
                                              std::to_string(mpi_session().tag_limit));
    return std::make_unique<MpiOperation>();
  }

  // Parts within reach of int are bytes at a displacement; others are one element of a type that
  // holds the whole part and its place.
  void describe_parts(MpiOperation& op, Counts counts, std::size_t side) {
    const std::vector<int64_t> begin = offsets(counts);
    for (std::size_t r = 0; r < counts.size(); ++r) {
      const bool near = begin[r + 1] <= mpi_session().most_bytes;
      MPI_Datatype type = MPI_BYTE;
      if (!near) {
        std::vector<int> lengths;
        std::vector<MPI_Aint> places;
        in_chunks(counts[r], 1, false, [&](int64_t at, int n) {
          lengths.push_back(n);
          places.push_back(static_cast<MPI_Aint>(begin[r] + at));
        });
        mpi_check(MPI_Type_create_hindexed(static_cast<int>(lengths.size()), lengths.data(),
                                           places.data(), MPI_BYTE, &type),
                  "MPI_Type_create_hindexed");
        op.made.push_back(type);
        mpi_check(MPI_Type_commit(&type), "MPI_Type_commit");
      }
      op.numbers[2 * side].push_back(near ? static_cast<int>(counts[r]) : 1);
      op.numbers[2 * side + 1].push_back(near ? static_cast<int>(begin[r]) : 0);
      op.types[side * counts.size() + r] = type;
    }
  }
};

}  // namespace

bool mpi_built() { return true; }

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string line(text, text + std::max(length, 0));
  for (char& c : line)
    if (c == '\t') c = ' ';
  line.resize(std::min(line.size(), line.find_first_of(std::string_view(",\n\0", 3))));
  return line;
}

void mpi_own(Verb verb, ConstBytes in, Bytes out) {
  const int n = static_cast<int>((verb == Verb::all_gather ? in.size() : out.size()) / 4);
  if (verb == Verb::all_reduce)
    mpi_check(MPI_Allreduce(MPI_IN_PLACE, out.data(), n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD),
              "MPI_Allreduce");
  if (verb == Verb::reduce_scatter)
    mpi_check(
        MPI_Reduce_scatter_block(in.data(), out.data(), n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD),
        "MPI_Reduce_scatter_block");
  if (verb == Verb::all_gather)
    mpi_check(MPI_Allgather(in.data(), n, MPI_FLOAT, out.data(), n, MPI_FLOAT, MPI_COMM_WORLD),
              "MPI_Allgather");
}

std::unique_ptr<Comm> make_mpi() {
  mpi_session();
  return std::make_unique<MpiComm>(MPI_COMM_WORLD, false);
}

}  // namespace tessera::comm
