// Polling, waiting, and the look at whether others are still there.
#include "comm/progress.h"

#include <sched.h>

#include <algorithm>
#include <ctime>
#include <exception>
#include <utility>

namespace tessera::comm {

namespace {

using namespace std::chrono_literals;

constexpr std::chrono::microseconds look_every = 100ms, yield_for = 500us, first_sleep = 20us,
                                    longest_sleep = 200us;
constexpr int spins = 256, steps_per_look = 64;

void relax() {
#if defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // "yield" does nothing on most cores
#elif defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void sleep_for(std::chrono::nanoseconds time) {
  const timespec t{0, static_cast<long>(time.count())};
  ::nanosleep(&t, nullptr);
}

// The other back end may need to be asked too: a large message leaves only while its sender looks.
class Polled final : public Operation, public Advancing {
 public:
  Polled(SharedEngine engine, Pending inner)
      : engine_(std::move(engine)),
        inner_(std::move(inner)),
        exceptions_(std::uncaught_exceptions()) {
    engine_->add(*this);
  }
  ~Polled() override {
    engine_->remove(*this);
    if (std::uncaught_exceptions() > exceptions_) return;  // inner_ knows what to do
    try {
      wait();
    } catch (...) {  // whoever starts or waits next hears of it
    }
  }
  Polled(const Polled&) = delete;
  Polled& operator=(const Polled&) = delete;

  bool advance() override {
    if (!inner_->done()) return false;
    engine_->remove(*this);
    return true;
  }
  bool done() override {
    engine_->step();
    return inner_->done();
  }
  void wait() override {
    engine_->remove(*this);
    if (!engine_->idle()) engine_->wait([this] { return inner_->done(); });
    inner_->wait();
  }

 private:
  SharedEngine engine_;
  Pending inner_;
  int exceptions_;
};

}  // namespace

void Engine::add(Advancing& group) {
  if (std::find(active_.begin(), active_.end(), &group) == active_.end()) active_.push_back(&group);
}

void Engine::remove(const Advancing& group) {
  const auto found = std::find(active_.begin(), active_.end(), &group);
  if (found == active_.end()) return;
  if (stepping_)
    *found = nullptr;  // step() is going over them
  else
    active_.erase(found);
}

bool Engine::step() {
  if (stepping_) return false;  // a group asked from inside for what the loop below does anyway
  stepping_ = true;
  bool worked = false;
  try {
    for (std::size_t i = 0; i < active_.size(); ++i)  // advancing one may add others
      if (active_[i]) worked |= active_[i]->advance();
    if (!worked && ++idle_steps_ % steps_per_look == 0) look_after_peers();
  } catch (...) {
    stepping_ = false;
    throw;
  }
  stepping_ = false;
  std::erase(active_, nullptr);
  return worked;
}

void Engine::look_after_peers() {
  const Clock::time_point now = Clock::now();
  if (now - looked_ < look_every) return;
  looked_ = now;
  for (std::size_t i = 0; i < active_.size(); ++i)
    if (active_[i]) active_[i]->check_alive();
}

void Engine::wait(const std::function<bool()>& done) {
  int spun = crowded_ ? spins : 0;
  Clock::time_point yielding{};
  auto sleep = first_sleep;
  while (!done()) {
    if (step()) {
      spun = crowded_ ? spins : 0;
      yielding = {};
      sleep = first_sleep;
      continue;
    }
    if (spun < spins) {
      ++spun;
      relax();
    } else if (const auto now = Clock::now();
               yielding == Clock::time_point{} || now - yielding < yield_for) {
      if (yielding == Clock::time_point{}) yielding = now;
      ::sched_yield();
    } else {
      sleep_for(sleep);
      sleep = std::min(2 * sleep, longest_sleep);
    }
  }
}

Pending with_progress(SharedEngine engine, Pending inner) {
  return std::make_unique<Polled>(std::move(engine), std::move(inner));
}

}  // namespace tessera::comm
