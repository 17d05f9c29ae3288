#include "run/stop.h"

#include <ctime>
#include <mutex>

namespace tessera::run {
namespace {

constexpr int signals[] = {SIGINT, SIGTERM, SIGUSR1};
constexpr long same_request_ns = 250'000'000;
volatile std::sig_atomic_t requested = 0;
struct timespec first = {};
std::mutex guards_mutex;
int guards = 0;
struct sigaction before[3] = {};

long since_first() {
  struct timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);  // may be called in a handler
  return (now.tv_sec - first.tv_sec) * 1'000'000'000 + now.tv_nsec - first.tv_nsec;
}

void request(int signal, siginfo_t* from, void*) {
  if (!requested) clock_gettime(CLOCK_MONOTONIC, &first);
  const bool handed_on = from->si_code == SI_QUEUE, again = handed_on ? from->si_value.sival_int > 1 : since_first() > same_request_ns;
  if (requested && again) {  // again: the default action, which is to end
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  requested = 1;
}

}  // namespace

bool stop_requested() { return requested != 0; }

// Ranks that are threads of one process share its handlers: the first takes them, the last gives them back.
StopOnSignal::StopOnSignal() {
  const std::lock_guard lock(guards_mutex);
  if (guards++ > 0) return;
  requested = 0;
  struct sigaction action = {};
  action.sa_sigaction = request;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  for (int i = 0; i < 3; ++i) sigaction(signals[i], &action, &before[i]);
}

StopOnSignal::~StopOnSignal() {
  const std::lock_guard lock(guards_mutex);
  if (--guards > 0) return;
  for (int i = 0; i < 3; ++i) sigaction(signals[i], &before[i], nullptr);
}

}  // namespace tessera::run
