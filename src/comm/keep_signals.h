// Keeps this process's handlers of crash signals through the start of a library that sets its own.
#pragma once

#include <csignal>
#include <iterator>

namespace tessera::comm {

// MPI prints a stack of its own on a crash, which takes seconds and hides the signal from whoever
// started us: what the signals meant stays.
class KeepSignals {
 public:
  KeepSignals() {
    for (std::size_t i = 0; i < std::size(signals); ++i)
      ::sigaction(signals[i], nullptr, &before_[i]);
  }
  ~KeepSignals() {
    for (std::size_t i = 0; i < std::size(signals); ++i)
      ::sigaction(signals[i], &before_[i], nullptr);
  }
  KeepSignals(const KeepSignals&) = delete;
  KeepSignals& operator=(const KeepSignals&) = delete;

 private:
  static constexpr int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGABRT};
  struct sigaction before_[std::size(signals)];
};

}  // namespace tessera::comm
