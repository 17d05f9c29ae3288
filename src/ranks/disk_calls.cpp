#include "ranks/disk_calls.h"

namespace tessera::run {
namespace {

// A heartbeat has room for the end of a path only.
std::string in_words(const char* verb, const std::filesystem::path& path) {
  const std::filesystem::path folder = path.parent_path().filename();
  return std::string(verb) + " " +
         (folder.empty() ? path.filename() : folder / path.filename()).string();
}

}  // namespace

void HeartbeatDisk::begins(const char* verb, const std::filesystem::path& path) {
  heartbeat_.disk(in_words(verb, path));
}

void DiskCalls::begins(const char* verb, const std::filesystem::path& path) {
  std::string call = in_words(verb, path);
  const std::lock_guard lock(mutex_);
  ++now_.number;
  now_.call = std::move(call);
}

void DiskCalls::ended() {
  const std::lock_guard lock(mutex_);
  ++now_.number;
  now_.call.clear();
}

DiskCalls::Now DiskCalls::now() const {
  const std::lock_guard lock(mutex_);
  return now_;
}

}  // namespace tessera::run
