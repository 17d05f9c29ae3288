// Records, rendezvous and order of operations in shared memory; what they do to bytes is in
// shared_work.cpp. Convention: whatever a rank wrote before it stores `started`, `put`, `finished`
// or `position` (release) is seen by who loads it (acquire).
#include <algorithm>
#include <exception>

#include "base/check.h"
#include "comm/shared.h"

namespace tessera::comm {

namespace {

using std::int64_t;
using std::uint64_t;

constexpr int64_t line = 64;
int64_t in_lines(int64_t bytes) { return (bytes + line - 1) / line * line; }
uint64_t chunks_in(int64_t bytes) {
  return static_cast<uint64_t>((bytes + chunk_bytes - 1) / chunk_bytes);
}

}  // namespace

Block::Block(int ranks) {
  gone = in_lines(sizeof(Face));
  records = gone + in_lines(ranks * int64_t{sizeof(Flag)});
  tables = records + record_count * int64_t{sizeof(Record)};
  heads = (tables + record_count * in_lines(2 * (ranks + 1) * int64_t{sizeof(int64_t)}) + 4095) /
          4096 * 4096;
  slots = heads + record_count * chunk_bytes;
  bytes = slots + slot_count * chunk_bytes;
}

SharedGroup::SharedGroup(Comm& base, std::shared_ptr<Node> node, SharedEngine engine,
                         std::vector<int> ranks)
    : node_(std::move(node)),
      engine_(std::move(engine)),
      ranks_(std::move(ranks)),
      rank_(base.rank()),
      block_(base.size()) {
  place_ = node_->take(block_.bytes);
  std::vector<int64_t> places(ranks_.size());
  base.all_gather(std::as_bytes(std::span(&place_, 1)), std::as_writable_bytes(std::span(places)),
                  std::vector<int64_t>(ranks_.size(), 8));
  for (const int64_t place : places)
    if (place < 0)
      throw Error(ErrorKind::memory,
                  "the system has no " + std::to_string(block_.bytes >> 10) + " KiB to share",
                  "memory");
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    blocks_.push_back(node_->at(ranks_[r], places[r]));
  slot_held_.assign(slot_count, 0);
}

// Others may still look at this rank's block: it is given back when all have said that they are
// gone.
SharedGroup::~SharedGroup() {
  engine_->remove(*this);
  if (std::uncaught_exceptions() > exceptions_)
    face(rank_).broken.store(1, std::memory_order_release);
  for (int r = 0; r < size(); ++r) gone(r, rank_).store(1, std::memory_order_release);
  const Flag* mine = &gone(rank_, 0);
  node_->give_later(place_, block_.bytes, [mine, count = size()] {
    return std::all_of(mine, mine + count,
                       [](const Flag& flag) { return flag.load(std::memory_order_acquire) != 0; });
  });
}

Record& SharedGroup::record(int rank, uint64_t number) const {
  return in_block<Record>(
      rank, block_.records + static_cast<int64_t>(number % record_count * sizeof(Record)));
}
int64_t* SharedGroup::table(int rank, uint64_t number) const {
  const int64_t each = in_lines(2 * (size() + 1) * int64_t{sizeof(int64_t)});
  return &in_block<int64_t>(rank,
                            block_.tables + static_cast<int64_t>(number % record_count) * each);
}
std::byte* SharedGroup::slot(int rank, uint64_t number, int64_t chunk) const {
  std::byte* block = blocks_[static_cast<std::size_t>(rank)];
  if (chunk == 0)
    return block + block_.heads + static_cast<int64_t>(number % record_count) * chunk_bytes;
  return block + block_.slots +
         static_cast<int64_t>((record(rank, number).first + static_cast<uint64_t>(chunk)) %
                              slot_count) *
             chunk_bytes;
}

bool SharedGroup::complete(const Job& job) const {
  if (!job.complete && broken_)
    throw Error(ErrorKind::rank_lost, "rank " + std::to_string(node_->rank()) +
                                          " stopped: an error ended one of its operations");
  return job.complete;
}

bool SharedGroup::all_past(uint64_t position) const {
  for (int r = 0; r < size(); ++r)
    if (face(r).position.load(std::memory_order_acquire) < position) return false;
  return true;
}

void SharedGroup::start(const std::shared_ptr<Job>& job) {
  complete(*job);  // throws when the group is broken
  job->number = started_++;
  jobs_.push_back(job);
  ++unpublished_;
  engine_->add(*this);
  if (unpublished_ == 1 && publish(*job)) --unpublished_;
}

void SharedGroup::drop(const Job& job) {
  if (job.complete) return;
  broken_ = true;
  face(rank_).broken.store(1, std::memory_order_release);
  jobs_.clear();
  unpublished_ = 0;
  engine_->remove(*this);
}

bool SharedGroup::publish(Job& job) {
  const uint64_t n = job.number;
  if (n >= record_count && !all_past((n - record_count + 1) << chunk_bits)) return false;
  const bool large = static_cast<int64_t>(std::max(job.in.size(), job.out.size())) > direct_bytes;
  const auto place = [&](ConstBytes data) -> int64_t {
    if (data.empty() || size() == 1) return 0;  // alone, it is never asked for
    return large ? node_->place_of(data.data(), static_cast<int64_t>(data.size())) : -1;
  };
  Record& mine = record(rank_, n);
  mine.verb = static_cast<std::int32_t>(job.verb);
  mine.dtype = static_cast<std::int32_t>(job.dtype);
  mine.how = static_cast<std::int32_t>(job.how);
  mine.root = job.root;
  mine.total = job.total;
  mine.in = place(job.in);
  mine.out = place(job.out);
  mine.stream = static_cast<int64_t>(job.stream.size());
  mine.put.store(0, std::memory_order_relaxed);
  mine.next.store(0, std::memory_order_relaxed);
  mine.finished.store(0, std::memory_order_relaxed);
  std::copy(job.out_at.begin(), job.out_at.end(),
            std::copy(job.in_at.begin(), job.in_at.end(), table(rank_, n)));
  if (mine.in < 0 || mine.out < 0) put_chunk(job);
  face(rank_).started.store(n + 1, std::memory_order_release);
  job.published = true;
  return true;
}

// Whether all ranks have started it; then how it is to be run.
bool SharedGroup::arrive(Job& job) {
  for (int r = 0; r < size(); ++r)
    if (face(r).started.load(std::memory_order_acquire) <= job.number) return false;
  job.arrived = job.direct = true;
  for (int r = 0; r < size(); ++r) {
    if (r != rank_) check_agreed(job, r);
    const Record& theirs = record(r, job.number);
    job.direct = job.direct && theirs.in >= 0 && theirs.out >= 0;
    job.chunks = std::max(job.chunks, static_cast<int64_t>(chunks_in(theirs.stream)));
  }
  if (job.direct) {
    for (int r = 0; r < size(); ++r) {
      const Record& theirs = record(r, job.number);
      const int world_rank = ranks_[static_cast<std::size_t>(r)];
      job.ins.push_back(r == rank_ ? job.in.data() : node_->at(world_rank, theirs.in));
      job.outs.push_back(r == rank_ ? job.out.data() : node_->at(world_rank, theirs.out));
    }
    lay_out_pieces(job);
  }
  return true;
}

void SharedGroup::check_agreed(const Job& job, int rank) const {
  const Record& theirs = record(rank, job.number);
  const bool same = theirs.verb == static_cast<std::int32_t>(job.verb) &&
                    theirs.dtype == static_cast<std::int32_t>(job.dtype) &&
                    theirs.how == static_cast<std::int32_t>(job.how) && theirs.root == job.root &&
                    theirs.total == job.total;
  const auto describe = [](std::int32_t verb, std::int32_t dtype, int64_t total) {
    return std::string(name(static_cast<Verb>(verb))) + " of " + std::to_string(total) +
           " bytes as " + std::string(ir::name(static_cast<ir::DType>(dtype)));
  };
  CHECK(same, "rank " + std::to_string(rank_) + " called " +
                  describe(int(job.verb), int(job.dtype), job.total) + " where rank " +
                  std::to_string(rank) + " called " +
                  describe(theirs.verb, theirs.dtype, theirs.total) + " (operation " +
                  std::to_string(job.number) + " of the group)");
  const int64_t* at = table(rank, job.number);
  if (job.verb != Verb::all_to_all) {
    const std::vector<int64_t>& mine =
        job.in_at.empty() ? job.out_at : job.in_at;  // of the others there are no parts, or these
    CHECK(std::equal(mine.begin(), mine.end(), at),
          std::string(name(job.verb)) + " between ranks " + std::to_string(rank_) + " and " +
              std::to_string(rank) + ": they disagree about whose part is how large");
    return;
  }
  const auto r = static_cast<std::size_t>(rank);
  CHECK(at[rank_ + 1] - at[rank_] == job.out_at[r + 1] - job.out_at[r],
        "all_to_all between ranks " + std::to_string(rank_) + " and " + std::to_string(rank) +
            ": sent and expected bytes differ");
}

bool SharedGroup::advance() {
  while (unpublished_ > 0 && publish(*jobs_[jobs_.size() - unpublished_])) --unpublished_;
  bool worked = false;
  while (!jobs_.empty()) {
    Job& job = *jobs_.front();
    if (!job.published || (!job.arrived && !arrive(job))) break;
    if (job.direct) {
      worked |= work_direct(job);
    } else {  // both
      worked |= put_chunk(job);
      worked |= read_chunk(job);
    }
    if (!job.complete) break;
    face(rank_).position.store((job.number + 1) << chunk_bits, std::memory_order_release);
    jobs_.pop_front();
    worked = true;
  }
  if (jobs_.empty()) engine_->remove(*this);
  return worked;
}

void SharedGroup::check_alive() const {
  for (int r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    const int world_rank = ranks_[static_cast<std::size_t>(r)];
    const auto lost = [&](const std::string& why) {
      return Error(ErrorKind::rank_lost, "rank " + std::to_string(world_rank) + " stopped: " + why,
                   "", "the output of the rank that stopped first says why");
    };
    if (face(r).broken.load(std::memory_order_acquire))
      throw lost("an error ended one of its operations");
    const bool missing =
        !jobs_.empty() && face(r).started.load(std::memory_order_acquire) <= jobs_.front()->number;
    if (missing && gone(rank_, r).load(std::memory_order_acquire))
      throw lost("it left the group before this " + std::string(name(jobs_.front()->verb)));
    if (!node_->alive(world_rank)) throw lost("its process is gone");
  }
}

}  // namespace tessera::comm
