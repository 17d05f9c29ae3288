#include "base/threads.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/watching.h"

namespace tessera {
namespace {

// Cores that this process had when it began; ranks that are placed later share them out.
const int cores_at_start = available_cores();

// Workers of all pools of this process that do not sleep.
std::atomic<int>& awake() {
  static std::atomic<int> workers{0};
  return workers;
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");  // a moment; `yield` takes none
#endif
}

// Watches until ready(), for longer than most threads wait for the slowest one of a step; whether
// it is. Programs of others may want this core too, so it is offered at every turn: a thread that
// yields where nobody waits goes on at once. One that lost its core sleeps the next times, since a
// system gives a core to a thread that wakes sooner than to one that yielded. (A system gives it
// away for longer than `lost`; a hypervisor may take it for less.)
template <class Ready>
bool watch(int workers, const Ready& ready) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::microseconds longest{2000}, lost{500};
  constexpr int sleeps = 256;
  thread_local int sleeps_left = 0;
  static const int processes = std::max(1, launched_here());
  const int now_awake = awake().load(std::memory_order_relaxed);
  if (!cores_for_all(now_awake, workers, processes, cores_at_start)) return ready();
  if (sleeps_left > 0) {
    --sleeps_left;
    return ready();
  }
  const Watching watching;
  Clock::time_point now = Clock::now();
  for (const Clock::time_point until = now + longest; now < until;) {
    for (int i = 0; i < 16; ++i, relax())
      if (ready()) return true;
    ::sched_yield();
    const Clock::time_point before = std::exchange(now, Clock::now());
    if (now - before > lost) {
      sleeps_left = sleeps;
      break;
    }
  }
  return ready();
}

}  // namespace

ThreadPool::ThreadPool(int threads) : shares_(std::max(1, threads)) {
  try {
    for (int i = 1; i < threads; ++i)
      workers_.emplace_back([this, i, threads] { work(i, threads - 1); });
  } catch (const std::exception& error) {  // of threads, or of memory for them
    stop();
    throw Error(ErrorKind::memory,
                "the system gave " + std::to_string(workers_.size() + 1) + " of " +
                    std::to_string(threads) + " threads: " + error.what(),
                "threads", "use fewer with --threads");
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::parallel_for(std::int64_t tasks,
                              const std::function<void(std::int64_t, int)>& body) {
  if (tasks <= 0) return;
  if (tasks == 1 || workers_.empty()) {
    for (std::int64_t i = 0; i < tasks; ++i) body(i, 0);
    return;
  }
  bool asleep = false;
  {
    std::lock_guard lock(mutex_);
    body_ = &body;
    shares_.begin(tasks);
    busy_ = static_cast<int>(workers_.size());
    ++round_;
    asleep = asleep_ > 0;
  }
  if (asleep) wake_.notify_all();
  drain(0);
  const auto done = [this] { return busy_.load(std::memory_order_acquire) == 0; };
  if (!watch(size() - 1, done)) {
    std::unique_lock lock(mutex_);
    done_.wait(lock, done);
  }
  body_ = nullptr;
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::drain(int thread) {
  try {
    while (const std::optional<std::int64_t> task = shares_.take(thread)) (*body_)(*task, thread);
  } catch (...) {
    std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
    shares_.stop();
  }
}

void ThreadPool::work(int thread, int workers) {
  ++awake();
  for (std::uint64_t seen = 0;;) {
    const auto called = [&] {
      return stop_.load(std::memory_order_relaxed) ||
             round_.load(std::memory_order_acquire) != seen;
    };
    if (!watch(workers, called)) {
      --awake();
      std::unique_lock lock(mutex_);
      ++asleep_;
      wake_.wait(lock, called);
      --asleep_;
      ++awake();
    }
    if (stop_) break;
    seen = round_.load(std::memory_order_acquire);
    drain(thread);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) > 1) continue;
    { std::lock_guard lock(mutex_); }  // the caller either saw it or sleeps by now
    done_.notify_one();
  }
  --awake();
}

bool cores_for_all(int awake, int workers, int processes, int cores) {
  return std::int64_t{processes} * awake * (workers + 1) <= std::int64_t{cores} * workers;
}

int launched_here() {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"})
    if (const char* text = std::getenv(name); text && std::atoi(text) > 0) return std::atoi(text);
  return 0;
}

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace tessera
