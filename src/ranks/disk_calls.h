// How calls to a disk become visible in a rank's heartbeat (comm/heartbeat.h): those of the rank's
// own thread at once, those of the thread that saves when the rank waits for it.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "comm/heartbeat.h"
#include "files/disk_call.h"

namespace tessera::run {

// For the thread that the heartbeat belongs to.
class HeartbeatDisk : public files::DiskObserver {
 public:
  explicit HeartbeatDisk(comm::Heartbeat& heartbeat) : heartbeat_(heartbeat) {}
  void begins(const char* verb, const std::filesystem::path& path) override;
  void ended() override { heartbeat_.disk(""); }

 private:
  comm::Heartbeat& heartbeat_;
};

// For any other thread: remembers the call that it is in, for whoever asks.
class DiskCalls : public files::DiskObserver {
 public:
  void begins(const char* verb, const std::filesystem::path& path) override;
  void ended() override;

  struct Now {
    std::uint64_t number = 0;  // another one: something has begun or ended
    std::string call;          // "flushing .part-step-4/rank-0.safetensors"; empty: none
  };
  Now now() const;

 private:
  mutable std::mutex mutex_;
  Now now_;
};

}  // namespace tessera::run
