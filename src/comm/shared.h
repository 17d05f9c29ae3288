// Collectives of ranks on one machine, in each other's memory. A rank publishes a record of the
// operation; when all have, it is run in one of two ways. Direct, where every rank's buffers can be
// reached: the work is cut into pieces and whoever looks takes the next one, reads the buffers of
// all ranks and writes the results to all of them, so an operation needs no more of a rank than
// that it was started. By chunks, where a buffer lies elsewhere or is small: each rank copies its
// data into its own slots, and reads what it needs from those of the others. Conventions:
// operations of a group are run in the order of their start; sums are in rank order, so they have
// the same bits on all ranks and in comm/local. A record and a slot are used again when the
// positions of all ranks are past what they held.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "comm/comm.h"
#include "comm/node.h"
#include "comm/progress.h"
#include "comm/wrapped.h"

namespace tessera::comm {

inline constexpr std::int64_t chunk_bytes = 64 << 10;  // of a slot
inline constexpr std::int64_t direct_bytes =
    8 << 10;  // smaller operations go by chunks: one rendezvous instead of two
inline constexpr std::int64_t piece_bytes = 256 << 10;
inline constexpr int record_count = 16, slot_count = 8;
static_assert(direct_bytes <= chunk_bytes && std::atomic<std::uint64_t>::is_always_lock_free);

using Flag = std::atomic<std::uint32_t>;

// The fields that a rank shows the others, on a cache line of their own.
struct alignas(64) Face {
  std::atomic<std::uint64_t> started;   // operations that are published
  std::atomic<std::uint64_t> position;  // operation << chunk_bits | chunks of it that this rank has
                                        // read; all before is behind it
  Flag broken;                          // an error ended one of its operations
};
inline constexpr int chunk_bits = 24;

struct alignas(64) Record {
  std::int32_t verb, dtype, how, root;
  std::int64_t total;              // what all ranks must agree on, or -1
  std::int64_t in, out;            // places in the file of its rank, or -1
  std::int64_t stream;             // bytes that go through the slots unless all is direct
  std::uint64_t first;             // chunk c > 0 is in slot (first + c) % slot_count
  std::atomic<std::uint64_t> put;  // chunks in slots
  alignas(64) std::atomic<std::uint64_t> next;  // pieces of its share that were taken
  std::atomic<std::uint64_t> finished;          // of rank 0: pieces that are done
};

// Where things are in a rank's block: face, who is gone, records, offsets of parts, chunk 0 of each
// record, further chunks.
struct Block {
  std::int64_t gone, records, tables, heads, slots, bytes;
  explicit Block(int ranks);
};

// An operation of this rank.
struct Job {
  Verb verb{};
  ir::DType dtype = ir::DType::u8;
  Reduction how = Reduction::sum;
  int root = 0;
  std::int64_t total = -1;
  ConstBytes in{};
  Bytes out{};
  std::vector<std::int64_t> in_at{}, out_at{};  // offsets of the parts, one more than ranks
  ConstBytes stream{};                          // what others need of this rank

  std::uint64_t number = 0;
  bool published = false, arrived = false, direct = false, complete = false;
  std::int64_t put = 0, read = 0, chunks = 0;  // chunks: the most of any rank
  std::vector<const std::byte*> ins{};         // direct: everyone's, here
  std::vector<std::byte*> outs{};
  std::vector<std::int64_t> part_bytes{};
  std::vector<std::uint64_t>
      piece_at{};  // direct: the first piece of each part, and the number of all
  std::int64_t piece = piece_bytes;
  int helped = 0;  // direct: ranks whose share of the pieces is taken, from this one on
};

class SharedGroup final : public Advancing {
 public:
  // All ranks of `base` call it, and all are on this machine. ranks: theirs in the world of the
  // node.
  SharedGroup(Comm& base, std::shared_ptr<Node> node, SharedEngine engine, std::vector<int> ranks);
  ~SharedGroup() override;
  SharedGroup(const SharedGroup&) = delete;
  SharedGroup& operator=(const SharedGroup&) = delete;

  int size() const { return static_cast<int>(ranks_.size()); }
  void start(const std::shared_ptr<Job>& job);
  void drop(const Job& job);  // an error ends it: the group is of no use any more
  bool complete(const Job& job) const;
  bool advance() override;
  void check_alive() const override;

 private:
  std::shared_ptr<Node> node_;
  SharedEngine engine_;
  std::vector<int> ranks_;
  int rank_;
  Block block_;
  std::int64_t place_ = 0;
  std::vector<std::byte*> blocks_;  // of all ranks, as mapped here
  std::deque<std::shared_ptr<Job>> jobs_;
  std::size_t unpublished_ = 0;  // at the end of jobs_
  std::uint64_t started_ = 0, streamed_ = 0;
  std::vector<std::uint64_t> slot_held_;  // position that frees each slot
  bool broken_ = false;
  int exceptions_ = std::uncaught_exceptions();

  template <class T>
  T& in_block(int rank, std::int64_t at) const {
    return *reinterpret_cast<T*>(blocks_[static_cast<std::size_t>(rank)] + at);
  }
  Face& face(int rank) const { return in_block<Face>(rank, 0); }
  Flag& gone(int rank, int who) const {
    return in_block<Flag>(rank, block_.gone + who * std::int64_t{sizeof(Flag)});
  }  // written by who
  Record& record(int rank, std::uint64_t number) const;
  std::int64_t* table(int rank, std::uint64_t number) const;
  std::byte* slot(int rank, std::uint64_t number, std::int64_t chunk) const;

  bool all_past(std::uint64_t position) const;
  bool publish(Job& job);
  bool arrive(Job& job);
  void check_agreed(const Job& job, int rank) const;
  void lay_out_pieces(Job& job);
  bool take_piece(Job& job, std::uint64_t& piece) const;
  bool work_direct(Job& job);
  void work_piece(const Job& job, std::size_t part, std::int64_t begin, std::int64_t bytes);
  bool put_chunk(Job& job);
  bool read_chunk(Job& job);
  void consume(Job& job, std::int64_t chunk);
};

// The Comm of such a group; `base` splits it, carries its messages and ends it.
std::unique_ptr<Comm> make_shared(std::unique_ptr<Comm> base, std::shared_ptr<Node> node,
                                  SharedEngine engine, std::vector<int> ranks, Wrap wrap);

}  // namespace tessera::comm
