#include "ranks/stop.h"

#include <ctime>
#include <mutex>
#include <utility>

namespace tessera::run {
namespace {

volatile std::sig_atomic_t requested = 0;
struct timespec first = {};
std::mutex guards_mutex;
int guards = 0;
std::vector<std::pair<int, struct sigaction>> before;  // what the signals meant

long since_first() {
  struct timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);  // may be called in a handler
  return (now.tv_sec - first.tv_sec) * 1'000'000'000 + now.tv_nsec - first.tv_nsec;
}

void request(int signal, siginfo_t* from, void*) {
  if (!requested) clock_gettime(CLOCK_MONOTONIC, &first);
  const bool handed_on = from->si_code == SI_QUEUE,
             again =
                 handed_on ? from->si_value.sival_int > 1 : since_first() > same_request_ns(signal);
  if (requested && again && signal != SIGHUP) {  // again: the default action, which is to end
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  requested = 1;
}

}  // namespace

long same_request_ns(int signal) { return signal == SIGINT ? 250'000'000L : 5'000'000'000L; }

bool stop_requested() { return requested != 0; }

std::vector<int> stop_signals() {
  std::vector<int> out = {SIGINT, SIGTERM, SIGUSR1};
  if (struct sigaction now = {};
      ::sigaction(SIGHUP, nullptr, &now) == 0 && now.sa_handler != SIG_IGN)
    out.push_back(SIGHUP);
  return out;
}

// Ranks that are threads of one process share its handlers: the first takes them, the last gives
// them back.
StopOnSignal::StopOnSignal() {
  const std::lock_guard lock(guards_mutex);
  if (guards++ > 0) return;
  requested = 0;
  struct sigaction action = {};
  action.sa_sigaction = request;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  before.clear();
  for (const int signal : stop_signals())
    sigaction(signal, &action, &before.emplace_back(signal, action).second);
}

StopOnSignal::~StopOnSignal() {
  const std::lock_guard lock(guards_mutex);
  if (--guards > 0) return;
  for (const auto& [signal, meant] : before) sigaction(signal, &meant, nullptr);
}

}  // namespace tessera::run
