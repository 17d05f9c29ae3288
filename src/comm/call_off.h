// Calls off what a card waits for from other ranks, which must happen before this process ends: a
// thread that learns that the job is over (the watchdog) asks for it here. The same thread asks how
// far the card has come, since a rank that is inside a call of the driver cannot tell. Convention:
// whoever has such operations under way keeps a CallOff for as long; what it was given may be
// called from any thread at any time, and comes back soon.
#pragma once

#include <functional>

#include "comm/heartbeat.h"

namespace tessera::comm {

class CallOff {
 public:
  // Adds to what the rank of this heartbeat has noted itself.
  using Tell = std::function<void(const Heartbeat&, Look&)>;

  explicit CallOff(std::function<void()> how, Tell tell = {});
  ~CallOff();
  CallOff(const CallOff&) = delete;
  CallOff& operator=(const CallOff&) = delete;

 private:
  int key_;
};

// Calls off everything of this process and waits for that at most so many seconds. Afterwards the
// process is expected to end.
void call_off_all(double most_s);

// The state of a rank, with what its card did since the rank itself last looked.
Look look_with_cards(const Heartbeat& heartbeat);

}  // namespace tessera::comm
