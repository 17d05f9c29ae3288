#include "base/threads.h"

#include <sched.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"

namespace tessera {

ThreadPool::ThreadPool(int threads) {
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
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
  {
    std::lock_guard lock(mutex_);
    body_ = &body;
    tasks_ = tasks;
    next_ = 0;
    busy_ = static_cast<int>(workers_.size());
    ++round_;
  }
  wake_.notify_all();
  drain(0);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return busy_ == 0; });
  body_ = nullptr;
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::drain(int thread) {
  try {
    for (std::int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < tasks_;)
      (*body_)(i, thread);
  } catch (...) {
    std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
    next_ = tasks_;
  }
}

void ThreadPool::work(int thread) {
  for (std::uint64_t seen = 0;;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || round_ != seen; });
      if (stop_) return;
      seen = round_;
    }
    drain(thread);
    std::lock_guard lock(mutex_);
    if (--busy_ == 0) done_.notify_one();
  }
}

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace tessera
