#include "measure/thread_watch.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <string>

namespace tessera::run {
namespace {

double read_clock(clockid_t clock) {
  timespec now{};
  if (::clock_gettime(clock, &now) != 0) return 0;
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Linux has a clock for the CPU time of every thread of a process: the complement of the thread's
// number, followed by three bits that are 6.
double cpu_seconds_of(int thread) {
  return read_clock(static_cast<clockid_t>((~static_cast<unsigned>(thread) << 3) | 6u));
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
  for (Thread& thread : threads_) thread.began = cpu_seconds_of(thread.id);
  began_ = read_clock(CLOCK_MONOTONIC);
}

void ThreadWatch::end() {
  passed_ += read_clock(CLOCK_MONOTONIC) - began_;
  for (Thread& thread : threads_)
    thread.spent += std::max(0.0, cpu_seconds_of(thread.id) - thread.began);
}

std::vector<double> ThreadWatch::cpu_seconds() const {
  std::vector<double> out;
  for (const Thread& thread : threads_) out.push_back(cpu_seconds_of(thread.id));
  return out;
}

std::vector<double> ThreadWatch::busy() const {
  std::vector<double> out;
  for (const Thread& thread : threads_)
    out.push_back(passed_ > 0 ? std::min(1.0, thread.spent / passed_) : 0.0);
  return out;
}

}  // namespace tessera::run
