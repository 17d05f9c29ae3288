// What a card waits for from other ranks must be called off before this process ends: a thread that
// learns that the job is over (the watchdog) asks for it here. Convention: whoever has such
// operations under way keeps a CallOff for as long; what it was given may be called from any thread
// at any time, and comes back soon.
#pragma once

#include <functional>

namespace tessera::comm {

class CallOff {
 public:
  explicit CallOff(std::function<void()> how);
  ~CallOff();
  CallOff(const CallOff&) = delete;
  CallOff& operator=(const CallOff&) = delete;

 private:
  int key_;
};

// Calls off everything of this process and waits for that at most so many seconds. Afterwards the
// process is expected to end.
void call_off_all(double most_s);

}  // namespace tessera::comm
