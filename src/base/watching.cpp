#include "base/watching.h"

#include <unistd.h>

#include <atomic>
#include <ctime>
#include <map>
#include <memory>
#include <mutex>

namespace tessera {
namespace {

// A thread has one of these. While it watches, `seconds` lacks what its clock showed when it began.
struct Watched {
  std::mutex mutex;
  double seconds = 0;
  bool now = false;
};

std::atomic<bool> counting{false};
std::mutex threads_mutex;
std::map<int, std::shared_ptr<Watched>>& threads() {
  static std::map<int, std::shared_ptr<Watched>> all;
  return all;
}

// It counts for the calling thread and leaves the map when that ends, since numbers are used again.
class Mine {
 public:
  Mine() : id_(static_cast<int>(::gettid())) {
    std::lock_guard lock(threads_mutex);
    threads()[id_] = watched;
  }
  ~Mine() {
    std::lock_guard lock(threads_mutex);
    threads().erase(id_);
  }
  Mine(const Mine&) = delete;
  Mine& operator=(const Mine&) = delete;
  void add(double seconds, bool now) const {
    std::lock_guard lock(watched->mutex);
    watched->seconds += seconds;
    watched->now = now;
  }
  int id() const { return id_; }

  const std::shared_ptr<Watched> watched = std::make_shared<Watched>();

 private:
  int id_;
};
const Mine& mine() {
  thread_local const Mine of_thread;
  return of_thread;
}

}  // namespace

// Linux has a clock for the CPU time of every thread of a process: the complement of the thread's
// number, followed by three bits that are 6.
double cpu_seconds_of(int thread) {
  timespec now{};
  const auto clock = static_cast<clockid_t>((~static_cast<unsigned>(thread) << 3) | 6u);
  if (::clock_gettime(clock, &now) != 0) return 0;
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

Watching::Watching() : counts_(counting.load(std::memory_order_relaxed)) {
  if (counts_) mine().add(-cpu_seconds_of(mine().id()), true);
}
Watching::~Watching() {
  if (counts_) mine().add(cpu_seconds_of(mine().id()), false);
}

double watched_seconds(int thread) {
  counting = true;
  std::shared_ptr<Watched> watched;
  {
    std::lock_guard lock(threads_mutex);
    if (const auto at = threads().find(thread); at != threads().end()) watched = at->second;
  }
  if (!watched) return 0;
  std::lock_guard lock(watched->mutex);
  return watched->seconds + (watched->now ? cpu_seconds_of(thread) : 0);
}

}  // namespace tessera
