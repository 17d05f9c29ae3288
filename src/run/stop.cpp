#include "run/stop.h"

namespace tessera::run {
namespace {

constexpr int signals[] = {SIGINT, SIGTERM, SIGUSR1};
volatile std::sig_atomic_t requested = 0;

void request(int signal) {
  if (requested) {  // again: the default action, which is to end
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
