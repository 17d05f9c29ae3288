#include "run/stop.h"

#include <ctime>

namespace tessera::run {
namespace {

constexpr int signals[] = {SIGINT, SIGTERM, SIGUSR1};
constexpr long same_request_ns = 250'000'000;
volatile std::sig_atomic_t requested = 0;
struct timespec first = {};

long since_first() {
  struct timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);  // may be called in a handler
  return (now.tv_sec - first.tv_sec) * 1'000'000'000 + now.tv_nsec - first.tv_nsec;
}

void request(int signal) {
  if (!requested) clock_gettime(CLOCK_MONOTONIC, &first);
  if (requested && since_first() > same_request_ns) {  // again: the default action, which is to end
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  requested = 1;
}

}  // namespace

bool stop_requested() { return requested != 0; }

StopOnSignal::StopOnSignal() {
  requested = 0;
  struct sigaction action = {};
  action.sa_handler = request;
  action.sa_flags = SA_RESTART;
  for (int i = 0; i < 3; ++i) sigaction(signals[i], &action, &before_[i]);
}

StopOnSignal::~StopOnSignal() {
  for (int i = 0; i < 3; ++i) sigaction(signals[i], &before_[i], nullptr);
}

}  // namespace tessera::run
