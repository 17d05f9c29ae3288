// How ranks talk: about ten verbs, blocking and asynchronous, over one group of ranks. Back ends:
// local (threads of one process) and mpi; over mpi, shared memory, a ring or both (choose.h).
// Conventions: a rank's part may have any size, zero included; a reduction gives every rank the
// same bits, run after run; all ranks of a group call the same verbs in the same order. `traffic`
// counts what this rank hands to the verbs (docs/cli.md: comm_bytes).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "ir/type.h"

namespace tessera::comm {

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;
using Counts = std::span<const std::int64_t>;  // one per rank of the group, in bytes

enum class Verb : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  all_to_all,
  broadcast,
  send,
  recv,
  barrier
};
inline constexpr int verb_count = 8;
std::string_view name(Verb verb);

// Payload: the bytes of the buffer that a rank hands over (the received ones for recv, none for
// barrier).
struct Traffic {
  struct Row {
    std::int64_t count = 0, bytes = 0;
    bool operator==(const Row&) const = default;
  };
  std::array<Row, verb_count> rows{};
  Row messages;  // that rings (ring.h) sent for these verbs, as they travelled; what a back end
                 // moves by itself is not among them
  Row& operator[](Verb verb) { return rows[static_cast<std::size_t>(verb)]; }
  const Row& operator[](Verb verb) const { return rows[static_cast<std::size_t>(verb)]; }
  Row total() const;
};
Traffic& operator+=(Traffic& a, const Traffic& b);
Traffic operator-(const Traffic& a, const Traffic& b);

enum class Reduction : std::uint8_t { sum, max, min };

// An operation under way. Its buffers belong to it until wait() returned; the destructor waits.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual bool done() = 0;  // makes progress; never blocks
  virtual void wait() = 0;
};
using Pending = std::unique_ptr<Operation>;

// Bytes for buffers: page-aligned, zeroed by the system, on large pages where there are any.
class Memory {
 public:
  virtual ~Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 protected:
  Memory() = default;
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};
std::unique_ptr<Memory> plain_memory(
    std::int64_t bytes);  // Error(memory) when the system has no more

class Heartbeat;

class Comm {
 public:
  virtual ~Comm() = default;
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // A group of its own for the ranks that give the same color, numbered by key, then by rank here.
  // Every rank of this group calls it.
  virtual std::unique_ptr<Comm> split(int color, int key) = 0;
  // Memory of this rank alone to decide about (no other rank need call it), whose first `shared`
  // bytes the others on this machine reach where the back end can: verbs on buffers that lie there
  // copy nothing on the way. The `own` bytes behind them are this rank's only.
  virtual std::unique_ptr<Memory> allocate(std::int64_t shared, std::int64_t own = 0) {
    return plain_memory(shared + own);
  }
  virtual std::string describe()
      const = 0;  // how these ranks talk, in a few words, and why not otherwise
  // Ends the whole job: other ranks that wait for this one get Error(rank_lost) with the reason
  // (local) or are ended (mpi).
  virtual void abort(const std::string& reason, int code = 7) = 0;  // code: of the job (mpi)
  // Why another rank cannot go on, where the back end knows of one (local); empty: none is known.
  // For who waits for a device and not in a verb. It never blocks.
  virtual std::string stopped() const { return {}; }

  // Replaced by the sum (largest, smallest) over all ranks.
  void all_reduce(Bytes data, ir::DType dtype, Reduction how = Reduction::sum);
  // `in`: the parts of all ranks side by side, counts[r] bytes for rank r; `out`: the sum of the
  // parts for this rank, which may replace its part of `in`.
  void reduce_scatter(ConstBytes in, Bytes out, Counts counts, ir::DType dtype,
                      Reduction how = Reduction::sum);
  // `in`: counts[rank()] bytes; `out`: those of all ranks side by side; `in` may be its place
  // there.
  void all_gather(ConstBytes in, Bytes out, Counts counts);
  // `in`: send_counts[r] bytes for rank r, side by side; `out`: recv_counts[r] bytes from rank r.
  void all_to_all(ConstBytes in, Counts send_counts, Bytes out, Counts recv_counts);
  void broadcast(Bytes data, int root);
  // Messages with one (from, to, tag) arrive in order. A send may wait until its recv is started:
  // in a ring, start one of the two.
  void send(ConstBytes data, int to, int tag);
  void recv(Bytes data, int from, int tag);
  void barrier();

  [[nodiscard]] Pending start_all_reduce(Bytes data, ir::DType dtype,
                                         Reduction how = Reduction::sum);
  [[nodiscard]] Pending start_reduce_scatter(ConstBytes in, Bytes out, Counts counts,
                                             ir::DType dtype, Reduction how = Reduction::sum);
  [[nodiscard]] Pending start_all_gather(ConstBytes in, Bytes out, Counts counts);
  [[nodiscard]] Pending start_all_to_all(ConstBytes in, Counts send_counts, Bytes out,
                                         Counts recv_counts);
  [[nodiscard]] Pending start_broadcast(Bytes data, int root);
  [[nodiscard]] Pending start_send(ConstBytes data, int to, int tag);
  [[nodiscard]] Pending start_recv(Bytes data, int from, int tag);
  [[nodiscard]] Pending start_barrier();

  Traffic traffic() const;
  void reset_traffic() { traffic_ = {}; }
  // Counts bytes that a device moved between these ranks by itself as if a verb had moved them.
  void count(Verb verb, std::int64_t bytes);

  // From now on every verb is noted in `heartbeat` (heartbeat.h), which must outlive this, as one
  // of the group `name`. What a verb does with other groups inside itself is not: only the groups
  // that were told.
  void watch(Heartbeat* heartbeat, std::string_view name, int color = 0);
  struct Watched {  // as watch() was told
    Heartbeat* heartbeat = nullptr;
    std::string name{};
    int color = 0;
  };
  const Watched& watched() const { return watched_; }

 protected:
  Comm() = default;

  // One virtual per verb: start it. The blocking form starts and waits. Arguments are already
  // checked and counted.
  virtual Pending do_all_reduce(Bytes data, ir::DType dtype, Reduction how) = 0;
  virtual Pending do_reduce_scatter(ConstBytes in, Bytes out, Counts counts, ir::DType dtype,
                                    Reduction how) = 0;
  virtual Pending do_all_gather(ConstBytes in, Bytes out, Counts counts) = 0;
  virtual Pending do_all_to_all(ConstBytes in, Counts send_counts, Bytes out,
                                Counts recv_counts) = 0;
  virtual Pending do_broadcast(Bytes data, int root) = 0;
  virtual Pending do_send(ConstBytes data, int to, int tag) = 0;
  virtual Pending do_recv(Bytes data, int from, int tag) = 0;
  virtual Pending do_barrier() = 0;
  virtual Traffic::Row messages() const { return {}; }  // since the beginning

 private:
  Traffic traffic_;
  Watched watched_;
  Heartbeat* heartbeat_ = nullptr;
  int group_ = -1;  // in the heartbeat

  std::uint64_t enter(
      Verb verb,
      std::int64_t bytes);  // counts and notes; the operation's number in the heartbeat
  Pending noted(Verb verb, std::uint64_t number, Pending operation);
};

// A world of one rank: every verb is a copy.
std::unique_ptr<Comm> make_self();

// N ranks as threads of this process: runs body on each and returns when all have ended. When one
// throws, the others are woken with Error(rank_lost), and the first rank's own error is rethrown.
void run_local(int ranks, const std::function<void(Comm& world)>& body);
int thread_rank();  // of the rank that run_local() started this thread for; -1: none

// MPI (mpi.cpp, or no_mpi.cpp in a build without it). `mpi_launched`: this process was started by
// mpirun, srun or the like with more than one rank; asked before anything is initialised.
// make_mpi() initialises MPI once and gives the world; Error(usage) in a build without MPI.
bool mpi_built();
struct Launch {
  int rank = 0, size = 1;
};
Launch mpi_launch();  // from the environment of the launcher; {0, 1} when there is none
std::unique_ptr<Comm> make_mpi();

}  // namespace tessera::comm
