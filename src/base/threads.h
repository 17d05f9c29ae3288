// A fixed pool of threads with one verb, parallel_for. Each executor owns one (never a global), so
// that N ranks can live in one process. Convention: the caller cuts work into tasks so that neither
// their number nor the thread that runs one changes a result. Threads that wait watch for a moment
// before they sleep, because steps of a plan follow each other faster than a system wakes threads;
// where there are more threads than cores they sleep at once.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/task_shares.h"

namespace tessera {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Runs body(task, thread) for every task in [0, tasks); thread in [0, size()) names the scratch
  // it may use. The caller takes part. The first exception of any task is rethrown here, after all
  // threads have stopped.
  void parallel_for(std::int64_t tasks,
                    const std::function<void(std::int64_t task, int thread)>& body);

 private:
  void stop();
  void work(int thread, int workers);
  void drain(int thread);

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const std::function<void(std::int64_t, int)>* body_ = nullptr;
  TaskShares shares_;
  // Every round has all workers. What a round needs is written before round_ goes up, and busy_
  // goes down when a worker is done with it. Both are watched for a while by those who wait.
  alignas(64) std::atomic<std::uint64_t> round_{0};
  alignas(64) std::atomic<int> busy_{0};
  alignas(64) std::atomic<bool> stop_{false};
  int asleep_ = 0;  // workers; changed under the mutex
  std::exception_ptr error_;
};

// Cores this process may use.
int available_cores();
// Processes that a launcher started on this machine; 0: none says how many.
int launched_here();
// Whether a thread that waits may keep a core busy: `awake` workers of pools of this process, each
// pool `workers` and its caller, have a core each, and so have those of all other `processes`,
// which are taken to be alike.
bool cores_for_all(int awake, int workers, int processes, int cores);

}  // namespace tessera
