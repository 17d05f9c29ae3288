// The work of operations in shared memory on bytes: pieces of direct ones, chunks of the others.
// Convention: a piece writes bytes that no other piece of the same operation reads, so that pieces
// may run at once and on any rank.
#include <algorithm>

#include "comm/counts.h"
#include "comm/reduce.h"
#include "comm/shared.h"

namespace tessera::comm {

namespace {

using std::int64_t;
using std::uint64_t;

// The common part of two ranges.
struct Overlap {
  int64_t begin, bytes;
  Overlap(int64_t a_begin, int64_t a_end, int64_t b_begin, int64_t b_end)
      : begin(std::max(a_begin, b_begin)),
        bytes(std::max<int64_t>(0, std::min(a_end, b_end) - begin)) {}
};

}  // namespace

// Parts: of all_reduce and broadcast one, of reduce_scatter and all_gather one per rank, of
// all_to_all one per pair (from, to).
void SharedGroup::lay_out_pieces(Job& job) {
  std::vector<int64_t> parts;
  const auto by_rank = [&](const std::vector<int64_t>& at) {
    for (std::size_t r = 0; r + 1 < at.size(); ++r) parts.push_back(at[r + 1] - at[r]);
  };
  if (job.verb == Verb::reduce_scatter) by_rank(job.in_at);
  if (job.verb == Verb::all_gather) by_rank(job.out_at);
  if ((job.verb == Verb::all_reduce || job.verb == Verb::broadcast) && size() > 1)
    parts.push_back(job.total);
  if (job.verb == Verb::all_to_all)
    for (int from = 0; from < size(); ++from)
      for (int to = 0; to < size(); ++to)
        parts.push_back(table(from, job.number)[to + 1] - table(from, job.number)[to]);
  const int64_t all = std::accumulate(parts.begin(), parts.end(), int64_t{0});
  job.piece = std::clamp<int64_t>((all / size() + 4095) / 4096 * 4096, 4096,
                                  piece_bytes);  // some for everyone
  job.piece_at.assign(1, 0);
  for (const int64_t bytes : parts)
    job.piece_at.push_back(job.piece_at.back() +
                           static_cast<uint64_t>((bytes + job.piece - 1) / job.piece));
  job.part_bytes = std::move(parts);
}

// The next piece that nobody works on: first of this rank's own share, whose bytes may still be in
// its cache, then of the others'.
bool SharedGroup::take_piece(Job& job, uint64_t& piece) const {
  const uint64_t pieces = job.piece_at.back(), ranks = static_cast<uint64_t>(size());
  for (; job.helped < size(); ++job.helped) {
    const int whose = (rank_ + job.helped) % size();
    const uint64_t share = static_cast<uint64_t>(whose), begin = pieces * share / ranks,
                   end = pieces * (share + 1) / ranks;
    if (begin == end) continue;
    piece = begin + record(whose, job.number).next.fetch_add(1, std::memory_order_relaxed);
    if (piece < end) return true;
  }
  return false;
}

bool SharedGroup::work_direct(Job& job) {
  std::atomic<uint64_t>& finished = record(0, job.number).finished;
  uint64_t piece = 0;
  const bool worked = take_piece(job, piece);
  if (worked) {
    const auto after = std::upper_bound(job.piece_at.begin(), job.piece_at.end(), piece);
    const auto part = static_cast<std::size_t>(after - job.piece_at.begin()) - 1;
    const int64_t begin = static_cast<int64_t>(piece - job.piece_at[part]) * job.piece;
    work_piece(job, part, begin, std::min(job.piece, job.part_bytes[part] - begin));
    finished.fetch_add(1, std::memory_order_acq_rel);
  }
  job.complete = finished.load(std::memory_order_acquire) == job.piece_at.back();
  return worked;
}

void SharedGroup::work_piece(const Job& job, std::size_t part, int64_t begin, int64_t bytes) {
  const auto ranks = static_cast<std::size_t>(size());
  const int64_t elements = bytes / ir::size_of(job.dtype);
  std::vector<const std::byte*> from;
  switch (job.verb) {
    case Verb::all_reduce: {
      std::vector<std::byte*> to;
      for (std::size_t r = 0; r < ranks; ++r) {
        from.push_back(job.ins[r] + begin);
        to.push_back(job.outs[r] + begin);
      }
      return reduce(job.dtype, job.how, from, to, elements);
    }
    case Verb::reduce_scatter: {
      for (std::size_t r = 0; r < ranks; ++r) from.push_back(job.ins[r] + job.in_at[part] + begin);
      std::byte* const to = job.outs[part] + begin;
      return reduce(job.dtype, job.how, from, {&to, 1}, elements);
    }
    case Verb::all_gather:
      for (std::size_t r = 0; r < ranks; ++r)
        move_bytes(job.outs[r] + job.out_at[part] + begin, job.ins[part] + begin, bytes);
      return;
    case Verb::all_to_all: {
      const std::size_t source = part / ranks, target = part % ranks;
      const int64_t sent_at = table(static_cast<int>(source), job.number)[target];
      const int64_t received_at = table(static_cast<int>(target), job.number)[ranks + 1 + source];
      return move_bytes(job.outs[target] + received_at + begin, job.ins[source] + sent_at + begin,
                        bytes);
    }
    case Verb::broadcast:
      for (std::byte* to : job.outs)
        move_bytes(to + begin, job.ins[static_cast<std::size_t>(job.root)] + begin, bytes);
      return;
    default:
      return;
  }
}

bool SharedGroup::put_chunk(Job& job) {
  const int64_t begin = job.put * chunk_bytes,
                bytes = std::min(chunk_bytes, static_cast<int64_t>(job.stream.size()) - begin);
  if (bytes <= 0) return false;
  Record& mine = record(rank_, job.number);
  if (job.put >
      0) {  // chunk 0 has a slot of its own, so that it can be put before all others have arrived
    uint64_t& held = slot_held_[streamed_ % slot_count];
    if (!all_past(held)) return false;
    if (job.put == 1) mine.first = streamed_ - 1;
    held = (job.number << chunk_bits) + static_cast<uint64_t>(job.put) + 1;
    ++streamed_;
  }
  move_bytes(slot(rank_, job.number, job.put), job.stream.data() + begin, bytes);
  mine.put.store(static_cast<uint64_t>(++job.put), std::memory_order_release);
  return true;
}

bool SharedGroup::read_chunk(Job& job) {
  job.complete = job.read == job.chunks;
  if (job.complete) return false;
  for (int r = 0; r < size(); ++r) {
    const Record& theirs = record(r, job.number);
    if (theirs.stream > job.read * chunk_bytes &&
        theirs.put.load(std::memory_order_acquire) <= static_cast<uint64_t>(job.read))
      return false;
  }
  consume(job, job.read++);
  job.complete = job.read == job.chunks;
  if (!job.complete)
    face(rank_).position.store((job.number << chunk_bits) + static_cast<uint64_t>(job.read),
                               std::memory_order_release);
  return true;
}

// Takes what this rank needs of the same chunk of all ranks' streams.
void SharedGroup::consume(Job& job, int64_t chunk) {
  const auto ranks = static_cast<std::size_t>(size()), me = static_cast<std::size_t>(rank_);
  const int64_t begin = chunk * chunk_bytes, width = ir::size_of(job.dtype);
  const auto end_of = [&](int r) {
    return std::min(begin + chunk_bytes, record(r, job.number).stream);
  };
  std::vector<const std::byte*> from;
  for (int r = 0; r < size(); ++r)  // its own data it has at hand; in place it is not even moved
    from.push_back(r == rank_ && begin < end_of(r) ? job.stream.data() + begin
                                                   : slot(r, job.number, chunk));
  switch (job.verb) {
    case Verb::all_reduce: {
      std::byte* const to = job.out.data() + begin;
      return reduce(job.dtype, job.how, from, {&to, 1}, (end_of(rank_) - begin) / width);
    }
    case Verb::reduce_scatter: {
      const Overlap mine(begin, end_of(rank_), job.in_at[me], job.in_at[me + 1]);
      if (mine.bytes == 0) return;
      for (const std::byte*& at : from) at += mine.begin - begin;
      std::byte* const to = job.out.data() + (mine.begin - job.in_at[me]);
      return reduce(job.dtype, job.how, from, {&to, 1}, mine.bytes / width);
    }
    case Verb::all_gather:
      for (std::size_t r = 0; r < ranks; ++r)
        move_bytes(job.out.data() + job.out_at[r] + begin, from[r],
                   end_of(static_cast<int>(r)) - begin);
      return;
    case Verb::all_to_all:
      for (std::size_t r = 0; r < ranks; ++r) {
        const int64_t* at = table(static_cast<int>(r), job.number);
        const Overlap mine(begin, end_of(static_cast<int>(r)), at[me], at[me + 1]);
        move_bytes(job.out.data() + job.out_at[r] + (mine.begin - at[me]),
                   from[r] + (mine.begin - begin), mine.bytes);
      }
      return;
    case Verb::broadcast:
      if (rank_ != job.root)
        move_bytes(job.out.data() + begin, from[static_cast<std::size_t>(job.root)],
                   end_of(job.root) - begin);
      return;
    default:
      return;
  }
}

}  // namespace tessera::comm
