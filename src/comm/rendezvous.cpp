// Entering, working, waiting and failing of ranks that are threads.
// Convention: a rank blocks on its own condition variable only, so a failure reaches it in whatever
// group it waits.
#include "comm/rendezvous.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tessera::comm {

namespace {

constexpr std::size_t at_once = 64 << 10;  // bytes; less is not worth waking others for

Error lost(int rank, const std::string& reason) {
  return Error(ErrorKind::rank_lost, "rank " + std::to_string(rank) + " stopped: " + reason);
}

std::size_t bytes_in(const Rendezvous& rendezvous) {
  std::size_t bytes = 0;
  for (const Entry& entry : rendezvous.entries)
    bytes += std::max(entry.in.size(), entry.out.size());
  return bytes;
}

}  // namespace

void World::wake(const Rendezvous& rendezvous) {
  for (int rank : rendezvous.ranks) at(rank).wake.notify_all();
}

void World::enter(Lock& lock, Rendezvous& rendezvous, int place, Entry entry) {
  entry.here = true;
  rendezvous.entries[static_cast<std::size_t>(place)] = std::move(entry);
  ++rendezvous.arrived;
  if (!rendezvous.full()) return;
  // The others are woken once: to help with a large operation, or when a small one is done.
  if (bytes_in(rendezvous) <= at_once)
    work(lock, rendezvous, rendezvous.units);
  else
    wake(rendezvous);
}

void World::work(Lock& lock, Rendezvous& rendezvous, int most) {
  if (!rendezvous.has_work() || failed_ >= 0) return;
  const int begin = rendezvous.next, end = std::min(rendezvous.units, begin + most);
  rendezvous.next = end;
  ++rendezvous.active;
  lock.unlock();
  std::exception_ptr error;
  try {
    for (int unit = begin; unit < end; ++unit) rendezvous.work(rendezvous, unit);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  --rendezvous.active;
  if (error)
    rendezvous.withdrawn = true;
  else
    rendezvous.finished += end - begin;
  if (rendezvous.complete() || (rendezvous.active == 0 && (failed_ >= 0 || rendezvous.withdrawn)))
    wake(rendezvous);  // the second: quiesce()
  if (error) std::rethrow_exception(error);
}

void World::wait(Lock& lock, Rendezvous& rendezvous, int rank) {
  while (!rendezvous.complete()) {
    if (failed_ >= 0) {
      quiesce(lock, rendezvous, rank);
      throw lost(failed_, reason_);
    }
    if (rendezvous.has_work()) {
      work(lock, rendezvous, 1);
      continue;
    }
    check_reachable(rendezvous, rank);
    at(rank).wake.wait(lock);
  }
}

// After a failure no unit is begun; those under way end soon, and then the buffers are free.
void World::quiesce(Lock& lock, Rendezvous& rendezvous, int rank) {
  at(rank).wake.wait(lock, [&] { return rendezvous.active == 0; });
}

// Waiting for a rank that will never come ends here instead of hanging.
void World::check_reachable(const Rendezvous& rendezvous, int rank) {
  if (rendezvous.full()) return;
  for (std::size_t i = 0; i < rendezvous.ranks.size(); ++i) {
    if (rendezvous.entries[i].here) continue;
    const int missing = rendezvous.ranks[i];
    if (at(missing).ended)
      throw lost(missing, "its program ended before this " + std::string(rendezvous.call.what));
    if (missing == rank)
      throw Error(ErrorKind::hang, "rank " + std::to_string(rank) +
                                       " waits for a message of its own that it has not started");
  }
}

void World::leave(Lock& lock, Rendezvous& rendezvous, int rank, bool unwinding) {
  if (rendezvous.complete()) return;
  if (unwinding && !rendezvous.full()) {
    rendezvous.withdrawn = true;
    at(rank).left = true;
  } else {
    try {
      wait(lock, rendezvous, rank);
    } catch (...) {  // whoever starts or waits next hears of it
      rendezvous.withdrawn = true;
      at(rank).left = true;
    }
  }
  quiesce(lock, rendezvous, rank);
}

std::string World::failure() const {
  return failed_ < 0 ? "" : "rank " + std::to_string(failed_) + " stopped: " + reason_;
}

void World::check_alive(int rank) {
  if (failed_ < 0 && at(rank).left) fail(rank, "an error ended one of its operations", nullptr);
  if (failed_ >= 0) throw lost(failed_, reason_);
}

void World::fail(int rank, const std::string& reason, std::exception_ptr error) {
  if (failed_ < 0) {
    failed_ = rank;
    reason_ = reason;
  }
  if (failed_ == rank && !error_) error_ = std::move(error);
  for (Rank& r : ranks_) r.wake.notify_all();
}

void World::end(int rank) {
  if (at(rank).left) fail(rank, "an error ended one of its operations", nullptr);
  at(rank).ended = true;
  for (Rank& r : ranks_) r.wake.notify_all();
}

void World::rethrow() {
  if (error_) std::rethrow_exception(error_);
  if (failed_ >= 0) throw lost(failed_, reason_);
}

}  // namespace tessera::comm
