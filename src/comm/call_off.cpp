#include "comm/call_off.h"

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace tessera::comm {
namespace {

struct Registry {
  std::mutex mutex;
  struct Entry {
    std::function<void()> how;
    CallOff::Tell tell;
  };
  std::map<int, Entry> all;
  int next = 0;
};
Registry& registry() {
  static Registry* const one = new Registry;  // a watchdog may outlive static objects
  return *one;
}

}  // namespace

CallOff::CallOff(std::function<void()> how, Tell tell) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  key_ = r.next++;
  r.all.emplace(key_, Registry::Entry{std::move(how), std::move(tell)});
}

CallOff::~CallOff() {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  r.all.erase(key_);
}

void call_off_all(double most_s) {
  struct Done {
    std::mutex mutex;
    std::condition_variable wake;
    bool all = false;
  };
  {
    Registry& r = registry();
    const std::unique_lock lock(r.mutex, std::try_to_lock);
    if (lock && r.all.empty()) return;
  }
  const auto done = std::make_shared<Done>();
  // A call of a driver may never come back; then it is left behind.
  try {
    std::thread([done] {
      {
        Registry& r = registry();
        const std::lock_guard lock(r.mutex);
        for (const auto& [key, entry] : r.all) entry.how();
      }
      const std::lock_guard lock(done->mutex);
      done->all = true;
      done->wake.notify_all();
    }).detach();
  } catch (const std::system_error&) {  // no thread: the end of the process has to do
    return;
  }
  std::unique_lock lock(done->mutex);
  done->wake.wait_for(lock, std::chrono::duration<double>(most_s), [&] { return done->all; });
}

Look look_with_cards(const Heartbeat& heartbeat) {
  Look look = heartbeat.look();
  Registry& r = registry();
  // A thread that calls off holds it for as long as a driver takes.
  if (const std::unique_lock lock(r.mutex, std::try_to_lock); lock)
    for (const auto& [key, entry] : r.all)
      if (entry.tell) entry.tell(heartbeat, look);
  return look;
}

}  // namespace tessera::comm
