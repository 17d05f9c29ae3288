#include "measure/thread_watch.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>

#include "base/watching.h"

namespace tessera::run {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// CPU seconds that a thread computed since it was started.
double computed_seconds(int thread) {
  const double watched = watched_seconds(thread);  // first: it must not be the larger one
  return cpu_seconds_of(thread) - watched;
}

std::vector<int> threads_now() {
  std::vector<int> out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", error))
    out.push_back(std::stoi(entry.path().filename().string()));
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

ThreadWatch::ThreadWatch() : before_(threads_now()) {}

void ThreadWatch::begin() {
  if (threads_.empty()) {
    threads_.push_back({.id = static_cast<int>(::gettid())});
    for (const int id : threads_now())
      if (!std::binary_search(before_.begin(), before_.end(), id)) threads_.push_back({.id = id});
  }
  for (Thread& thread : threads_) thread.began = computed_seconds(thread.id);
  began_ = seconds_now();
}

void ThreadWatch::end() {
  passed_ += seconds_now() - began_;
  for (Thread& thread : threads_)
    thread.spent += std::max(0.0, computed_seconds(thread.id) - thread.began);
}

std::vector<double> ThreadWatch::computed() const {
  std::vector<double> out;
  for (const Thread& thread : threads_) out.push_back(computed_seconds(thread.id));
  return out;
}

std::vector<double> ThreadWatch::busy() const {
  std::vector<double> out;
  for (const Thread& thread : threads_)
    out.push_back(passed_ > 0 ? std::min(1.0, thread.spent / passed_) : 0.0);
  return out;
}

}  // namespace tessera::run
