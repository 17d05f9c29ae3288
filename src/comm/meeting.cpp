// Entering, working, waiting and failing of ranks that are threads.
// Convention: a rank blocks on its own condition variable only, so a failure reaches it in whatever
// group it waits.
#include "comm/meeting.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tessera::comm {

namespace {

constexpr std::size_t at_once = 64 << 10;  // bytes; less is not worth waking others for

Error lost(int rank, const std::string& reason) {
  return Error(ErrorKind::rank_lost, "rank " + std::to_string(rank) + " stopped: " + reason);
}

std::size_t bytes_in(const Meeting& meeting) {
  std::size_t bytes = 0;
  for (const Entry& entry : meeting.entries) bytes += std::max(entry.in.size(), entry.out.size());
  return bytes;
}

}  // namespace

void World::wake(const Meeting& meeting) {
  for (int rank : meeting.ranks) at(rank).wake.notify_all();
}

void World::enter(Lock& lock, Meeting& meeting, int place, Entry entry) {
  entry.here = true;
  meeting.entries[static_cast<std::size_t>(place)] = std::move(entry);
  ++meeting.arrived;
  if (!meeting.full()) return;
  // The others are woken once: to help with a large operation, or when a small one is done.
  if (bytes_in(meeting) <= at_once)
    work(lock, meeting, meeting.units);
  else
    wake(meeting);
}

void World::work(Lock& lock, Meeting& meeting, int most) {
  if (!meeting.has_work() || failed_ >= 0) return;
  const int begin = meeting.next, end = std::min(meeting.units, begin + most);
  meeting.next = end;
  ++meeting.active;
  lock.unlock();
  std::exception_ptr error;
  try {
    for (int unit = begin; unit < end; ++unit) meeting.work(meeting, unit);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  --meeting.active;
  if (error)
    meeting.withdrawn = true;
  else
    meeting.finished += end - begin;
  if (meeting.complete() || (meeting.active == 0 && (failed_ >= 0 || meeting.withdrawn)))
    wake(meeting);  // the second: quiesce()
  if (error) std::rethrow_exception(error);
}

void World::wait(Lock& lock, Meeting& meeting, int rank) {
  while (!meeting.complete()) {
    if (failed_ >= 0) {
      quiesce(lock, meeting, rank);
      throw lost(failed_, reason_);
    }
    if (meeting.has_work()) {
      work(lock, meeting, 1);
      continue;
    }
    check_reachable(meeting, rank);
    at(rank).wake.wait(lock);
  }
}

// After a failure no unit is begun; those under way end soon, and then the buffers are free.
void World::quiesce(Lock& lock, Meeting& meeting, int rank) {
  at(rank).wake.wait(lock, [&] { return meeting.active == 0; });
}

// Waiting for a rank that will never come ends here instead of hanging.
void World::check_reachable(const Meeting& meeting, int rank) {
  if (meeting.full()) return;
  for (std::size_t i = 0; i < meeting.ranks.size(); ++i) {
    if (meeting.entries[i].here) continue;
    const int missing = meeting.ranks[i];
    if (at(missing).ended)
      throw lost(missing, "its program ended before this " + std::string(meeting.call.what));
    if (missing == rank)
      throw Error(ErrorKind::hang, "rank " + std::to_string(rank) +
                                       " waits for a message of its own that it has not started");
  }
}

void World::leave(Lock& lock, Meeting& meeting, int rank, bool unwinding) {
  if (meeting.complete()) return;
  if (unwinding && !meeting.full()) {
    meeting.withdrawn = true;
    at(rank).left = true;
  } else {
    try {
      wait(lock, meeting, rank);
    } catch (...) {  // whoever starts or waits next hears of it
      meeting.withdrawn = true;
      at(rank).left = true;
    }
  }
  quiesce(lock, meeting, rank);
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
