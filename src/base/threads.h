// A fixed pool of threads with one verb, parallel_for. Each executor owns one (never a global), so
// that N ranks can live in one process. Convention: the caller cuts work into tasks by shape alone;
// which thread runs a task never changes a result.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

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
  void work(int thread);
  void drain(int thread);

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const std::function<void(std::int64_t, int)>* body_ = nullptr;
  std::int64_t tasks_ = 0;
  std::atomic<std::int64_t> next_{0};
  std::uint64_t round_ = 0;
  int busy_ = 0;
  bool stop_ = false;
  std::exception_ptr error_;
};

// Cores this process may use.
int available_cores();

}  // namespace tessera
